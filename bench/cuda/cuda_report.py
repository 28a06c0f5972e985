# SPDX-License-Identifier: Apache-2.0
"""Writes what run.py found: cuda.json, cuda.md and cuda.svg.

`cuda_report.py CUDA_JSON COMMIT` writes of a cuda.json docs/results/cuda.json, whose table docs/cuda.md shows.
"""

import html
import json
import math
import pathlib
import sys

import model

RESULTS = pathlib.Path(__file__).resolve().parent.parent.parent / "docs" / "results" / "cuda.json"
MODELLED = pathlib.Path(__file__).resolve().parent.parent.parent / "docs" / "results" / "device_model.json"
MODELLED_DEVICES = {"H200": "h200", "H100 80GB HBM3": "h100", "Orin": "orin", "Thor": "thor"}  # in names of GPUs
OURS = "pergrad_dp"
OURS_WITH_CUBLAS = "pergrad_dp_cublas"
WITHOUT_DP = ("torch", "torch_compiled", "torch_graph")
SMALL = ("mnist_cnn", "mlp")
LONGEST_KERNELS = 10
FIGURES = (("graph_us", "graph alone"), ("loop_us", "host loop"), ("poisson_us", "with sampling"),
           ("poisson_60000_us", "from 60,000"))


def precision_of(row):
    return row.get("precision", "float")


def by_cell(rows):
    """{(task, batch, precision): rows}, in the order of tasks, precisions and batches."""
    cells = {}
    for row in rows:
        if "batch" in row:
            cells.setdefault((row["task"], row["batch"], precision_of(row)), []).append(row)
    tasks = list(dict.fromkeys(row["task"] for row in rows))
    return dict(sorted(cells.items(), key=lambda item: (tasks.index(item[0][0]), item[0][2], item[0][1])))


def own(rows):
    return next((row for row in rows if row["framework"] == OURS and "loop_us" in row), None)


def ratios(rows):
    """How many times our private step is faster, by its host loop, than others' steps of the same precision."""
    result = []
    for (task, batch, precision), group in by_cell(rows).items():
        ours = own(group)
        if ours is None:
            continue
        entry = {"task": task, "batch": batch, "precision": precision}
        timed = {row["framework"]: row["us"] for row in group if "us" in row}
        for key, is_private in (("dp_peer", True), ("torch_without_dp", False)):
            found = {name: us for name, us in timed.items() if (name not in WITHOUT_DP) == is_private}
            if found:
                best = min(found, key=found.get)
                entry[f"best_{key}"], entry[f"faster_than_best_{key}"] = best, found[best] / ours["loop_us"]
        if len(entry) > 3:
            result.append(entry)
    return result


def goals(rows):
    """(what is wanted, what was found, whether it holds or None where it was not measured)"""
    result = []
    private, plain = "best_dp_peer", "best_torch_without_dp"
    wanted = [("small networks, batch up to 256: 3 times the best private peer", SMALL, private, 3, 256),
              ("small networks, batch up to 256: no slower than PyTorch without DP", SMALL, plain, 1, 256),
              ("small networks, any batch: no slower than PyTorch without DP", SMALL, plain, 1, None)]
    for task in dict.fromkeys(row["task"] for row in rows if row["task"] not in SMALL):
        wanted += [(f"{task}: 0.4 times PyTorch without DP", (task,), plain, 0.4, None),
                   (f"{task}: no slower than the best private peer", (task,), private, 1, None)]
    for precision, title in (("float", ""), ("tf32", ", TF32")):
        found = [entry for entry in ratios(rows) if entry["precision"] == precision]
        for what, tasks, key, least, largest in wanted:
            entries = [entry for entry in found if entry["task"] in tasks]
            if precision != "float" and not entries:
                continue
            cells = [entry for entry in entries if key in entry and (largest is None or entry["batch"] <= largest)]
            values = {f"{entry['task']}, {entry['batch']}, {entry[key]}": entry[f"faster_than_{key}"]
                      for entry in cells}
            worst = min(values, key=values.get, default=None)
            result.append((what + title, f"at least {values[worst]:.2f} times in {len(values)} cells ({worst})"
                           if values else "not measured", values[worst] >= least if values else None))
    for task in dict.fromkeys(row["task"] for row in rows if "logical" in row):
        memory = {row["logical"]: row["peak_mb"] for row in rows if row["task"] == task and "logical" in row}
        if len(memory) < 2:  # one alone says nothing
            continue
        least, most = min(memory.values()), max(memory.values())
        # The driver hands out memory in blocks of 2 MB.
        result.append((f"{task}: the memory does not depend on the logical batch", f"{least:.1f} to {most:.1f} MB",
                       most - least <= 2.2))
    return result


