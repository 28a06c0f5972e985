#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The training program for a GPU is compiled here for a Jetson's processor, and trains there, under qemu, on 2,000 images.

nvcc takes the cross compiler for its host compiler; the CUDA runtime is the one that plays the device. zlib for aarch64
comes from Debian into a folder of its own (.cmake/aarch64_libraries.sh). With --host PROGRAM the same example's program
for this machine's processor has to say the same. With --presets the presets jetson-orin and jetson-thor build it as
docs/cuda.md says, with the CUDA runtime of that processor, from PyPI: without a GPU one line and exit code 3. Ends with
exit code 3 itself where zlib cannot be fetched.
"""

import argparse
import pathlib
import re
import resource
import subprocess
import sys
import tempfile

sys.dont_write_bytecode = True
import example_check  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[3]
EXAMPLES = ROOT / "examples"
LIBRARIES = ROOT / ".cmake" / "aarch64_libraries.sh"
SOURCES = ("cli", "edges", "fashion_mnist", "fashion_mnist_data", "lines", "report", "training")
COMPILER = "aarch64-linux-gnu-g++"
TRAINING_IMAGES = 2000
TEST_IMAGES = 500
MOST_SECONDS = 120


def run(*command):
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}: exit {done.returncode}\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
    return done.stdout


def libraries(folder, *nvcc):
    """zlib of aarch64 and, with nvcc, its CUDA runtime."""
    done = subprocess.run(["sh", LIBRARIES, folder, *nvcc], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        print((done.stdout + done.stderr).strip()[-300:])
        sys.exit(done.returncode)


def build(nvcc, cuda_include, folder):
    known = folder / "arm" / "usr"
    headers = folder / "headers"  # those of the host that have no machine code, without the others
    headers.mkdir()
    for name in ("CLI", "nlohmann"):
        (headers / name).symlink_to(pathlib.Path("/usr/include") / name)
    include = [f"-I{each}" for each in (ROOT / "include", EXAMPLES, headers, known / "include")]
    objects = []
    for source in [EXAMPLES / "common" / f"{name}.cpp" for name in SOURCES] + [ROOT / "tests/cuda/fake_runtime/fake_runtime.cpp"]:
        objects.append(folder / f"{source.stem}.o")
        run(COMPILER, "-std=c++20", "-O2", *include, "-isystem", cuda_include, "-c", source, "-o", objects[-1])
    objects.append(folder / "fashion_mnist_cuda.o")
    run(nvcc, "-ccbin", COMPILER, "-target-dir", "x86_64-linux", "-std=c++20", "-O3", "-arch=sm_87", "-Werror", "all-warnings",
        "--diag-suppress=20011,20013,20014", "-DPERGRAD_EMULATED_KERNELS", *include, "-c", EXAMPLES / "09_fashion_mnist.cu",
        "-o", objects[-1])
    program = folder / "program"
    run(COMPILER, "-static", *objects, *(known / "lib").rglob("libz.a"), "-o", program)
    return program


def by_presets(nvcc, arm, folder):
    """The programs that the presets build, and what they say."""
    version = re.search(r"release (\d+)\.", run(nvcc, "--version")).group(1)
    for preset in ("jetson-orin", "jetson-thor") if int(version) >= 13 else ("jetson-orin",):
        build_folder = folder / preset
        run("cmake", "-S", ROOT, "--preset", preset, "-B", build_folder, f"-DPERGRAD_NVCC={nvcc}",
            f"-DPERGRAD_AARCH64_ROOT={arm}", f"-DPERGRAD_AARCH64_CUDA={arm / 'cuda'}")
        run("cmake", "--build", build_folder, "--target", "fashion_mnist_cuda")
        program = build_folder / "examples" / "fashion_mnist_cuda"
        said = subprocess.run(["qemu-aarch64", "-L", "/usr/aarch64-linux-gnu", program], capture_output=True, text=True,
                              check=False)
        if said.returncode != 3 or not re.fullmatch(r"fashion_mnist: no usable GPU: [^\n]+\n", said.stdout + said.stderr):
            sys.exit(f"{preset}, without a GPU: exit code {said.returncode}\n{said.stdout}{said.stderr}")
        if "libstdc++" in run("aarch64-linux-gnu-readelf", "-d", program):
            sys.exit("it needs a libstdc++ where it runs")
        print(f"built by the preset {preset}: " + (said.stdout + said.stderr).strip())


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nvcc", required=True)
    parser.add_argument("--cuda-include", required=True)
    parser.add_argument("--host")
    parser.add_argument("--presets", action="store_true")
    options = parser.parse_args()
    example_check.ARGUMENTS = ["--batch", "6000", "--epochs", "1", "--noise-multiplier", "1", "--seed", "5"]
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        libraries(folder / "arm", *([options.nvcc] if options.presets else []))
        program = build(options.nvcc, options.cuda_include, folder)
        start = folder / "start"  # a program of another processor, as one of this
        start.write_text(f'#!/bin/sh\nexec qemu-aarch64 "{program}" "$@"\n', encoding="utf-8")
        start.chmod(0o755)
        example_check.shorten(folder, TRAINING_IMAGES, TEST_IMAGES)
        begin = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
        there = example_check.train(start, folder, folder / "out").splitlines()
        seconds = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - begin
        print("\n".join([*there, f"{seconds:.0f} s of a processor under qemu"]))
        if not re.search(r"^test accuracy 0\.\d{4}, epsilon \d+\.\d{4}, delta 1e-05$", there[-1]):
            sys.exit("the last line is another one")
        if seconds > MOST_SECONDS:
            sys.exit(f"more than {MOST_SECONDS} s")
        if options.host:
            here = example_check.train(options.host, folder, folder / "host").splitlines()
            if len(here) != len(there) or not all(map(example_check.same, here, there)):
                sys.exit("\n".join(["this machine's program says:", *here]))
            print("this machine's program says the same")
        if options.presets:
            by_presets(options.nvcc, folder / "arm", folder)


if __name__ == "__main__":
    main()
