# SPDX-License-Identifier: Apache-2.0
"""Runs the peers and ours in turns on the same cores: checks one step's sums, then times steps, then reports.

Every framework is one process for each task (worker.py; ours.cpp for ours). It is told a batch size, makes one step
without noise whose sum of gradients is compared with the others', and then gets several turns of timing, in between
which the others get theirs.
"""

import datetime
import os
import pathlib
import platform
import shlex
import shutil
import signal
import statistics
import subprocess
import sys
import time

import numpy

import arguments
import problem
import report
from arguments import FRAMEWORKS
from peer import Peer, PeerFailure, TooSlow

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
BUILD = ROOT / "build" / "peers"

TURNS = 3
LARGE_BYTES = 2 << 30  # who holds more than this is timed at once and then forgets it, to leave room for the others


def busy_ticks(cores):
    """Clock ticks that the cores have spent on anything, other guests of the same machine included."""
    ticks = 0
    for line in pathlib.Path("/proc/stat").read_text().splitlines():
        name, *counts = line.split()
        if name.startswith("cpu") and name[3:].isdigit() and int(name[3:]) in cores:
            user, nice, system, _, _, hard, soft, steal, *_ = map(int, counts)
            ticks += user + nice + system + hard + soft + steal
    return ticks


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


def build_ours(folder, level="-O2", root=ROOT):
    """Compiles ours.cpp with the task's network, unless neither what it is made of nor the command has changed."""
    program, made_by, source = folder / "ours", folder / "ours.command", root / "bench" / "peers" / "ours.cpp"
    command = [*shlex.split(os.environ.get("CXX", "g++")), "-std=c++20", level, "-DNDEBUG", "-march=native",
               f"-I{root / 'include'}", f"-I{folder}", str(source), "-o", str(folder / "ours.new"), "-pthread"]
    text = shlex.join(command) + "\n"
    parts = [source, folder / "network.hpp", *(root / "include").rglob("*.*")]
    if (program.exists() and made_by.exists() and made_by.read_text() == text
            and all(part.stat().st_mtime < program.stat().st_mtime for part in parts)):
        return
    print(f"compiling our program for {folder.name}", flush=True)
    program.unlink(missing_ok=True)
    try:
        if subprocess.run(command, check=False).returncode == 0:  # a failure is ours; the others take their turns
            made_by.write_text(text)
            (folder / "ours.new").rename(program)
    except OSError as error:
        print(f"  {command[0]}: {error.strerror}", flush=True)


CLIP_NORM = 1.0
MOST_TOO_LARGE = 5e-3  # of our bounds of norms: of 512 positions of GPT-2 small 2e-3, of 128 less than 1e-3


def relative_difference(left, right, least=0.0):
    """`least`: of a smaller `right`, the share of that."""
    return float(numpy.linalg.norm(left - right) / max(numpy.linalg.norm(right), least))


class Comparison:
    """All frameworks on one task with one batch size."""

    def __init__(self, task_name, batch, peers, initial, folder, seconds):
        self.task_name, self.batch, self.peers, self.seconds = task_name, batch, peers, seconds
        self.initial, self.folder = initial, folder
        self.rows = {}
        self.references = {}
        self.references_of = {}
        self.microseconds = {}
        self.strange_ticks = self.turn_ticks = 0

    def fail(self, peer, reason):
        """It is started anew for the next batch size: what it holds would be missing from the others."""
        print(f"  {peer.name}: {reason}", flush=True)
        self.rows[peer.name]["failure"] = reason
        self.microseconds.pop(peer.name, None)
        peer.end()

    def begin(self, peer):
        self.rows[peer.name] = {"framework": peer.name, "private": peer.private, "task": self.task_name,
                                "batch": self.batch, "threads": len(peer.cores)}

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
                self.references[key], self.references_of[key] = values, peer.name
                continue
            clipped = peer.private and task.update
            if clipped and self.references_of[key] == "pergrad_dp":
                # We clip by a proven upper bound of the norm, so our sums are smaller by what the bound is too large.
                share = float(values @ self.references[key] / (values @ values))
                if 1 - MOST_TOO_LARGE <= share < 1:
                    self.rows[peer.name]["bound_too_large"] = 1 - share
                    values = share * values
            # Our private sums lie on the grid of a release, whose steps are a share of what one sample may add.
            difference = relative_difference(values, self.references[key], CLIP_NORM if clipped else 0)
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
        self.rows[peer.name]["alternated"] = True
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
            self.begin(peer)
            try:
                if peer.name in too_slow:
                    raise PeerFailure(f"not tried: it needed over {peer.most_seconds} s for a smaller batch")
                if self.prepare(peer):
                    waiting.append(peer)
            except PeerFailure as failure:
                self.fail(peer, str(failure))
                if isinstance(failure, TooSlow):
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

    def results(self):
        """Also if the run was interrupted: of those who had a turn."""
        for name, times in self.microseconds.items():
            per_sample = [t / self.batch for t in times]
            self.rows[name].update(us_per_sample_median=statistics.median(per_sample),
                                   us_per_sample_minimum=min(per_sample), steps=len(per_sample))
        for row in self.rows.values():
            if "us_per_sample_median" not in row:
                row.setdefault("failure", "not timed: the run was interrupted")
        return list(self.rows.values())