def modelled(machine):
    """{(task, batch, precision): microseconds} of a private step, as model.py has it; {} for GPUs it does not know: a
    smaller one of the same name has fewer multiprocessors."""
    device = next((key for name, key in MODELLED_DEVICES.items() if name in machine["gpu"]), None)
    if device and machine.get("multiprocessors") != model.DEVICES[device]["multiprocessors"]:
        device = None
    steps = json.loads(MODELLED.read_text(encoding="utf-8"))["steps"] if device else []
    return {(step["task"], step["batch"], step["precision"]): step["step_us"] for step in steps
            if step["device"] == device and step["private"]}


def number(value):
    if value is None:
        return ""
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def table(header, lines):
    rule = ["---", *["---:"] * (len(header) - 1)]
    return "".join("| " + " | ".join(line) + " |\n" for line in (header, rule, *lines))


def cell(text):
    return str(text).replace("|", "\\|").replace("\n", " ")


PRECISIONS = {"float": "FP32", "tf32": "TF32", "bf16": "BF16"}


def kernel_table(kernels):
    """The longest ones of each step that was profiled, and what all take together."""
    steps = {}
    for each in kernels:
        steps.setdefault((each["task"], each["batch"], each["precision"]), []).append(each)
    lines = []
    for (task, batch, precision), step in steps.items():
        head = [f"`{task}`", str(batch), PRECISIONS[precision]]
        lines.append([*head, f"all {len(step)}", "", number(sum(each["us"] for each in step)), "", "", ""])
        for each in sorted(step, key=lambda each: -each["us"])[:LONGEST_KERNELS]:
            lines.append([*head, f"`{cell(each['kernel'])}`", each["grid"], number(each["us"]),
                          number(each["instructions"] * 1e-6), f"{each['issue']:.0%}", number(each["bytes"] * 1e-6)])
    return table(["task", "batch", "precision", "kernel", "grid", "us", "million instructions", "issue", "MB of memory"],
                 lines)


