#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""model.py [--device h200|h100|orin|thor]... [--out DIR | --update] [--tasks T,...] [--batches B,...]: what a step
should take on a GPU, kernel by kernel, without one.

For each kernel of a captured step it takes

    grid, work, bytes        from the library itself: launches.cpp captures the step on a device that only writes down
    instructions, registers  from the machine code that nvcc makes of launches.cpp for that GPU (nvdisasm, ptxas -v)
    what the GPU can do      from public figures, DEVICES below

and lets the blocks that fit run together: in a wave a multiprocessor takes the longest of

    issue          warp instructions / 4 a clock, a conversion to 64 bits in the place of 8
    FFMA, DFMA     multiply-adds, in float and in double, / units
    conversions    between float and double / 16 a clock, or 2 where doubles are slow
    tensor         HMMA / units
    shared memory  128 bytes a clock, for shared memory and, by the same pipe, loads and stores
    latency        what one block waits for, one after the other, if nothing else ran there

and the GPU the longest of its waves, memory (bytes that must go through it once) and cache (what is fetched again).
What is longest is the kernel's bound; it is `too few blocks` where blocks leave more than half of the multiprocessors
without one and memory is not the bound. A step is the sum of its kernels and of the gaps between them; kernels in
branches of the graph share multiprocessors, blocks of those launched first coming first. The share of the
roofline is max(multiply-adds / peak, bytes / bandwidth) over the time; the peak is that of TF32 or BF16 where they are
allowed, and of a recurrent layer what it must read from shared memory at every position is a third term.
`private: no` is an ordinary step, a graph as well: the plain sum of the gradients, and an update at the rate of memory.

No number is fitted to a measurement of this library. Where it is crude:
    - a scheduler issues at every clock while a warp is there, which it cannot with one or two
    - both sides of a branch count as run, and what stands outside of loops as run once; loops that are not the main one
      of a product, and remainders of unrolled loops, are left out or taken by the mean of their kind
    - a block that takes a sample through nodes runs loops whose lengths the plan knows and the machine code does not,
      in layers on tiles, those of the layer's own code: dots, products of which a thread takes 4 x 4 results, elements;
      of kernels for attention, tiles, what is multiplied and what is exponentiated. They cost what its innermost loops of that kind cost on average and wait for a cache at every
      round, though later rounds of a product may find nearby what earlier ones have read; only a row that a warp goes
      through again is. To bring together what threads have added up costs a round, a barrier nothing
    - latencies are those of data-centre GPUs on all devices; clocks are the highest, which no GPU holds for long
    - a branch of a graph begins as soon as what it waits for has ended, and costs no more than the next kernel would
    - blocks of several kernels on a multiprocessor slow each other down alike, whatever pipe they need
    - caches are an all or nothing: what is fetched again comes from L2 as long as it fits
    - tensor cores take mma.sync at their full rate, which Hopper's reach by other instructions only; cuBLAS is not
      modelled

