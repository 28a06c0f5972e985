#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""run_test.py: examples/run.sh says within a second what it does, and the quickstart leaves nothing in the clone, by the
script and, in the long tier, by the command of the README."""

import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


def listing(folder):
    return sorted((str(each.relative_to(folder)), each.stat().st_mtime_ns) for each in folder.rglob("*"))


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

        # A name that there is not: at once, with those that there are.
        said = subprocess.run(["sh", "examples/run.sh", "--example", "quikstart"], cwd=clone, env=environment, text=True,
                              capture_output=True, check=False)
        assert said.returncode == 2 and "'quikstart'" in said.stderr and "tabular" in said.stderr, said

        if os.environ.get("PERGRAD_LONG_TESTS"):
            text = (ROOT / "README.md").read_text(encoding="utf-8")
            command = re.search(r"^g\+\+ .*01_quickstart\.cpp.*$", text, re.MULTILINE).group(0)
            assert "/tmp/quickstart" in command
            subprocess.run(["sh", "-eu", "-c", command.replace("/tmp/quickstart", str(elsewhere / "quickstart"))], cwd=clone,
                           check=True)
            assert listing(clone) == before
    print("examples/run.sh speaks at once, and the quickstart leaves nothing")


if __name__ == "__main__":
    main()
