#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Ranks of MPI end where one process ends, over shared memory and over TCP, and end together when one of them fails.

With --gpus the ranks are GPUs that exchange by NCCL, both of them played, beside MPI.
"""

import argparse
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent.parent / "bench" / "ranks"))
import model  # noqa: E402

LONG = "PERGRAD_LONG_TESTS" in os.environ
KILLS = 50 if LONG else 3
STEPS = 12


class Ranks:
    def __init__(self, mpirun, program):
        self.mpirun = [mpirun, "--oversubscribe", "--bind-to", "none"]
        if os.geteuid() == 0:
            self.mpirun.append("--allow-run-as-root")
        self.program = program

    def run(self, count, *arguments, over=None, program=None, seconds=120, hosts=()):
        transport = ["--mca", "btl", f"{over},self"] if over else []
        if hosts:
            transport += ["--host", ",".join(hosts)]
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
    every = [(over, count, threads) for over in ("vader", "tcp") for count in (1, 2, 3, 4, 7) for threads in (1, 2)]
    some = [("vader", 1, 1), ("vader", 2, 2), ("vader", 4, 1), ("vader", 7, 1), ("tcp", 3, 1), ("tcp", 3, 2)]
    chosen = every if LONG else some
    for over, count, threads in chosen:
        found = ranks.result(count, "--threads", threads, over=over)
        require(found == alone, f"{count} ranks of {threads} threads over {over}: {found}, one process {alone}")
    print(f"{len(chosen)} of {len(every)} combinations of ranks, threads and ways have the bits of one process")


# What runs in network namespaces: this file again, in one of its own, as 10.77.0.1; the other one is 10.77.0.2.
HOSTS = ("10.77.0.1", "10.77.0.2")
CABLE_STEPS = 100
PARAMETERS = 5252  # of mpi_program's network


def between_namespaces(ranks):
    """In a namespace that has only a cable to another one: ranks on both sides have the bits of one process."""
    def do(*command):
        subprocess.run(command, check=True, capture_output=True, text=True)

    other = subprocess.Popen(["unshare", "--net", "sleep", "600"])
    try:
        there = ["nsenter", "--target", str(other.pid), "--net"]
        deadline = time.monotonic() + 10
        while os.readlink(f"/proc/{other.pid}/ns/net") == os.readlink("/proc/self/ns/net"):
            require(time.monotonic() < deadline, "there is no second namespace")
            time.sleep(0.01)
        do("ip", "link", "add", "name", "here", "type", "veth", "peer", "name", "there", "netns", str(other.pid))
        for place, cable, address in (([], "here", HOSTS[0]), (there, "there", HOSTS[1])):
            do(*place, "ip", "address", "add", f"{address}/24", "dev", cable)
            do(*place, "ip", "link", "set", cable, "up")
            do(*place, "ip", "link", "set", "lo", "up")
        with tempfile.TemporaryDirectory() as name:
            # mpirun starts its daemon on the other host as it would by ssh: AGENT HOST COMMAND.
            agent = pathlib.Path(name) / "agent"
            agent.write_text(f"#!/bin/sh\nshift\nexec {' '.join(there)} sh -c \"$*\"\n", encoding="utf-8")
            agent.chmod(0o755)
            network = f"{HOSTS[0]}/24"
            ranks.mpirun += ["--mca", "plm_rsh_agent", str(agent), "--mca", "oob_tcp_if_include", network,
                             "--mca", "btl_tcp_if_include", network, "--map-by", "node"]
            wanted = ranks.result(1, "--steps", CABLE_STEPS, over="tcp", hosts=[f"{HOSTS[0]}:1"])
            for count in (2, 3, 4):
                before = carried()
                hosts = [f"{host}:{-(-count // 2)}" for host in HOSTS]
                found = ranks.result(count, "--steps", CABLE_STEPS, over="tcp", hosts=hosts)
                require(found == wanted, f"{count} ranks in two namespaces: {found}, one rank {wanted}")
                bytes_of_step, least = (carried() - before) / CABLE_STEPS, over_the_cable(count)
                require(least <= bytes_of_step <= 1.1 * least, f"{count} ranks: {bytes_of_step:.0f} bytes a step went over the "
                        f"cable, and {least} are what ranks have to say")
                print(f"{count} ranks in two network namespaces: {bytes_of_step:.0f} bytes a step, of which {least} are the model's")
    finally:
        other.kill()
        other.wait()
    print("ranks in two network namespaces have the bits of one process, over TCP")


def carried():
    """Bytes in both directions so far, with headers, and what mpirun and its daemons say."""
    return sum(int(pathlib.Path(f"/sys/class/net/here/statistics/{way}_bytes").read_text(encoding="utf-8")) for way in ("rx", "tx"))


def over_the_cable(count):
    """Bytes a step by bench/ranks/model.py, where every second rank is on the other side."""
    total = 0
    for what, parts in model.exchanges(PARAMETERS, count):
        for rank, part in enumerate(parts):  # gathered: to each one there; reduced: from each one there
            total += part * sum(1 for other in range(count) if other % 2 != rank % 2)
    return total


def namespaces(options):
    """between_namespaces where the system permits it; else says why not."""
    missing = [name for name in ("ip", "unshare", "nsenter") if not shutil.which(name)]
    own = ["--net"] if os.geteuid() == 0 else ["--user", "--map-root-user", "--net"]
    probe = "ip link add name here type veth peer name there"
    tried = None if missing else subprocess.run(["unshare", *own, "sh", "-c", probe], capture_output=True, text=True, check=False)
    if missing or tried.returncode != 0:
        why = f"there is no {missing[0]}" if missing else tried.stderr.strip() or f"exit {tried.returncode}"
        print(f"NOT RUN: TCP between network namespaces: {why}")
        return
    # /sys shows the network of the namespace in which it was mounted.
    inside = 'mount -t sysfs none /sys && exec "$@"'
    done = subprocess.run(["unshare", *own, "--mount", "sh", "-c", inside, "sh", sys.executable, __file__, "--mpirun",
                           options.mpirun, "--program", options.program, "--inside"], check=False)
    require(done.returncode == 0, f"in network namespaces: exit {done.returncode}")


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


def on_gpus(ranks, folder):
    wanted = ranks.result(1, "--steps", STEPS)
    for count in (2, 3, 4):
        found = ranks.result(count, "--steps", STEPS)
        require(found == wanted, f"{count} GPUs: {found}, one {wanted}")
    for rank, step, others in ((0, 5, 3), (2, 8, 1)):
        saved = folder / f"gpus{rank}"
        killed = ranks.run(3, "--steps", STEPS, "--every", 2, "--save", saved, "--kill", rank, step)
        require(killed.returncode != 0, f"killing rank {rank} at step {step} went unnoticed", killed)
        found = ranks.result(others, "--steps", STEPS, "--load", saved)
        require(found == wanted, f"after a kill: {found}, without one {wanted}")
    os.environ["FAKE_NCCL_FAILS_AFTER"] = "25"  # in a step, when its graph has been captured
    broken = ranks.run(2, "--steps", STEPS)
    del os.environ["FAKE_NCCL_FAILS_AFTER"]
    require(broken.returncode != 0 and "a step's exchange by NCCL: an error of the fake NCCL" in broken.stderr,
            "an error that NCCL reports later is not noticed", broken)
    print("1, 2, 3, 4 GPUs have the same bits, go on after kills, and end when NCCL fails")


def example(ranks, program, folder):
    ends = set()
    for count in (1, 2, 3, 4) if LONG else (1, 3):
        done = ranks.run(count, "--epochs", 1, "--batch", 512, "--noise-multiplier", 2, "--seed", 1, "--threads", 1, "--out",
                         folder / "out", program=program, seconds=600)
        require(done.returncode == 0, f"the example fails on {count} ranks", done)
        ends.add(done.stdout.strip().splitlines()[-1])
    require(len(ends) == 1 and re.fullmatch(r"test accuracy 0\.\d{4}, epsilon \d+\.\d{4}, delta 1e-05", next(iter(ends))),
            f"the example ends with {ends}")
    print(f"the example on several numbers of ranks: {next(iter(ends))}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mpirun", required=True)
    parser.add_argument("--program", required=True)
    parser.add_argument("--example")
    parser.add_argument("--gpus", action="store_true", help="the program's ranks are GPUs")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    ranks = Ranks(options.mpirun, options.program)
    if options.inside:
        between_namespaces(ranks)
        return
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        if options.gpus:
            faults(ranks)
            on_gpus(ranks, folder)
            return
        same_bits(ranks)
        namespaces(options)
        faults(ranks)
        kills(ranks, folder)
        if options.example:
            example(ranks, options.example, folder)


if __name__ == "__main__":
    main()
