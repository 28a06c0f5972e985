#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""check.py CASE.cpp HEADER COMPILER FLAGS...: the wrong program gets one short, right error. Its twin: see twins.py.

CASE.cpp begins with lines `// expect-error: <regex>`, each of which the compiler's output must match. A regex should
name instantiated values: compilers echo the source, so a regex for literal text can match although another error fired.

A case with a line `// slip: SOURCE, WHAT` is a likely mistake of who comes from PyTorch or Opacus; its error is shorter.

One with lines `// compiled with: FLAG` is wrong with each of these flags by itself.

HEADER includes pergrad.hpp and is precompiled; a case reads it first, unless it defines macros before it includes, or is
compiled with flags of its own.
"""

import os
import pathlib
import re
import subprocess
import sys

MOST_LINES = 15
MOST_LINES_OF_A_SLIP = 12


def compiled(command):
    """Exit status of a compiler and what it says, in English."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
                          env={**os.environ, "LC_ALL": "C"})
    return done.returncode, done.stdout


def defines_first(text):
    """Whether a case defines macros, so that nothing may be included before it."""
    return re.search(r"^#define", text, re.MULTILINE) is not None


def wrongs(case, text, header, compiler):
    """What is wrong with the wrong program's error."""
    expected = re.findall(r"^// expect-error: (.+?)\s*$", text, re.MULTILINE)
    command = [*compiler, "-fsyntax-only", "-fdiagnostics-color=never", case]
    status, output = compiled(command)
    errors = re.findall(r"(?:^|\s)error: .*", output)
    wrong = []
    if not expected:
        wrong.append("the case has no '// expect-error: <regex>' line")
    if "COMPILE_FAIL_FIXED" not in text:
        wrong.append("the case has no corrected twin under COMPILE_FAIL_FIXED")
    if status == 0:
        wrong.append("the wrong program compiles")
    else:
        wrong += [f"the output does not match: {regex}" for regex in expected if not re.search(regex, output)]
        if len(errors) != 1 and "// the compiler's own error" not in text:
            wrong.append(f"{len(errors)} errors instead of one")
        lines = [line for line in output.splitlines() if header not in line]
        most = MOST_LINES_OF_A_SLIP if re.search("^// slip: ", text, re.MULTILINE) else MOST_LINES
        if len(lines) > most:
            wrong.append(f"{len(lines)} lines of output, more than {most}")
    print(f"$ {' '.join(command)}\n{output}")
    return wrong


def main():
    case, header, *compiler = sys.argv[1:]
    text = pathlib.Path(case).read_text(encoding="utf-8")
    flags = re.findall(r"^// compiled with: (\S+)", text, re.MULTILINE)
    first = [] if flags or defines_first(text) else ["-Winvalid-pch", "-include", header]
    wrong = [line for flag in flags or [None]
             for line in wrongs(case, text, header, [*compiler, *first, *([flag] if flag else [])])]
    for line in wrong:
        print(f"FAILED: {line}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
