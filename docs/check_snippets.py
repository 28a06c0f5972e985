#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""check_snippets.py [--update]: the documentation's C++ is cut from files that are compiled; its links lead somewhere.

A file marks what may be shown by `// [snippet: name]` ... `// [snippet end]`. Regions may nest; regions of one name are
joined. A document shows one as a ```cpp block right after `<!-- snippet: path#name -->`. --update refreshes the blocks.
"""

import pathlib
import re
import sys
import textwrap

ROOT = pathlib.Path(__file__).resolve().parent.parent
BEGIN = re.compile(r"^\s*// \[snippet: ([\w-]+)\]\s*$")
END = re.compile(r"^\s*// \[snippet end\]\s*$")
MARK = re.compile(r"^<!-- snippet: (\S+)#([\w-]+) -->$")
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ +(.*?)\s*$", re.MULTILINE)


def regions(path):
    """All regions of one file, by name."""
    found, open_names = {}, []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if begin := BEGIN.match(line):
            name = begin.group(1)
            open_names.append(name)
            found.setdefault(name, []).append([])
        elif END.match(line):
            if not open_names:
                raise ValueError(f"{path}:{number}: [snippet end] without a beginning")
            open_names.pop()
        else:
            for name in open_names:
                found[name][-1].append(line)
    if open_names:
        raise ValueError(f"{path}: [snippet: {open_names[-1]}] has no end")
    dedent = lambda part: textwrap.dedent("\n".join(part)).strip("\n")
    return {name: "\n\n".join(map(dedent, parts)) for name, parts in found.items()}


def blocks(lines):
    """(first line, line after the last, language) of every fenced block, fences included."""
    start = None
    for number, line in enumerate(lines):
        if line.startswith("```"):
            if start is None:
                start = number
            else:
                yield start, number + 1, lines[start][3:].strip()
                start = None


def check_document(path, update, wrong):
    lines = path.read_text(encoding="utf-8").splitlines()
    fresh = list(lines)
    for start, end, language in reversed(list(blocks(lines))):
        mark = MARK.match(lines[start - 1]) if start > 0 else None
        where = f"{path.relative_to(ROOT)}:{start + 1}"
        if language == "cpp" and not mark:
            wrong.append(f"{where}: a cpp block without <!-- snippet: path#name --> before it")
        if not mark:
            continue
        source = ROOT / mark.group(1)
        text = regions(source).get(mark.group(2)) if source.is_file() else None
        if text is None:
            wrong.append(f"{where}: there is no snippet {mark.group(1)}#{mark.group(2)}")
        elif update:
            fresh[start:end] = ["```cpp", *text.splitlines(), "```"]
        elif lines[start + 1 : end - 1] != text.splitlines():
            wrong.append(f"{where}: differs from {mark.group(1)}#{mark.group(2)}; run docs/check_snippets.py --update")
    if fresh != lines:
        path.write_text("\n".join(fresh) + "\n", encoding="utf-8")
    prose = re.sub(r"^```.*?^```", "", "\n".join(fresh), flags=re.MULTILINE | re.DOTALL)
    for link in LINK.findall(prose):
        target, _, anchor = link.partition("#")
        if re.match(r"[a-z]+:", link):
            continue
        file = (path.parent / target) if target else path
        headings = HEADING.findall(file.read_text(encoding="utf-8")) if anchor and file.is_file() else []
        anchors = {re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-") for text in headings}
        if not file.exists() or (anchor and anchor not in anchors):
            wrong.append(f"{path.relative_to(ROOT)}: the link {link} leads nowhere")


def main():
    wrong = []
    for document in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        check_document(document, "--update" in sys.argv[1:], wrong)
    for header in sorted([*(ROOT / "include").rglob("*.hpp"), *(ROOT / "include").rglob("*.inl")]):
        for name in sorted(set(re.findall(r"docs/[\w/]+\.md", header.read_text(encoding="utf-8")))):
            if not (ROOT / name).is_file():
                wrong.append(f"{header.relative_to(ROOT)}: names {name}, which does not exist")
    print("\n".join(wrong) or "documentation agrees with the code")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
