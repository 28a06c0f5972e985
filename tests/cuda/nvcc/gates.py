#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What must hold of code that nvcc compiles: no spills, exact rounding of updates, no experimental flag."""

import argparse
import collections
import pathlib
import re
import resource
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
EIGEN = pathlib.Path("/usr/include/eigen3")
ARCHITECTURES = ("87", "90", "110")
COMMON = ["-std=c++20", "-Werror", "all-warnings"]
OPTIMISED = [*COMMON, "-O2"]  # for gates that read what was made of the code; the others only ask whether it compiles
FLAGS = {"relaxed_constexpr": ["--expt-relaxed-constexpr"], "extended_lambda": ["--extended-lambda"]}
# Arithmetic that rounds, with what stands between its name and the type.
ARITHMETIC = re.compile(r"^\s*(?:@!?%p\d+\s+)?((?:add|sub|mul|fma|mad|div|sqrt|rcp|rsqrt|sin|cos|ex2|lg2|tanh)\.\S*f(?:32|64)\S*)",
                        re.MULTILINE)


def run(command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit("\n".join([" ".join(command), *(done.stdout + done.stderr).splitlines()[:40]]))
    return done.stdout + done.stderr


def kernels(nvcc, include, folder):
    """Every kernel of small networks fits the registers of all our architectures: no spill, and no local memory but for
    the bits of those few roundings in millions that a release settles."""
    known = run([nvcc, "--list-gpu-arch"]).split()
    chosen = [each for each in ARCHITECTURES if f"compute_{each}" in known]  # nvcc 12 does not know Thor
    if not chosen:
        sys.exit(f"{nvcc} knows none of {', '.join(ARCHITECTURES)}")
    targets = [text for each in chosen for text in ("-gencode", f"arch=compute_{each},code=sm_{each}")]
    for file, warnings in (("kernels_gate.cu", "-warn-spills,-warn-lmem-usage"), ("noise_gate.cu", "-warn-spills")):
        run([nvcc, *OPTIMISED, *include, *targets, "-t", "0", "-Xptxas", f"{warnings},-Werror", "-fatbin", str(HERE / file),
             "-o", str(folder / "kernels.fatbin")])


def noise(nvcc, include, folder):
    """An update is made of operations that say how they round, and no compiler has fused two of them: where it may not,
    the operations are the same. Those of the noise may round in any way, as each integer is proven: they are in double,
    or integers and a seed in float, which says so by its name."""
    found = {}
    for fuses in ("true", "false"):
        ptx = folder / f"noise_{fuses}.ptx"
        run([nvcc, *OPTIMISED, *include, "-arch=compute_87", f"-fmad={fuses}", "-ptx", str(HERE / "noise_gate.cu"), "-o",
             str(ptx)])
        found[fuses] = [each for each in ARITHMETIC.findall(ptx.read_text(encoding="utf-8"))
                        if "f32" in each and not each.startswith("rsqrt.approx")]
    if len(found["true"]) < 25 or not any(each.startswith("fma.rn.f32") for each in found["true"]):
        sys.exit(f"this is not the update, it has {len(found['true'])} operations")
    loose = sorted({each for each in found["true"] if ".rn." not in each})
    if loose:
        sys.exit(f"the update has operations that do not say .rn: {', '.join(loose)}")
    counts = [collections.Counter(each) for each in found.values()]
    if counts[0] != counts[1]:
        sys.exit(f"the compiler fuses operations of the update: {counts[0]}, and where it may not: {counts[1]}")


def host_layers(nvcc, include, folder):
    """What only the host runs compiles where nvcc reads it too, and also where any constexpr may be the device's."""
    for more in ([], FLAGS["relaxed_constexpr"]):
        run([nvcc, *COMMON, *more, *include, "-arch=sm_87", "-c", str(HERE / "host_layers_gate.cu"), "-o",
             str(folder / "host_layers.o")])


def every_layer(nvcc, include, folder):
    """Nothing that any layer or loss does on a device is an error or a warning of nvcc, calls of the host's functions
    included, of which it says nothing in programs whose kernels are emulated."""
    run([nvcc, *COMMON, *include, "-arch=compute_87", "-ptx", str(HERE / "every_layer_gate.cu"), "-o",
         str(folder / "every_layer.ptx")])


def unmarked(nvcc, include, folder):
    """A function without PERGRAD_HD in a layer for devices is an error that names the layer and says what is missing."""
    command = [nvcc, *COMMON, *include, "-arch=compute_87", "-ptx", str(HERE / "unmarked_gate.cu"), "-o",
               str(folder / "unmarked.ptx")]
    run([*command, "-DGATE_MARKED"])
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    wanted = r"error: calling a __host__ function\(.*doubled.*needs_functions_marked_pergrad_hd<.*doubled"
    if done.returncode == 0 or not re.search(wanted, done.stdout + done.stderr):
        sys.exit("\n".join(["a layer without device code is not refused:", *(done.stdout + done.stderr).splitlines()[:20]]))


def processor_seconds(command):
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    run(command)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def slowness(folder):
    """How much longer a compiler takes here than where the limits come from: Eigen/Core took 0.77 s there
    (docs/results/asides.json). At least 1, and 1 without Eigen."""
    if not EIGEN.exists():
        return 1.0
    source = folder / "eigen.cpp"
    source.write_text("#include <Eigen/Core>\nint main() {}\n", encoding="utf-8")
    command = ["g++", "-std=c++20", "-O2", "-isystem", str(EIGEN), "-c", str(source), "-o", str(folder / "eigen.o")]
    return max(1.0, min(processor_seconds(command) for _ in range(3)) / 0.77)


def compile_time(nvcc, include, folder):
    """Users' programs compile for one architecture in good time, counted as seconds of one processor: by the command of
    docs/cuda.md, which leaves the host's part as it is. What -O3 for that part adds is told, and has no limit."""
    slower = slowness(folder)
    print(f"compilers take {slower:.2f} times as long as where limits come from")
    examples = HERE.parents[2] / "examples"
    for source, most in ((examples / "09_fashion_mnist.cu", 20), (HERE / "lstm_gate.cu", 30)):
        command = [nvcc, *COMMON, *include, f"-I{examples}", "-arch=sm_87", "-c", str(source), "-o",
                   str(folder / "program.o")]
        spent = processor_seconds(command)
        most *= slower
        print(f"{source.name}: {spent:.1f} s, at most {most:.1f}; with -O3 {processor_seconds([*command, '-O3']):.1f} s")
        if spent > most:
            sys.exit(f"{source.name} takes too long to compile")


def flags(nvcc, include, folder, name):
    """A user's program compiles without a warning under any of the flags that other libraries may want."""
    run([nvcc, *COMMON, *FLAGS[name], *include, "-arch=sm_87", "-c", str(HERE / "link_device.cu"), "-o",
         str(folder / "program.o")])


GATES = {"kernels": kernels, "noise": noise, "host_layers": host_layers, "every_layer": every_layer,
         "unmarked": unmarked, "compile_time": compile_time}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("gate", choices=[*GATES, *FLAGS])
    parser.add_argument("--nvcc", default="nvcc")
    parser.add_argument("--include", action="append", default=[], help="a folder with pergrad.hpp or pergrad/")
    options = parser.parse_args()
    include = [f"-I{folder}" for folder in options.include]
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        if options.gate in FLAGS:
            flags(options.nvcc, include, folder, options.gate)
        else:
            GATES[options.gate](options.nvcc, include, folder)


if __name__ == "__main__":
    main()
