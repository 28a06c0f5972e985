#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes single_include/pergrad.hpp from include/; with --check compares it with what include/ would give now."""

import argparse
import pathlib
import re
import sys

HERE = pathlib.Path(__file__).resolve().parent
INCLUDE = HERE.parent / "include"
ROOT = "pergrad/pergrad.hpp"
OURS = re.compile(r'^\s*#\s*include\s*[<"](pergrad/[^">]+)[">]')
TEXT_NAMED = re.compile(r'^\s*#\s*define\s+PERGRAD_TARGET_SOURCE\s+"(pergrad/[^"]+)"')
TEXT_READ = re.compile(r"^\s*#\s*include\s+PERGRAD_TARGET_SOURCE\b")
SYSTEM = re.compile(r"^\s*#\s*include\s*<([^>]+)>")
UNDER_NVCC = re.compile(r"^\s*#\s*ifdef\s+__CUDACC__\s*$")
OPENS, CLOSES = re.compile(r"^\s*#\s*if"), re.compile(r"^\s*#\s*endif")
ONCE = re.compile(r"^\s*#\s*pragma\s+once", re.MULTILINE)
DROPPED = re.compile(r"^\s*#\s*pragma\s+once|^// SPDX-License-Identifier:")


def text_of(name):
    return (INCLUDE / name).read_text(encoding="utf-8")


def expand(name, seen, lines, family_text=None):
    """Appends the text of one header to lines, its own includes first come, first served.

    A header without `#pragma once` is a text that is meant to be repeated, under whatever conditions; `family_text` is
    the one that a header names for every family of kernels.
    """
    seen.add(name)
    depth = 0
    seen_outside = None
    for number, line in enumerate(text_of(name).splitlines(), 1):
        depth += bool(OPENS.match(line)) - bool(CLOSES.match(line))
        if name == ROOT and depth == 1 and UNDER_NVCC.match(line):
            seen_outside, seen = seen, set(seen)  # what is first seen under the condition is missing outside of it
        elif seen_outside is not None and not depth:
            seen, seen_outside = seen_outside, None
        ours, system = OURS.match(line), SYSTEM.match(line)
        if named := TEXT_NAMED.match(line):
            family_text = named[1]
        if DROPPED.match(line):
            continue
        if TEXT_READ.match(line):
            expand(family_text, seen, lines)
        elif ours and not ONCE.search(text_of(ours[1])):
            expand(ours[1], seen, lines, family_text)
        elif ours:
            # Expanded under a condition, a header would be missing wherever the condition is false. The umbrella alone
            # may ask whether nvcc reads it: what is included there and nowhere before is for nvcc only.
            if depth and seen_outside is None:
                sys.exit(f"{INCLUDE / name}:{number}: a pergrad header is included under #if; it cannot be amalgamated")
            if ours[1] not in seen:
                expand(ours[1], seen, lines)
        elif system and (not depth or seen_outside is not None):
            if system[1] not in seen:
                seen.add(system[1])
                lines.append(line)
        elif line or lines[-1]:
            lines.append(line)


def version():
    text = text_of("pergrad/version.hpp")
    return ".".join(re.search(rf"#define PERGRAD_VERSION_{part} (\d+)", text)[1] for part in ("MAJOR", "MINOR", "PATCH"))


def amalgamate():
    lines = [
        "// SPDX-License-Identifier: Apache-2.0",
        f"// pergrad {version()}, the whole library in one header.",
        "// Generated from include/ by single_include/amalgamate.py; do not edit.",
        "#ifndef PERGRAD_SINGLE_HEADER_INCLUDED",
        "#define PERGRAD_SINGLE_HEADER_INCLUDED",
        "#ifdef PERGRAD_FOLDER_INCLUDED  // by a header of the folder: all that follows would be defined again",
        '#include "pergrad: a header of pergrad/include comes before the single header: compile with one of both"',
        "#endif",
        "",
    ]
    expand(ROOT, set(), lines)
    return "\n".join([*lines, "", "#endif  // PERGRAD_SINGLE_HEADER_INCLUDED", ""])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail if the file is not current")
    parser.add_argument("--out", type=pathlib.Path, default=HERE / "pergrad.hpp", help="the file to write or check")
    options = parser.parse_args()
    fresh = amalgamate()
    if not options.check:
        options.out.write_text(fresh, encoding="utf-8")
    elif not options.out.exists() or options.out.read_text(encoding="utf-8") != fresh:
        sys.exit(f"{options.out} is not what include/ gives now; run: python3 single_include/amalgamate.py")


if __name__ == "__main__":
    main()
