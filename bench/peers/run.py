# SPDX-License-Identifier: Apache-2.0
"""Runs the peers and ours in turns on the same cores: checks one step's sums, then times steps, then reports.

Every framework is one process for each task (worker.py; ours.cpp for ours). It is told a batch size, makes one step
without noise whose sum of gradients is compared with the others', and then gets several turns of timing, in between
which the others get theirs.
"""

import argparse
import datetime
import json
import os
import pathlib
import platform
import selectors
import shlex
import shutil
import signal
import statistics
import subprocess
import sys
import time

import numpy

import problem
import report

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
BUILD = ROOT / "build" / "peers"

MOST_SECONDS = 200  # that a peer may need from its start to the end of its first step, or for one turn
TURNS = 3
LARGE_BYTES = 2 << 30  # who holds more than this is timed at once and then forgets it, to leave room for the others
LEAST_FREE_BYTES = 1 << 30  # a peer that leaves less to the machine is ended

# name: (is it private, module in frameworks/ or None for ours, variant)
FRAMEWORKS = {
    "pergrad": (False, None, "non_private"),
    "torch": (False, "torch_plain", "eager"),
    "torch_channels_last": (False, "torch_plain", "channels_last"),
    "torch_compile": (False, "torch_plain", "compile"),
    "jax": (False, "jax_plain", "jit"),
    "pergrad_dp": (True, None, "dp"),
    "opacus_hooks": (True, "opacus_dp", "hooks"),
    "opacus_functorch": (True, "opacus_dp", "functorch"),
    "opacus_ew": (True, "opacus_dp", "ew"),
    "opacus_ghost": (True, "opacus_dp", "ghost"),
    "torch_vmap": (True, "vmap", "vmap"),
    "backpack": (True, "backpack_dp", "batch_grad"),
    "jax_vmap": (True, "jax_dp", "jit"),
    "jax_privacy": (True, "jax_privacy_dp", "jit"),
}


class PeerFailure(Exception):
    """What is shown in place of a peer's numbers."""


def free_bytes():
    for line in pathlib.Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return 1 << 62


def busy_ticks(cores):
    """Clock ticks that the cores have spent on anything, other guests of the same machine included."""
    ticks = 0
    for line in pathlib.Path("/proc/stat").read_text().splitlines():
        name, *counts = line.split()
        if name.startswith("cpu") and name[3:].isdigit() and int(name[3:]) in cores:
            user, nice, system, _, _, hard, soft, steal, *_ = map(int, counts)
            ticks += user + nice + system + hard + soft + steal
    return ticks


