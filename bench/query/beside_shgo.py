#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""beside_shgo.py [OUT.json]: our searches beside a plain branch and bound over Boost's intervals, and beside SciPy's
SHGO, the optimiser of Ziller et al. 2021 (arXiv:2107.04265), on the same formulas.

Compiles search.cpp, which prints each formula as text, and boost_search.cpp; SHGO gets the text as Python. A value of
SHGO's below our lower bound would refute the bound, and so would a bracket of Boost's that has nothing in common with
ours: then the exit code is 1. What SHGO finds above our upper one is a local minimum that it took for the least. Times are
the processor's. Needs SciPy (pip install scipy) and Boost's headers (libboost-dev).
"""

import json
import math
import pathlib
import re
import subprocess
import sys
import tempfile
import time

from scipy.optimize import shgo

ROOT = pathlib.Path(__file__).resolve().parents[2]
NAMES = {name: getattr(math, name) for name in ("exp", "log", "sin", "cos", "tanh", "erf", "sqrt")} | {"abs": abs}


def python_of(formula, fields):
    for place, name in enumerate(fields):
        formula = re.sub(rf"(?<![\w\]]){re.escape(name)}(?![\w\[])", f"v[{place}]", formula)
    return eval("lambda v: " + formula.replace("^", "**"), dict(NAMES))  # a formula of ours


def lines_of(name, *flags):
    with tempfile.TemporaryDirectory() as folder:
        program = pathlib.Path(folder) / name
        subprocess.run(["g++", "-std=c++20", "-O2", "-march=native", *flags, f"-I{ROOT}/include", f"-I{ROOT}/tests",
                        str(ROOT / f"bench/query/{name}.cpp"), "-o", str(program)], check=True)
        return map(json.loads, subprocess.run([str(program)], check=True, capture_output=True, text=True).stdout.splitlines())


def main():
    # Boost changes the direction of rounding, which the compiler has to know.
    of_boost = {each["name"]: each for each in lines_of("boost_search", "-frounding-math")}
    rows, refuted = [], []
    for ours in lines_of("search"):
        boost = of_boost[ours["name"]]
        function = python_of(ours["formula"], ours["fields"])
        start = time.process_time()
        found = shgo(function, list(ours["fields"].values()), sampling_method="simplicial", iters=3)
        took = time.process_time() - start
        rounding = 1e-9 * (1 + abs(ours["lower"]))
        if found.fun is not None and found.fun < ours["lower"] - rounding:
            refuted.append(ours["name"])
        if boost["lower"] > ours["upper"] + rounding or boost["upper"] < ours["lower"] - rounding:
            refuted.append(ours["name"] + " by Boost")
        gap = boost["upper"] - boost["lower"]
        is_open = gap > max(1e-6, 1e-6 * abs(boost["lower"]))
        says = f"{found.fun:.9g}" if found.success else "nothing"
        missed = "" if found.success and found.fun <= ours["upper"] + 1e-6 * (1 + abs(ours["upper"])) else " (not the least)"
        rows.append([ours["name"], f"[{ours['lower']:.9g}, {ours['upper']:.9g}]", str(ours["boxes"]),
                     f"{1000 * ours['seconds']:.2f}", f"{boost['boxes']}" + (f" (gap {gap:.1g})" if is_open else ""),
                     f"{1000 * boost['seconds']:.2f}", says + missed, str(found.nfev), f"{1000 * took:.0f}"])
        print(" | ".join(rows[-1]), flush=True)
    print(f"{len(rows)} functions; refuted: {', '.join(refuted) or 'none'}")
    if len(sys.argv) > 1:
        pathlib.Path(sys.argv[1]).write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    return bool(refuted)


if __name__ == "__main__":
    sys.exit(main())
