#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""every_error_has_a_case.py ERRORS.hpp DIR: every class of errors.hpp that explains is expected by a program in DIR."""

import pathlib
import re
import sys


def main():
    errors, directory = (pathlib.Path(argument) for argument in sys.argv[1:3])
    text = errors.read_text(encoding="utf-8")
    classes = re.findall(r"struct (\w+)(?: : \w+)? \{\n\s*(?:static constexpr int say\(\) \{ )?static_assert\(never<", text)
    wrong = []
    if len(classes) != text.count("static_assert("):
        wrong.append(f"{len(classes)} explaining classes found, but {text.count('static_assert(')} static_asserts")
    expected = "\n".join(
        line
        for case in sorted(directory.glob("*.cpp"))
        for line in case.read_text(encoding="utf-8").splitlines()
        if line.startswith("// expect-error: ")
    )
    wrong += [f"{name} has no program in {directory}" for name in classes if not re.search(rf"\b{name}<", expected)]
    wrong += [f"the sentence does not say where to read: {line.strip()}"
              for line in text.splitlines() if "static_assert(never<" in line and not re.search(r"docs/\w+\.md", line)]
    for line in wrong:
        print(f"FAILED: {line}")
    print(f"{len(classes)} classes, {expected.count('expect-error')} expectations")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
