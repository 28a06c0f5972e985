# SPDX-License-Identifier: Apache-2.0
"""Builds, checks and times the device part on this machine's GPU, next to its peers. Standard library only.

Everything has a share of the time: builds run side by side, what is timed first comes first; checks begin with the
first program that is there, then ours is timed, then the peers, one process a family, then what is wanted less. What
takes longer than its share is stopped and named; what there was no time for is named too. The report is written after
every row of ours and every part, and when the run is interrupted.
"""

import argparse
import concurrent.futures
import datetime
import hashlib
import importlib.util
import json
import os
import pathlib
import platform
import re
import select
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import zipfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import cuda_report  # noqa: E402
import kernel_times  # noqa: E402
import networks  # noqa: E402
import power  # noqa: E402
import problem  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
TESTS = ROOT / "tests" / "cuda" / "nvcc"
RUNTIMES = ROOT / "tests" / "cuda" / "fake_runtime"
BUILD = ROOT / "build" / "bench-cuda"
FASHION_MNIST = pathlib.Path("/usr/share/datasets/fashion-mnist")

BATCHES = (16, 32, 64, 128, 256, 512, 1024, 2048)
FIRST_BATCHES = (16, 256, 2048)  # of peers, and all that are timed with TF32
CHECKED_BATCH = 16  # whose sum the peers must give
CHECK_STEPS = 20  # in which a peer's loss must go down
PHYSICAL_BATCH = 256  # of the logical batches whose memory is measured
PROFILED_BATCH = 256
POISSON_RECORDS = 60_000
CUBLAS_TASK, CUBLAS_BATCHES = "mlp", (1024, 2048)  # smaller ones a block holds
BF16_TASKS = ("cifar_cnn", "lstm", "vgg16", "lk_transformer")  # those whose products tensor cores form
# Checks of what tensor cores form: (task, program, words before the command).
ON_TENSOR_CORES = (("cifar_cnn", "cifar_cnn", ["tf32"]), ("tiny_sequences", "tiny_sequences", ["tf32"]),
                   ("cifar_cnn", "cifar_cnn_bf16", []))
# In the order in which they are asked. torch_compiled comes after the others: its first steps take seconds.
FAMILIES = {"torch": ("torch", "torch_graph", "opacus_hooks", "opacus_ghost", "torch_compiled", "torch_vmap"),
            "jax": ("jax_scan", "jax")}
WITH_TF32 = ("torch", "torch_graph", "opacus_hooks", "torch_compiled", "jax_scan")
OF_MORE_TASKS = ("torch_graph", "opacus_hooks", "jax", "torch")  # in the order in which they are asked there
NOT_WRITTEN = (("jax", "gpt2_small_lora"),)  # peers' networks
OPACUS = ("opacus", "opt_einsum", "scipy")  # what it imports beside PyTorch and NumPy
MODULES = {**{name: ("torch",) for name in FAMILIES["torch"]}, "jax": ("jax",), "jax_scan": ("jax",),
           "opacus_hooks": OPACUS, "opacus_ghost": OPACUS}
# A kernel that the host emulates calls functions of the host, which nvcc does not like in the marked ones.
PLAYED = "--diag-suppress=20011,20013,20014"
# For the sanitizers: a fused network, one whose samples blocks hold in FP32, and one whose products are a whole batch's.
SANITIZED = (("layered network", "cifar_cnn", ["profile", "4"]), ("tiny network", "tiny", ["check", "12"]),
             ("network of sequences", "tiny_sequences", ["tf32", "profile", "4"]),
             ("network of held samples", "mnist_cnn", ["profile", "4"]), ("kernels", "kernels", ["small"]))
# Then the tool has seen nothing, whatever its exit code is: some of these it counts as findings.
NOT_SANITIZED = re.compile("^=+ Error: .*(not supported|permi|ailed to init|No attachable process|"
                           "first instrumented API call)", re.MULTILINE)
LACKS_CUBLAS = re.compile(r"(find|library) -lcublas|cublas_v2\.h(\"|: No such file)")  # words of linkers and compilers
# The most seconds that a part may take, of 9 minutes; as much more where --minutes gives more.
MOST = {"build": 180, "check": 60, "checks": 160, "sanitizer": 25, "sanitizers": 60, "more sanitizers": 40,
        "ours": 100, "more of ours": 90, "kernels": 60, "first job": 75, "job": 45}


class Clock:
    def __init__(self, minutes):
        self.start = time.monotonic()
        self.end = self.start + 60 * minutes

    def left(self):
        return self.end - time.monotonic()

    def spent(self):
        return time.monotonic() - self.start


class Share:
    """A part's share of the time, of which waiting for builds takes nothing."""

    def __init__(self, seconds, clock):
        self.seconds, self.clock = seconds, clock

    def left(self, most=float("inf")):
        return min(self.seconds, most, self.clock.left())

    def spend(self, begin):
        self.seconds -= time.monotonic() - begin


