# SPDX-License-Identifier: Apache-2.0
"""Reads the command line of run.sh and the table of frameworks.

`python3 arguments.py WORDS...` only says whether the words are right: run.sh asks before it installs anything. So
nothing here needs a package.
"""

import argparse
import math
import os
import pathlib
import shutil
import sys

import problem

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent

# name: (is it private, module in frameworks/ or None for ours, variant)
FRAMEWORKS = {
    "pergrad": (False, None, "non_private"),
    "torch": (False, "torch_plain", "eager"),
    "torch_channels_last": (False, "torch_plain", "channels_last"),
    "torch_compile": (False, "torch_plain", "compile"),
    "torch_compile_channels_last": (False, "torch_plain", "compile_channels_last"),
    "jax": (False, "jax_plain", "jit"),
    "pergrad_dp": (True, None, "dp"),
    "opacus_hooks": (True, "opacus_dp", "hooks"),
    "opacus_functorch": (True, "opacus_dp", "functorch"),
    "opacus_ew": (True, "opacus_dp", "ew"),
    "opacus_ghost": (True, "opacus_dp", "ghost"),
    "torch_vmap": (True, "vmap", "vmap"),
    "backpack": (True, "backpack_dp", "batch_grad"),
    "jax_vmap": (True, "jax_dp", "jit"),
    "jax_privacy": (True, "jax_privacy_dp", "jit"),
}


def free_bytes():
    """Of the machine's memory."""
    for line in pathlib.Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return 1 << 62


def names(known):
    def parse(text):
        given = text.split(",")
        for name in given:
            if name not in known:
                raise argparse.ArgumentTypeError(f"unknown name {name!r}; there are {', '.join(known)}")
        return [name for name in known if name in given]
    return parse


def positive(kind):
    def parse(text):
        try:
            value = kind(text)
        except ValueError:
            value = 0
        if not 0 < value < 1e6:
            wanted = "a whole number" if kind is int else "a number"
            raise argparse.ArgumentTypeError(f"must be {wanted} above 0 and below a million, not {text!r}")
        return value
    return parse


def batch_sizes(text):
    return sorted({positive(int)(part) for part in text.split(",")})


def output_folder(text):
    """Made at once: what was measured must not be lost because it cannot be written."""
    folder = pathlib.Path(text)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise argparse.ArgumentTypeError(f"{text!r}: {error.strerror}") from None
    if not text or not os.access(folder, os.W_OK | os.X_OK):
        raise argparse.ArgumentTypeError(f"{text!r} is no folder that can be written to")
    return folder


def record_bytes(task, batches):
    size = sum(4 * math.prod(shape) for _, _, shape in problem.data_files(task))
    return size * problem.record_count(task, batches)


def parse(words=None):
    available = len(os.sched_getaffinity(0))
    parser = argparse.ArgumentParser(
        prog="bench/peers/run.sh", description="The same training steps in every framework, side by side.",
        formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False,
        epilog="tasks:\n" + "".join(f"  {name:18} {task.source}; batches {', '.join(map(str, task.batches))}\n"
                                    for name, task in problem.TASKS.items())
               + "frameworks:\n  " + ", ".join(FRAMEWORKS))
    parser.add_argument("--task", type=names(problem.TASKS), metavar="T,...",
                        default=[name for name, task in problem.TASKS.items() if task.default],
                        help="default: the first three")
    parser.add_argument("--batch", type=batch_sizes, metavar="B,...", help="default: the task's")
    parser.add_argument("--threads", type=positive(int), default=available, metavar="N",
                        help="and cores; default: all, here %(default)s")
    parser.add_argument("--seconds", type=positive(float), default=3.0, metavar="S",
                        help="of timing for each framework, task and batch size; default %(default)s")
    parser.add_argument("--frameworks", type=names(FRAMEWORKS), metavar="F,...", default=list(FRAMEWORKS),
                        help="default: all")
    parser.add_argument("--out", type=output_folder, default=str(ROOT / "out" / "peers"), metavar="DIR",
                        help="default: out/peers")
    arguments = parser.parse_args(words)
    if arguments.threads > available:
        parser.error(f"--threads {arguments.threads}: this machine gives us {available} cores")
    room = min(free_bytes(), shutil.disk_usage(ROOT).free) // 2
    for name in arguments.task:
        task = problem.TASKS[name]
        needed = record_bytes(task, arguments.batch or task.batches)
        if needed > room:
            parser.error(f"--batch: the records of {name} would take {needed / 1e9:.1f} GB; there is room for "
                         f"{room / 1e9:.1f} GB")
    return arguments


if __name__ == "__main__":
    parse()
    sys.exit(0)
