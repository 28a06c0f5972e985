#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""bytes_test.py --program COUNT_PROGRAM: a step's exchanges are those of the model (bench/ranks/model.py), in order and to
the byte, and what docs/scaling.md shows is what the model makes of the parts that were measured."""

import argparse
import json
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "bench" / "ranks"))
import model  # noqa: E402


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", required=True)
    options = parser.parse_args()
    lines = subprocess.run([options.program], capture_output=True, text=True, check=True).stdout.splitlines()
    seen = set()
    for line in lines:
        try:
            counted = json.loads(line)
        except ValueError:
            sys.exit(f"a rank ended with: {line}")
        rank, ranks = counted["rank"], counted["ranks"]
        predicted = [[what, sum(parts), parts[rank]]
                     for what, parts in model.exchanges(counted["parameters"], ranks, counted["scalar_bytes"])]
        for step in counted["steps"]:
            if step != predicted:
                sys.exit(f"rank {rank} of {ranks}, {counted['parameters']} parameters: the step exchanges {step}, "
                         f"the model says {predicted}")
        seen.add((counted["parameters"], counted["scalar_bytes"], ranks, rank))
    if len({each[:2] for each in seen}) != 3 or len(seen) != 3 * (1 + 2 + 3 + 7):
        sys.exit(f"only {len(seen)} ranks were counted")
    # Each byte that one rank sends, another one gets.
    for parameters in (39, 26_010, 605_226):
        for ranks in (2, 3, 7, 64):
            for exchange in model.exchanges(parameters, ranks):
                each = [model.traffic(*exchange, rank) for rank in range(ranks)]
                if sum(a[0] for a in each) != sum(a[1] for a in each) or sum(a[2] for a in each) != sum(a[3] for a in each):
                    sys.exit(f"{exchange[0]} of {parameters} parameters on {ranks} ranks sends what nobody gets")
    checked = subprocess.run([sys.executable, ROOT / "bench/ranks/model.py", "--check"], capture_output=True, text=True,
                             check=False)
    if checked.returncode != 0:
        sys.exit(checked.stdout + checked.stderr)
    print(f"the exchanges of {len(seen)} ranks are those of the model, to the byte")


if __name__ == "__main__":
    main()
