#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""example_check.py HOST DEVICE: two builds of one training program say the same, line by line, on a few hundred images.

The times and the executor's name may differ, and the test loss and epsilon in their last digit. Both must write their reports.
"""

import gzip
import json
import pathlib
import re
import struct
import subprocess
import sys
import tempfile

FULL = pathlib.Path("/usr/share/datasets/fashion-mnist")
IMAGES = 256
ARGUMENTS = ["--batch", "20000", "--epochs", "2", "--noise-multiplier", "1", "--seed", "5"]


def shorten(folder, training=IMAGES, test=IMAGES):
    """The first images of both halves, in the data set's own format."""
    for half, count in (("train", training), ("t10k", test)):
        pixels = gzip.open(FULL / f"{half}-images-idx3-ubyte.gz").read(16 + 784 * count)
        labels = gzip.open(FULL / f"{half}-labels-idx1-ubyte.gz").read(8 + count)
        (folder / f"{half}-images-idx3-ubyte").write_bytes(pixels[:4] + struct.pack(">I", count) + pixels[8:])
        (folder / f"{half}-labels-idx1-ubyte").write_bytes(labels[:4] + struct.pack(">I", count) + labels[8:])


def train(program, data, out):
    done = subprocess.run([program, *ARGUMENTS, "--data", data, "--out", out], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{program} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    text = re.sub(r"\(\d+\.\d s\)", "(time)", done.stdout)
    return re.sub(r", (\d+ threads?|GPU)$", ", (executor)", text, flags=re.MULTILINE).replace(str(out), "OUT")


def same(host, device):
    """Are two lines the same, up to one unit in the last digit of the test loss, and of epsilon, a proven bound that is
    found by a search whose arithmetic two compilers contract differently?"""
    for what in ("test loss", "epsilon"):
        numbers = [re.search(rf"{what} (\d+\.\d+)", line) for line in (host, device)]
        if all(numbers):
            if abs(float(numbers[0][1]) - float(numbers[1][1])) > 1.5e-4:
                return False
            host, device = (line.replace(found[0], what) for line, found in zip((host, device), numbers))
    return host == device


def main():
    host, device = sys.argv[1:]
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        shorten(folder)
        lines = [train(program, folder, folder / kind).splitlines()
                 for kind, program in (("host", host), ("device", device))]
        print("\n".join(lines[1]))
        if len(lines[0]) != len(lines[1]) or not all(map(same, *lines)):
            sys.exit("\n".join(["the host's program says:", *lines[0]]))
        keys = [list(json.loads((folder / kind / "report.json").read_text())) for kind in ("host", "device")]
        if keys[0] != keys[1]:
            sys.exit(f"the reports differ: {keys}")
        drawn = [re.sub(r"[\d.]+", "", (folder / kind / "report.svg").read_text()) for kind in ("host", "device")]
        if drawn[0][:2000] != drawn[1][:2000]:
            sys.exit("the two charts are not the same kind of chart")


if __name__ == "__main__":
    main()
