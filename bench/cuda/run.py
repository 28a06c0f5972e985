# SPDX-License-Identifier: Apache-2.0
"""Builds, checks and times the device part on this machine's GPU, next to its peers. Standard library only.

Everything has a share of the time: builds run side by side, then the checks, then ours is timed, then the peers, one
process for each framework and task, until the time is used up. What there was no time for is listed as such.
"""

import argparse
import datetime
import importlib.util
import json
import os
import pathlib
import platform
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
BUILD = ROOT / "build" / "bench-cuda"
sys.path[:0] = [str(HERE.parent / "peers"), str(HERE)]

import cuda_report  # noqa: E402
import problem  # noqa: E402

TASKS = ("mnist_cnn", "mlp", "cifar_cnn")
OUR_BATCHES = (16, 32, 64, 128, 256, 512, 1024, 2048)
PEER_BATCHES = (16, 64, 256, 2048)
RECORDS = 8 * 2048
CHECKED_BATCH = 16  # whose clipped sum the peers must give
PEERS = {  # name: the module that must be importable
    "torch": "torch", "torch_vmap": "torch", "jax": "jax", "jax_scan": "jax", "opacus_hooks": "opacus",
    "opacus_ghost": "opacus"}
MOST_FOR_SANITIZERS = 100  # seconds
SANITIZERS = ("memcheck", "racecheck", "initcheck")
TINY = problem.Task("a small network with every kind of node, for the sanitizers", (1, 10, 9), (
    problem.conv(4, 3, 2, 1), problem.relu, problem.max_pool(2, 1), problem.flatten, problem.linear(8), problem.sigmoid,
    problem.linear(3)))


class Clock:
    def __init__(self, minutes):
        self.start = time.monotonic()
        self.end = self.start + 60 * minutes

    def left(self):
        return self.end - time.monotonic()

    def spent(self):
        return time.monotonic() - self.start


def output_of(command, seconds):
    """(exit code or None where the time was up, what was printed)"""
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
                              timeout=max(1, seconds), check=False)
        return done.returncode, done.stdout
    except subprocess.TimeoutExpired as stopped:
        text = stopped.stdout or b""
        return None, text.decode(errors="replace") if isinstance(text, bytes) else text


def find_gpu(nvcc):
    """What probe.cu says; ends the program with code 3 where there is no usable GPU."""
    probe = BUILD / "probe"
    code, text = output_of([nvcc, "-std=c++20", "-O1", f"-I{ROOT / 'include'}", str(HERE / "probe.cu"), "-o",
                            str(probe)], 120)
    if code != 0:
        sys.exit(f"bench/cuda/run.sh: probe.cu cannot be built:\n{text}")
    code, text = output_of([str(probe)], 60)
    if code != 0:
        print(f"bench/cuda/run.sh: {text.strip() or 'the probe fails'}", file=sys.stderr)
        sys.exit(3)
    return json.loads(text)


def build(nvcc, architecture, clock):
    """All programs at once; returns their paths."""
    programs, running = {}, {}
    jobs = [("kernels", HERE / "kernels.cu", None)]
    for name, task in [("tiny", TINY), *((name, problem.TASKS[name]) for name in TASKS)]:
        folder = BUILD / name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "network.hpp").write_text(problem.cpp_header(task), encoding="utf-8")
        jobs.append((name, HERE / "ours.cu", folder))
    for name, source, folder in jobs:
        programs[name] = BUILD / f"{name}.program"
        command = [nvcc, "-std=c++20", "-O3", f"-arch=sm_{architecture}", "-lineinfo", f"-I{ROOT / 'include'}"]
        command += [f"-I{folder}"] if folder else []
        running[name] = subprocess.Popen([*command, str(source), "-o", str(programs[name])], stdout=subprocess.PIPE,
                                         stderr=subprocess.STDOUT, text=True)
        if len(running) >= (os.cpu_count() or 1):
            next(iter(running.values())).wait()
    for name, process in running.items():
        text, _ = process.communicate(timeout=max(1, clock.left()))
        if process.returncode != 0:
            sys.exit(f"bench/cuda/run.sh: {name} cannot be built:\n{text}")
    return programs