class Stopped(Exception):
    """Somebody wants the run to end."""


RUNNING = set()  # processes of output_of
ENDING = threading.Event()  # then no other begins


def end_everything():
    ENDING.set()
    for process in list(RUNNING):
        end_group(process)


def say(text):
    """A terminal that is gone ends no run."""
    try:
        print(text, flush=True)
    except OSError:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")


def end_group(process):
    """Ends a process and what it has started."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()


def output_of(command, seconds, on_line=lambda line: None):
    """(exit code or None where the time was up, what was printed); every line is given away as soon as it is there."""
    end = time.monotonic() + seconds
    if seconds <= 0 or ENDING.is_set():
        return None, ""
    try:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                   start_new_session=True)
    except OSError as problem_found:
        return 127, f"{command[0]}: {problem_found}"
    RUNNING.add(process)
    code, lines = None, [b""]
    try:
        if ENDING.is_set():  # it came too late for whoever ended the others
            end_group(process)
        while select.select([process.stdout], [], [], max(0, end - time.monotonic()))[0]:
            part = os.read(process.stdout.fileno(), 1 << 16)
            if not part:
                code = process.wait(max(0, end - time.monotonic()))
                break
            for line in part.splitlines(keepends=True):
                lines[-1] += line
                if line.endswith(b"\n"):
                    on_line(lines[-1].decode(errors="replace"))
                    lines.append(b"")
    except subprocess.TimeoutExpired:
        pass
    finally:
        if code is None:
            end_group(process)
        process.stdout.close()
        RUNNING.discard(process)
    return code, b"".join(lines).decode(errors="replace")


def last_lines(text, count=3):
    return " ".join(" / ".join(text.strip().splitlines()[-count:]).split())[-400:] or "nothing was printed"


class Builder:
    """nvcc with this machine's GPU, or without one the runtime that emulates it (PERGRAD_FAKE_CUDA, for tests)."""

    def __init__(self, nvcc, fake):
        self.nvcc, self.fake = nvcc, fake
        self.flags = ["-std=c++20", "-O3", "-lineinfo", f"-I{ROOT / 'include'}"]
        self.architecture = []
        if fake:
            self.flags = ["-std=c++20", "-O1", f"-I{ROOT / 'include'}", "-DPERGRAD_EMULATED_KERNELS",
                          PLAYED]

    def use(self, architecture):
        self.architecture = [f"-arch=sm_{architecture}"]

    def prepare(self):
        """The fake runtime: alone, and under the watched one, which then answers what tests ask."""
        if not self.fake:
            return
        below = ["-Dfake_cuda=fake_cuda_below"]
        for source, more, name in (("fake_runtime", [], "alone"), ("fake_runtime", below, "below"),
                                   ("fake_cublas", below, "cublas")):
            code, text = output_of([self.nvcc, *self.flags, *more, "-c", str(RUNTIMES / f"{source}.cpp"), "-o",
                                    str(self.object(name))], 600)
            if code != 0:
                why = " within ten minutes" if code is None else f":\n{text}"
                sys.exit(f"bench/cuda/run.sh: {source}.cpp cannot be built{why}")

    @staticmethod
    def object(name):
        return BUILD / f"fake_{name}.o"

    def link_flags(self, more, is_watched):
        """Of the runtime that a program gets: the real one, or the fake."""
        if not self.fake:  # cuBLAS lies beside nvcc, where the loader need not look
            return more + (["-Xlinker", f"-rpath={pathlib.Path(self.nvcc).resolve().parent.parent / 'lib64'}"]
                           if "-lcublas" in more else [])
        runtime = ["--cudart", "none", str(self.object("below" if is_watched else "alone"))]
        return [str(self.object("cublas")) if flag == "-lcublas" else flag for flag in more] + runtime

    def command(self, name, sources, more=(), is_watched=False):
        target = BUILD / f"{name}.program"
        watched = []
        if is_watched:
            calls = (RUNTIMES / "watched_calls.txt").read_text(encoding="utf-8").split()
            watched = [str(RUNTIMES / "watched_runtime.cpp"), "-Xlinker",
                       ",".join(f"--wrap={call}" for call in calls)]
        return target, [self.nvcc, *self.flags, *self.architecture, *map(str, sources), *watched,
                        *self.link_flags(list(more), is_watched), "-o", str(target)]