class Peer:
    """One framework's process for one task."""

    def __init__(self, name, task_name, cores, folder, logs, environment):
        private, module, variant = FRAMEWORKS[name]
        self.name, self.private, self.cores = name, private, cores
        threads = str(len(cores))
        self.program = folder / "ours" if module is None else None
        self.command = ([str(self.program), variant, threads, str(folder)] if module is None else
                        [sys.executable, str(HERE / "worker.py"), module, variant, task_name, str(folder)])
        if shutil.which("taskset"):
            self.command = ["taskset", "-c", ",".join(map(str, cores)), *self.command]
        self.environment = environment
        self.log = logs / f"{task_name}-{name}.log"
        self.log.unlink(missing_ok=True)
        self.process = None

    def start(self):
        def end_me_first():  # if memory runs out in spite of everything
            pathlib.Path("/proc/self/oom_score_adj").write_text("1000")

        with self.log.open("ab") as log:
            self.process = subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log,
                                            env=self.environment, start_new_session=True, preexec_fn=end_me_first)

    def alive(self):
        return self.process is not None and self.process.poll() is None

    def ask(self, command):
        """Sends a command and waits for the answer."""
        if self.program and not self.program.exists():
            raise PeerFailure("does not compile")
        if not self.alive():
            self.start()
        deadline = time.monotonic() + MOST_SECONDS
        try:
            self.process.stdin.write(f"{command}\n".encode())
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # the answer below is empty
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            while not selector.select(0.2):
                if time.monotonic() > deadline:
                    self.end()
                    raise PeerFailure(f"needs over {MOST_SECONDS} s")
                if free_bytes() < LEAST_FREE_BYTES:
                    held = self.held_bytes() / 1e9
                    self.end()
                    raise PeerFailure(f"out of memory at {held:.1f} GB")
        line = self.process.stdout.readline()
        if not line:
            status = self.process.wait()
            raise PeerFailure(self.last_words() or f"ended with status {status}")
        return json.loads(line)

    def last_words(self):
        lines = [line.strip() for line in self.log.read_text(errors="replace").splitlines()]
        return next((line for line in reversed(lines) if line), "")[:200]

    def held_bytes(self):
        pages = int(pathlib.Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    def used_ticks(self):
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return int(fields[11]) + int(fields[12])

    def end(self):
        if self.process is None:
            return
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()
        self.process = None


def write_problem(task, folder):
    """The files that every process reads."""
    folder.mkdir(parents=True, exist_ok=True)
    header = folder / "network.hpp"
    text = problem.cpp_header(task)
    if not header.exists() or header.read_text() != text:
        header.write_text(text)
    initial = problem.initial_parameters(task)
    numpy.save(folder / "initial.npy", initial)
    problem.write_records(task, task.batches, folder)
    return initial


def build_ours(folder):
    """Compiles ours.cpp with the task's network, unless nothing it is made of has changed."""
    program, source = folder / "ours", HERE / "ours.cpp"
    parts = [source, folder / "network.hpp", *(ROOT / "include").rglob("*.hpp")]
    if program.exists() and all(part.stat().st_mtime < program.stat().st_mtime for part in parts):
        return
    command = [*shlex.split(os.environ.get("CXX", "g++")), "-std=c++20", "-O2", "-DNDEBUG", "-march=native",
               f"-I{ROOT / 'include'}", f"-I{folder}", str(source), "-o", str(program), "-pthread"]
    print(f"compiling our program for {folder.name}", flush=True)
    program.unlink(missing_ok=True)
    subprocess.run(command, check=False)  # without a program our turn fails, the others' do not


def relative_difference(left, right):
    return float(numpy.linalg.norm(left - right) / numpy.linalg.norm(right))


class Comparison:
    """All frameworks on one task with one batch size."""

    def __init__(self, task_name, batch, peers, initial, folder, seconds):
        self.task_name, self.batch, self.peers, self.seconds = task_name, batch, peers, seconds
        self.initial, self.folder = initial, folder
        self.rows = {}
        self.references = {}
        self.microseconds = {}
        self.strange_ticks = self.turn_ticks = 0

    def fail(self, peer, reason):
        print(f"  {peer.name}: {reason}", flush=True)
        self.rows[peer.name]["failure"] = reason
        self.microseconds.pop(peer.name, None)

    def check(self, peer, path):
        """Compares the result with that of the first framework of the same kind, which is ours if it takes part."""
        task = problem.TASKS[self.task_name]
        result = numpy.load(path).astype(numpy.float64)
        path.unlink()
        count = len(self.initial)
        if len(result) != count + (self.batch if peer.private and not task.update else 0):
            raise PeerFailure(f"WRONG: it gives {len(result)} numbers")
        if task.update:
            parts = {"sum of the gradients": (peer.private, self.initial - result)}
        else:  # private and non-private frameworks have the same mean
            parts = {"mean of the gradients": (None, result[:count])}
            if peer.private:
                parts["samples' norms"] = (True, result[count:])
        for name, (key, values) in parts.items():
            if not numpy.isfinite(values).all():
                raise PeerFailure(f"WRONG: its {name} is not finite")
            if key not in self.references:
                self.references[key] = values
                continue
            difference = relative_difference(values, self.references[key])
            self.rows[peer.name]["difference"] = max(difference, self.rows[peer.name].get("difference", 0))
            if not difference <= task.largest_difference:
                raise PeerFailure(f"WRONG: its {name} differs by {difference:.1e}")

    def turn(self, peer, seconds):
        begin, before = busy_ticks(peer.cores), peer.used_ticks()
        start = time.monotonic()
        answer = peer.ask(f"run {seconds}")
        spent = time.monotonic() - start
        self.strange_ticks += max(0, busy_ticks(peer.cores) - begin - (peer.used_ticks() - before))
        self.turn_ticks += spent * os.sysconf("SC_CLK_TCK") * len(peer.cores)
        self.microseconds.setdefault(peer.name, []).extend(answer["microseconds"])
        self.rows[peer.name]["peak_mb"] = answer["peak_mb"]

    def prepare(self, peer):
        self.rows[peer.name] = {"framework": peer.name, "private": peer.private, "task": self.task_name,
                                "batch": self.batch, "threads": len(peer.cores), "alternated": True}
        path = self.folder / f"{peer.name}.npy"
        begin = time.monotonic()
        answer = peer.ask(f"prepare {self.batch} {path}")
        self.rows[peer.name].update(answer)
        self.check(peer, path)
        large = peer.held_bytes() > LARGE_BYTES
        if large:
            self.rows[peer.name]["alternated"] = False
            self.turn(peer, self.seconds)
            self.rows[peer.name].update(peer.ask("release"))
        print(f"  {peer.name}: ready after {time.monotonic() - begin:.1f} s, "
              f"first step {answer['first_step_seconds']:.2f} s", flush=True)
        return not large

    def run(self, too_slow):
        print(f"{self.task_name}, batch {self.batch}", flush=True)
        waiting = []
        for peer in self.peers:
            try:
                if peer.name in too_slow:
                    self.rows[peer.name] = {"framework": peer.name, "private": peer.private, "task": self.task_name,
                                            "batch": self.batch, "threads": len(peer.cores)}
                    raise PeerFailure(f"not tried: it needed over {MOST_SECONDS} s for a smaller batch")
                if self.prepare(peer):
                    waiting.append(peer)
            except PeerFailure as failure:
                self.fail(peer, str(failure))
                if str(failure).startswith("needs over"):
                    too_slow.add(peer.name)
        for _ in range(TURNS):
            for peer in list(waiting):
                try:
                    self.turn(peer, self.seconds / TURNS)
                except PeerFailure as failure:
                    self.fail(peer, str(failure))
                    waiting.remove(peer)
        for peer in waiting:
            try:
                self.rows[peer.name].update(peer.ask("release"))
            except PeerFailure as failure:
                self.fail(peer, str(failure))
        for name, times in self.microseconds.items():
            per_sample = [t / self.batch for t in times]
            self.rows[name].update(us_per_sample_median=statistics.median(per_sample),
                                   us_per_sample_minimum=min(per_sample), steps=len(per_sample))
        return list(self.rows.values())


def run_task(task_name, batches, frameworks, cores, seconds, scratch, logs, load):
    task = problem.TASKS[task_name]
    folder = BUILD / task_name
    initial = write_problem(task, folder)
    if len(task.input) != 3:
        frameworks = [name for name in frameworks if name != "torch_channels_last"]
    if any(FRAMEWORKS[name][1] is None for name in frameworks):
        build_ours(folder)
    threads = str(len(cores))
    environment = dict(os.environ, OMP_NUM_THREADS=threads, MKL_NUM_THREADS=threads, OPENBLAS_NUM_THREADS=threads,
                       JAX_PLATFORMS="cpu", CUDA_VISIBLE_DEVICES="", PYTHONDONTWRITEBYTECODE="1",
                       TORCHINDUCTOR_CACHE_DIR=str(scratch / "inductor"), TORCHINDUCTOR_COMPILE_THREADS="1")
    if len(cores) == 1:
        environment["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
    peers = [Peer(name, task_name, cores, folder, logs, environment) for name in frameworks]
    rows, too_slow = [], set()
    try:
        for batch in batches:
            comparison = Comparison(task_name, batch, peers, initial, folder, seconds)
            rows += comparison.run(too_slow)
            if comparison.turn_ticks:
                share = comparison.strange_ticks / comparison.turn_ticks
                load.append({"task": task_name, "batch": batch, "others_share": share})
                print(f"  other programs had {share:.0%} of the cores while we timed", flush=True)
    finally:
        for peer in peers:
            peer.end()
        for name in ("initial.npy", *(name for name, _, _ in problem.data_files(task))):
            (folder / name).unlink(missing_ok=True)
    return rows


def processor():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor()


def parse_arguments():
    def names(known):
        def parse(text):
            given = text.split(",")
            for name in given:
                if name not in known:
                    raise argparse.ArgumentTypeError(f"unknown name {name!r}; there are {', '.join(known)}")
            return [name for name in known if name in given]
        return parse

    def positive(kind):
        def parse(text):
            value = kind(text)
            if not 0 < value < 1e6:
                raise argparse.ArgumentTypeError(f"must be above 0 and below a million, got {text}")
            return value
        return parse

    def batch_sizes(text):
        return sorted({positive(int)(part) for part in text.split(",")})

    available = len(os.sched_getaffinity(0))
    parser = argparse.ArgumentParser(
        prog="bench/peers/run.sh", description="The same training steps in every framework, side by side.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="tasks:\n" + "".join(f"  {name:18} {task.source}; batches {', '.join(map(str, task.batches))}\n"
                                    for name, task in problem.TASKS.items())
               + "frameworks:\n  " + ", ".join(FRAMEWORKS))
    parser.add_argument("--task", type=names(problem.TASKS), metavar="T,...",
                        default=[name for name, task in problem.TASKS.items() if task.default],
                        help="default: the first three")
    parser.add_argument("--batch", type=batch_sizes, metavar="B,...", help="default: the task's")
    parser.add_argument("--threads", type=positive(int), default=available, metavar="N",
                        help="and cores; default: all, here %(default)s")
    parser.add_argument("--seconds", type=positive(float), default=3.0, metavar="S",
                        help="of timing for each framework, task and batch size; default %(default)s")
    parser.add_argument("--frameworks", type=names(FRAMEWORKS), metavar="F,...", default=list(FRAMEWORKS),
                        help="default: all")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "out" / "peers", metavar="DIR",
                        help="default: out/peers")
    arguments = parser.parse_args()
    if arguments.threads > available:
        parser.error(f"--threads {arguments.threads}: this machine gives us {available} cores")
    return arguments


