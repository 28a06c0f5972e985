#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Ranks of MPI end where one process ends, over shared memory and over TCP, and end together when one of them fails."""

import argparse
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile
import time

LONG = "PERGRAD_LONG_TESTS" in os.environ
KILLS = 50 if LONG else 3
STEPS = 12


class Ranks:
    def __init__(self, mpirun, program):
        self.mpirun = [mpirun, "--oversubscribe", "--bind-to", "none"]
        if os.geteuid() == 0:
            self.mpirun.append("--allow-run-as-root")
        self.program = program

    def run(self, count, *arguments, over=None, program=None, seconds=120):
        transport = ["--mca", "btl", f"{over},self"] if over else []
        command = [*self.mpirun, *transport, "-np", str(count), program or self.program, *map(str, arguments)]
        begin = time.monotonic()
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)
        done.seconds = time.monotonic() - begin
        return done

    def result(self, count, *arguments, **how):
        done = self.run(count, *arguments, **how)
        if done.returncode != 0:
            sys.exit(f"{count} ranks, {arguments}: exit {done.returncode}\n{done.stdout}{done.stderr}")
        return done.stdout.strip().splitlines()[-1]


def require(condition, what, done=None):
    if not condition:
        sys.exit(f"{what}\n{done.stdout}{done.stderr}" if done else what)


def same_bits(ranks):
    alone = subprocess.run([ranks.program], capture_output=True, text=True, check=True).stdout.strip()
    for over in ("vader", "tcp"):
        for count in (1, 2, 3, 4, 7):
            for threads in (1, 2):
                found = ranks.result(count, "--threads", threads, over=over)
                require(found == alone, f"{count} ranks of {threads} threads over {over}: {found}, one process {alone}")
    print("1, 2, 3, 4, 7 ranks of 1 and 2 threads have the bits of one process, over shared memory and TCP")


def faults(ranks):
    differs = ranks.run(3, "--differ", 2)
    require(differs.returncode != 0 and "the option noise" in differs.stderr and "rank 2 has" in differs.stderr,
            "a rank with other noise is not refused", differs)
    throws = ranks.run(3, "--throw", 1, 2)
    require(throws.returncode != 0 and throws.stderr.count("rank 1 of 3 failed") == 3, "an error of one rank is not all ranks'",
            throws)
    hangs = ranks.run(3, "--hang", 1, 2, "--patience", 2000)
    require(hangs.returncode != 0 and "waited too long" in hangs.stderr, "a rank that hangs is not noticed", hangs)
    require(hangs.seconds < 20, f"it took {hangs.seconds:.1f} s to notice a rank that hangs")
    print("a rank that differs, throws or hangs ends all with a message")


def kills(ranks, folder):
    """A rank is killed anywhere; from the last checkpoint another number of ranks goes on to the same bits."""
    wanted = ranks.result(1, "--steps", STEPS)
    chance = random.Random(7)
    for number in range(KILLS):
        saved = folder / f"run{number}"
        count = chance.choice((2, 3, 4))
        rank, step = chance.randrange(count), chance.randrange(1, STEPS)
        killed = ranks.run(count, "--steps", STEPS, "--every", 2, "--save", saved, "--kill", rank, step)
        require(killed.returncode != 0, f"killing rank {rank} of {count} at step {step} went unnoticed", killed)
        require(killed.seconds < 30, f"it took {killed.seconds:.1f} s until all ended")
        going_on = ["--load", saved] if saved.exists() else []
        require(bool(going_on) == (step >= 2), f"there is {'a' if going_on else 'no'} checkpoint at step {step}")
        found = ranks.result(chance.choice((1, 2, 3)), "--steps", STEPS, *going_on)
        require(found == wanted, f"after a kill of rank {rank} of {count} at step {step}: {found}, without one {wanted}")
    print(f"{KILLS} kills, and each run went on to the same bits")


def example(ranks, program, folder):
    ends = set()
    for count in (1, 2, 3, 4):
        done = ranks.run(count, "--epochs", 1, "--batch", 512, "--noise-multiplier", 2, "--seed", 1, "--threads", 1, "--out",
                         folder / "out", program=program, seconds=600)
        require(done.returncode == 0, f"the example fails on {count} ranks", done)
        ends.add(done.stdout.strip().splitlines()[-1])
    require(len(ends) == 1 and re.fullmatch(r"test accuracy 0\.\d{4}, epsilon \d+\.\d{4}, delta 1e-05", next(iter(ends))),
            f"the example ends with {ends}")
    print(f"the example on 1 to 4 ranks: {next(iter(ends))}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mpirun", required=True)
    parser.add_argument("--program", required=True)
    parser.add_argument("--example")
    options = parser.parse_args()
    ranks = Ranks(options.mpirun, options.program)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        same_bits(ranks)
        faults(ranks)
        kills(ranks, folder)
        if options.example:
            example(ranks, options.example, folder)


if __name__ == "__main__":
    main()