Writes DIR/model.json (a row a step, and one a kernel of it), .md and .svg (default out/cuda_model). --update writes
docs/results/device_*.json and docs/images/device_model.svg, which docs/cuda.md shows. Needs nvcc, g++, c++filt and
nvdisasm (of the CUDA toolkit, or PyPI's nvidia-cuda-nvdisasm; NVDISASM=path); exit code 3 where one is missing.
"""

import argparse
import collections
import datetime
import importlib.util
import itertools
import json
import math
import os
import pathlib
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(HERE))

import networks  # noqa: E402
import problem  # noqa: E402
import sass  # noqa: E402

RESULTS = ROOT / "docs" / "results" / "device_model.json"
GOALS_FOUND = ROOT / "docs" / "results" / "device_goals.json"
BOARDS_FOUND = ROOT / "docs" / "results" / "device_boards.json"
PICTURE = ROOT / "docs" / "images" / "device_model.svg"
TASKS = {"mnist_cnn": "MNIST CNN", "mlp": "perceptron", "cifar_cnn": "CIFAR CNN", "lstm": "LSTM",
         "vgg16": "VGG16, 256 x 256", "lk_transformer": "transformer", "gpt2_small_lora": "GPT-2 small, adapters"}
BATCHES = (16, 256, 2048)
OWN_BATCHES = {"vgg16": [8], "lk_transformer": [32], "gpt2_small_lora": [8]}
SHOWN = ("h200", "orin", "thor")  # in docs/cuda.md
BOARDS = ("orin", "thor")  # in docs/cuda.md's page for them
PRECISIONS = ("float", "tf32", "bf16")

# Clock in GHz, bandwidth in GB/s, dense TF32 in TFLOPS (BF16 has twice that), kilobytes of shared memory and results of DFMA a clock a
# multiprocessor, bytes of L2, bytes a clock from it, threads and blocks a multiprocessor.
DEVICES = {
    "h200": {
        "title": "H200", "architecture": "90", "multiprocessors": 132, "clock": 1.98, "bandwidth": 4800, "tf32": 494.5,
        "dfma": 64, "shared": 228, "l2": 50 << 20, "l2_clock": 5120, "threads": 2048, "blocks": 32,
        "source": "NVIDIA H200 data sheet (67 TFLOPS of FP32 = 132 x 128 x 2 x 1.98 GHz; 989 of TF32 are sparse); CUDA "
                  "programming guide, compute capability 9.0; L2: Hopper white paper, 8,986 GB/s at 1.755 GHz in "
                  "PMC10448217, table 3"},
    "h100": {
        "title": "H100 SXM", "architecture": "90", "multiprocessors": 132, "clock": 1.98, "bandwidth": 3350,
        "tf32": 494.5, "dfma": 64, "shared": 228, "l2": 50 << 20, "l2_clock": 5120, "threads": 2048, "blocks": 32,
        "source": "NVIDIA H100 data sheet; else as the H200"},
    "orin": {
        "title": "AGX Orin 64 GB", "architecture": "87", "multiprocessors": 16, "clock": 1.3, "bandwidth": 204.8,
        "tf32": 21.3, "dfma": 2, "shared": 164, "l2": 4 << 20, "l2_clock": 16 * 48, "threads": 1536, "blocks": 16,
        "source": "Jetson AGX Orin technical brief (5.3 TFLOPS of FP32, 170 sparse TOPS of INT8, of which a quarter of "
                  "the dense are TF32); CUDA programming guide, compute capability 8.7; a multiprocessor's share of L2 "
                  "is that of an A100, an assumption"},
    "thor": {
        "title": "AGX Thor (T5000)", "architecture": "110", "multiprocessors": 20, "clock": 1.575, "bandwidth": 273,
        "tf32": 129, "dfma": 2, "shared": 228, "l2": 32 << 20, "l2_clock": 20 * 48, "threads": 1536, "blocks": 24,
        "source": "Jetson Thor data sheet (2,560 cores at 1.575 GHz, 2,070 sparse TFLOPS of FP4, of which a sixteenth "
                  "are dense TF32); multiprocessors, L2 and shared memory as the driver says, NVIDIA developer forum "
                  "356355; DFMA and L2's clock are assumptions"},
}
REGISTERS = 65536  # a multiprocessor, all of these; given out to warps in steps of 8 a thread
# What steps on an H200 should reach: (task, batch, precision, most milliseconds), a private step over the plain sum of
# gradients, the share of the roofline, and of issue slots that of multiply-adds in main loops of large products.
MOST_MS = (("mnist_cnn", 256, "float", 0.06), ("mlp", 2048, "float", 0.1), ("cifar_cnn", 256, "float", 5),
           ("cifar_cnn", 256, "tf32", 1.5), ("vgg16", 8, "tf32", 15))
MOST_RATIO = 1.1
RATIOS = (("mnist_cnn", 256), ("mlp", 2048), ("cifar_cnn", 256), ("lstm", 256), ("vgg16", 8), ("lk_transformer", 32),
          ("gpt2_small_lora", 8))
LEAST_SHARE = 0.4
SHARES = (("lstm", 256), ("lk_transformer", 32), ("gpt2_small_lora", 8))
LEAST_OF_ISSUE = {"float": ("ffma_of_issue_slots", 0.75), "tf32": ("hmma_of_issue_limit", 0.6)}
RESERVED_SHARED = 1024  # a block, from compute capability 8.0 on
SCHEDULERS = 4
FFMA = 128  # results a clock a multiprocessor
HMMA = {"float": 0, "tf32": 16 * 8 * 8, "bf16": 16 * 8 * 16}  # multiply-adds: mma.m16n8k8, mma.m16n8k16
# Clocks. PMC10448217, table 3, for V100, A100 and H100; L1: Jia et al. 2018, arXiv 1804.06826, table 3.1.
LATENCY = {"arithmetic": 4, "shared": 20, "l1": 28, "l2": 200, "memory": 400}
# Microseconds from the end of a graph's kernel to the start of the next: 3.4 a kernel of 2.9, "Getting started with
# CUDA graphs", NVIDIA's developer blog (V100). No public figure for the others.
GAP = 0.5
L2_BYTES = 64  # that a multiprocessor gets from L2 a clock
L1 = 128 << 10  # bytes a multiprocessor that are not shared memory, about
WARP = 32
# Of integers 16 results a clock a multiprocessor to 64 bits, 64 to 32; between floats and doubles 16, or 2 where doubles are
# slow (CUDA programming guide, compute capability 8.x and 9.0).
SLOTS_OF_CONVERSION = {"F2I.S64": 8, "F2I": 2}
ROUND_SHARES = ("FADD", "F2I", "F2I.S64")  # by what a share is rounded
CHACHA_THREADS, CHACHA_ROUNDS = 64, 10  # of a block of release_kernel; rounds of its loop


def run(command, **more):
    done = subprocess.run([str(each) for each in command], capture_output=True, text=True, check=False, **more)
    if done.returncode != 0:
        said = (done.stdout + done.stderr).splitlines()[:20]
        sys.exit("\n".join(["model.py: " + " ".join(map(str, command)), *said]))
    return done.stdout, done.stderr


def missing(what):
    """Ends the program with code 3: a tool is not there."""
    print(f"model.py: {what}", file=sys.stderr)
    sys.exit(3)


def find_nvdisasm(nvcc):
    wheel = importlib.util.find_spec("nvidia")
    places = [os.environ.get("NVDISASM"), pathlib.Path(nvcc).parent / "nvdisasm", shutil.which("nvdisasm")]
    for root in wheel.submodule_search_locations if wheel else ():
        places += sorted(pathlib.Path(root).glob("*/bin/nvdisasm"))
    places += sorted((ROOT / "build" / "nvdisasm" / "nvidia").glob("*/bin/nvdisasm"))  # by tests/run.sh --all
    for place in places:
        if place and os.access(place, os.X_OK):
            return place
    missing("no nvdisasm: it is in the CUDA toolkit and in PyPI's nvidia-cuda-nvdisasm; NVDISASM=path")


def demangled(names, *flags):
    text, _ = run(["c++filt", *flags], input="\n".join(names) + "\n")
    return dict(zip(names, text.splitlines()))


def kernel_of(function):
    """X of `void ...run_kernel<X>(X)`."""
    inner = function.partition("run_kernel<")[2][:-1]
    for between in (" >(", ">("):
        length = (len(inner) - len(between)) // 2
        if inner == inner[:length] + between + inner[:length]:
            return inner[:length]
    return None


class Builder:
    """What the library launches, and the machine code of it; kept in a folder."""

    def __init__(self, folder, reuse):
        self.folder, self.reuse = folder, reuse
        found = subprocess.run(["sh", ROOT / ".ci" / "find_nvcc.sh"], capture_output=True, text=True, check=False)
        if found.returncode != 0:
            missing(found.stdout.strip())
        self.nvcc = found.stdout.strip()
        self.compiler = os.environ.get("CXX", "g++")
        for tool in (self.compiler, "c++filt"):
            if shutil.which(tool) is None:
                missing(f"{tool} is not there")
        self.nvdisasm = find_nvdisasm(self.nvcc)

    def of_task(self, task):
        folder = self.folder / task
        folder.mkdir(parents=True, exist_ok=True)
        known = networks.TASKS.get(task) or problem.TASKS[task]
        (folder / "network.hpp").write_text(problem.cpp_header(known), encoding="utf-8")
        return folder

    def launches(self, task, batches):
        folder = self.of_task(task)
        program = folder / "launches"
        if not (self.reuse and program.exists()):
            flags = ["-std=c++20", f"-I{ROOT / 'include'}", f"-I{folder}", "-pthread"]
            run([self.compiler, *flags, HERE / "launches.cpp", "-o", program])
        rows = [json.loads(line) for line in run([program, *batches])[0].splitlines()]
        names = demangled(sorted({row["type"] for row in rows} - {""}), "-t")
        return [{**row, "kernel": names.get(row["type"], "")} for row in rows]

    def kernels(self, task, architecture):
        """{kernel: (function, registers)}"""
        folder = self.of_task(task)
        cubin, said = folder / f"sm_{architecture}.cubin", folder / f"sm_{architecture}.txt"
        if not (self.reuse and said.exists()):
            flags = ["-std=c++20", "-O3", f"-I{ROOT / 'include'}", f"-I{folder}", f"-arch=sm_{architecture}", "-cubin"]
            text = run([self.nvcc, *flags, "-Xptxas", "-v", "-x", "cu", HERE / "launches.cpp", "-o", cubin])[1]
            said.write_text(text, encoding="utf-8")
        functions = sass.functions(run([self.nvdisasm, "-c", cubin])[0])
        registers = sass.registers(said.read_text(encoding="utf-8"))
        names = demangled(sorted(functions))
        return {kernel_of(names[name]): (function, registers[name]) for name, function in functions.items()
                if name in registers and kernel_of(names[name])}


def resident_blocks(device, threads, registers, shared):
    """Blocks that a multiprocessor holds at once."""
    by_registers = REGISTERS // (-(-registers // 8) * 8 * threads)
    by_shared = (device["shared"] << 10) // (shared + RESERVED_SHARED)
    return max(1, min(by_registers, by_shared, device["threads"] // threads, device["blocks"]))


def pipe_clocks(counts):
    """Of one warp: what goes through shared memory's pipe. A load of 128 bits by a warp takes two clocks, as either
    half of the threads of a product's warp reads the same column or row, but for tensor cores; else a clock for each 4
    bytes a thread."""
    clocks = 0
    shared = 4 if any(name.startswith("HMMA") for name in counts) else 2
    for name, number in counts.items():
        if name.split(".")[0] in ("LDS", "STS", "LD", "LDG", "STG"):
            clocks += number * {"64": 2, "128": shared if name.startswith("LDS") else 4}.get(name.partition(".")[2], 1)
    return clocks


def mean(values, default):
    values = list(values)
    return sum(values) / len(values) if values else default


def loads_of(loop):
    """LD: of what may lie in shared memory."""
    return loop.count("LDG", "LD")


def dot_loops(function, operation):
    """Innermost loops that multiply what they load."""
    return [loop for loop in function.loops if loop.is_innermost and loads_of(loop) >= loop.count(operation) > 0]


def squares_of(loop):
    """Elements that a round of such a loop squares or multiplies: one a DFMA, or four for an FMUL and three FFMA."""
    return loop.count("DFMA") or loop.count("FFMA") * 4 / 3


def patch_loops(function):
    """Innermost loops in which a thread multiplies every factor of some rows with every term of some columns."""
    return [loop for loop in function.loops
            if loop.is_innermost and loop.count("FFMA") > loads_of(loop) > 0 and not loop.count("STG", "MUFU")]


def products_of(loop):
    """Multiply-adds of a thread in a round, or its part of those by tensor cores."""
    return loop.count("HMMA") * HMMA["tf32"] / WARP or loop.count("FFMA")


def tile_loops(function):
    """Innermost loops of products whose operands are tiles in shared memory."""
    return [loop for loop in function.loops
            if loop.is_innermost and products_of(loop) > loop.count("LDS") > 0 and not loop.count("LDG", "STS")
            and (loop.count("HMMA") or not loop.count("FSEL"))]


def held_loops(function, factors, tables):
    """Loops of products of a block that holds a sample: so many multiply-adds a round, which read places of operands, or
    of weights too, from tables."""
    return [loop for loop in function.loops if loop.is_innermost and loop.count("FFMA") == factors
            and loop.own["LDG.128"] == tables and loop.count("LDS") > 0 and not loop.count("STS", "MUFU")]


def stream_loops(function):
    """Those with weights that pass by in tiles."""
    return [loop for loop in function.loops if loop.is_innermost and loop.count("FFMA") >= 16
            and loop.count("LDS") > 0 and not loop.count("LDG", "STS", "MUFU")]


def rounds_of_tiles(function, loops):
    """Instructions of the loops around those, a round each, without what is inside."""
    return [loop.instructions() for loop in function.loops if not loop.is_innermost
            and any(loop.first <= each.first and each.last <= loop.last for each in loops)]


def waits_for_conversions(counts):
    """Slots in which a conversion has the port and nothing is issued."""
    return sum(counts[name] * (slots - 1) for name, slots in SLOTS_OF_CONVERSION.items())


def finds_steps(counts):
    """Do these instructions of a product's loop say where the elements of a coming slice lie? Of samples they read the
    numbers of two records."""
    writes = any(name.startswith("STS") for name in counts)
    return writes and counts["LDG"] <= 2 and not {"FFMA", "HMMA", "BAR"} & set(counts) and not forms_shares(counts)


def rounds_weights(counts):
    """Or round weights as layers store values? Not with floats, which are stored as they are."""
    return counts["FSETP"] >= 4 and not {"FFMA", "HMMA", "BAR", "LDG"} & set(counts) and counts["STS"] == 0


def squares_in_double(counts):
    """Do they square in double what was too small or too large to be squared in float? Next to no gradient is."""
    return doubles_of(counts) >= 8 and not {"FFMA", "HMMA", "BAR"} & set(counts)


def forms_shares(counts):
    return max(counts[name] for name in ROUND_SHARES) >= 8 and not {"HMMA", "BAR"} & set(counts)


def loop_of_shares(function, of_slice):
    """Of a sum of integers that rounds by additions, or converts to 32 bits: (its main loop, by what), or (None, None)."""
    for name in ("FADD", "F2I"):
        loop = max(function.loops, key=lambda loop: loop.own[name], default=None)
        if loop is not None and loop.own[name] >= of_slice:
            return loop, name
    return None, None


def doubles_of(counts):
    return sum(number for name, number in counts.items() if name.split(".")[0] in ("DFMA", "DMUL", "DADD"))


def conversions_of(counts):
    """To doubles and back."""
    return sum(number for name, number in counts.items() if name.split(".")[0] == "F2F")


def block_of_product(launch, function, far):
    """What a block of gemm_kernel runs, by pipe, in warp instructions, results or clocks; and its latency alone."""
    warps = launch["threads"] / WARP
    rows, columns, depth = launch["tile"]
    slices, parts = launch["slices"], launch["parts"]
    main, term, floats_of_term = function.main_loop(), "FFMA", 1
    of_slice = rows * columns * depth / launch["threads"]  # multiply-adds of a thread
    if launch["what"].startswith("sums") and (main is None or main.count("FFMA") < of_slice):
        found, name = loop_of_shares(function, of_slice)
        if found is not None:
            main, term, floats_of_term = found, name, 2
    if (main is None or main.count(term, "HMMA") == 0) and any(loop.count("F2I") for loop in function.loops):
        return block_of_integers(launch, function, far, of_slice)
    tensor = HMMA[launch["precision"]] * main.count("HMMA") / WARP if main else 0
    if main is None or max(main.count(term), tensor) < of_slice:
        sys.exit(f"model.py: {launch['kernel']}: no loop has the multiply-adds of its tile")
    # What is more than a whole slice's is that of a last slice which is not whole. One warp of the block finds steps.
    body = main.instructions() - (main.count(term) - of_slice if tensor == 0 else 0)
    steps = function.skipped(main, finds_steps)
    body -= steps.total() * (1 - 1 / warps)
    if launch["precision"] == "float":
        body -= function.skipped(main, rounds_weights).total()
    of_shares, seldom = collections.Counter(), 0
    if launch["what"].startswith("shares"):  # formed once a sample, by code that stands in the loop
        of_shares = function.skipped(main, forms_shares)
        seldom = 1 - parts / slices
        body -= of_shares.total() * seldom
        body += waits_for_conversions(of_shares) * parts / slices
    else:
        body += waits_for_conversions(main.own)
    around = function.around(main)
    part = sum(loop.instructions() for loop in around)
    once = function.top - function.skipped(function.whole(), squares_in_double)
    top = sum(once.values())
    usual = (1 - seldom) * pipe_clocks(main.own) + seldom * pipe_clocks(main.own - of_shares)
    pipe = pipe_clocks(once) + slices * usual
    pipe += parts * sum(pipe_clocks(loop.own) for loop in around)
    # A slice: the next one is loaded, weights of samples before it, while this one is multiplied; then a barrier. A warp
    # issues one instruction a clock, also where there are fewer warps than schedulers.
    loads = LATENCY[far] * (2 if launch["what"].startswith("sums") else 1)
    turns = max(1, warps / SCHEDULERS)
    a_slice = max(loads, body * turns) + 2 * LATENCY["shared"]
    latency = slices * a_slice + parts * (LATENCY[far] * 2 + part * turns) + top * turns
    return {"issue": warps * (top + parts * part + slices * body),
            "FFMA": WARP * warps * slices * of_slice * floats_of_term if tensor == 0 else 0,
            "DFMA": WARP * warps * (doubles_of(once) + parts * sum(doubles_of(loop.own) for loop in around)),
            "conversions": WARP * warps * (conversions_of(once) +
                                           parts * sum(conversions_of(loop.own) for loop in around)),
            "tensor": WARP * warps * slices * tensor, "shared memory": warps * pipe, "latency": latency,
            "main_loop": {"instructions": round(body, 1), "FFMA": of_slice if tensor == 0 else 0,
                          "HMMA": main.count("HMMA"), "rounds": slices}}


def block_of_integers(launch, function, far, of_slice):
    """The same where each product is rounded to an integer, in a loop inside that of the slices: as often as there are
    samples, which may be fewer than a slice has room for."""
    warps = launch["threads"] / WARP
    inner = max(function.loops, key=lambda loop: loop.count("F2I"))
    terms = min(launch["multiply_adds"] / launch["blocks"] / launch["threads"], launch["slices"] * of_slice)
    times = terms / inner.count("F2I")
    outer = function.around(inner)[-1:]
    per_slice = sum(loop.instructions() for loop in outer)
    top = sum(function.top.values())
    slots = inner.instructions() + waits_for_conversions(inner.own)
    issued = top + launch["slices"] * per_slice + times * slots
    pipe = pipe_clocks(function.top) + times * pipe_clocks(inner.own)
    pipe += launch["slices"] * sum(pipe_clocks(loop.own) for loop in outer)
    waits = launch["slices"] * (2 * LATENCY[far] + 2 * LATENCY["shared"])
    return {"issue": warps * issued, "FFMA": 0, "DFMA": 0, "tensor": 0, "shared memory": warps * pipe,
            "latency": waits + warps * issued / SCHEDULERS,
            "main_loop": {"instructions": round(slots, 1), "FFMA": 0, "HMMA": 0, "rounds": round(times, 1)}}


def block_of_loops(launch, function, far):
    """The same of a kernel whose threads run chains of known length."""
    warps = launch["threads"] / WARP
    doubles = dot_loops(function, "DFMA")
    fours = [loop for loop in dot_loops(function, "FFMA") if loop.count("DADD")]  # floats are squared in float
    floats = [loop for loop in dot_loops(function, "FFMA") if loop not in fours]
    # Several loads are under way where numbers lie in a row, and where elements are formed of two.
    squared = fours or doubles
    formed = [loop for loop in squared if loop.count("FMUL") > loop.count("FFMA") / 3]
    row = max((loop for loop in squared if loop not in formed), key=squares_of, default=None)
    in_doubles = {"double_chain": doubles, "square_chain": [row] if row else [], "read_chain": formed}
    patches = patch_loops(function)
    held = [loop for loop in function.loops if loop.is_innermost and loop.count("FFMA") > 0 and loop.own["LD.128"] > 0
            and loop not in patches]
    others = [loop for loop in function.loops if loop.is_innermost and loop.count("LDG") and loop.count("STG")]
    tiles = tile_loops(function)
    streams = stream_loops(function)
    loads = [loop for loop in function.loops if loop.is_innermost and loop.count("LDG") and loop.count("STS")]
    powers = [loop for loop in function.loops if loop.is_innermost and loop.count("LDS") and loop.count("FSEL")]

    def held_products(loops):
        """A warp has its instructions one behind the other, and waits for what it has read twice a round."""
        return (mean((loop.instructions() / loop.count("FFMA") for loop in loops), 8),
                mean((pipe_clocks(loop.own) / loop.count("FFMA") for loop in loops), 1),
                mean(((loop.instructions() + 2 * LATENCY["shared"]) / loop.count("FFMA") for loop in loops), 16))

    def in_double(loops):
        return (mean((loop.instructions() / squares_of(loop) for loop in loops), 10), 2,
                mean((LATENCY[far] / squares_of(loop) + 2 * LATENCY["arithmetic"] for loop in loops), LATENCY[far]))

    def in_pipe(counted):
        return rounds["double_sums"] + sum(rounds[name] * mean((counted(loop.own) / squares_of(loop) for loop in loops), 0)
                                           for name, loops in in_doubles.items())

    # Of one multiply-add, or one element: instructions, loads, and what its share of a round waits for.
    element = mean((loop.instructions() / loop.count("STG") for loop in others), 20)
    each = {
        "chain": (mean((loop.instructions() / loop.count("FFMA") for loop in floats), 8), 2,
                  mean((LATENCY[far] / loop.count("FFMA") + LATENCY["arithmetic"] for loop in floats), LATENCY[far])),
        **{name: in_double(loops) for name, loops in in_doubles.items()},
        "held_chain": (mean((loop.instructions() / loop.count("FFMA") for loop in held), 8),
                       mean((pipe_clocks(loop.own) / loop.count("FFMA") for loop in held), 2),
                       mean((LATENCY["shared"] / loop.count("FFMA") + LATENCY["arithmetic"] for loop in held),
                            LATENCY["shared"])),
        "patch_chain": (mean((loop.instructions() / loop.count("FFMA") for loop in patches), 4),
                        mean((loads_of(loop) / loop.count("FFMA") for loop in patches), 0.5),
                        mean(((LATENCY[far] + LATENCY["arithmetic"]) / loop.count("FFMA") for loop in patches),
                             LATENCY[far])),
        "tile_chain": (mean((loop.instructions() / products_of(loop) for loop in tiles), 2),
                       mean((pipe_clocks(loop.own) / products_of(loop) for loop in tiles), 0.5),
                       mean(((LATENCY["shared"] + LATENCY["arithmetic"]) / products_of(loop) for loop in tiles),
                            LATENCY["shared"])),
        "held_forward": held_products(held_loops(function, 32, 1)),
        "held_back": held_products(held_loops(function, 64, 2)),
        # A thread adds up all terms of a result, each behind the one before; of several samples those go on meanwhile.
        "held_rows": (mean((loop.instructions() / loop.count("FFMA") for loop in streams), 2),
                      mean((pipe_clocks(loop.own) / loop.count("FFMA") for loop in streams), 0.5),
                      max(LATENCY["arithmetic"] / launch["held_together"],
                          mean((loop.instructions() / loop.count("FFMA") for loop in streams), 2))),
        "held_tiles": (40, 4, 2 * LATENCY["shared"]),
        # Of 16 bytes, which go into shared memory at the rate of what a multiprocessor gets from L2.
        "held_streams": (14, WARP * 16 / 128, launch["threads"] * 16 / L2_BYTES),
        "tiles": (mean(rounds_of_tiles(function, tiles), 0), 0, 2 * LATENCY[far] + 8 * LATENCY["shared"]),
        "tile_loads": (mean((loop.instructions() / loop.count("STS") for loop in loads), 6), 2, 0),
        "powers": (sum(loop.instructions() / loop.count("LDS") for loop in powers), 4, 0),
        "double_sums": (2, 0, 2 * LATENCY["arithmetic"]),  # a conversion and an addition; the element counts below
        "element_rounds": (element, 2, LATENCY[far]),
        "near_rounds": (element, 2, LATENCY["l1"]),
    }
    if launch["what"].endswith(("biases", "leaves")):  # several loads are under way; of biases nothing is multiplied
        name = "FADD" if launch["what"].endswith("biases") else "FFMA"
        loop = max(dot_loops(function, name), key=lambda loop: loop.count(name))
        each["chain"] = (loop.instructions() / loop.count(name), loads_of(loop) / loop.count(name),
                         LATENCY[far] / loop.count(name) + LATENCY["arithmetic"])
    is_sum = launch["what"].endswith("sums")
    if is_sum:  # a sample's weight is read before its element
        each["chain"] = (each["chain"][0], 3, each["chain"][2] + LATENCY[far])
    # Blocks of a sum have chains of all lengths: the mean is what they run, the longest what the last one waits for.
    # Warps that have none of a layer's few outputs run none.
    rounds = {name: launch[name] for name in each}
    shared_out = ("chain", "held_chain", "patch_chain", "held_forward", "held_back", "held_rows")
    chains = sum(launch[name] for name in shared_out)
    has_tiles = launch["tile_chain"] > 0
    of_thread = launch["multiply_adds"] / launch["blocks"] / launch["threads"]
    if is_sum or launch["what"].endswith(("leaves", "biases")):
        rounds["chain"] = chains = of_thread
    busy = min(1, of_thread / chains) if chains > 0 and not has_tiles else 1
    waits, longest = (sum(of[name] * wait for name, (_, _, wait) in each.items()) for of in (rounds, launch))
    streamed = min(launch[name] * each[name][2] for name in ("held_rows", "held_streams"))  # one beside the other
    waits, longest = waits - streamed, longest - streamed
    for name in shared_out:
        rounds[name] *= busy
    issued = sum(rounds[name] * instructions for name, (instructions, _, _) in each.items())
    pipe = sum(rounds[name] * loads for name, (_, loads, _) in each.items())
    by_tensors = rounds["tile_chain"] if any(loop.count("HMMA") for loop in tiles) else 0
    multiplied = sum(rounds[name] for name in (*shared_out, "tile_chain")) - by_tensors
    return {"issue": warps * issued, "FFMA": warps * WARP * multiplied, "tensor": warps * WARP * by_tensors,
            "DFMA": warps * WARP * in_pipe(doubles_of), "conversions": warps * WARP * in_pipe(conversions_of),
            "shared memory": warps * pipe,
            "latency": waits + 2 * LATENCY["memory"], "longest": longest,
            "chains": {name: launch[name] for name in each if launch[name] > 0}}


def makes_words(counts):
    """Do these instructions make words of ChaCha20 and put them into shared memory?"""
    return counts["LOP3"] >= 20 and counts["SHF"] >= 20 and counts["STS"] >= 8


def settles(counts):
    """Or more of them, for a rounding that is not proven at once?"""
    return counts["LOP3"] >= 20 and counts["SHF"] >= 20 and counts["CALL"] > 0 and counts["MUFU"] == 0


def applies_rules(counts):
    """Or rules of optimizers, of which a release has one?"""
    return counts["FFMA"] >= 10 and counts["STG"] >= 5


def issued_by_release(function, threads, tables):
    """What a warp of release_kernel runs: a quarter of the threads make words, in ten rounds, next to no rounding needs
    more, one rule of three is applied, and loops that load go through a network's tables."""
    whole = function.whole()
    words = function.skipped(whole, makes_words).total()
    settled = function.skipped(whole, settles).total()
    skipped = rules = function.skipped(whole, applies_rules, all_of_them=True).total()
    rounds = max((loop for loop in function.loops if loop.count("LOP3") >= 10 and loop.count("LDG") == 0),
                 key=lambda loop: loop.count("LOP3"), default=None)
    again = (CHACHA_ROUNDS - 1) * rounds.instructions() if rounds is not None else 0
    of_tables = sum(loop.instructions() for loop in function.loops if loads_of(loop) > 0)  # before a rule's own
    rules = (rules - of_tables) / 3 + tables * of_tables
    return whole.instructions() - words - settled - skipped + rules + (words + again) * CHACHA_THREADS / threads


def issued_by_fold(function, accumulators):
    """Of the copies of its loop that which stands for one accumulator runs for every one but the first."""
    loop = min(function.loops, key=lambda loop: loop.instructions(), default=None)
    again = loop.instructions() * (accumulators - 1) if loop is not None else 0
    return sum(function.top.values()) + again


def block_of_line(launch, function, far):
    """The same of a kernel without a loop that matters: every instruction once, each behind the one before."""
    warps = launch["threads"] / WARP
    whole = function.whole()
    counts, issued = whole.own, whole.instructions()
    if launch["what"] == "release":
        counts = counts - function.skipped(whole, settles)
        issued = issued_by_release(function, launch["threads"], launch["chain"])
    elif launch["what"] == "fold":
        counts = function.top
        issued = issued_by_fold(function, launch["bytes"] / (4 * launch["blocks"] * launch["threads"]) - 1)
    doubles = sum(counts[name] for name in ("DFMA", "DMUL", "DADD"))
    return {"issue": warps * issued, "FFMA": 0, "tensor": 0, "DFMA": warps * WARP * doubles,
            "shared memory": warps * pipe_clocks(counts),
            "latency": issued * LATENCY["arithmetic"] + 2 * LATENCY[far]}


def predict(launch, function, registers, device):
    """Time, bound and share of the roofline of one launch."""
    clock = device["clock"] * 1e3  # a microsecond
    peak = device["multiprocessors"] * FFMA * clock
    memory = launch["bytes"] / (device["bandwidth"] * 1e3)
    # Accumulators that are rewritten for every sample, if they do not fit, and else everything, comes from L2.
    again = launch["again_bytes"]
    if launch["parts"] > 1 and again / 2 / launch["parts"] > device["l2"]:
        memory, again = memory + again / (device["bandwidth"] * 1e3), 0
    cache = (4 * launch["fetched"] + again) / (device["l2_clock"] * clock)
    ideal = max(launch["multiply_adds"] / peak, launch["bytes"] / (device["bandwidth"] * 1e3))
    tensor_peak = device["tf32"] * 1e6 * (2 if launch["precision"] == "bf16" else 1)
    ideal_on_tensor_cores = max(2 * launch["multiply_adds"] / tensor_peak, launch["bytes"] / (device["bandwidth"] * 1e3))
    # What must be read from shared memory at every position, 128 bytes a clock.
    held = launch["held_bytes"] / (128 * device["multiprocessors"] * clock)
    keys = ("what", "blocks", "threads", "shared", "multiply_adds", "bytes", "group", "branch", "after")
    result = {key: launch[key] for key in keys}
    result["ideal_us"] = max(held, ideal if launch["precision"] == "float" else ideal_on_tensor_cores)
    if function is None:  # a fill
        return {**result, "us": memory + GAP, "bound": "memory", "roofline_share": memory / (memory + GAP),
                "memory_us": memory, "of_block": {}}
    resident = resident_blocks(device, launch["threads"], registers, launch["shared"])
    if launch["slices"] > 0:
        far = "memory" if launch["bytes"] > device["l2"] else "l2"
        block = block_of_product(launch, function, far)
    elif launch["what"] in ("release", "fold"):
        block = block_of_line(launch, function, "memory")
    else:
        own = (launch["bytes"] + launch["again_bytes"]) / launch["blocks"]
        block = block_of_loops(launch, function, "l1" if own * resident <= L1 else "l2")
    rate = {"issue": SCHEDULERS, "FFMA": FFMA, "DFMA": device["dfma"],
            "conversions": 16 if device["dfma"] >= 32 else 2, "shared memory": 1,
            "tensor": tensor_peak / 2 / device["multiprocessors"] / clock}

    def clocks(kinds, together):
        return max(block[kind] if kind == "latency" else together * block.get(kind, 0) / rate[kind] for kind in kinds)

    def all_waves(*kinds):
        at_once = device["multiprocessors"] * resident
        full, rest = divmod(launch["blocks"], at_once)
        last = clocks(kinds, -(-rest // device["multiprocessors"])) if rest else 0
        return (full * clocks(kinds, resident) + last) / clock

    kinds = (*rate, "latency")
    longest = block.get("longest", 0) / clock
    by_kind = {**{kind: all_waves(kind) for kind in kinds}, "memory": max(memory, cache)}
    by_kind["latency"] = max(by_kind["latency"], longest)
    us = max(all_waves(*kinds), longest, memory, cache)
    bound = max(by_kind, key=by_kind.get)
    used = launch["blocks"] / (-(-launch["blocks"] // device["multiprocessors"]) * device["multiprocessors"])
    if bound != "memory" and used < 0.5:
        bound = "too few blocks"
    result |= {"us": us + GAP, "bound": bound, "roofline_share": result["ideal_us"] / (us + GAP),
               "registers": registers, "blocks_a_multiprocessor": resident,
               "waves": launch["blocks"] / device["multiprocessors"] / resident,
               "latency_us": by_kind["latency"], "memory_us": by_kind["memory"],
               "of_block": {"latency": block["latency"], **{kind: block.get(kind, 0) / rate[kind] for kind in rate}}}
    if "chains" in block:  # of the thread that has the longest ones
        result["serial_chains"] = block["chains"]
    if "main_loop" in block:  # of a warp, a round of the loop
        result["main_loop"] = loop = block["main_loop"]
        if loop["FFMA"] > 0:
            result["ffma_of_issue_slots"] = loop["FFMA"] / loop["instructions"]
        if loop["HMMA"] > 0:  # of the clocks that issue takes those in which its scheduler's tensor core works
            clocks_each = HMMA[launch["precision"]] * SCHEDULERS / rate["tensor"]
            result["hmma_of_issue_limit"] = min(1, loop["HMMA"] * clocks_each / loop["instructions"])
    return result


def plain_update(launches, batch, precision, device):
    """What an ordinary step does with its sum, at the rate of memory: it is read, a parameter is read and written. The
    library has no kernel for it on a device; the parameters are those that a private step releases."""
    released = sum(each["elements"] for each in launches if each["what"] == "release" and
                   (each["batch"], each["precision"]) == (batch, precision))
    us = 12 * released / (device["bandwidth"] * 1e3)
    return {"what": "update", "blocks": 0, "threads": 0, "shared": 0, "multiply_adds": 0, "bytes": 12 * released,
            "ideal_us": us, "us": us + GAP, "bound": "memory", "roofline_share": us / (us + GAP), "memory_us": us,
            "of_block": {}, "group": 0, "branch": 0, "after": -1}


class Multiprocessors:
    """Blocks of several kernels at once. Multiprocessors that are alike are kept together: (how many, their blocks), the
    latter as [kernel, how many that began together, what is left of them]. A block takes what it takes alone, unless a
    pipe has more to do: then all on that multiprocessor are slower alike."""

    def __init__(self, device):
        self.device = device
        self.alike = [(device["multiprocessors"], [])]

    def has_room(self, blocks, kernel):
        counts = sum(count for _, count, _ in blocks)
        most = (self.device["threads"], REGISTERS, self.device["shared"] << 10)
        return counts < self.device["blocks"] and all(
            kernel.needs[i] + sum(count * each.needs[i] for each, count, _ in blocks) <= most[i] for i in range(3))

    def take(self, kernel):
        """Its waiting blocks for which there is room, where the fewest are first."""
        while kernel.waiting > 0:
            free = [place for place, (_, blocks) in enumerate(self.alike) if self.has_room(blocks, kernel)]
            if not free:
                return
            place = min(free, key=lambda place: sum(count for _, count, _ in self.alike[place][1]))
            number, blocks = self.alike[place]
            taken = min(number, kernel.waiting)
            if taken < number:
                self.alike.append((number - taken, [list(each) for each in blocks]))
            self.alike[place] = (taken, blocks)
            fresh = next((each for each in blocks if each[0] is kernel and each[2] == 1), None)
            if fresh is None:
                blocks.append([kernel, 1, 1])
            else:
                fresh[1] += 1
            kernel.waiting -= taken

    @staticmethod
    def speeds(blocks):
        """Of each, in blocks a clock."""
        busy = max((sum(count * kernel.of_block[kind] / kernel.alone for kernel, count, _ in blocks)
                    for kind in blocks[0][0].of_block if kind != "latency"), default=0) if blocks else 0
        return [1 / kernel.alone / max(1, busy) for kernel, _, _ in blocks]

    def advance(self, most):
        """Until some block ends, or `most` clocks; how many."""
        speeds = [self.speeds(blocks) for _, blocks in self.alike]
        ends = [left / speed for (_, blocks), each in zip(self.alike, speeds) for (_, _, left), speed in zip(blocks, each)]
        clocks = min([most, *ends])
        for (number, blocks), each in zip(self.alike, speeds):
            for block, speed in zip(blocks, each):
                block[2] -= speed * clocks
                if block[2] < 1e-9:
                    block[0].left -= number * block[1]
            blocks[:] = [block for block in blocks if block[2] >= 1e-9]
        return clocks


class Running:
    """A kernel of those that may run at the same time."""

    def __init__(self, launch, began):
        self.launch, self.began = launch, began
        self.of_block = launch["of_block"]
        self.alone = max(self.of_block.values(), default=0)
        self.waiting = self.left = launch["blocks"] if self.of_block else 0  # a fill has none
        self.needs = (launch["threads"], -(-launch.get("registers", 0) // 8) * 8 * launch["threads"],
                      launch["shared"] + RESERVED_SHARED)


def together(launches, device):
    """Microseconds of kernels some of which may run at the same time: {place in the step: kernel}. Each waits for that
    before it in its branch and for what it says, takes no less than alone, and all no less than their memory."""
    clock = device["clock"] * 1e3
    newest, waits_for = {}, {}
    for place, each in launches.items():
        waits_for[place] = {newest.get(each["branch"], -1), each["after"]} & set(launches)
        newest[each["branch"]] = place
    ends, running, now = {}, {}, 0.0
    multiprocessors = Multiprocessors(device)
    while len(ends) < len(launches):
        begins = []
        for place, each in launches.items():
            if place in running or place in ends or not waits_for[place] <= set(ends):
                continue
            begins.append(max((ends[other] + GAP * clock for other in waits_for[place]), default=0.0))
            if begins[-1] <= now + 1e-6:
                running[place] = Running(each, begins.pop())
        for kernel in running.values():
            multiprocessors.take(kernel)
        ended = [place for place, kernel in running.items() if kernel.left == 0]
        for place in ended:
            kernel = running.pop(place)
            ends[place] = max(now, kernel.began + (kernel.launch["us"] - GAP) * clock)
        if not ended:
            now += multiprocessors.advance(min(begins, default=math.inf) - now)
    return max(max(ends.values()) / clock, sum(each["memory_us"] for each in launches.values())) + GAP


def step_of(kernels, device):
    """A step's row."""
    us, by_bound = 0, {}
    for _, group in itertools.groupby(enumerate(kernels), key=lambda each: each[1]["group"] or -1 - each[0]):
        launches = dict(group)
        alone = sum(each["us"] for each in launches.values())
        took = alone if len(launches) == 1 else together(launches, device)
        us += took
        for each in launches.values():
            by_bound[each["bound"]] = by_bound.get(each["bound"], 0) + each["us"] * took / alone
    return {"step_us": us, "bound": max(by_bound, key=by_bound.get), "kernels": len(kernels),
            "roofline_share": sum(each["ideal_us"] for each in kernels) / us,
            "us_by_bound": {name: round(took, 2) for name, took in sorted(by_bound.items(), key=lambda each: -each[1])}}


def model(builder, devices, tasks, batches):
    """(rows of steps, rows of kernels)"""
    steps, parts = [], []
    for task in tasks:
        batches_here = OWN_BATCHES.get(task, batches)
        launches = builder.launches(task, batches_here)
        for name in devices:
            device = DEVICES[name]
            kernels = builder.kernels(task, device["architecture"])
            without = {each["kernel"] for each in launches} - {"", *kernels}
            if without:
                sys.exit(f"model.py: no machine code for {without.pop()}")
            for batch in batches_here:
                for precision in PRECISIONS:
                    for private in (True, False):
                        head = {"batch": batch, "precision": precision, "private": private}
                        chosen = [each for each in launches if all(each[key] == value for key, value in head.items())]
                        head = {"task": task, "device": name, **head}
                        found = [predict(each, *kernels.get(each["kernel"], (None, 0)), device) for each in chosen]
                        if not private:
                            found.append(plain_update(launches, batch, precision, device))
                        steps.append({**head, **step_of(found, device)})
                        parts += [{**head, **{key: value for key, value in each.items() if key != "of_block"}}
                                  for each in found]
    return steps, parts


def number(value, digits=3):
    if value == 0:
        return "0"
    return f"{value:,.{max(0, digits - 1 - math.floor(math.log10(abs(value))))}f}"


def document(steps, builder):
    """What docs/cuda.md shows."""
    known = {(step["task"], step["batch"], step["device"], step["precision"]): step for step in steps if step["private"]}
    rows = []
    for task, title in TASKS.items():
        batches = OWN_BATCHES.get(task, BATCHES)
        for batch in batches:
            row = [title if batch == batches[0] else "", f"{batch:,}"]
            for device in SHOWN:
                step = known[task, batch, device, "float"]
                row += [number(step["step_us"] / 1000), step["bound"], number(step["roofline_share"], 2),
                        *(number(known[task, batch, device, other]["step_us"] / 1000) for other in PRECISIONS[1:])]
            rows.append(row)
    columns = ["task", "batch"]
    for device in SHOWN:
        columns += [f"{DEVICES[device]['title']}: ms", "bound", "of the roofline", "TF32: ms", "BF16: ms"]
    version = run(["git", "-C", ROOT, "rev-parse", "--short", "HEAD"])[0].strip()
    changed = run(["git", "-C", ROOT, "status", "--porcelain", "--untracked-files=no"])[0].strip()
    release = run([builder.nvcc, "--version"])[0].partition("release ")[2].partition(",")[0]
    return {"what": "a model of one private step in float on GPUs that were not there: milliseconds, what bounds most "
                    "of them, and the share of the roofline; and milliseconds with TF32 and BF16",
            "commands": ["python3 bench/cuda/model.py --update"], "machine": "none: modelled, not measured",
            "date": datetime.date.today().isoformat(), "version": f"the tree after commit {version}" if changed else f"commit {version}",
            "note": f"machine code by CUDA {release}; sources of the devices' figures: bench/cuda/model.py",
            "align": "lr" + "rlrrr" * len(SHOWN), "columns": columns, "rows": rows,
            "steps": [{**{key: step[key] for key in ("task", "device", "batch", "precision", "private", "kernels")},
                       **{key: float(f"{step[key]:.4g}") for key in ("step_us", "roofline_share")},
                       "bound": step["bound"]} for step in steps]}


def of_document(base):
    """What every file of one run of this script says of it."""
    return {key: base[key] for key in ("commands", "machine", "date", "version", "note")}


def boards(base):
    """Steps a second on Jetsons, for docs/cuda.md; `base`: the document of the same steps."""
    known = {(step["task"], step["batch"], step["device"], step["precision"]): step["step_us"]
             for step in base["steps"] if step["private"]}
    rows = []
    for task, title in TASKS.items():
        batches = OWN_BATCHES.get(task, BATCHES)
        rows += [[title if batch == batches[0] else "", f"{batch:,}",
                  *(number(1e6 / known[task, batch, device, precision]) for device in BOARDS for precision in PRECISIONS)]
                 for batch in batches]
    shown = {"float": "FP32", "tf32": "TF32", "bf16": "BF16"}
    return of_document(base) | {
        "what": "a model of private steps on boards that were not there: steps a second", "align": "lr" + "r" * 6,
        "columns": ["task", "batch", *(f"{DEVICES[device]['title']}, {shown[precision]}"
                                       for device in BOARDS for precision in PRECISIONS)], "rows": rows}


def goals(steps, parts, base):
    """The goals for an H200 beside what is modelled, for docs/cuda.md."""
    known = {(step["task"], step["batch"], step["precision"], step["private"]): step
             for step in steps if step["device"] == "h200"}
    rows = []

    def add(what, goal, found, holds):
        rows.append([what, goal, found, "yes" if holds else "no"])

    def name(task, batch, precision):
        title = {"float": "", "tf32": ", TF32", "bf16": ", BF16"}[precision]
        return f"{TASKS[task]}, {batch:,}{title}"

    for task, batch, precision, most in MOST_MS:
        found = known[task, batch, precision, True]["step_us"] / 1000
        add(f"{name(task, batch, precision)}: ms", f"at most {most:g}", number(found), found <= most)
    for task, batch in RATIOS:
        for precision in PRECISIONS:
            found = known[task, batch, precision, True]["step_us"] / known[task, batch, precision, False]["step_us"]
            if precision == "float" or found > MOST_RATIO:
                add(f"{name(task, batch, precision)}: private over ordinary", f"at most {MOST_RATIO}", number(found),
                    found <= MOST_RATIO)
    for task, batch in SHARES:
        found = known[task, batch, "float", True]["roofline_share"]
        add(f"{name(task, batch, 'float')}: share of the roofline", f"at least {LEAST_SHARE}", number(found, 2),
            found >= LEAST_SHARE)
    for precision, (key, least) in LEAST_OF_ISSUE.items():
        for task in ("vgg16", "cifar_cnn"):
            for kind in ("forward", "adjoint", "squares", "gradients", "shares"):
                # Each kind's kernel that takes most time; at one position there is no tensor core.
                of_kind = [part for part in parts if part["device"] == "h200" and part["task"] == task
                           and part["private"] and part["precision"] == precision and part["what"].startswith(kind)
                           and key in part and ", 1 positions" not in part["what"]]
                if of_kind:
                    found = max(of_kind, key=lambda part: part["us"])[key]
                    unit = "FFMA" if precision == "float" else "HMMA"
                    add(f"{TASKS[task]}: {unit} of issue slots, {kind}", f"at least {least}", number(found, 2),
                        found >= least)
    return of_document(base) | {
        "what": "what private steps on an H200 should reach, beside what is modelled; an ordinary one has the plain "
                "sum and an update at the rate of memory; of issue slots HMMA has as many as a tensor core works for one",
        "align": "lrrl", "columns": ["", "goal", "modelled", "holds"], "rows": rows}


def as_json(result):
    """Rows take one line each."""
    lists = ("rows", "commands", "columns", "steps")
    body = [f"  {json.dumps(key)}: " + ("[\n    " + ",\n    ".join(json.dumps(each) for each in value) + "\n  ]"
                                        if key in lists else json.dumps(value)) for key, value in result.items()]
    return "{\n" + ",\n".join(body) + "\n}\n"


def markdown(steps, parts):
    def table(head, lines):
        rule = ["---" if i < 5 else "---:" for i in range(len(head))]
        return "".join("| " + " | ".join(line) + " |\n" for line in (head, rule, *lines))

    text = ["# Modelled, not measured: steps on GPUs\n", table(
        ["task", "device", "batch", "precision", "private", "us a step", "bound", "of the roofline", "kernels"],
        [[step["task"], step["device"], str(step["batch"]), step["precision"], "yes" if step["private"] else "no",
          number(step["step_us"]), step["bound"], number(step["roofline_share"], 2), str(step["kernels"])]
         for step in steps])]
    columns = ["kernel", "blocks", "threads", "registers", "blocks a multiprocessor", "us", "bound", "of the roofline"]
    of_step = {}
    for part in parts:
        if part["private"] and part["precision"] == "float":
            of_step.setdefault((part["task"], part["device"], part["batch"]), []).append(part)
    for (task, device, batch), kernels in of_step.items():
        text += [f"\n## {task}, {device}, batch {batch}: kernels of a private step in float\n", table(columns, [
            [part["what"], str(part["blocks"]), str(part["threads"]), str(part.get("registers", "")),
             str(part.get("blocks_a_multiprocessor", "")), number(part["us"]), part["bound"],
             number(part["roofline_share"], 2)] for part in kernels])]
    return "\n".join(text)


COLOURS = {"issue": "#cb6e17", "FFMA": "#15803d", "DFMA": "#7c3aed", "conversions": "#db2777",
           "shared memory": "#0b5fa5", "latency": "#9aa5b1", "memory": "#0e7490", "too few blocks": "#b91c1c", "tensor": "#a16207"}


def picture(steps, batch):
    """A bar a task and device, by what bounds its kernels; one self-contained SVG."""
    chosen = [step for step in steps if step["private"] and step["precision"] == "float"
              and step["batch"] in OWN_BATCHES.get(step["task"], [batch])]
    left, length, height = 275, 430, 22
    width, y = left + length + 110, 64
    out = []

    def text(x, place, content, anchor="start", size=12):
        out.append(f'<text x="{x:.1f}" y="{place:.1f}" text-anchor="{anchor}" font-size="{size}" fill="#222222">'
                   f'{content}</text>')

    text(16, 26, f"Modelled private steps in float at {batch:,} records, by what bounds their kernels", size=15)
    x = 16
    for name, colour in COLOURS.items():
        if any(name in step["us_by_bound"] for step in chosen):
            out.append(f'<rect x="{x}" y="38" width="12" height="12" fill="{colour}"/>')
            text(x + 17, 48, name)
            x += 34 + 7 * len(name)
    for step in chosen:
        at = f" at {step['batch']}" if step["task"] in OWN_BATCHES else ""
        text(left - 8, y + 15, f"{step['task']}{at}, {DEVICES[step['device']]['title']}", "end")
        x = left
        for name, took in step["us_by_bound"].items():
            part = length * took / step["step_us"]
            out.append(f'<rect x="{x:.1f}" y="{y}" width="{part:.1f}" height="{height - 5}" fill="{COLOURS[name]}"/>')
            x += part
        text(left + length + 8, y + 13, f"{number(step['step_us'] / 1000)} ms")
        y += height
    size = f'width="{width}" height="{y + 12}" viewBox="0 0 {width} {y + 12}"'
    return (f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" role="img" '
            f'aria-label="Modelled private steps at {batch:,} records, by what bounds their kernels">\n'
            f'<rect width="{width}" height="{y + 12}" fill="#ffffff"/>\n' + "\n".join(out) + "\n</svg>\n")


def batch_size(text):
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"a batch is a whole number above 0, not {text}")
    return int(text)


def list_of(kind, known=None):
    def parse(text):
        values = list(dict.fromkeys(kind(each) for each in text.split(",") if each))
        unknown = [each for each in values if known is not None and each not in known]
        if unknown or not values:
            raise argparse.ArgumentTypeError(
                "nothing is listed" if not values else f"not known: {', '.join(unknown)}; of {', '.join(known)}")
        return values

    return parse


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", action="append", choices=list(DEVICES), help="default h200, orin and thor")
    parser.add_argument("--tasks", type=list_of(str, TASKS), default=list(TASKS), help=f"of {','.join(TASKS)}")
    parser.add_argument("--batches", type=list_of(batch_size), default=list(BATCHES),
                        help=f"of all tasks but {', '.join(OWN_BATCHES)}")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "cuda-model")
    parser.add_argument("--reuse", action="store_true", help="programs that lie in the build folder")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--out", type=pathlib.Path, default=pathlib.Path("out/cuda_model"), metavar="DIR")
    how.add_argument("--update", action="store_true")
    options = parser.parse_args()
    devices = list(DEVICES) if options.update else list(dict.fromkeys(options.device or SHOWN))
    if options.update and (options.device or options.tasks != list(TASKS) or options.batches != list(BATCHES)):
        parser.error("--update goes with the usual devices, tasks and batches")
    if not options.update:
        try:
            options.out.mkdir(parents=True, exist_ok=True)
        except OSError as problem_found:
            parser.error(f"--out {options.out}: {problem_found.strerror}")
    builder = Builder(options.build.resolve(), options.reuse)
    steps, parts = model(builder, devices, options.tasks, options.batches)
    at = 256 if 256 in options.batches else options.batches[-1]
    if options.update:
        base = document(steps, builder)
        RESULTS.write_text(as_json(base), encoding="utf-8")
        BOARDS_FOUND.write_text(as_json(boards(base)), encoding="utf-8")
        GOALS_FOUND.write_text(as_json(goals(steps, parts, base)), encoding="utf-8")
        PICTURE.write_text(picture([step for step in steps if step["device"] in SHOWN], at), encoding="utf-8")
        return 0
    found = {"note": "modelled, not measured", "steps": steps, "kernels": parts}
    (options.out / "model.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    (options.out / "model.md").write_text(markdown(steps, parts), encoding="utf-8")
    (options.out / "model.svg").write_text(picture(steps, at), encoding="utf-8")
    print(markdown(steps, []))
    print(f"modelled, not measured; wrote {options.out}/model.json, .md and .svg")
    return 0


if __name__ == "__main__":
    sys.exit(main())