def main():
    arguments = parse_arguments()
    cores = sorted(os.sched_getaffinity(0))[:arguments.threads]
    scratch = BUILD / "scratch"  # compiled kernels: emptied, so that first steps pay for them
    shutil.rmtree(scratch, ignore_errors=True)
    logs = arguments.out / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    machine = {"processor": processor(), "cores": cores, "system": platform.platform(),
               "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
               "command": shlex.join(["sh", "bench/peers/run.sh", *sys.argv[1:]]),
               "load_average_before": os.getloadavg()[0], "others": []}
    rows = []
    for task_name in arguments.task:
        batches = arguments.batch or problem.TASKS[task_name].batches
        problem.TASKS[task_name] = problem.dataclasses.replace(problem.TASKS[task_name], batches=tuple(batches))
        rows += run_task(task_name, batches, arguments.frameworks, cores, arguments.seconds, scratch, logs,
                         machine["others"])
        machine["load_average_after"] = os.getloadavg()[0]
        report.write(arguments.out, machine, rows)  # after every task, so that an interrupted run leaves something
    shutil.rmtree(scratch, ignore_errors=True)
    print()
    print((arguments.out / "peers.md").read_text())
    print(f"wrote {arguments.out}/peers.json, peers.md, peers.svg")
    return 1 if any(row.get("failure", "").startswith("WRONG") for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