class Programs:
    """What is built, side by side; wait(name) gives (path or None, why not)."""

    def __init__(self, builder, tasks, tests, clock):
        self.jobs = {}
        self.pool = concurrent.futures.ThreadPoolExecutor((os.cpu_count() or 1) + 4)  # of a few, the last ones are long
        self.sources = digest_of_sources(builder.nvcc)
        self.end = time.monotonic() + min(MOST["build"], clock.left())

        def plain(names):
            return [(name, [HERE / "ours.cu"], [f"-I{network_folder(name)}"] + unchecked(name), False) for name in names]

        def unchecked(name):
            return ["-DPERGRAD_BENCH_NO_CHECK"] if networks.OWN_CHECKED_RECORDS.get(name) == 0 else []

        # What is wanted first comes first, as there may be few processors.
        wanted = plain(name for name in tasks if name not in networks.MORE)
        wanted += [test for test in device_tests() if test[0] in tests]
        wanted += plain(name for name in tasks if name in networks.MORE)
        if CUBLAS_TASK in tasks:
            wanted += [(f"{CUBLAS_TASK}_cublas", [HERE / "ours.cu"],
                        [f"-I{network_folder(CUBLAS_TASK)}", "-DPERGRAD_CUBLAS=1", "-lcublas"], False)]
        wanted += [(f"{name}_bf16", [HERE / "ours.cu"], [f"-I{network_folder(name)}", "-DPERGRAD_BENCH_BF16"] +
                    unchecked(name), False) for name in BF16_TASKS if name in tasks]
        wanted += [("kernels", [HERE / "kernels.cu"], [PLAYED], False)] if "kernels" in tests else []
        for name, sources, more, is_watched in wanted:
            self.jobs[name] = self.pool.submit(self.build, *builder.command(name, sources, more, is_watched))

    def build(self, target, command):
        """Not what an earlier run has built of the same sources by the same command."""
        made_of, wanted = target.with_suffix(".made_of"), f"{self.sources} {shlex.join(command)}"
        if target.exists() and made_of.exists() and made_of.read_text(encoding="utf-8") == wanted:
            return target, ""
        for each in (target, made_of):
            each.unlink(missing_ok=True)
        code, text = output_of(command, self.end - time.monotonic())
        if code == 0:
            made_of.write_text(wanted, encoding="utf-8")
            return target, ""
        return None, "cannot be built in time" if code is None else f"cannot be built: {first_error(text)}"

    def wait(self, name):
        return self.jobs[name].result()

    def wait_all(self):
        for job in self.jobs.values():
            job.result()


def digest_of_sources(nvcc):
    """Of all that programs are made of, and of what makes them."""
    digest = hashlib.sha256(output_of([nvcc, "--version"], 60)[1].encode())
    for place in (ROOT / "include", ROOT / "examples" / "common", ROOT / "bench" / "peers", HERE, ROOT / "tests" / "cuda"):
        for path in sorted(place.rglob("*")):
            if path.suffix in (".hpp", ".cuh", ".cu", ".cpp", ".txt", ".py"):
                digest.update(str(path.relative_to(ROOT)).encode() + path.read_bytes())
    return digest.hexdigest()


def first_error(text):
    lines = text.strip().splitlines()
    return next((line for line in lines if "error" in line.lower() or "cannot find" in line), last_lines(text))[:300]


def device_tests():
    """The tests that nvcc compiles, on the runtime that is there: (name, sources, flags, is watched)."""
    images, library = HERE / "made_up_images.cpp", []
    if FASHION_MNIST.is_dir() and pathlib.Path("/usr/include/zlib.h").exists():
        images, library = ROOT / "examples" / "common" / "fashion_mnist_data.cpp", ["-lz"]
    host = [TESTS / "training_host.cpp", images]
    return [("cuda_device_test", [TESTS / "cuda_device_test.cu"], [], True),
            ("training_test", [TESTS / "training_test.cu", *host], library, True),
            ("layered_test_0", [TESTS / "layered_test.cu", *host], ["-DPERGRAD_CUBLAS=0", *library], True),
            ("layered_test_1", [TESTS / "layered_test.cu", *host], ["-DPERGRAD_CUBLAS=1", "-lcublas", *library], True)]


def network_folder(name):
    return BUILD / name


def find_gpu(builder):
    """What probe.cu says; ends the program with code 3 where there is no usable GPU. It is compiled for this GPU: code for
    another one would ask the driver to compile, which an older one cannot."""
    for architecture in (["-arch=native"], []):  # not every toolkit has what finds it
        builder.architecture = [] if builder.fake else architecture
        target, command = builder.command("probe", [HERE / "probe.cu"])
        code, text = output_of(command, 120)
        if code == 0:
            break
    if code != 0:
        sys.exit(f"bench/cuda/run.sh: probe.cu cannot be built:\n{text}")
    code, text = output_of([str(target)], 60)
    if code != 0:
        said = last_lines(text, 1) if text.strip() else "the GPU does not answer" if code is None else "the probe fails"
        print(f"bench/cuda/run.sh: {said}", file=sys.stderr)
        sys.exit(3)
    found = rows_of(text)  # a driver's warnings may stand beside it
    if not found:
        sys.exit(f"bench/cuda/run.sh: the probe says nothing of a GPU: {last_lines(text)}")
    return found[-1]


