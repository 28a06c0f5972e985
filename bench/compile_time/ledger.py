#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compiles fixed programs at -O2 and prints what each cost: CPU seconds, peak memory, code bytes, longest symbol.

Where nvcc is found, it compiles the CUDA example too, for one architecture."""

import argparse
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
EIGEN = "/usr/include/eigen3"
FLAGS = ["-std=c++20", "-O2", "-isystem", EIGEN, "-I", str(ROOT / "single_include")]
EMPTY_EIGEN = "#include <Eigen/Core>\nint main() {}\n"
EMPTY_HEADER = "#include <pergrad.hpp>\nint main() {}\n"

# name, source text or file, most seconds, most MB; the single header's seconds are counted over Eigen/Core's.
PROGRAMS = [
    ("Eigen/Core, empty", EMPTY_EIGEN, None, None),
    ("pergrad.hpp, empty", EMPTY_HEADER, 1.5, None),
    ("task_a", HERE / "task_a.cpp", 5.0, None),
    ("vgg36", HERE / "vgg36.cpp", 10.0, 600.0),
    ("deep250", HERE / "deep250.cpp", 20.0, None),
    ("resnet34", HERE / "resnet34.cpp", 15.0, None),
    ("transformer12", HERE / "transformer12.cpp", 10.0, 800.0),
    ("gpt2_medium", HERE / "gpt2_medium.cpp", 15.0, None),
    ("gpt2_narrow", HERE / "gpt2_narrow.cpp", 15.0, None),
]
# The same of what nvcc compiles.
CUDA_FLAGS = ["-std=c++20", "-O2", "-arch=sm_90", "-I", str(ROOT / "single_include"), "-I", str(ROOT / "examples")]
CUDA_PROGRAMS = [
    ("pergrad.hpp, empty", EMPTY_HEADER, None, None),
    ("fashion_mnist.cu", ROOT / "examples/09_fashion_mnist.cu", 20.0, 900.0),
]


def find_nvcc():
    return shutil.which("nvcc") or shutil.which("nvcc", path="/usr/local/cuda/bin:/opt/cuda/bin")


def compile_once(command):
    """CPU seconds and peak MB of one compilation, with everything that the compiler driver starts."""
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0:
            output.seek(0)
            text = output.read().decode(errors="replace").splitlines()
            print("\n".join(line[:300] for line in text[:20]), file=sys.stderr)
            return None
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def text_bytes(object_file):
    out = subprocess.run(["size", object_file], capture_output=True, text=True, check=True).stdout
    return int(out.splitlines()[1].split()[0])


def longest_symbol(object_file):
    out = subprocess.run(["nm", object_file], capture_output=True, text=True, check=True).stdout
    return max((len(line.split()[-1]) for line in out.splitlines()), default=0)


def measure(compiler, repeat, folder, flags, programs, suffix):
    """Prints one compiler's rows; returns what did not compile and sentences about what went over budget."""
    broken, wrong, eigen_seconds = [], [], 0.0
    called = pathlib.Path(compiler).name
    for name, source, most_seconds, most_megabytes in programs:
        if isinstance(source, str):
            path = folder / f"empty.{suffix}"
            path.write_text(source, encoding="utf-8")
            source = path
        object_file = folder / "program.o"
        runs = [compile_once([compiler, *flags, "-c", str(source), "-o", str(object_file)]) for _ in range(repeat)]
        if None in runs:
            print(f"{called:10} {name:20} does not compile")
            broken.append(name)
            continue
        seconds, megabytes = min(run[0] for run in runs), max(run[1] for run in runs)
        if name == "Eigen/Core, empty":
            eigen_seconds = seconds
        counted = seconds - eigen_seconds if most_seconds and name == "pergrad.hpp, empty" else seconds
        budget = []
        if most_seconds is not None:
            over = " over Eigen/Core" if counted != seconds else ""
            budget.append(f"{counted:.2f} of {most_seconds:g} s{over}")
            if counted > most_seconds:
                wrong.append(f"{called}: {name} took {counted:.2f} s{over}, more than {most_seconds:g} s")
        if most_megabytes is not None:
            budget.append(f"{megabytes:.0f} of {most_megabytes:g} MB")
            if megabytes > most_megabytes:
                wrong.append(f"{called}: {name} took {megabytes:.0f} MB, more than {most_megabytes:g} MB")
        print(f"{called:10} {name:20} {seconds:8.2f} {megabytes:8.0f} {text_bytes(object_file):10} "
              f"{longest_symbol(object_file):8}   {', '.join(budget)}", flush=True)
    return broken, wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="exit with 1 if a program costs more than its budget")
    parser.add_argument("--compiler", action="append", help="default: g++, and clang++ and nvcc where installed")
    parser.add_argument("--repeat", type=int, default=1, help="compile each so often, count the fastest (default 1)")
    options = parser.parse_args()
    compilers = options.compiler or [name for name in ("g++", "clang++", find_nvcc()) if name and shutil.which(name)]
    print(f"{'compiler':10} {'program':20} {'seconds':>8} {'peak MB':>8} {'text bytes':>10} {'symbol':>8}   budget")
    with tempfile.TemporaryDirectory() as folder:
        results = []
        for compiler in compilers:
            kind = (CUDA_FLAGS, CUDA_PROGRAMS, "cu") if "nvcc" in pathlib.Path(compiler).name else (FLAGS, PROGRAMS, "cpp")
            results.append(measure(compiler, max(1, options.repeat), pathlib.Path(folder), *kind))
    over_budget = [line for _, wrong in results for line in wrong]
    for line in over_budget:
        print(f"over budget: {line}")
    return 1 if any(broken for broken, _ in results) or (over_budget and options.check) else 0


if __name__ == "__main__":
    sys.exit(main())
