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

# Runs the program, and says of two steps what ncu might.
NCU = r"""#!/bin/sh
echo "$@" | grep -q -e --csv || exit 1
while [ "${1%.program}" = "$1" ]; do shift; done
"$@" || exit 1
echo '==PROF== Disconnected'
echo '"ID","Kernel Name","Grid Size","Metric Name","Metric Unit","Metric Value"'
for id in 0 1 2 3; do
  name="void run_kernel<some_kernel<float, $((id % 2))>>(T1)"
  echo "\"$id\",\"$name\",\"(7, 1, 1)\",\"gpu__time_duration.sum\",\"ns\",\"1,234,500\""
  echo "\"$id\",\"$name\",\"(7, 1, 1)\",\"smsp__inst_executed.sum\",\"inst\",\"4,665,952\""
  echo "\"$id\",\"$name\",\"(7, 1, 1)\",\"smsp__issue_active.avg.pct_of_peak_sustained_active\",\"%\",\"25.39\""
  echo "\"$id\",\"$name\",\"(7, 1, 1)\",\"dram__bytes.sum\",\"byte\",\"1,218,816\""
done
"""


def main():
    folder = pathlib.Path(sys.argv[1])
    out = folder / "out"
    for name in ("cuda.json", "cuda.md", "cuda.svg"):
        (out / name).unlink(missing_ok=True)
    (folder / "bin").mkdir(parents=True, exist_ok=True)
    (folder / "bin" / "ncu").write_text(NCU, encoding="utf-8")
    (folder / "bin" / "ncu").chmod(0o755)
    path = f"{folder.resolve() / 'bin'}{os.pathsep}{os.environ['PATH']}"
    # Kernels against their emulation takes half a minute to compile: the long tier's.
    tests = "kernels,cuda_device_test" if os.environ.get("PERGRAD_LONG_TESTS") else "cuda_device_test"
    command = ["sh", str(HERE / "run.sh"), "--out", str(out), "--build", str(folder / "build"), "--tasks", "tiny",
               "--tests", tests, "--batches", "4,16", "--records", "64", "--seconds", "0.05",
               "--minutes", "8", "--peers", "torch,torch_graph"]
    done = subprocess.run(command, env={**os.environ, "PATH": path, "PERGRAD_FAKE_CUDA": "1", "PYTHON": sys.executable},
                          text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    print(done.stdout)
    if done.returncode != 0:
        sys.exit(f"run.sh ends with {done.returncode}")
    found = json.loads((out / "cuda.json").read_text(encoding="utf-8"))
    states = {each["what"]: each["state"] for each in found["checks"]}
    kernels = ["kernels have the host's bits"] if "kernels" in tests else []
    for what in ("tiny: device and host executor agree", "cuda_device_test on this device", *kernels):
        if states[what] != "ok":
            sys.exit(f"{what}: {states[what]}")
    for precision, batches in (("float", [4, 16]), ("tf32", [16])):
        ours = {row["batch"]: row for row in found["results"] if row["framework"] == "pergrad_dp" and "batch" in row
                and row["precision"] == precision}
        if sorted(ours) != batches:
            sys.exit(f"batches that were timed, {precision}: {sorted(ours)}")
        for batch, row in ours.items():
            wrong = [name for name in ("graph_us", "loop_us", "poisson_us", "peak_mb", "nodes") if not row[name] > 0]
            if wrong or row["nodes"] > 12 or (batch == 16 and precision == "float") != ("poisson_60000_us" in row):
                sys.exit(f"batch {batch}: {row}")
    logical = [row for row in found["results"] if "logical" in row]
    if not logical or not all(row["peak_mb"] > 0 and row["poisson_us"] > 0 for row in logical):
        sys.exit(f"logical batches: {logical}")
    # Where PyTorch is installed it is timed, on the processor; where it is not, that is said.
    torch = [row for row in found["results"] if row["framework"] == "torch"]
    if not torch or not all(row.get("us", 0) > 0 or row.get("failure") == "no Python module torch" for row in torch):
        sys.exit(f"PyTorch: {torch}")
    graph = [row["failure"] for row in found["results"] if row["framework"] == "torch_graph"]
    if graph not in ([row["failure"] for row in torch if "failure" in row], ["RuntimeError: needs a GPU"]):
        sys.exit(f"PyTorch's graph: {graph}")
    kernels = [{key: value for key, value in row.items() if key not in ("task", "batch")} for row in found["kernels"]]
    wanted = {"grid": "(7, 1, 1)", "us": 1234.5, "instructions": 4665952.0, "issue": 0.2539, "bytes": 1218816.0}
    if kernels != [{"precision": precision, "kernel": f"some_kernel<float, {number}>", **wanted}
                   for precision in ("float", "tf32") for number in (0, 1)]:
        sys.exit(f"kernels: {kernels}")
    text = (out / "cuda.md").read_text(encoding="utf-8")
    drawn = xml.etree.ElementTree.parse(out / "cuda.svg").getroot()
    bars = [each for each in drawn.iter("{http://www.w3.org/2000/svg}rect")]
    if f"| {ours[16]['nodes']} |" not in text or "some_kernel" not in text or len(bars) < 1 + 2 * 3:
        sys.exit("the tables or the chart lack what was measured")


if __name__ == "__main__":
    main()