def find_program(name, nvcc):
    for folder in [*os.environ.get("PATH", "").split(os.pathsep), str(pathlib.Path(nvcc).parent), "/usr/local/cuda/bin"]:
        path = pathlib.Path(folder) / name
        if folder and os.access(path, os.X_OK):
            return str(path)
    return None


def rows_of(text):
    rows = []
    for line in text.splitlines():
        try:
            rows.append(json.loads(line))
        except ValueError:
            continue
    return [row for row in rows if isinstance(row, dict)]


class Run:
    def __init__(self, options, builder, machine, clock):
        self.options, self.builder, self.machine, self.clock = options, builder, machine, clock
        self.checks, self.rows, self.kernels = [], [], []
        self.programs = None
        self.data, self.families = {}, []

    def write(self):
        self.machine["seconds"] = round(self.clock.spent())
        cuda_report.write(self.options.out, self.machine, self.checks, self.rows, self.kernels)

    def note(self, what, state, text=""):
        self.checks.append({"what": what, "state": state, "output": text[-4000:]})
        self.write()
        say(f"{what}: {state}")
        if state.startswith("FAILED"):
            say(text)

    def run_check(self, what, program, words, share, most=float("inf"), before=()):
        path, why_not = self.programs.wait(program)
        if path is None:  # cuBLAS need not be installed
            self.note(what, f"not built: {why_not}" if LACKS_CUBLAS.search(why_not) else f"FAILED: {why_not}", why_not)
            return
        seconds, begin = share.left(most), time.monotonic()
        code, text = output_of([*before, str(path), *words], seconds)
        share.spend(begin)
        is_cut = seconds > 0 and not before  # a sanitizer's time depends on what it is
        state = {0: "ok", None: f"not done in {seconds:.0f} s" if is_cut else "no time left"}
        is_allowed = not before or not NOT_SANITIZED.search(text)
        self.note(what, state.get(code, f"FAILED: exit code {code}") if is_allowed else "not allowed here", text)

    def check(self):
        """In the order in which programs are built, and what finds most early."""
        share = Share(MOST["checks"], self.clock)
        self.check_tasks(share, [name for name in self.options.tasks if name not in networks.MORE])
        for name, *_ in device_tests():
            if name in self.options.tests:
                self.run_check(f"{name} on this device", name, [], share, MOST["check"])
        for task, program, words in ON_TENSOR_CORES:
            if task in self.options.tasks:
                precision = "BF16" if program.endswith("_bf16") else "TF32"
                self.run_check(f"{task}, {precision}: device and host executor agree", program,
                               [*words, "check", "12" if self.options.small else "24"], share, MOST["check"])
        self.sanitize(("memcheck", "racecheck"), Share(MOST["sanitizers"], self.clock))
        self.check_tasks(share, [name for name in self.options.tasks if name in networks.MORE])
        if "kernels" in self.options.tests:
            self.run_check("kernels have the host's bits", "kernels", [], share, MOST["check"])

    def part(self, name, do, *how):
        """A mistake in one part leaves the others' time to them."""
        try:
            do(*how)
        except Stopped:
            raise
        except Exception as wrong:  # whatever it is: the machine may not be there for a second run
            self.note(name, f"FAILED: {type(wrong).__name__}: {wrong}"[:200], traceback.format_exc())

    def check_tasks(self, share, tasks):
        for name in tasks:
            records = 12 if self.options.small else networks.OWN_CHECKED_RECORDS.get(name, 96)
            if records > 0:
                self.run_check(f"{name}: device and host executor agree", name, ["check", str(records)], share,
                               MOST["check"])

    def sanitize(self, tools, share):
        sanitizer = find_program("compute-sanitizer", self.options.nvcc)
        cases = [case for case in SANITIZED if case[1] in (*self.options.tasks, *self.options.tests)]
        for name, program, words in cases:
            for tool in tools:
                what = f"compute-sanitizer {tool}, {name}"
                if sanitizer is None:
                    self.note(what, "compute-sanitizer is not there")
                    continue
                self.run_check(what, program, words, share, MOST["sanitizer"],
                               before=[sanitizer, "--tool", tool, "--error-exitcode", "9"])

    def timed_tasks(self):
        return [name for name in self.options.tasks if name not in networks.ONLY_CHECKED or self.options.tasks == [name]]

    def records(self, task):
        return min(self.options.records, networks.OWN_RECORDS.get(task, self.options.records))

    def batches(self, task, of=None):
        """Those of the options that the task has, or those of `of`."""
        own = networks.OWN_BATCHES.get(task)
        if own:
            return [batch for batch in own if 2 * batch <= self.records(task)]
        return [batch for batch in self.options.batches if of is None or batch in of]

    def ours(self, task, what, batches, seconds, more=(), program=None, precision="float", records=None, end=None):
        """Rows of one command of ours.cu."""
        framework = cuda_report.OURS_WITH_CUBLAS if program == f"{task}_cublas" else cuda_report.OURS
        row = {"task": task, "framework": framework, "precision": precision}
        path, why_not = self.programs.wait(program or task)
        if path is None:
            self.rows.append({**row, "failure": why_not})
            return
        if not batches:
            return
        seconds_left = max(0, end - time.monotonic())
        with power.Watch() as watch:
            def keep(line):
                for each in rows_of(line):
                    watts = watch.mean(each.pop("timed_s", None))
                    if what == "time" and watts:
                        each["watts"], each["steps_per_joule"] = watts, 1e6 / each["loop_us"] / watts
                    self.keep({**row, **each})

            code, text = output_of([str(path), *["tf32"] * (precision == "tf32"), what, f"{seconds:.3f}",
                                    str(records or self.records(task)), *map(str, more), *map(str, batches)],
                                   seconds_left, keep)
        if code != 0:
            said = f"not done in {seconds_left:.0f} s" if code is None else last_lines(text)
            self.rows.append({**row, "failure": said if what == "time" else f"{what}: {said}"})
        self.write()
        say(f"{task}: {framework}, {row['precision']}, {what}, {len(rows_of(text))} of {len(batches)} batches, "
            f"{self.clock.spent():.0f} s")

    def keep(self, row):
        """A row of ours. Steps from more records join the row of their batch's times, where there is one."""
        known = None
        if "records" in row:
            row[f"poisson_{row.pop('records')}_us"] = row.pop("poisson_us")
            same = [row[key] for key in ("task", "framework", "precision", "batch")]
            known = next((each for each in self.rows if "graph_us" in each and same == [
                each[key] for key in ("task", "framework", "precision", "batch")]), None)
        if known is None:
            self.rows.append(row)
        else:
            known.update(row)
        self.write()

    def time_ours(self):
        """In float; then the steps that draw from more records; then what is wanted of memory."""
        end = min(self.clock.end, time.monotonic() + MOST["ours"])
        tasks = [name for name in self.timed_tasks() if name not in networks.MORE]
        small = [name for name in tasks if name in (*networks.SMALL, *networks.ONLY_CHECKED)]
        logical = [batch for batch in (256, 1024, 4096) if batch <= self.options.records // 2] or [CHECKED_BATCH]
        physical = min(PHYSICAL_BATCH, max(self.options.batches))
        sampled = [PROFILED_BATCH if PROFILED_BATCH in self.options.batches else max(self.options.batches)]
        seconds = self.options.seconds
        jobs = [(name, "time", batches, seconds, {}) for name in tasks for batches in self.in_one_go(self.batches(name))]
        jobs += [(name, "poisson", sampled, seconds / 4, {"records": POISSON_RECORDS}) for name in small]
        jobs += [(name, "memory", logical, seconds / 4, {"more": [physical]}) for name in small]
        self.all_of(jobs, end)

    def time_more_of_ours(self):
        """With TF32, other tasks, with cuBLAS, and with BF16."""
        end = min(self.clock.end, time.monotonic() + MOST["more of ours"])
        tasks = self.timed_tasks()
        seconds = self.options.seconds / 2
        jobs = [(name, "time", self.batches(name, FIRST_BATCHES), seconds, {"precision": "tf32"})
                for name in tasks if name not in networks.MORE]
        if CUBLAS_TASK in tasks:
            jobs += [(CUBLAS_TASK, "time", self.batches(CUBLAS_TASK, CUBLAS_BATCHES), seconds,
                      {"precision": precision, "program": f"{CUBLAS_TASK}_cublas"}) for precision in ("float", "tf32")]
        jobs += [(name, "time", self.batches(name), seconds, {"precision": precision})
                 for name in tasks if name in networks.MORE for precision in ("float", "tf32")]
        jobs += [(name, "time", self.batches(name, FIRST_BATCHES), seconds,
                  {"precision": "bf16", "program": f"{name}_bf16"}) for name in BF16_TASKS if name in tasks]
        self.all_of(jobs, end)

    def in_one_go(self, batches):
        """Where power can be read, each batch alone has it."""
        return [[each] for each in batches] if power.Watch().is_there else [batches]

    def all_of(self, jobs, end):
        """What one leaves of its share the next ones get."""
        for number, (task, what, batches, seconds, more) in enumerate(jobs):
            share = (end - time.monotonic()) / (len(jobs) - number) * 1.5
            self.ours(task, what, batches, seconds, end=min(end, time.monotonic() + share), **more)

    def profile(self):
        """Times of the kernels of a step, where ncu is there and may read the counters."""
        ncu = kernel_times.find_ncu(find_program("ncu", self.options.nvcc))
        if ncu is None:
            self.note("kernels of a step", "ncu is not there")
            return
        tasks = self.timed_tasks()
        end = min(self.clock.end, time.monotonic() + min(MOST["kernels"], 0.7 * self.clock.left()))
        wanted = [(task in networks.MORE, tf32, task) for tf32 in (False, True) for task in tasks]
        for _, tf32, task in sorted(wanted, key=lambda each: each[:2]):
            batches = [batch for batch in self.batches(task) if batch <= PROFILED_BATCH]
            path, why_not = self.programs.wait(task)
            head = {"task": task, "batch": max(batches, default=0), "precision": "tf32" if tf32 else "float"}
            what = f"kernels of a step, {task}, {head['precision']}"
            seconds = min(25, end - time.monotonic())
            if path is None or not batches or seconds < 3:
                self.note(what, f"not done: {why_not or 'no time left' if batches else 'no such batch'}")
                continue
            code, text = output_of([*kernel_times.command(ncu), str(path), *["tf32"] * tf32, "profile",
                                    str(head["batch"])], seconds)
            try:
                found = kernel_times.of_a_step(text)
            except ValueError as wrong:
                said = f"not done in {seconds:.0f} s" if code is None else f"{wrong}: {last_lines(text, 2)}"
                self.note(what, f"not done: {said[:200]}", text)
                continue
            self.kernels += [{**head, **each} for each in found]
            self.note(what, "ok")
            self.write()

    def data_of(self, task):
        """Why there is none for the peers, or nothing."""
        if task not in self.data:
            path, why_not = self.programs.wait(task)
            if path is None:
                self.data[task] = f"ours is not there: {why_not}"
            else:
                code, text = output_of([str(path), "data", str(network_folder(task)), str(self.records(task)),
                                        str(self.checked_batch(task))], min(60, self.clock.left()))
                self.data[task] = "" if code == 0 else f"ours gave no data: {last_lines(text)}"
        return self.data[task]

    def checked_batch(self, task):
        return min(CHECKED_BATCH, *networks.OWN_BATCHES.get(task, [CHECKED_BATCH]))

    def start_peers(self):
        for family, frameworks in FAMILIES.items():
            asked = []
            for name in frameworks:
                if name not in self.options.peers:
                    continue
                for task in self.timed_tasks():
                    if (name, task) in NOT_WRITTEN or (task in networks.MORE and name not in OF_MORE_TASKS):
                        continue
                    missing = [module for module in MODULES[name] if importlib.util.find_spec(module) is None]
                    if missing:
                        self.rows.append({"task": task, "framework": name, "failure": f"no Python module {missing[0]}"})
                    else:
                        asked.append((task, name))
            if asked:
                self.families.append(PeerFamily(family, peer_jobs(self, asked), self))

    def time_peers(self, stage, shares):
        """The jobs of all stages up to this one. shares: of the time that is left, by family."""
        for family in self.families:
            family.work(stage, time.monotonic() + shares.get(family.family, 1) * self.clock.left())
            self.write()

    def end_peers(self):
        for family in self.families:
            family.stop()
            family.give_up()


def peer_jobs(run, asked):
    """Jobs in their order, with their stage: 0 first batches in float, 1 with TF32, 2 the rest. A peer is checked before
    it is timed."""
    jobs = []
    for stage in (0, 1, 2):
        for is_slow in (False, True):
            for task, name in asked:
                if (name == "torch_compiled") != is_slow:
                    continue
                row, is_rest = {"task": task, "framework": name}, task in networks.MORE or name == "torch_vmap"
                some = run.batches(task, FIRST_BATCHES)
                rest = [] if task in networks.MORE or is_slow else [b for b in run.batches(task) if b not in some]

                def times(batches, precision):
                    return [{**row, "do": "time", "batch": batch, "precision": precision, "stage": stage}
                            for batch in batches]

                if stage == (2 if is_rest else 0):
                    jobs.append({**row, "do": "check", "batch": run.checked_batch(task), "stage": stage,
                                 "steps": CHECK_STEPS if task in networks.TAUGHT else 0})
                    jobs += times(some, "float")
                if stage == (2 if is_rest else 1) and name in WITH_TF32:
                    jobs += times(some, "tf32")
                if stage == 2:
                    jobs += times(rest, "float")

    def place(job):
        """Of the rest, the tasks that have nothing yet come first, then batch by batch. JAX may compile for long."""
        if job["stage"] < 2:
            return (job["stage"],)
        is_more = job["task"] in networks.MORE
        is_slow = job["framework"] == "jax" and job["task"] in ("vgg16", "lk_transformer")
        if is_more:
            return (2, is_slow, 0, OF_MORE_TASKS.index(job["framework"]))
        return (2, is_slow, 1, 0 if job["do"] == "check" else job["batch"])

    return sorted(jobs, key=place)


class PeerFamily:
    """Jobs of the frameworks that share a process. A process that dies or takes too long is started again."""

    def __init__(self, family, jobs, run):
        self.family, self.run, self.jobs = family, run, jobs
        self.checked = {}
        self.process = None
        self.failed_starts = 0
        self.log_path = BUILD / f"peer_{family}.log"
        self.log_path.write_bytes(b"")

    def start(self):
        self.log = open(self.log_path, "ab")
        device = "cpu" if self.run.builder.fake else "cuda"
        self.process = subprocess.Popen([sys.executable, str(HERE / "peer.py"), self.family, "--device", device],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log,
                                        start_new_session=True)
        self.is_new = True

    def stop(self):
        if self.process is not None:
            end_group(self.process)
            try:
                self.process.stdin.close()
            except BrokenPipeError:
                pass
            self.process.stdout.close()
            self.log.close()
            self.process = None

    def last_words(self):
        text = self.log_path.read_bytes()[-4000:].decode(errors="replace")
        return last_lines(text, 1)

    def ask(self, job, end):
        """The answer to a job; {"failure": ...} where there is none."""
        if self.process is None:
            self.start()
        limit = MOST["first job"] if self.is_new else MOST["job"]
        until = min(end, time.monotonic() + limit)
        try:
            self.process.stdin.write(json.dumps(job).encode() + b"\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # its end says more
        text = b""
        while not text.endswith(b"\n"):
            ready, _, _ = select.select([self.process.stdout], [], [], max(0, until - time.monotonic()))
            if not ready:
                self.stop()
                return {"failure": f"not done in {limit} s" if time.monotonic() < end else "no time left"}
            part = os.read(self.process.stdout.fileno(), 1 << 16)
            if not part:
                was_new = self.is_new
                self.process.wait()
                code = self.process.returncode
                self.stop()
                self.failed_starts += was_new
                return {"failure": f"its process ended with {code}: {self.last_words()}"}
            text += part
        self.is_new = False
        self.failed_starts = 0
        return json.loads(text)

    def work(self, stage, end):
        """As many jobs up to this stage as may begin before the end."""
        while self.jobs and self.jobs[0]["stage"] <= stage and time.monotonic() < end and self.run.clock.left() > 2:
            job = self.jobs.pop(0)
            row = {key: job[key] for key in ("task", "framework")}
            is_check = job["do"] == "check"
            known = self.checked.get((job["task"], job["framework"]))
            if not is_check and (known is None or "failure" in known):
                continue  # it is in the report already
            asked = {**job, "folder": str(network_folder(job["task"])), "seconds": 0.6 * self.run.options.seconds}
            if self.failed_starts >= 2:
                answer = {"failure": f"its process does not start: {self.last_words()}"}
            elif self.run.data_of(job["task"]):
                answer = {"failure": self.run.data_of(job["task"])}
            else:
                answer = self.ask(asked, self.run.clock.end)
            if answer.get("failure") == "no time left":
                self.jobs.insert(0, job)
                return
            if "CUDA" in answer.get("failure", ""):
                self.stop()  # whatever came after it in that process might fail too
            if is_check:
                self.checked[job["task"], job["framework"]] = answer
                if "failure" in answer:
                    self.run.rows.append({**row, **answer})
                say(f"{row['task']}: {row['framework']}, {answer.get('failure', 'agrees')}, "
                    f"{self.run.clock.spent():.0f} s")
            else:  # what was checked is float
                found = {key: value for key, value in known.items()
                         if job["precision"] == "float" or key in ("version", "private")}
                self.run.rows.append({**row, "batch": job["batch"], "precision": job["precision"], **found, **answer})
            self.run.write()

    def give_up(self):
        """Names what was never asked."""
        for job in self.jobs:
            failed = "failure" in self.checked.get((job["task"], job["framework"]), {})
            if job["do"] == "time" and not failed:
                self.run.rows.append({"task": job["task"], "framework": job["framework"], "batch": job["batch"],
                                      "precision": job["precision"], "failure": "no time left"})
        self.jobs = []


def list_of(kind, known=None):
    def parse(text):
        values = [kind(each) for each in text.split(",") if each]
        unknown = [each for each in values if known is not None and each not in known]
        if unknown:
            raise argparse.ArgumentTypeError(f"not known: {', '.join(map(str, unknown))}; of {', '.join(map(str, known))}")
        return values

    return parse


def parse_options():
    tests = ["kernels", *(test[0] for test in device_tests())]
    parser = argparse.ArgumentParser(prog="bench/cuda/run.sh", description=__doc__.splitlines()[0])
    parser.add_argument("--nvcc", required=True, help=argparse.SUPPRESS)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("out/cuda"), help="default %(default)s")
    parser.add_argument("--build", type=pathlib.Path, default=BUILD, help="default build/bench-cuda")
    parser.add_argument("--minutes", type=float, default=8.5, help="for everything (default %(default)s)")
    parser.add_argument("--peers", type=list_of(str, MODULES), default=list(MODULES),
                        help=f"of {','.join(MODULES)}; empty: none")
    parser.add_argument("--wheels", type=pathlib.Path, metavar="DIR",
                        help="Python wheels of peers that are not installed: what bench/cuda/wheels.sh DIR fetches")
    parser.add_argument("--tasks", type=list_of(str, networks.TASKS), default=list(networks.TASKS),
                        help=f"of {','.join(networks.TASKS)}; {' and '.join(networks.ONLY_CHECKED)} are timed only if alone")
    parser.add_argument("--tests", type=list_of(str, tests), default=tests, help=f"of {','.join(tests)}; empty: none")
    parser.add_argument("--batches", type=list_of(int), default=list(BATCHES),
                        help=f"default {','.join(map(str, BATCHES))}")
    parser.add_argument("--records", type=int, default=8 * max(BATCHES), help="default %(default)s")
    parser.add_argument("--seconds", type=float, default=0.8, help="for one batch size of one network (default %(default)s)")
    options = parser.parse_args()
    if not options.batches or min(options.batches) < 1 or options.records < 2 * max(*options.batches, CHECKED_BATCH):
        parser.error("records must be at least twice the largest batch, batches at least 1")
    if not (0 < options.minutes < 1e6 and 0 < options.seconds < 1e6):
        parser.error("minutes and seconds must be more than 0, and less than a million")
    if options.wheels is not None and not list(options.wheels.glob("*.whl")):
        parser.error(f"--wheels {options.wheels}: there are no wheels")
    options.batches = sorted(set(options.batches))
    options.small = options.records < 1024
    return options


def unpack_wheels(wheels, site):
    """Modules of wheels without machine code, for this process and those that it starts."""
    for wheel in sorted(wheels.glob("*.whl")):
        with zipfile.ZipFile(wheel) as packed:
            packed.extractall(site)
    sys.path.append(str(site))
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(site)]))
    if importlib.util.find_spec("scipy") is None:
        say("Opacus needs SciPy, which is no such wheel and is not installed")


