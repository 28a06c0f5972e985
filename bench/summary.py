#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reads the results of bench/run.sh and prints them as tables, with the ratios that are our goals."""

import argparse
import json
import pathlib
import sys

BATCHES = (16, 256, 2048)
THREADS = (1, 2)
MOST_DP_RATIO = 1.3  # DP step / non-private step, unless the task has a goal of its own:
MOST_DP_RATIOS = {"mnist_cnn": {256: 1.08, 2048: 1.08}, "cifar_cnn": {256: 1.08, 2048: 1.08}, "vgg16": {8: 1.1},
                  "alexnet": {16: 1.25}, "lstm": {16: 1.05, 256: 1.05}}
MOST_SHORT_OVER_LONG = 1.03  # a private step with short sums / the same with long ones
MOST_CORRELATED = 1.1  # a private step with eight bands of stored noise / the same with independent noise
MOST_DP_MEMORY = 1.05  # peak of the DP step / of the non-private step
LEAST_GEMM_RATIO = 0.3  # DP gflops / gemm/1024 gflops at the same threads
LEAST_PEAK_RATIOS = {"cifar_cnn": 0.6, "vgg16": 0.6}  # DP gflops / fma_peak at the same threads
HARDLY_ANY_PRODUCTS = 0.02  # of gemm/1024: below, the step consists of other things, and its rate says nothing
MOST_MEMORY_CHANGE = 0.05  # of a step's peak from the smallest to the largest batch
MOST_MEGABYTES = {"alexnet": {16: 1000}}  # peak of the DP step, with network, tape and optimizer
LEAST_GAUSSIANS = {"avx512": 300, "avx2": 150}  # million a second and core, by family of kernels
LEAST_SHARE_NEAR_BEST = 0.95  # of the blocks: where the cost model's choice is within NEAR_BEST of the best
NEAR_BEST = 1.1


