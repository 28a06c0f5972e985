# SPDX-License-Identifier: Apache-2.0
"""smoke.py FOLDER: run.sh as a whole on a CUDA runtime without a GPU; what it measures means nothing, what it does does.

A tiny network, two batch sizes and one test that asks the runtime. The reports must be made of what the programs said.
"""

import json
import os
import pathlib
import subprocess
import sys
import xml.etree.ElementTree

HERE = pathlib.Path(__file__).resolve().parent


def main():
    folder = pathlib.Path(sys.argv[1])
    out = folder / "out"
    for name in ("cuda.json", "cuda.md", "cuda.svg"):
        (out / name).unlink(missing_ok=True)
    command = ["sh", str(HERE / "run.sh"), "--out", str(out), "--build", str(folder / "build"), "--tasks", "tiny",
               "--tests", "cuda_device_test", "--batches", "4,16", "--records", "64", "--seconds", "0.05",
               "--minutes", "8", "--peers", "torch"]
    done = subprocess.run(command, env={**os.environ, "PERGRAD_FAKE_CUDA": "1", "PYTHON": sys.executable}, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    print(done.stdout)
    if done.returncode != 0:
        sys.exit(f"run.sh ends with {done.returncode}")
    found = json.loads((out / "cuda.json").read_text(encoding="utf-8"))
    states = {each["what"]: each["state"] for each in found["checks"]}
    for what in ("tiny: device and host executor agree", "cuda_device_test on this device"):
        if states[what] != "ok":
            sys.exit(f"{what}: {states[what]}")
    ours = {row["batch"]: row for row in found["results"] if row["framework"] == "pergrad_dp" and "batch" in row}
    if sorted(ours) != [4, 16]:
        sys.exit(f"batches that were timed: {sorted(ours)}")
    for batch, row in ours.items():
        wrong = [name for name in ("graph_us", "loop_us", "poisson_us", "peak_mb", "nodes") if not row[name] > 0]
        if wrong or row["nodes"] > 12:
            sys.exit(f"batch {batch}: {row}")
    logical = [row for row in found["results"] if "logical" in row]
    if not logical or not all(row["peak_mb"] > 0 and row["poisson_us"] > 0 for row in logical):
        sys.exit(f"logical batches: {logical}")
    # Where PyTorch is installed it is timed, on the processor; where it is not, that is said.
    torch = [row for row in found["results"] if row["framework"] == "torch"]
    if not torch or not all(row.get("us", 0) > 0 or row.get("failure") == "no Python module torch" for row in torch):
        sys.exit(f"PyTorch: {torch}")
    text = (out / "cuda.md").read_text(encoding="utf-8")
    drawn = xml.etree.ElementTree.parse(out / "cuda.svg").getroot()
    bars = [each for each in drawn.iter("{http://www.w3.org/2000/svg}rect")]
    if f"{ours[4]['loop_us']:.0f}" not in text or len(bars) < 1 + 2 * len(ours):
        sys.exit("the tables or the chart lack what was measured")


if __name__ == "__main__":
    main()