def check(programs, clock):
    """Results of the checks, sanitizers included: a list of {what, state, output}."""
    results = []

    def note(what, code, text):
        state = {0: "ok", None: "no time left"}.get(code, "FAILED")
        results.append({"what": what, "state": state, "output": text[-4000:]})
        print(f"{what}: {state}")
        if state == "FAILED":
            print(text)

    note("kernels have the host's bits", *output_of([str(programs["kernels"])], 60))
    for name in ("tiny", *TASKS):
        note(f"{name}: device and host executor agree", *output_of([str(programs[name]), "check"], 60))
    sanitizer = find_program("compute-sanitizer")
    end = time.monotonic() + MOST_FOR_SANITIZERS
    for tool in SANITIZERS:
        for name, command in (("kernels", [str(programs["kernels"]), "small"]),
                              ("tiny network", [str(programs["tiny"]), "check", "12"])):
            what = f"compute-sanitizer {tool}, {name}"
            if sanitizer is None:
                results.append({"what": what, "state": "compute-sanitizer is not there", "output": ""})
                continue
            note(what, *output_of([sanitizer, "--tool", tool, "--error-exitcode", "9", *command],
                                  min(end - time.monotonic(), clock.left())))
    return results


def find_program(name):
    for folder in [*os.environ.get("PATH", "").split(os.pathsep), "/usr/local/cuda/bin"]:
        path = pathlib.Path(folder) / name
        if folder and os.access(path, os.X_OK):
            return str(path)
    return None


def lines_of(text):
    rows = []
    for line in text.splitlines():
        if line.startswith("{"):
            rows.append(json.loads(line))
    return rows


def time_ours(programs, clock):
    rows = []
    for name in TASKS:
        code, text = output_of([str(programs[name]), "time", "0.4", *map(str, OUR_BATCHES)], min(60, clock.left()))
        rows += [{"task": name, "framework": "pergrad_dp", **row} for row in lines_of(text)]
        if code != 0:
            rows.append({"task": name, "framework": "pergrad_dp",
                         "failure": "no time left" if code is None else text.strip()[-300:]})
        print(f"{name}: ours timed, {clock.spent():.0f} s")
    return rows


def time_peers(names, programs, clock):
    rows = []
    jobs = [(task, name) for task in TASKS for name in names]
    written = set()
    for number, (task, name) in enumerate(jobs):
        row = {"task": task, "framework": name}
        if importlib.util.find_spec(PEERS[name]) is None:
            rows.append({**row, "failure": f"no Python module {PEERS[name]}"})
            continue
        folder = BUILD / task
        if task not in written:
            code, text = output_of([str(programs[task]), "data", str(folder), str(RECORDS), str(CHECKED_BATCH)], 60)
            if code != 0:
                rows.append({**row, "failure": f"ours gave no data: {text.strip()[-300:]}"})
                continue
            written.add(task)
        seconds = clock.left() / (len(jobs) - number)
        if seconds < 4:
            rows.append({**row, "failure": "no time left"})
            continue
        code, text = output_of([sys.executable, str(HERE / "peer.py"), name, task, str(folder), f"{seconds:.1f}",
                                str(CHECKED_BATCH), *map(str, PEER_BATCHES)], seconds + 20)
        found = lines_of(text)
        rows += [{**row, **each} for each in found]
        if code != 0 or not found:
            last = text.strip().splitlines()[-1:] or ["nothing was printed"]
            rows.append({**row, "failure": "no time left" if code is None else last[0][-300:]})
        print(f"{task}: {name}, {clock.spent():.0f} s")
    return rows


def main():
    parser = argparse.ArgumentParser(prog="bench/cuda/run.sh", description=__doc__.splitlines()[0])
    parser.add_argument("--nvcc", required=True, help=argparse.SUPPRESS)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("out/cuda"))
    parser.add_argument("--minutes", type=float, default=8.5, help="for everything (default 8.5)")
    parser.add_argument("--peers", type=lambda text: [name for name in text.split(",") if name],
                        default=list(PEERS), help=f"of {', '.join(PEERS)}; empty: none")
    arguments = parser.parse_args()
    unknown = [name for name in arguments.peers if name not in PEERS]
    if unknown:
        parser.error(f"no such peer: {', '.join(unknown)}")
    clock = Clock(arguments.minutes)
    BUILD.mkdir(parents=True, exist_ok=True)
    machine = {**find_gpu(arguments.nvcc), "system": platform.platform(), "cores": os.cpu_count(),
               "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")}
    arguments.out.mkdir(parents=True, exist_ok=True)
    print(f"{machine['gpu']}, sm_{machine['architecture']}")
    programs = build(arguments.nvcc, machine["architecture"], clock)
    print(f"built, {clock.spent():.0f} s")
    checks = check(programs, clock)
    rows = time_ours(programs, clock)
    cuda_report.write(arguments.out, machine, checks, rows)  # so that an interrupted run leaves something
    rows += time_peers(arguments.peers, programs, clock)
    machine["seconds"] = round(clock.spent())
    cuda_report.write(arguments.out, machine, checks, rows)
    print((arguments.out / "cuda.md").read_text(encoding="utf-8"))
    failed = any(each["state"] == "FAILED" for each in checks)
    return 1 if failed or any(row.get("failure", "").startswith("WRONG") for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