def read(path):
    """Benchmarks by name, of repeated ones the one with the median time per iteration; and lines about failed ones."""
    runs = {}
    failures = []
    for row in json.loads(path.read_text(encoding="utf-8"))["benchmarks"]:
        if row.get("error_occurred"):
            failures.append(f"{row['run_name']} failed: {row.get('error_message', 'it does not say why')}")
        elif row.get("run_type", "iteration") == "iteration":
            runs.setdefault(row["run_name"], []).append(row)
    median = {name: sorted(rows, key=lambda row: row["real_time"])[len(rows) // 2] for name, rows in runs.items()}
    return median, failures


def table(header, rows):
    """Prints aligned columns; the first is text."""
    cells = [header, *rows]
    widths = [max(len(row[column]) for row in cells) for column in range(len(header))]
    for row in cells:
        print("  ".join(cell.ljust(width) if column == 0 else cell.rjust(width)
                        for column, (cell, width) in enumerate(zip(row, widths))).rstrip())
    print()


def verdict(good):
    return "met" if good else "missed"


def on_threads(name, threads):
    return name if threads == 1 else f"{name}/threads:{threads}"


def machine(results):
    names = [name for name in results if name.startswith(("gemm/", "fma_peak"))]
    if names:
        table(["machine", "GF/s"], [[name, f"{results[name]['gflops']:.1f}"] for name in names])
    names = [name for name in results if name.startswith("noise/")]
    rows = []
    for name in names:
        rate = results[name]["gaussians_per_second"] / 1e6
        family = results[name].get("label", "")
        least = LEAST_GAUSSIANS.get(family)
        rows.append([name, family, f"{rate:.0f}", f">= {least} {verdict(rate >= least)}" if least else "-"])
    if rows:
        table(["noise", "kernels", "M Gaussians/s", "goal"], rows)


def steps(results):
    """One row for every task, batch and number of threads that was run in both kinds."""
    rows = []
    for name in results:
        parts = name.split("/")
        if len(parts) != 4 or parts[1] != "dp" or "us_per_sample" not in results[name]:
            continue
        task, _, batch, threads = parts
        dp, plain = results[name], results.get(f"{task}/non_private/{batch}/{threads}")
        row = [f"{task} batch {batch}, {threads} threads" if threads != "1" else f"{task} batch {batch}, 1 thread"]
        row.append(f"{plain['us_per_sample']:.2f}" if plain else "-")
        row.append(f"{dp['us_per_sample']:.2f}")
        ratio = dp["us_per_sample"] / plain["us_per_sample"] if plain else None
        most = MOST_DP_RATIOS.get(task, {}).get(int(batch), MOST_DP_RATIO)
        row += [f"{ratio:.3f}", f"<= {most} {verdict(ratio <= most)}"] if plain else ["-", "-"]
        row.append(f"{dp['gflops']:.1f}")
        gemm = results.get(on_threads("gemm/1024", int(threads)))
        share = dp["gflops"] / gemm["gflops"] if gemm else None
        if share is None or share < HARDLY_ANY_PRODUCTS:
            row += ["-", "-"]
        else:
            row += [f"{share:.2f}", verdict(share >= LEAST_GEMM_RATIO)]
        peak = results.get(on_threads("fma_peak", int(threads)))
        of_peak = f"{dp['gflops'] / peak['gflops']:.2f}" if peak else "-"
        if peak and task in LEAST_PEAK_RATIOS:
            least = LEAST_PEAK_RATIOS[task]
            of_peak += f" (>= {least} {verdict(dp['gflops'] / peak['gflops'] >= least)})"
        row.append(of_peak)
        rows.append(row)
    if rows:
        table(["step, us a sample", "non-private", "DP", "ratio", "goal", "DP GF/s", "/ gemm/1024",
               f">= {LEAST_GEMM_RATIO}", "/ fma_peak"], rows)


def privacy(results):
    """What privacy costs, measured in pairs."""
    rows = []
    for name, row in results.items():
        if "dp_over_non_private" not in row:
            continue
        task, _, batch, threads = name.split("/")
        most = MOST_DP_RATIOS.get(task, {}).get(int(batch), MOST_DP_RATIO)
        ratio = row["dp_over_non_private"]
        rows.append([f"{task} batch {batch}, {threads} thread{'s' if threads != '1' else ''}", f"{ratio:.3f}",
                     f"<= {most} {verdict(ratio <= most)}", f"{row['pairs']:.0f}"])
    if rows:
        table(["DP / non-private, steps by turns", "median", "goal", "pairs"], rows)
    for counter, most, title in (
            ("short_over_long", MOST_SHORT_OVER_LONG, "short sums / long sums, private steps by turns"),
            ("correlated_over_independent", MOST_CORRELATED, "correlated / independent noise, steps by turns")):
        rows = [[name, f"{row[counter]:.3f}",
                 "-" if "/regenerated/" in name else f"<= {most} {verdict(row[counter] <= most)}",
                 f"{row['pairs']:.0f}"] for name, row in results.items() if counter in row]
        if rows:
            table([title, "median", "goal", "pairs"], rows)


def memory(results):
    """How a step's memory changes from the smallest to the largest batch."""
    rows = []
    series = sorted({(parts[0], parts[1], parts[3]) for parts in (name.split("/") for name in results)
                     if len(parts) == 4 and parts[1] in ("dp", "non_private")})
    for task, kind, threads in series:
        few, many = (results.get(f"{task}/{kind}/{batch}/{threads}") for batch in (BATCHES[0], BATCHES[-1]))
        if not few or not many:
            continue
        row = [f"{task}/{kind}, {threads} thread{'s' if threads != '1' else ''}"]
        for counter in ("peak_bytes", "touched_bytes"):
            change = many[counter] / few[counter]
            row += [f"{few[counter] / 1e6:.2f}", f"{many[counter] / 1e6:.2f}", f"{change:.3f}"]
            row.append(verdict(abs(change - 1) <= MOST_MEMORY_CHANGE))
        rows.append(row)
    if rows:
        few, many = BATCHES[0], BATCHES[-1]
        table(["memory, MB", f"peak {few}", f"peak {many}", "ratio", f"within {MOST_MEMORY_CHANGE:.0%}",
               f"touched {few}", f"touched {many}", "ratio", f"within {MOST_MEMORY_CHANGE:.0%}"], rows)


def privacy_memory(results):
    """What privacy costs in memory."""
    rows = []
    for name in results:
        parts = name.split("/")
        plain = results.get("/".join([parts[0], "non_private", *parts[2:]])) if len(parts) == 4 else None
        if not plain or parts[1] != "dp" or "peak_bytes" not in plain:
            continue
        ratio = results[name]["peak_bytes"] / plain["peak_bytes"]
        touched = results[name]["touched_bytes"] / plain["touched_bytes"]
        megabytes = results[name]["peak_bytes"] / 1e6
        most = MOST_MEGABYTES.get(parts[0], {}).get(int(parts[2]))
        rows.append([f"{parts[0]} batch {parts[2]}, {parts[3]} thread{'s' if parts[3] != '1' else ''}",
                     f"{plain['peak_bytes'] / 1e6:.2f}",
                     f"{megabytes:.2f}" + (f" (<= {most} {verdict(megabytes <= most)})" if most else ""),
                     f"{ratio:.3f}", verdict(ratio <= MOST_DP_MEMORY),
                     f"{plain['touched_bytes'] / 1e6:.2f}", f"{results[name]['touched_bytes'] / 1e6:.2f}",
                     f"{touched:.3f}", verdict(touched <= MOST_DP_MEMORY)])
    if rows:
        table(["memory, MB", "peak, non-private", "DP", "ratio", f"<= {MOST_DP_MEMORY}", "touched, non-private", "DP",
               "ratio", f"<= {MOST_DP_MEMORY}"], rows)


def norm_methods(results):
    """Where the cost model's choice is not the best measured method."""
    rows = [results[name] for name in results if name.startswith("norm_methods/")]
    if not rows:
        return
    near = sum(row["chosen_vs_best"] <= NEAR_BEST for row in rows)
    share = near / len(rows)
    print(f"norm methods: the model's choice is within {NEAR_BEST - 1:.0%} of the best in {near} of {len(rows)} blocks, "
          f"{share:.1%} (>= {LEAST_SHARE_NEAR_BEST:.0%} {verdict(share >= LEAST_SHARE_NEAR_BEST)})")
    methods = ("product", "gram", "direct", "instantiate")
    body = []
    for row in rows:
        cells = [row["run_name"].removeprefix("norm_methods/"), row.get("label", ""), f"{row['chosen_vs_best']:.2f}"]
        for method in methods:
            cells.append(f"{row[method]:.0f} ({row[method + '_ratio']:.2f})" if method in row else "")
        body.append(cells)
    table(["T/d/p", "chosen", "vs best", *(f"{method}, 1000 units (/ modelled)" for method in methods)], body)


def predictions(results):
    """The outputs of one record, by each way."""
    networks = dict.fromkeys(name.split("/")[1] for name in results if name.startswith("prediction/"))
    rows = []
    for network in networks:
        row = results.get(f"prediction/{network}/one"), *(results.get(f"prediction/{network}/{way}")
                                                          for way in ("call", "of_1024"))
        times = [row[0] and row[0]["cpu_time"], *(each and each["us_per_sample"] for each in row[1:])]
        rows.append([network, *(f"{time:.2f}" if time else "-" for time in times)])
    if rows:
        table(["prediction, us of the processor a record", "predictor", "predict of one", "predict of 1,024"], rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results", type=pathlib.Path, help="results.json of bench/run.sh")
    options = parser.parse_args()
    try:
        results, failures = read(options.results)
    except (OSError, ValueError, KeyError) as problem:
        sys.exit(f"bench/summary.py: cannot read {options.results}: {problem}")
    machine(results)
    norm_methods(results)
    steps(results)
    privacy(results)
    memory(results)
    privacy_memory(results)
    predictions(results)
    if failures:
        sys.exit("\n".join(failures))


if __name__ == "__main__":
    main()