def main():
    global BUILD
    options = parse_options()
    clock = Clock(options.minutes)
    for part in MOST:
        MOST[part] *= max(1, options.minutes / 9)
    BUILD = options.build.resolve()
    try:
        BUILD.mkdir(parents=True, exist_ok=True)
    except OSError as wrong:  # a source tree that is only read
        BUILD = pathlib.Path(tempfile.mkdtemp(prefix="pergrad-bench-"))
        say(f"{wrong}; builds in {BUILD}")
    if options.wheels is not None:
        unpack_wheels(options.wheels, BUILD / "site")
    builder = Builder(options.nvcc, os.environ.get("PERGRAD_FAKE_CUDA", "") not in ("", "0"))
    builder.prepare()
    machine = {**find_gpu(builder), "system": platform.platform(), "cores": os.cpu_count(),
               "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
               "command": shlex.join(sys.argv[3:]), "power_mode": power.mode()}
    options.out.mkdir(parents=True, exist_ok=True)
    say(f"{machine['gpu']}, sm_{machine['architecture']}")
    builder.use(machine["architecture"])
    for name in options.tasks:
        network_folder(name).mkdir(parents=True, exist_ok=True)
        (network_folder(name) / "network.hpp").write_text(problem.cpp_header(networks.TASKS[name]), encoding="utf-8")
    run = Run(options, builder, machine, clock)

    def on_signals(handler):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, handler)

    def stop(number, _):
        on_signals(signal.SIG_IGN)  # another one would cut off the report
        raise Stopped(f"signal {number}")

    on_signals(stop)
    try:
        run.programs = Programs(builder, options.tasks, options.tests, clock)
        run.part("checks", run.check)
        run.programs.wait_all()
        say(f"built and checked, {clock.spent():.0f} s")
        run.part("ours", run.time_ours)
        run.part("peers", run.start_peers)
        run.part("peers", run.time_peers, 0, {"torch": 0.36, "jax": 0.4})
        run.part("more of ours", run.time_more_of_ours)
        run.part("peers", run.time_peers, 1, {"torch": 0.5, "jax": 0.2})
        run.part("kernels of a step", run.profile)
        run.part("sanitizers", run.sanitize, ("initcheck", "synccheck"), Share(MOST["more sanitizers"], clock))
        run.part("peers", run.time_peers, 2, {"torch": 0.7})
        run.part("peers", run.time_peers, 2, {})
    except Stopped as stopped:
        run.note("the run", f"FAILED: stopped by {stopped}")
    finally:
        end_everything()
        run.end_peers()
    run.write()
    say((options.out / "cuda.md").read_text(encoding="utf-8"))
    failed = any(each["state"].startswith(("FAILED", "not done in")) for each in run.checks)
    failed |= any(row.get("failure", "").startswith("WRONG") for row in run.rows)
    failed |= any("failure" in row and row["framework"] in (cuda_report.OURS, cuda_report.OURS_WITH_CUBLAS)
                  and not LACKS_CUBLAS.search(row["failure"]) for row in run.rows)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
