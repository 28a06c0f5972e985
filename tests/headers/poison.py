#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes a source that includes all headers of a folder after macros that would break them.

Macros such as I (complex.h), B0 (termios.h), small (rpcndr.h) or N (somebody's main.c) are alive in real programs. What
our headers include from elsewhere is included before them: only our own text is under test.
"""

import pathlib
import re
import string
import sys

POISON = [*string.ascii_uppercase, *(f"B{i}" for i in range(10)), "B50", "B75", "small", "near", "far", "hyper",
          "interface", "linux", "unix", "major", "minor", "IN", "OUT", "OPTIONAL", "ERROR", "DELETE", "TRUE", "FALSE",
          "PI", "EPSILON", "None", "Bool", "Success", "Always", "DEBUG", "VOID", "CHECK"]
SYSTEM = re.compile(r"^\s*#\s*include\s*<((?!pergrad)[^>]+)>", re.MULTILINE)


def main():
    folder, out = map(pathlib.Path, sys.argv[1:])
    headers = sorted(folder.rglob("*.hpp"))
    system = sorted({name for header in headers for name in SYSTEM.findall(header.read_text(encoding="utf-8"))})
    lines = []
    for name in system:
        guard = "__aarch64__" if name.startswith("arm_") else "__x86_64__" if name.endswith("intrin.h") else ""
        lines += [f"#if defined({guard})"] * bool(guard) + [f"#include <{name}>"] + ["#endif"] * bool(guard)
    lines += [f"#undef {name}\n#define {name} ) the macro {name} was expanded (" for name in POISON]
    lines += [f"#include <{header.relative_to(folder).as_posix()}>" for header in headers]
    out.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
