# SPDX-License-Identifier: Apache-2.0
"""Our own steps in this version and in an earlier one, by turns, task by task.

Both versions compile their own ours.cpp. Their first steps must agree, as those of peers must; then processes take
turns. Printed are the ratios of the medians and, in brackets, of the fastest steps: this version's over the earlier's.
"""

import dataclasses
import os
import statistics
import subprocess
import sys

import numpy

import arguments
import problem
import run
from peer import Peer, PeerFailure

TURNS = 4
PROCESSES = 2  # the pace moves between processes
BUILD = run.BUILD / "since"


def earlier_version(ref):
    """A working tree of it, and its commit."""
    commit = subprocess.run(["git", "-C", str(run.ROOT), "rev-parse", "--verify", "--short=7", f"{ref}^{{commit}}"],
                            capture_output=True, text=True, check=False).stdout.strip()
    if not commit:
        sys.exit(f"bench/peers/since.sh: {ref!r} is no commit of this repository")
    tree = BUILD / commit
    if not tree.exists():
        archive = subprocess.run(["git", "-C", str(run.ROOT), "archive", commit, "include", "bench"],
                                 capture_output=True, check=True).stdout
        tree.mkdir(parents=True)
        subprocess.run(["tar", "-x", "-C", str(tree)], input=archive, check=True)
    return tree, commit


def compare(task, name, batch, folders, cores, seconds):
    """The ratios of one framework of ours: by medians and by fastest steps."""
    times = {version: [] for version in folders}
    for _ in range(PROCESSES):
        peers = {version: Peer(name, folder.name, cores, folder, folder, dict(os.environ))
                 for version, folder in folders.items()}
        try:
            sums = []
            for version, peer in peers.items():
                path = folders[version] / "sum.npy"
                peer.ask(f"prepare {batch} {path}")
                sums.append(numpy.load(path).astype(numpy.float64))
                if task.update:
                    sums[-1] = sums[-1] - numpy.load(folders[version] / "initial.npy")
            difference = run.relative_difference(*sums)
            if not difference <= task.largest_difference:
                raise PeerFailure(f"WRONG: the versions' sums differ by {difference:.1e}")
            for _ in range(TURNS):
                for version, peer in peers.items():
                    times[version] += peer.ask(f"run {seconds / TURNS / PROCESSES}")["microseconds"]
        finally:
            for peer in peers.values():
                peer.end()
    then, now = times.values()
    return statistics.median(now) / statistics.median(then), min(now) / min(then)


def main():
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        sys.exit("usage: bench/peers/since.sh REF [--task T,...] [--batch B,...] [--threads N] [--seconds S]")
    given = arguments.parse(sys.argv[2:])
    tree, commit = earlier_version(sys.argv[1])
    cores = sorted(os.sched_getaffinity(0))[:given.threads]
    failed = False
    print(f"This version / {commit}, {len(cores)} threads: {run.processor()}\n\n"
          "| task | batch | ordinary | private |\n| --- | ---: | ---: | ---: |", flush=True)
    for task_name in given.task:
        task = problem.TASKS[task_name]
        task = dataclasses.replace(task, batches=tuple(given.batch or task.batches))
        folders = {version: BUILD / task_name / version for version in ("then", "now")}
        for version, root in (("then", tree), ("now", run.ROOT)):
            run.write_problem(task, folders[version])
            run.build_ours(folders[version], root=root)
        for batch in task.batches:
            row = []
            for name in ("pergrad", "pergrad_dp"):
                try:
                    row.append("{:.3f} ({:.3f})".format(*compare(task, name, batch, folders, cores, given.seconds)))
                except PeerFailure as failure:
                    failed = True
                    row.append(str(failure))
            print(f"| {task_name} | {batch} | {' | '.join(row)} |", flush=True)
        for folder in folders.values():
            for name in ("initial.npy", "sum.npy", *(name for name, _, _ in problem.data_files(task))):
                (folder / name).unlink(missing_ok=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
