#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""run_test.py: examples/run.sh says within a second what it does, refuses names that there are not, and interrupts ranks;
the quickstart leaves nothing in the clone, by the script and, in the long tier, by the command of the README."""

import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


def listing(folder):
    return sorted((str(each.relative_to(folder)), each.stat().st_mtime_ns) for each in folder.rglob("*"))


def interrupts_ranks(clone, stubs, environment):
    """Ctrl-C, which a terminal sends to all, reaches mpirun as the signal that it passes on to the ranks."""
    stubs.mkdir()
    ends = "trap 'echo ended; exit 130' USR1; trap 'exit 1' INT TERM HUP"
    for name, does in (("cmake", "exit 0"), ("mpirun", f"{ends}; echo begun; while :; do sleep 0.05; done")):
        (stubs / name).write_text(f"#!/bin/sh\n{does}\n", encoding="utf-8")
        (stubs / name).chmod(0o755)
    for number in (signal.SIGINT, signal.SIGHUP):
        running = subprocess.Popen(["sh", "examples/run.sh", "--example", "fashion_mnist_mpi"], cwd=clone, text=True,
                                   env={**environment, "PATH": f"{stubs}:{environment['PATH']}"}, start_new_session=True,
                                   stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        assert running.stdout.readline() == "begun\n"
        os.killpg(running.pid, number)
        assert running.stdout.read() == "ended\n" and running.wait() == 130, running.returncode


def main():
    with tempfile.TemporaryDirectory() as name:
        clone, elsewhere = pathlib.Path(name) / "clone", pathlib.Path(name) / "tmp"
        elsewhere.mkdir()
        for part in ("include", "examples", ".ci", "single_include"):
            shutil.copytree(ROOT / part, clone / part, ignore=shutil.ignore_patterns("__pycache__"))
        before = listing(clone)
        environment = {**os.environ, "TMPDIR": str(elsewhere)}

        start = time.monotonic()
        running = subprocess.Popen(["sh", "examples/run.sh", "--example", "quickstart"], cwd=clone, env=environment, text=True,
                                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        first = running.stdout.readline()
        took = time.monotonic() - start
        rest = running.stdout.read()
        assert first == "building quickstart ...\n" and took < 1, (first, took)
        assert running.wait() == 0 and re.fullmatch(r"test accuracy 0\.\d{4}, epsilon \d\.\d{4}, delta 1e-05\n", rest), rest
        assert listing(clone) == before and not list(elsewhere.iterdir())

        # A name that there is not, or a number of ranks: at once, with those that there are.
        for words, because in ((["--example", "quikstart"], "'quikstart'; there are: quickstart"),
                               (["--example", ""], "''; there are: quickstart"),
                               (["--example=audit dp_ftrl"], "'audit dp_ftrl'; there are: quickstart"),
                               (["--example", "fashion_mnist_mpi", "--ranks="], "--ranks needs a number"),
                               (["--example", "fashion_mnist_mpi", "--ranks"], "--ranks needs a number")):
            said = subprocess.run(["sh", "examples/run.sh", *words], cwd=clone, env=environment, text=True,
                                  capture_output=True, check=False)
            assert said.returncode == 2 and because in said.stderr and said.stderr.count("\n") == 1, (words, said)

        if os.environ.get("PERGRAD_LONG_TESTS"):
            text = (ROOT / "README.md").read_text(encoding="utf-8")
            command = re.search(r"^g\+\+ .*01_quickstart\.cpp.*$", text, re.MULTILINE).group(0)
            assert "/tmp/quickstart" in command
            subprocess.run(["sh", "-eu", "-c", command.replace("/tmp/quickstart", str(elsewhere / "quickstart"))], cwd=clone,
                           check=True)
            assert listing(clone) == before
        interrupts_ranks(clone, pathlib.Path(name) / "bin", environment)
    print("examples/run.sh speaks at once, and the quickstart leaves nothing")


if __name__ == "__main__":
    main()