def run_task(task_name, batches, frameworks, cores, seconds, scratch, logs, load, note):
    """Calls note(rows) after every batch size, also if it is interrupted."""
    task = problem.TASKS[task_name]
    folder = BUILD / task_name
    initial = write_problem(task, folder)
    if len(task.input) != 3:
        frameworks = [name for name in frameworks if not name.endswith("channels_last")]
    if any(FRAMEWORKS[name][1] is None for name in frameworks):
        build_ours(folder)
    threads = str(len(cores))
    environment = dict(os.environ, OMP_NUM_THREADS=threads, MKL_NUM_THREADS=threads, OPENBLAS_NUM_THREADS=threads,
                       JAX_PLATFORMS="cpu", CUDA_VISIBLE_DEVICES="", PYTHONDONTWRITEBYTECODE="1",
                       TORCHINDUCTOR_CACHE_DIR=str(scratch / "inductor"), TORCHINDUCTOR_COMPILE_THREADS="1")
    if len(cores) == 1:
        environment["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
    peers = [Peer(name, task_name, cores, folder, logs, environment) for name in frameworks]
    too_slow = set()
    try:
        for batch in batches:
            comparison = Comparison(task_name, batch, peers, initial, folder, seconds)
            try:
                comparison.run(too_slow)
            finally:
                if comparison.turn_ticks:
                    share = comparison.strange_ticks / comparison.turn_ticks
                    load.append({"task": task_name, "batch": batch, "others_share": share})
                    print(f"  other programs had {share:.0%} of the cores while we timed", flush=True)
                note(comparison.results())
    finally:
        for peer in peers:
            peer.end()
        for name in ("initial.npy", *(name for name, _, _ in problem.data_files(task))):
            (folder / name).unlink(missing_ok=True)


def processor():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor()


def main():
    given = arguments.parse()
    cores = sorted(os.sched_getaffinity(0))[:given.threads]
    scratch = BUILD / "scratch"  # compiled kernels: emptied, so that first steps pay for them
    shutil.rmtree(scratch, ignore_errors=True)
    logs = given.out / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    machine = {"processor": processor(), "cores": cores, "system": platform.platform(),
               "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
               "command": shlex.join(["sh", "bench/peers/run.sh", *sys.argv[1:]]),
               "load_average_before": os.getloadavg()[0], "others": []}
    rows = []

    def note(more):
        rows.extend(more)
        machine["load_average_after"] = os.getloadavg()[0]
        report.write(given.out, machine, rows)

    def interrupt(number, frame):
        signal.signal(number, signal.SIG_IGN)
        raise KeyboardInterrupt

    for number in (signal.SIGTERM, signal.SIGHUP):  # as Ctrl-C: processes are ended, and what was measured stays
        signal.signal(number, interrupt)
    try:
        for task_name in given.task:
            batches = given.batch or problem.TASKS[task_name].batches
            problem.TASKS[task_name] = problem.dataclasses.replace(problem.TASKS[task_name], batches=tuple(batches))
            run_task(task_name, batches, given.frameworks, cores, given.seconds, scratch, logs, machine["others"], note)
    except KeyboardInterrupt:
        if rows:
            machine["interrupted"] = True
            note([])
        where = f"what was measured is in {given.out}/peers.json, peers.md, peers.svg" if rows else "nothing was measured"
        print(f"bench/peers/run.sh: interrupted; {where}", file=sys.stderr)
        return 130
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    print()
    print((given.out / "peers.md").read_text(encoding="utf-8"))
    print(f"wrote {given.out}/peers.json, peers.md, peers.svg")
    failures = [(row["framework"], row["failure"]) for row in rows if "failure" in row]
    return 1 if any(name in report.OURS.values() or why.startswith("WRONG") for name, why in failures) else 0


if __name__ == "__main__":
    sys.exit(main())
