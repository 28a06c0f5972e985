#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""through_python_test.py PROGRAM: the round trip of a file through Python's own safetensors; 77 where there is none."""

import importlib.util
import os
import pathlib
import subprocess
import sys

CASE = "files_checkpoint/there_and_back_through_python"

for package in ("numpy", "safetensors"):
    if importlib.util.find_spec(package) is None:
        print(f"skipped: python3 has no {package}, so no file goes through its safetensors")
        sys.exit(77)
path = f"{pathlib.Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # the case asks for python3
done = subprocess.run([sys.argv[1], "--color_output=no", f"--run_test={CASE}"], capture_output=True, text=True,
                      check=False, env={**os.environ, "PATH": path})
print(done.stdout + done.stderr)
sys.exit(done.returncode if "Running 1 test case" in done.stdout + done.stderr else 1)
