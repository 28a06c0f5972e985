# SPDX-License-Identifier: Apache-2.0
"""Runs the programs that parts.sh has built, in rounds, and keeps the least of every figure."""

import argparse
import datetime
import json
import os
import pathlib
import platform
import subprocess

import model

TASKS = ("mlp", "mnist_cnn", "cifar_cnn", "lstm", "gpt2_layer")
TRANSPORTS = {"shared memory": "vader,self", "TCP": "tcp,self"}
ELEMENTS = 1 << 20


def answer(command):
    return json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)


def on_ranks(ranks, transport, *command):
    as_root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
    return answer(["mpirun", *as_root, "--oversubscribe", "--bind-to", "none", "--mca", "btl", transport, "-np", str(ranks),
                   *command])


def least(earlier, later):
    """Of two answers of one program."""
    if isinstance(later, dict):
        return {key: least(earlier[key], value) for key, value in later.items()}
    return min(earlier, later) if isinstance(later, float) else later


def processor():
    for line in pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.split(":")[1].strip()
    return platform.machine()


def main():
    parser = argparse.ArgumentParser(prog="bench/ranks/parts.sh", description=__doc__)
    parser.add_argument("--build", type=pathlib.Path, required=True, help=argparse.SUPPRESS)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("out/ranks"))
    options = parser.parse_args()
    tasks, links, loads = {}, {}, []
    for number in range(options.rounds):
        for task in TASKS:
            loads.append(os.getloadavg()[0])
            found = answer([options.build / "parts", task, "3" if task in ("lstm", "gpt2_layer") else "10"])
            del found["task"]
            if task != "gpt2_layer":  # 2048 records of it are 800 MB
                found["steps"] = {str(ranks): on_ranks(ranks, TRANSPORTS["shared memory"], options.build / "steps", task, "1", "5")
                                  for ranks in (1, 2)}
            tasks[task] = least(tasks.get(task, found), found)
        for name, transport in TRANSPORTS.items():
            found = [on_ranks(ranks, transport, options.build / "exchanges", "30", str(ELEMENTS)) for ranks in (2, 8)]
            links[name] = [least(*pair) for pair in zip(links.get(name, found), found)]
        print(f"round {number + 1} of {options.rounds} is done", flush=True)
    commit = subprocess.run(["git", "-C", model.ROOT, "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    rows = [[model.TASKS.get(task, "a layer of the 124 M transformer"), f"{each['parameters']:,}", records, model.number(took * 1e-3)]
            for task, each in tasks.items() for records, took in [("0", each["without"]["1"]), *each["records"].items()]]
    result = {
        "what": f"parts of a rank's step, one thread, and exchanges of 2 and 8 ranks; the least of {options.rounds} rounds",
        "commands": [f"sh bench/ranks/parts.sh --rounds {options.rounds}"],
        "machine": f"{os.cpu_count()} cores of {processor()}, shared with other work (load {min(loads):.1f} to {max(loads):.1f})",
        "date": datetime.date.today().isoformat(),
        "version": f"the tree after commit {commit.stdout.strip() or 'unknown'}",
        "align": "lrrr", "columns": ["task", "parameters", "records", "step, ms"], "rows": rows,
        "measured": {"tasks": tasks, "exchanges": links}}
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / "ranks_parts.json"
    path.write_text(model.as_json(result), encoding="utf-8")
    print(f"wrote {path}; next: python3 bench/ranks/model.py --measured {path}")


if __name__ == "__main__":
    main()
