#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""twins.py SOURCE.cpp HEADER COMPILER FLAGS... -- CASE.cpp...: the corrected twins of these cases compile, and silently.

Nearly all that one of them costs is what it shares with the others. So they are compiled as one SOURCE, each in a
namespace of its own, behind what all of them include. Only if that fails does each of them compile alone, to see which
one it is, or that the matter is the source they make together, as when one of them specialises a template. What a twin
includes itself is seen in the wrong program, which is alone.
"""

import pathlib
import re
import sys

from check import compiled, defines_first

STRICT = ["-DCOMPILE_FAIL_FIXED", "-Wall", "-Wextra", "-fsyntax-only", "-fdiagnostics-color=never"]


def includes(case):
    """What it and its *.inc include from elsewhere."""
    text = case.read_text(encoding="utf-8")
    found = set(re.findall(r"^#include (<[^>]+>)", text, re.MULTILINE))
    for name in re.findall(r'^#include "([^"]+)"', text, re.MULTILINE):
        found |= includes(case.parent / name)
    return found


def main():
    split = sys.argv.index("--")
    source, header, *compiler = sys.argv[1:split]
    cases = [pathlib.Path(argument) for argument in sys.argv[split + 1:]]
    reads_first = ["-Winvalid-pch", "-include", header]
    alone = [case for case in cases if defines_first(case.read_text(encoding="utf-8"))]
    together = [case for case in cases if case not in alone]
    lines = [f"#include {name}" for name in sorted(set().union(*map(includes, together)))]
    for case in together:
        lines += [f"namespace {case.stem} {{", f'#include "{case}"', "}"]
    pathlib.Path(source).write_text("\n".join(lines) + "\n", encoding="utf-8")
    # In a namespace main() is a function like others, and has to return something.
    status, output = compiled([*compiler, *reads_first, *STRICT, "-Wno-return-type", source])
    if status != 0 or output:
        alone = cases
        print(f"$ {source}\n{output}")

    wrong = []
    for case in alone:
        first = [] if defines_first(case.read_text(encoding="utf-8")) else reads_first
        status, output = compiled([*compiler, *first, *STRICT, str(case)])
        if status != 0 or output:
            wrong.append(f"FAILED: {case}: the corrected twin does not compile silently\n{output}")
    print("\n".join(wrong or [f"{len(cases)} twins, {len(alone)} of them compiled alone"]))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