def markdown(machine, checks, rows, kernels=()):
    text = ["# The device part on a GPU\n",
            f"{machine['gpu']}, {machine['multiprocessors']} multiprocessors, CUDA {machine['runtime'] // 1000}."
            f"{machine['runtime'] % 1000 // 10}, driver for CUDA {machine['driver'] // 1000}."
            f"{machine['driver'] % 1000 // 10}, {machine['date']}, {machine['seconds']} s"
            f"{', ' + machine['power_mode'] if machine.get('power_mode') else ''}.\n",
            "## Checks\n", table(["check", "result"], [[each["what"], cell(each["state"])] for each in checks]),
            "## Goals\n", table(["goal", "found", "holds"], [
                [what, found, {True: "yes", False: "NO", None: "?"}[holds]] for what, found, holds in goals(rows)]),
            "## Microseconds a private step, ours\n",
            "`graph alone`: the captured graph replayed, by CUDA events. `host loop`: `dp_sgd::step` with a full "
            "batch, records on the device. `with sampling`: the same with Poisson sampling from all records on the "
            "host, and `from 60,000` from so many. Medians. `modelled`: what bench/cuda/model.py predicts for the graph. "
            "`device MB`: device memory taken by network, tape, graph and records. `steps a J`: by the "
            "host loop, and the mean of what tegrastats says of a Jetson meanwhile.\n"]
    lines, predicted = [], modelled(machine)
    for row in rows:
        if row["framework"] in (OURS, OURS_WITH_CUBLAS) and "logical" not in row:
            is_plain = row["framework"] == OURS
            prediction = number(predicted.get((row["task"], row.get("batch"), precision_of(row)))) if is_plain else ""
            figures = [cell(row["failure"])] + [""] * 7 if "failure" in row else [
                *(number(row.get(figure)) for figure, _ in FIGURES), prediction, str(row.get("nodes", "")),
                number(row.get("peak_mb")), number(row.get("steps_per_joule"))]
            lines.append([f"`{row['task']}`", str(row.get("batch", "")),
                          PRECISIONS[precision_of(row)] + ("" if is_plain else ", cuBLAS"), *figures])
    text.append(table(["task", "batch", "precision", *(name for _, name in FIGURES), "modelled", "graph nodes",
                       "device MB", "steps a J"], lines))
    text.append("## Logical batches of any size, ours\n")
    text.append(table(["task", "logical batch", "physical batch", "us a step", "device MB"], [
        [f"`{row['task']}`", str(row["logical"]), str(row["physical"]), number(row["poisson_us"]),
         number(row["peak_mb"])] for row in rows if "logical" in row]))
    text.append("## Our private step is so many times faster than\n")
    text.append(table(["task", "batch", "precision", "best private peer", "best of PyTorch without DP"], [
        [f"`{entry['task']}`", str(entry["batch"]), PRECISIONS[entry["precision"]],
         *(f"{entry[f'faster_than_{key}']:.2f} ({entry[key]})" if key in entry else ""
           for key in ("best_dp_peer", "best_torch_without_dp"))] for entry in ratios(rows)]))
    if kernels:
        text.append("## Kernels of a step, ours\n")
        text.append("By ncu, the ten longest of a step; the caches are empty before each. `issue`: of the clocks in which "
                    "an active scheduler issues an instruction.\n")
        text.append(kernel_table(kernels))
    text.append("## Peers, microseconds a step\n")
    text.append("PyTorch and Opacus: median time between CUDA events of successive steps. JAX: median of groups of steps "
                "that are waited for together. `host loop`: all steps by the host's clock. `difference`: of the sum of "
                "the first 16 records' (clipped) gradients, to ours.\n")
    lines = []
    for row in rows:
        if row["framework"] not in (OURS, OURS_WITH_CUBLAS):
            lines.append([f"`{row['task']}`", str(row.get("batch", "")), row["framework"],
                          PRECISIONS[precision_of(row)], row.get("version", ""),
                          number(row["us"]) if "us" in row else cell(row.get("failure", "")),
                          number(row.get("loop_us")), number(row.get("peak_mb")),
                          f"{row['difference']:.0e}" if "difference" in row else ""])
    text.append(table(["task", "batch", "framework", "precision", "version", "us a step", "host loop", "device MB",
                       "difference"],
                      sorted(lines, key=lambda line: (line[0], int(line[1] or 0)))))
    return "\n".join(text)


BAR, GAP, LABEL, LENGTH = 14, 4, 150, 520


def svg(machine, rows):
    parts = [f'<text x="0" y="14" font-size="14">Microseconds a step (logarithmic), {html.escape(machine["gpu"])}</text>']
    y = 34
    for (task, batch, precision), group in by_cell(rows).items():
        bars = [(row["framework"], row["us"]) for row in group if "us" in row]
        bars += [("pergrad, cuBLAS", row["loop_us"]) for row in group
                 if row["framework"] == OURS_WITH_CUBLAS and "loop_us" in row]
        ours = own(group)
        if ours is not None:
            bars += [("pergrad, host loop", ours["loop_us"]), ("pergrad, graph", ours["graph_us"])]
        if not bars:
            continue
        bars.sort(key=lambda bar: bar[1])
        low = math.log10(max(bars[0][1], 1e-3)) - 0.3
        high = max(low + 0.6, math.log10(max(bars[-1][1], 1e-3)))
        parts.append(f'<text x="0" y="{y + 12}" font-weight="bold">{html.escape(task)}, batch {batch}'
                     f'{"" if precision == "float" else f", {PRECISIONS[precision]}"}</text>')
        y += 20
        for name, us in bars:
            width = LENGTH * (math.log10(max(us, 1e-3)) - low) / (high - low)
            colour = "#cb6e17" if name.startswith("pergrad") else "#9aa5b1" if name in WITHOUT_DP else "#627d98"
            parts.append(f'<text x="{LABEL - 8}" y="{y + 11}" text-anchor="end">{html.escape(name)}</text>')
            parts.append(f'<rect x="{LABEL}" y="{y}" width="{width:.1f}" height="{BAR}" fill="{colour}"/>')
            parts.append(f'<text x="{LABEL + width + 6:.1f}" y="{y + 11}">{number(us)} us</text>')
            y += BAR + GAP
        y += 12
    body = "\n".join(parts)
    size = f'width="{LABEL + LENGTH + 120}" height="{y + 20}" viewBox="-10 -10 {LABEL + LENGTH + 120} {y + 20}"'
    return (f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="12">\n'
            f'<rect x="-10" y="-10" width="100%" height="100%" fill="white"/>\n{body}\n</svg>\n')


