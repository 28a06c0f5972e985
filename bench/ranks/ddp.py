# SPDX-License-Identifier: Apache-2.0
"""Two processes of one thread each: our ranks over MPI beside Opacus' DistributedDataParallel over gloo, by turns."""

import argparse
import datetime
import json
import os
import pathlib
import shlex
import socket
import statistics
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(HERE.parent / "peers"))

import problem  # noqa: E402

BUILD = ROOT / "build" / "ranks"
RANKS, RECORDS = 2, 256
TASKS = {"mnist_cnn": "MNIST CNN", "cifar_cnn": "CIFAR CNN"}
OPACUS = {"Opacus, hooks": "hooks", "Opacus, ghost": "ghost"}
OURS = "pergrad"
MOST_SECONDS = 400  # of one turn, with its start


def parse(words):
    parser = argparse.ArgumentParser(prog="bench/ranks/ddp.sh", description=__doc__)
    parser.add_argument("--task", type=lambda text: text.split(","), default=list(TASKS), metavar="T,...")
    parser.add_argument("--rounds", type=int, default=3, metavar="N")
    parser.add_argument("--seconds", type=float, default=5, metavar="S", help="of a turn")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("out/ranks"), metavar="DIR")
    parser.add_argument("--check-words", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(words)
    for task in options.task:
        if task not in TASKS:
            parser.error(f"there is no task {task}; there are {', '.join(TASKS)}")
    if options.rounds < 1 or not options.seconds > 0:
        parser.error("rounds and seconds must be above 0")
    return options


def ours(folder, seconds, file):
    as_root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
    command = ["mpirun", *as_root, "--bind-to", "core", "-np", str(RANKS), folder / "ddp_ours", folder, str(RECORDS), str(seconds),
               file]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=MOST_SECONDS).stdout


def opacus(variant, task, folder, seconds, file):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    cores = sorted(os.sched_getaffinity(0))
    processes = []
    try:
        for rank in range(RANKS):
            environment = dict(os.environ, RANK=str(rank), WORLD_SIZE=str(RANKS), MASTER_ADDR="127.0.0.1",
                               MASTER_PORT=str(port), OMP_NUM_THREADS="1", MKL_NUM_THREADS="1", CUDA_VISIBLE_DEVICES="")
            processes.append(subprocess.Popen(
                ["taskset", "-c", str(cores[rank % len(cores)]), sys.executable, HERE / "ddp_worker.py", variant, task, folder,
                 str(RECORDS), str(seconds), file], stdout=subprocess.PIPE, text=True, env=environment))
        said = [process.communicate(timeout=MOST_SECONDS)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    if any(process.returncode != 0 for process in processes):
        raise subprocess.CalledProcessError(1, f"Opacus, {variant}")
    return said[0]


def prepare(name):
    """Records and first parameters, and our program."""
    import numpy

    task = problem.TASKS[name]
    folder = BUILD / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "network.hpp").write_text(problem.cpp_header(task), encoding="utf-8")
    initial = problem.initial_parameters(task)
    numpy.save(folder / "initial.npy", initial)
    problem.write_records(task, (RECORDS,), folder)
    subprocess.run(["mpicxx", "-std=c++20", "-O2", "-DNDEBUG", "-march=native", f"-I{ROOT / 'include'}", f"-I{folder}",
                    HERE / "ddp_ours.cpp", "-o", folder / "ddp_ours", "-pthread"], check=True,
                   env=dict(os.environ, OMPI_CXX=os.environ.get("CXX", "g++")))
    return folder, initial


def compare(name, rounds, seconds):
    """One row for each framework, after the sums have been compared."""
    import numpy

    folder, initial = prepare(name)
    run = {OURS: lambda file: ours(folder, seconds, file)}
    for title, variant in OPACUS.items():
        run[title] = lambda file, variant=variant: opacus(variant, name, folder, seconds, file)
    times, medians, peaks, sums = ({title: [] for title in run} for _ in range(4))
    for number in range(rounds):
        for title, take_turn in run.items():
            file = folder / "after.f32"
            file.unlink(missing_ok=True)
            found = json.loads(take_turn(file).strip().splitlines()[-1])
            if number == 0:
                sums[title] = initial.astype(numpy.float64) - numpy.fromfile(file, numpy.float32)
            medians[title].append(statistics.median(found["milliseconds"]))
            times[title] += found["milliseconds"]
            peaks[title].append(found["peak_mb"])
            print(f"{TASKS[name]}, {title}: {medians[title][-1]:.1f} ms, {peaks[title][-1]:.0f} MB", flush=True)
    rows = []
    for title in run:
        difference = float(numpy.linalg.norm(sums[title] - sums[OURS]) / numpy.linalg.norm(sums[OURS]))
        if not difference <= problem.TASKS[name].largest_difference:
            sys.exit(f"{TASKS[name]}, {title}: its sum differs by {difference:.1e}: WRONG")
        rows.append([TASKS[name] if title == OURS else "", title, ", ".join(f"{each:.1f}" for each in medians[title]),
                     f"{min(times[title]):.1f}", f"{max(peaks[title]):.0f}", "" if title == OURS else f"{difference:.1e}"])
    return rows


def main():
    options = parse(sys.argv[1:])
    if options.check_words:
        return 0
    import importlib.metadata

    load = os.getloadavg()[0]
    rows = [row for name in options.task for row in compare(name, options.rounds, options.seconds)]
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in ("opacus", "torch"))
    commit = subprocess.run(["git", "-C", ROOT, "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    processor = next((line.split(":")[1].strip() for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines()
                      if line.startswith("model name")), "an unknown processor")
    result = {
        "what": f"a private step of {RECORDS} records by two processes of one thread each, by turns; medians of each of "
                f"{options.rounds} rounds, the fastest step of all, the most memory of a process, and how much the sum of clipped "
                "gradients differs from ours, relative, in L2",
        "commands": [shlex.join(["sh", "bench/ranks/ddp.sh", *sys.argv[1:]])],
        "machine": f"{os.cpu_count()} cores of {processor}, shared with other work (load {load:.1f} before)",
        "date": datetime.date.today().isoformat(),
        "version": f"the tree after commit {commit.stdout.strip() or 'unknown'}; {versions}, gloo",
        "align": "llrrrr", "columns": ["task", "framework", "step, ms", "fastest, ms", "MB a process", "difference of the sum"],
        "rows": rows}
    import model

    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / "ddp.json"
    path.write_text(model.as_json(result), encoding="utf-8")
    print(f"\n{model.as_markdown(result)}\nwrote {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
