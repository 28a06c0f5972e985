#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Includes run one way: what docs/design.md's table of rooms allows, and nothing else."""

import pathlib
import re
import sys

TOP = pathlib.Path(__file__).resolve().parents[2]
INCLUDE = TOP / "include" / "pergrad"
INCLUDED = re.compile(r'^\s*#\s*(?:include|define\s+PERGRAD_TARGET_SOURCE)\s*[<"]pergrad/([^>"]+)[>"]', re.MULTILINE)
ROW = re.compile(r"^\| `([^`]+)` \|[^|]*\|([^|]*)\|$", re.MULTILINE)
MOST_FILES = 14  # of a room; layers are one file each
UMBRELLA = "pergrad.hpp"
DECLARED = re.compile(r"^\s*(?:struct|class) (\w+)", re.MULTILINE)
BASES = re.compile(r"^\s*(?:struct|class) \w[^;{:]*?(?<!:):(?!:)([^;{]+)\{", re.MULTILINE)


def room_of(name):
    """A folder; a header at the top is a room of its own."""
    folder, _, _ = name.rpartition("/")
    return folder or name


def allowed_by(document):
    table = document.split("<!-- rooms -->")[1].split("<!-- end of rooms -->")[0]
    return {room: set(re.findall(r"`([^`]+)`", cells)) for room, cells in ROW.findall(table)}


def headers():
    return {path.relative_to(INCLUDE).as_posix(): path.read_text(encoding="utf-8")
            for path in sorted(INCLUDE.rglob("*")) if path.suffix in {".hpp", ".cuh", ".inl"}}


def cycles(allowed):
    """Rooms from which an allowed way leads back."""
    found = []
    for start in allowed:
        seen, waiting = set(), list(allowed[start])
        while waiting:
            room = waiting.pop()
            if room not in seen:
                seen.add(room)
                waiting += allowed.get(room, ())
        if start in seen:
            found.append(f"{start}: the table leads from it back to it")
    return found


def without_arguments(bases):
    while (shorter := re.sub(r"<[^<>]*>", "", bases)) != bases:
        bases = shorter
    return bases


def missing_bases(texts):
    """Classes that are derived from, and declared in no header that is included: alone, such a header does not compile.
    The long tier compiles each; this sees the most usual slip."""
    declared, reached = {}, {}
    for name, text in texts.items():
        for each in DECLARED.findall(text):
            declared.setdefault(each, set()).add(name)

    def reach(name):
        if name not in reached:
            reached[name] = {name}.union(*(reach(each) for each in INCLUDED.findall(texts[name]) if each in texts))
        return reached[name]

    return [f"{name}: derives from {base}, of {', '.join(sorted(declared[base]))}, which it does not include"
            for name, text in texts.items() if not name.endswith(".inl")
            for bases in BASES.findall(text) for base in re.findall(r"\w+", without_arguments(bases))
            if base in declared and not declared[base] & reach(name)]


def mistakes(allowed, texts):
    found = cycles(allowed) + missing_bases(texts)
    files = {}
    for name, text in texts.items():
        if name == UMBRELLA:
            continue
        room = room_of(name)
        files.setdefault(room, []).append(name)
        if room not in allowed:
            found.append(f"{name}: the table knows no room {room}")
            continue
        for included in INCLUDED.findall(text):
            if (to := room_of(included)) != room and to not in allowed[room]:
                found.append(f"{name}: includes {included}, and {room} may not include {to}")
    found += [f"{room}: a row without a file" for room in allowed if room not in files]
    found += [f"{room}: {len(names)} files" for room, names in files.items()
              if len(names) > MOST_FILES and room != "layers"]
    return found


def main():
    allowed, texts = allowed_by((TOP / "docs" / "design.md").read_text(encoding="utf-8")), headers()
    found = mistakes(allowed, texts)
    # An arrow that runs to an executor must be found, or this test is idle.
    planted = texts | {"expressions/leaf.hpp": texts["expressions/leaf.hpp"] + "#include <pergrad/host/executor.hpp>\n"}
    if len(mistakes(allowed, planted)) != len(found) + 1:
        found.append("a planted arrow from expressions to host was not found")
    alone = "layers/reshape.hpp"
    planted = texts | {alone: texts[alone].replace("#include <pergrad/concepts.hpp>\n", "")}
    if len(mistakes(allowed, planted)) != len(found) + 1:
        found.append(f"that {alone} does not include its class's base was not found")
    print("\n".join(found) or f"{len(texts)} headers of {len(allowed)} rooms include what they may")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
