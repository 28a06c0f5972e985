#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""figures.py [--update]: figures in README and docs are those of docs/results/; --update writes them.

Each file there says what was measured, by which commands, on which machine, when, and of which version. A document shows
    a table   after a line  <!-- table: FILE -->  (or  <!-- table: FILE summary -->, see `summary`), up to the next blank line
    a value   in its text, as  <!-- figure: FILE NAME -->0.86<!-- / -->
NAME is `row:column` for a table's cell (with as many of the first cells as a row needs); of several runs, the middle one. In the
documents of STRICT every number with two decimals must be one of these, or a number of a program that is shown.
"""

import json
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
STRICT = ["README.md", "docs/quickstart.md", "docs/examples.md", "docs/performance.md"]
TABLE = re.compile(r"^<!-- table: (\w+)( summary)? -->$")
VALUE = re.compile(r"<!-- figure: (\w+) (.+?) -->(.*?)<!-- / -->", re.DOTALL)
NEEDED = ("what", "commands", "machine", "date", "version")
# Versions, and sizes of networks and data, are of two decimals by chance.
EXEMPT = re.compile(r"\b0\.1\.0\b|\d\.\d+e-\d+|VERSION \S+")


def load(wrong):
    found = {}
    for file in sorted((ROOT / "docs/results").glob("*.json")):
        result = json.loads(file.read_text(encoding="utf-8"))
        wrong += [f"{file.name} does not say {key}" for key in NEEDED if not result.get(key)]
        if not re.fullmatch(r"20\d\d-\d\d-\d\d( to 20\d\d-\d\d-\d\d)?", result.get("date", "")):
            wrong.append(f"{file.name}: the date must be such as 2026-01-31")
        wrong += [f"{file.name}: a row of {len(row)} cells under {len(result['columns'])} columns: {row}"
                  for row in result.get("rows", []) if len(row) != len(result["columns"])]
        found[file.stem] = result
    return found


def middle(cell):
    """The middle one of several runs; of an even number, the larger of the two in the middle, which flatters less. What
    is in brackets is something else."""
    runs = re.findall(r"\d+\.\d+", re.sub(r"\([^)]*\)", "", cell))
    return sorted(runs, key=float)[len(runs) // 2] if runs else cell


def value(result, name):
    row, _, column = name.rpartition(":")
    for each in filled(result):
        if ":".join(each[: row.count(":") + 1]) == row:
            return middle(each[result["columns"].index(column)])
    raise KeyError(name)


def filled(result):
    """Rows with the first cell of the row above where it is empty."""
    first = ""
    for row in result["rows"]:
        first = row[0] or first
        yield [first, *row[1:]]


def table(columns, rows, align):
    line = lambda cells: "|" + "|".join(f" {cell} " if cell else " " for cell in cells) + "|"
    return [line(columns), line([{"r": "---:"}.get(each, "---") for each in align]), *map(line, rows)]


def summary(result):
    """Chosen rows of a table, one cell a row and middle runs: columns and rows are named by the file."""
    chosen = result["summary"]
    rows = []
    for task, batch in chosen["rows"]:
        rows.append([f"{task}, batch {batch}", *(value(result, f"{task}:{batch}:{column}") for column in chosen["columns"])])
    return table(["", *chosen["titles"]], rows, "l" * (1 + len(chosen["columns"])))


def rendered(result, short):
    return summary(result) if short else table(result["columns"], result["rows"], result["align"])


def document(path, results, update, wrong):
    text = path.read_text(encoding="utf-8")
    name = path.relative_to(ROOT)

    def put(match):
        file, key, _ = match.groups()
        try:
            return f"<!-- figure: {file} {key} -->{value(results[file], key)}<!-- / -->"
        except (KeyError, ValueError):
            wrong.append(f"{name}: docs/results has no {file} {key}")
            return match.group(0)

    if re.search(r"^<!-- figure:", text, re.MULTILINE):
        wrong.append(f"{name}: a figure begins a line, which Markdown then takes for HTML")
    lines, fresh, place = VALUE.sub(put, text).split("\n"), [], 0
    while place < len(lines):
        fresh.append(lines[place])
        mark = TABLE.match(lines[place])
        place += 1
        if not mark:
            continue
        if mark.group(1) not in results:
            wrong.append(f"{name}: docs/results has no {mark.group(1)}")
            continue
        while place < len(lines) and lines[place].startswith("|"):
            place += 1
        fresh += rendered(results[mark.group(1)], bool(mark.group(2)))
    made = "\n".join(fresh)
    if update and made != text:
        path.write_text(made, encoding="utf-8")
    elif made != text:
        differing = [f"{old!r}, not {new!r}" for old, new in zip(text.split("\n"), fresh) if old != new]
        wrong.append(f"{name}: says {(differing or ['a table of another length'])[0]}; run docs/figures.py --update")
    if str(name) in STRICT:
        prose = re.sub(r"^```.*?^```", "", VALUE.sub("", made), flags=re.MULTILINE | re.DOTALL)
        prose = re.sub(r"^<!-- table: .*?(?:\n\n|\Z)", "", prose, flags=re.MULTILINE | re.DOTALL)
        for number in re.findall(r"(?<![\w.])\d+\.\d\d+\b(?!\.)", EXEMPT.sub("", prose)):
            wrong.append(f"{name}: {number} comes from no results file")


def main():
    wrong = []
    results = load(wrong)
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        document(path, results, "--update" in sys.argv[1:], wrong)
    print("\n".join(wrong) or "figures are those of docs/results")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
