#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""costs.py: what a certificate costs to compile and to compute, by the number of parameters at the same depth.

Processor seconds of g++ -O2, the less of two, and of one K, the least of three."""

import json
import os
import pathlib
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]


def main():
    print("| parameters | compile, s | K, s |\n| ---: | ---: | ---: |")
    for width in (2, 8, 24, 52):
        with tempfile.TemporaryDirectory() as folder:
            program = pathlib.Path(folder) / "network"
            command = ["g++", "-std=c++20", "-O2", "-march=native", f"-DPERGRAD_WIDTH={width}", f"-I{ROOT}/include",
                       str(ROOT / "bench/certify/network.cpp"), "-o", str(program), "-pthread"]
            times = []
            for _ in range(2):
                process = subprocess.Popen(command)
                _, status, usage = os.wait4(process.pid, 0)
                process.returncode = os.waitstatus_to_exitcode(status)
                if process.returncode != 0:
                    raise SystemExit("costs.py: network.cpp does not compile")
                times.append(usage.ru_utime + usage.ru_stime)
            found = json.loads(subprocess.run([str(program)], check=True, capture_output=True, text=True).stdout)
            print(f"| {found['parameters']:,} | {min(times):.1f} | {found['seconds']:.3f} |", flush=True)


if __name__ == "__main__":
    main()
