# SPDX-License-Identifier: Apache-2.0
"""What NVIDIA's ncu says of the kernels of a step. Standard library only."""

import csv
import glob
import re

METRICS = {"gpu__time_duration.sum": ("us", "ns", 1e-3), "smsp__inst_executed.sum": ("instructions", "inst", 1),
           "smsp__issue_active.avg.pct_of_peak_sustained_active": ("issue", "%", 0.01),
           "dram__bytes.sum": ("bytes", "byte", 1)}


def find_ncu(in_path):
    """In PATH or beside nvcc, or where its own package puts it."""
    return in_path or next(iter(sorted(glob.glob("/opt/nvidia/nsight-compute/*/ncu"), reverse=True)), None)


def command(ncu):
    return [ncu, "--clock-control", "none", "--csv", "--print-units", "base", "--print-kernel-base", "demangled",
            "--metrics", ",".join(METRICS)]


def kernels(text):
    """Of all launches, in their order."""
    lines = [line for line in text.splitlines() if line.startswith('"')]
    found = {}
    for row in csv.DictReader(lines):
        name = re.sub(r"^void run_kernel<(.*)>\(T1\)$", r"\1", row["Kernel Name"])
        kernel = found.setdefault(row["ID"], {"kernel": name, "grid": row["Grid Size"]})
        if row["Metric Name"] in METRICS:
            key, unit, scale = METRICS[row["Metric Name"]]
            if row["Metric Unit"] != unit:
                raise ValueError(f"{row['Metric Name']} is in {row['Metric Unit']}")
            kernel[key] = float(row["Metric Value"].replace(",", "")) * scale
    return list(found.values())


def of_a_step(text):
    """The last of two steps that are alike. ValueError where there are none."""
    try:
        found = kernels(text)
    except KeyError as missing:
        raise ValueError(f"ncu's table has no {missing}") from None
    except (AttributeError, TypeError):
        raise ValueError("a row of ncu's table is cut off") from None
    if not found:
        raise ValueError("ncu shows no kernels")
    launched = [(each["kernel"], each["grid"]) for each in found]
    # Before the steps a trainer checks the device's noise: fewer kernels than a step has, else any two alike would do.
    step = next((count for count in range(len(found) // 2, 0, -1)
                 if 3 * count >= len(found) and launched[-2 * count:-count] == launched[-count:]), 0)
    if step == 0:
        raise ValueError("ncu's two steps are not alike")
    if any(key not in each for each in found[-step:] for key, _, _ in METRICS.values()):
        raise ValueError("ncu does not give all metrics")
    return found[-step:]
