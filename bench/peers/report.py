# SPDX-License-Identifier: Apache-2.0
"""Writes what run.py measured: peers.json, a Markdown table with the ratios, and a chart in SVG."""

import html
import json
import math

OURS = {False: "pergrad", True: "pergrad_dp"}
FIGURES = {"us_per_sample_median": "median step",
           "us_per_sample_minimum": "fastest step, which other programs on the machine disturb least"}
KINDS = {False: "non-private", True: "DP"}


def cells(rows):
    """Rows by (task, batch), in the order of their appearance."""
    result = {}
    for row in rows:
        result.setdefault((row["task"], row["batch"]), []).append(row)
    return result


def best_peer(rows, private, figure):
    measured = [row for row in rows if row["private"] == private and row["framework"] not in OURS.values()
                and figure in row]
    return min(measured, key=lambda row: row[figure], default=None)


def ratios(rows, figure):
    """Our private step's time divided by that of the best of each kind, and by our own without privacy."""
    result = []
    for (task, batch), group in cells(rows).items():
        own = {row["framework"]: row.get(figure) for row in group}
        private = own.get(OURS[True])
        if private is None:
            continue
        entry = {"task": task, "batch": batch, "us_per_sample": private}
        for name, kind in (("best_non_private_peer", False), ("best_dp_peer", True)):
            best = best_peer(group, kind, figure)
            if best:
                entry[name] = best["framework"]
                entry[f"to_{name}"] = private / best[figure]
        if own.get(OURS[False]):
            entry["to_own_non_private"] = private / own[OURS[False]]
        result.append(entry)
    return result


def number(value):
    if value is None:
        return ""
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def markdown_table(header, lines):
    rule = ["---", *["---:"] * (len(header) - 1)]
    return "".join("| " + " | ".join(line) + " |\n" for line in (header, rule, *lines))


def ratio_lines(entries):
    def against(entry, name):
        return f"{entry[f'to_{name}']:.2f} ({entry[name]})" if name in entry else ""

    return [[f"`{entry['task']}`", str(entry["batch"]), number(entry["us_per_sample"]),
             against(entry, "best_non_private_peer"), against(entry, "best_dp_peer"),
             f"{entry['to_own_non_private']:.2f}" if "to_own_non_private" in entry else ""] for entry in entries]


def markdown(machine, rows):
    others = ", ".join(f"{entry['others_share']:.0%} ({entry['task']} {entry['batch']})" for entry in machine["others"])
    text = ["# Training steps side by side\n\n"
            f"{machine['processor']}, {len(machine['cores'])} threads, {machine['date']}.\n"
            f"`{machine['command']}`\n\n"
            f"Load average {machine['load_average_before']:.1f} before and {machine['load_average_after']:.1f} after. "
            f"Other programs' share of the cores while steps were timed: {others or 'not known'}.\n"]
    if machine.get("interrupted"):
        text.append("The run was interrupted: batch sizes and tasks are missing, and the last one had fewer turns.\n")
    if ratios(rows, "us_per_sample_median"):
        text.append("## Our private step divided by\n")
    for figure, name in FIGURES.items():
        if not ratios(rows, figure):
            continue
        text.append(f"By the {name}:\n")
        text.append(markdown_table(["task", "batch", "ours, DP, us a sample", "best non-private peer", "best DP peer",
                                    "ours, non-private"], ratio_lines(ratios(rows, figure))))
    for (task, batch), group in cells(rows).items():
        text.append(f"## `{task}`, batch {batch}\n")
        lines = []
        for row in group:
            if "failure" in row:
                figures = [row["failure"].replace("|", "\\|"), "", "", "", "", ""]
            else:
                figures = [number(row["us_per_sample_median"]), number(row["us_per_sample_minimum"]),
                           number(row["first_step_seconds"]), f"{row['peak_mb']:.0f}",
                           f"{row['step_mb']:.1f}" if "step_mb" in row else "",
                           f"{row['difference']:.0e}" if "difference" in row else "reference"]
            lines.append([row["framework"], KINDS[row["private"]], row.get("version", ""), *figures])
        text.append(markdown_table(["framework", "step", "version", "us a sample, median", "minimum", "first step, s",
                                    "peak MB", "of it for the steps", "difference"], lines))
    return "\n".join(text)


COLOURS = {(False, False): "#9aa5b1", (True, False): "#627d98", (False, True): "#f0b429", (True, True): "#cb6e17"}
BAR, GAP, LABEL, LENGTH = 14, 4, 190, 520


def panel(title, rows, top):
    """One group of bars, the logarithm of the time to the right; returns the SVG and its height."""
    measured = sorted((row for row in rows if "us_per_sample_median" in row),
                      key=lambda row: row["us_per_sample_median"])
    failed = [row for row in rows if "us_per_sample_median" not in row]
    parts = [f'<text x="0" y="{top + 14}" font-weight="bold">{html.escape(title)}</text>']
    y = top + 24
    low = math.log10(measured[0]["us_per_sample_median"]) - 0.3 if measured else 0
    high = max(low + 0.6, math.log10(measured[-1]["us_per_sample_median"])) if measured else 1
    for row in measured + failed:
        ours = row["framework"] in OURS.values()
        parts.append(f'<text x="{LABEL - 8}" y="{y + 11}" text-anchor="end">{html.escape(row["framework"])}</text>')
        if "us_per_sample_median" in row:
            width = LENGTH * (math.log10(row["us_per_sample_median"]) - low) / (high - low)
            parts.append(f'<rect x="{LABEL}" y="{y}" width="{width:.1f}" height="{BAR}" '
                         f'fill="{COLOURS[row["private"], ours]}"/>')
            text = f"{number(row['us_per_sample_median'])} us"
        else:
            width, text = 0, row["failure"] if len(row["failure"]) <= 80 else row["failure"][:79] + "…"
        parts.append(f'<text x="{LABEL + width + 6:.1f}" y="{y + 11}">{html.escape(text)}</text>')
        y += BAR + GAP
    return "\n".join(parts), y - top + 14


def svg(machine, rows):
    legend = [("non-private peer", False, False), ("DP peer", True, False), ("ours, non-private", False, True),
              ("ours, DP", True, True)]
    parts = ['<text x="0" y="14" font-size="14">Microseconds a sample (median step, logarithmic)</text>'
             f'<text x="0" y="32">{html.escape(machine["processor"])}, {len(machine["cores"])} threads</text>']
    for i, (text, private, ours) in enumerate(legend):
        parts.append(f'<rect x="{i * 150}" y="44" width="12" height="12" fill="{COLOURS[private, ours]}"/>'
                     f'<text x="{i * 150 + 18}" y="54">{text}</text>')
    top = 72
    for (task, batch), group in cells(rows).items():
        drawn, height = panel(f"{task}, batch {batch}", group, top)
        parts.append(drawn)
        top += height
    body = "\n".join(parts)
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{LABEL + LENGTH + 130}" height="{top + 20}" '
            f'viewBox="-10 -10 {LABEL + LENGTH + 130} {top + 20}" font-family="sans-serif" font-size="12">\n'
            f'<rect x="-10" y="-10" width="100%" height="100%" fill="white"/>\n{body}\n</svg>\n')


def write(folder, machine, rows):
    content = {"machine": machine, "results": rows, "ratios": {figure: ratios(rows, figure) for figure in FIGURES}}
    (folder / "peers.json").write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    (folder / "peers.md").write_text(markdown(machine, rows), encoding="utf-8")
    (folder / "peers.svg").write_text(svg(machine, rows), encoding="utf-8")