def put(path, text):
    """Whoever reads it meanwhile finds the file of before, or this one."""
    new = path.with_name(f"{path.name}.new")
    new.write_text(text, encoding="utf-8")
    new.replace(path)


def write(folder, machine, checks, rows, kernels):
    content = {"machine": machine, "checks": checks, "results": rows, "kernels": kernels, "ratios": ratios(rows),
               "goals": [{"goal": what, "found": found, "holds": holds} for what, found, holds in goals(rows)]}
    put(folder / "cuda.json", json.dumps(content, indent=1) + "\n")
    put(folder / "cuda.md", markdown(machine, checks, rows, kernels))
    put(folder / "cuda.svg", svg(machine, rows))


def document(content, commit):
    """What docs/cuda.md shows: our step beside the fastest of the others in the same precision."""
    machine, rows = content["machine"], content["results"]
    predicted = modelled(machine)
    titles = {"mnist_cnn": "MNIST CNN", "mlp": "perceptron", "cifar_cnn": "CIFAR CNN", "lstm": "LSTM", "vgg16": "VGG16",
              "lk_transformer": "transformer", "gpt2_small_lora": "GPT-2 small, adapters"}
    entries = {(entry["task"], entry["batch"], entry["precision"]): entry for entry in ratios(rows)}
    lines = []
    for (task, batch, precision), group in by_cell(rows).items():
        ours = own(group)
        entry = entries.get((task, batch, precision), {})
        if ours is None or task not in titles or not (entry or (task, batch, precision) in predicted):
            continue
        line = [titles[task], f"{batch:,}", PRECISIONS[precision], number(ours["graph_us"]), number(ours["loop_us"]),
                number(predicted.get((task, batch, precision)))]
        for key in ("best_torch_without_dp", "best_dp_peer"):
            times = f"faster_than_{key}"
            line += [f"{entry[times]:.2f}", entry[key]] if key in entry else ["", ""]
        lines.append([*line, number(ours["peak_mb"])])
    return {"what": "private steps on a GPU: microseconds of the graph alone and of the host's loop, what the model says of "
                    "the former, and how many times as long others' steps take as ours by the loop",
            "commands": [f"sh bench/cuda/run.sh {machine['command']}".strip()],
            "machine": f"{machine['gpu']}, {machine['cores']} processors, CUDA {machine['runtime'] // 1000}."
                       f"{machine['runtime'] % 1000 // 10}", "date": machine["date"][:10], "version": f"commit {commit}",
            "note": ", ".join(dict.fromkeys(row["version"] for row in rows if "version" in row)),
            "align": "lrlrrrrlrlr",
            "columns": ["task", "batch", "", "graph: us", "loop: us", "modelled: us", "PyTorch without privacy", "by",
                        "private peers", "by", "MB"], "rows": lines}


def main():
    content = json.loads(pathlib.Path(sys.argv[1]).read_text(encoding="utf-8"))
    RESULTS.write_text(model.as_json(document(content, sys.argv[2])), encoding="utf-8")


if __name__ == "__main__":
    main()
