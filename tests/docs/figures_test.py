#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""figures_test.py: docs/figures.py holds for the documents, finds a figure that was changed in any of them, and writes it
back."""

import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


def run(root, *arguments):
    done = subprocess.run([sys.executable, root / "docs/figures.py", *arguments], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def main():
    status, said = run(ROOT)
    assert status == 0, said
    with tempfile.TemporaryDirectory() as name:
        copy = pathlib.Path(name)
        shutil.copy(ROOT / "README.md", copy)
        shutil.copytree(ROOT / "docs", copy / "docs", ignore=shutil.ignore_patterns("__pycache__"))
        assert run(copy)[0] == 0

        def found(file, old, new, says, mended=True):
            path = copy / file
            kept = path.read_text(encoding="utf-8")
            assert old in kept, (file, old)
            path.write_text(kept.replace(old, new, 1), encoding="utf-8")
            status, said = run(copy)
            assert status == 1 and says in said, (file, new, said)
            if mended:
                assert run(copy, "--update")[0] == 0 and path.read_text(encoding="utf-8") == kept
            path.write_text(kept, encoding="utf-8")

        readme = (ROOT / "README.md").read_text(encoding="utf-8")
        figure = re.search(r"<!-- figure: peers [^>]*-->[\d.]+<!-- / -->", readme).group(0)
        found("README.md", figure, re.sub(r">[\d.]+<", ">0.01<", figure), "run docs/figures.py --update")
        found("README.md", "| MNIST CNN, batch 256 | 0.28 |", "| MNIST CNN, batch 256 | 0.10 |", "README.md: says")
        row = next(line for line in (ROOT / "docs/performance.md").read_text(encoding="utf-8").splitlines() if line.startswith("| perceptron |"))
        found("docs/performance.md", row + "\n", "", "docs/performance.md: says")
        # A figure without a results file, one that a file has not, and a file that does not say where it is from.
        found("README.md", "**For whom.**", "**For whom.** It takes 0.41 of the time.", "0.41 comes from no results file", False)
        found("README.md", figure, figure.replace(":/", ":of nothing"), "docs/results has no peers", False)
        found("docs/results/peers.json", '"machine"', '"engine"', "does not say machine", False)
        found("docs/results/peers.json", '"date": "20', '"date": "in 20', "the date must be", False)
        # Another result changes every page that shows it, and these agree then.
        results = copy / "docs/results/peers.json"
        text = results.read_text(encoding="utf-8")
        peers = json.loads(text)
        cell = next(row for row in peers["rows"] if row[1] == "256")[5]
        results.write_text(text.replace(json.dumps(cell), json.dumps("0.55, 0.56, 0.57"), 1), encoding="utf-8")
        assert run(copy)[0] == 1 and run(copy, "--update")[0] == 0
        assert "| MNIST CNN, batch 256 | 0.28 | 0.56 |" in (copy / "README.md").read_text(encoding="utf-8")
        assert ">0.56<!-- / --> of the time" in (copy / "README.md").read_text(encoding="utf-8")
        assert "0.55, 0.56, 0.57" in (copy / "docs/performance.md").read_text(encoding="utf-8")
    print("figures are those of the results files, and others are found")


if __name__ == "__main__":
    main()
