#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""macros.py COMPILER: the umbrella leaves the macros defined that docs/design.md lists, and no others."""

import pathlib
import re
import subprocess
import sys

from poison import SYSTEM

TOP = pathlib.Path(__file__).resolve().parents[2]
INCLUDE = TOP / "include"
UMBRELLA = "#include <pergrad/pergrad.hpp>\n"


def listed():
    document = (TOP / "docs" / "design.md").read_text(encoding="utf-8")
    table = document.split("<!-- macros -->")[1].split("<!-- end of macros -->")[0]
    return {name for row in table.splitlines() if row.startswith("| `")
            for name in re.findall(r"`(\w+)`", row.split("|")[1])}


def defined(compiler, source):
    printed = subprocess.run([compiler, "-std=c++20", f"-I{INCLUDE}", "-dM", "-E", "-x", "c++", "-"], input=source,
                             capture_output=True, check=True, text=True).stdout
    return set(re.findall(r"^#define (\w+)", printed, re.MULTILINE))


def of_the_system(compiler):
    """What the headers that ours include define without ours."""
    included = {name for path in INCLUDE.rglob("*.*pp") for name in SYSTEM.findall(path.read_text(encoding="utf-8"))}
    lines = [f"#if __has_include(<{name}>)\n#include <{name}>\n#endif\n" for name in sorted(included)
             if not name.startswith("arm_")]
    return defined(compiler, "".join(lines))


def main():
    compiler = sys.argv[1]
    system, documented = of_the_system(compiler), listed()
    leaked = defined(compiler, UMBRELLA) - system
    found = [f"{name}: the umbrella leaves it defined, and docs/design.md does not list it"
             for name in sorted(leaked - documented)]
    found += [f"{name}: docs/design.md lists it, and the umbrella does not define it"
              for name in sorted(documented - leaked)]
    # A macro that leaks must be found, or this test is idle.
    if defined(compiler, UMBRELLA + "#define planted 1\n") - system - leaked != {"planted"}:
        found.append("a planted macro was not found")
    print("\n".join(found) or f"the umbrella leaves {len(leaked)} macros defined: {', '.join(sorted(leaked))}")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
