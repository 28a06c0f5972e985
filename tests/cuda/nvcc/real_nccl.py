#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A program with GPUs as ranks is compiled and linked with NVIDIA's own NCCL; without a GPU it ends with one line a rank.

NCCL comes as a wheel of PyPI. Where it cannot be had, that is said and nothing is checked.
"""

import argparse
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[3]


def run(command, **how):
    done = subprocess.run(command, capture_output=True, text=True, check=False, **how)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def wheel(nvcc, folder):
    major = re.search(r"release (\d+)\.", run([nvcc, "--version"])).group(1)
    name = f"nvidia-nccl-cu{major}"
    got = subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder, name],
                         capture_output=True, text=True, check=False)
    if got.returncode != 0:
        print(f"NOT RUN: {name} cannot be had: {got.stderr.strip().splitlines()[-1:]}")
        sys.exit(0)
    [file] = folder.glob("*.whl")
    with zipfile.ZipFile(file) as archive:
        archive.extractall(folder)
    print(file.name)
    return folder / "nvidia" / "nccl"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nvcc", required=True)
    parser.add_argument("--mpirun", required=True)
    parser.add_argument("--include", action="append", default=[])
    parser.add_argument("--library", action="append", default=[], help="to link with, beside NCCL")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        nccl = wheel(options.nvcc, folder)
        program = folder / "program"
        includes = [f"-I{each}" for each in (ROOT / "include", ROOT / "tests", nccl / "include")]
        includes += [word for each in options.include for word in ("-isystem", each)]
        run([options.nvcc, "-std=c++20", "-O1", "-arch=sm_87", "-Werror", "all-warnings", *includes,
             str(ROOT / "tests/cuda/nvcc/nccl_program.cu"), "-o", str(program), *options.library, f"-L{nccl / 'lib'}",
             "-l:libnccl.so.2", "-Xlinker", f"-rpath={nccl / 'lib'}"])
        root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
        hidden = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
        done = subprocess.run([options.mpirun, *root, "--oversubscribe", "-np", "2", program], capture_output=True, text=True,
                              env=hidden, timeout=120, check=False)
        said = [line for line in done.stderr.splitlines() if "nccl_ranks: no usable GPU" in line]
        if done.returncode == 0 or len(said) != 2:
            sys.exit(f"without a GPU: exit {done.returncode}\n{done.stdout}{done.stderr}")
        print(said[0])


if __name__ == "__main__":
    main()
