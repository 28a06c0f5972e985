#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""model.py [--measured FILE] [--out DIR | --update | --check]: a model of a step's time on 1 to 1,024 ranks.

A rank is a process of one thread with a link of its own; in shared memory all ranks have one link. Its step takes

    gradients of its records          the most that one of the ranks draws: of P Poisson counts of mean batch / P
  + noise and update                  of its own stretches; what each rank does for all parameters; what it does for each
                                      of the ranks
  + exchanges, one after the other    latency + messages * overhead / 2 + the greater of bytes sent and got / bandwidth,
                                      and adding up what came (pergrad/mpi.hpp: every part goes straight to its owner)

FILE (default docs/results/ranks_parts.json, of bench/ranks/parts.sh) has the parts of a step and what exchanges cost in
shared memory and over TCP on one machine; other networks' latencies and bandwidths are public figures, in NETWORKS.
Writes DIR/ranks_model.json, .md and .svg (default out/ranks); --update those that docs/scaling.md shows; --check says
whether these are still what the model makes of FILE.
"""

import argparse
import json
import math
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
RESULTS = ROOT / "docs" / "results"
PICTURE = ROOT / "docs" / "images" / "ranks_model.svg"
STRETCH = 2048  # parameters; release_gate::stretch
SUM_BYTES, SCALAR_BYTES = 8, 4
RANKS = [2**i for i in range(11)]
BATCHES = (256, 16384)
LEAST_EFFICIENCY = 0.5

# Ethernet's bandwidth is what frames of 1500 bytes leave for TCP: 1448 of 1538 bytes on the wire.
ETHERNET = 1448 / 1538 / 8 * 1e9
NETWORKS = {  # latency in seconds, bytes a second and direction, whose overhead of a message was measured, source
    "shared memory": (None, None, "shared memory", "measured: two ranks on two cores; all ranks share what these two had both ways"),
    "1 Gb Ethernet": (23e-6, 1 * ETHERNET, "TCP", "latency: NetPIPE over TCP, norma.mbg.duth.gr, network benchmarks"),
    "10 Gb Ethernet": (20e-6, 10 * ETHERNET, "TCP", "latency: Hurwitz and Feng 2003, Hot Interconnects 11"),
    "25 Gb Ethernet": (15e-6, 25 * ETHERNET, "TCP", "latency: Firestone et al. 2018, NSDI, between virtual machines"),
    "100 Gb InfiniBand": (0.6e-6, 12.2e9, "shared memory",
                          "latency: ConnectX-5 product brief; bandwidth: NVIDIA/nccl-tests issue 29"),
}
TASKS = {"mlp": "perceptron", "mnist_cnn": "MNIST CNN", "cifar_cnn": "CIFAR CNN", "lstm": "LSTM",
         "transformer": "124 M transformer"}
# GPT-2 small (Radford et al. 2019): twelve layers, and a tied table whose products are those of a linear layer.
GPT2 = {"parameters": 124_439_808, "layers": 12, "layer_parameters": 7_087_872, "table": 50_257 * 768}
REASONS = ("latency", "bandwidth", "noise and update", "fixed batch")


def places(parameters, ranks):
    """Where ranks' parameters begin, as step_on_ranks has it."""
    stretches = -(-parameters // STRETCH)
    first = [stretches // ranks * rank + min(rank, stretches % ranks) for rank in range(ranks + 1)]
    return [min(each * STRETCH, parameters) for each in first]


def exchanges(parameters, ranks, scalar_bytes=SCALAR_BYTES):
    """What a step exchanges, in its order: the name, and the bytes of each rank's part."""
    at = places(parameters, ranks)
    own = [at[i + 1] - at[i] for i in range(ranks)]
    state = ("all_gather", [8] * ranks)  # the length of what a rank has to say: nothing
    # Shards, rate and clip norm; whether records fit, and the sum has been formed.
    return [("all_gather", [48] * ranks), state, state,
            ("reduce_scatter", [SUM_BYTES * each for each in own]), ("all_gather", [scalar_bytes * each for each in own])]


def traffic(what, parts, rank):
    """Of one exchange and rank: messages sent, messages got, bytes sent, bytes got."""
    others = len(parts) - 1
    rest = sum(parts) - parts[rank]
    if what == "all_gather":  # to everybody, also of nothing
        return others, others, others * parts[rank], rest
    owners = sum(1 for i, part in enumerate(parts) if part > 0 and i != rank)
    return owners, others if parts[rank] > 0 else 0, rest, others * parts[rank]


def bytes_sent(parameters, ranks, rank, scalar_bytes=SCALAR_BYTES):
    return sum(traffic(*each, rank)[2] for each in exchanges(parameters, ranks, scalar_bytes))


def largest_of(mean, ranks):
    """The expectation of the largest of so many Poisson numbers of this mean."""
    if ranks == 1:
        return mean
    first = max(0, math.floor(mean - 12 * math.sqrt(mean) - 20))
    last = math.ceil(mean + 12 * math.sqrt(mean) + 40)
    below, largest = 0.0, float(first)
    for k in range(first, last):
        below += math.exp(k * math.log(mean) - mean - math.lgamma(k + 1))
        largest += 1 - min(below, 1.0) ** ranks
    return largest


class Task:
    """Seconds of the parts of a step, from what parts.cpp prints."""

    def __init__(self, measured):
        self.parameters = measured["parameters"]
        alone, few, many = (measured["without"][key] * 1e-6 for key in ("1", "16", "1024"))
        self.gradients = [(int(count), max(took * 1e-6 - alone, 0)) for count, took in measured["records"].items()]
        # A step without records: what is done once, for each own parameter, and for each rank.
        own = {ranks: places(self.parameters, ranks)[1] for ranks in (1, 16, 1024)}
        a_rank = (many - few) / (1024 - 16)  # if own parameters cost nothing
        instead = (own[16] - own[1024]) / (1024 - 16)  # of a parameter's cost
        self.a_parameter = max(0.0, (alone - few + 15 * a_rank) / (own[1] - own[16] - 15 * instead))
        self.a_rank = max(0.0, a_rank + instead * self.a_parameter)
        self.once = max(0.0, alone - own[1] * self.a_parameter - self.a_rank)

    def scaled(self, parameters, factor):
        """Another network: gradients cost `factor` of this one's, all else goes with its parameters."""
        other = object.__new__(Task)
        other.parameters, other.a_parameter, other.a_rank = parameters, self.a_parameter, self.a_rank
        other.gradients = [(count, took * factor) for count, took in self.gradients]
        other.once = self.once * parameters / self.parameters
        return other

    def gradient(self, records):
        """By straight lines between measured counts; beyond the last one, in proportion."""
        known = [(0, 0.0), *self.gradients]
        for (few, quick), (many, slow) in zip(known, known[1:]):
            if records <= many:
                return quick + (slow - quick) * (records - few) / (many - few)
        return known[-1][1] * records / known[-1][0]

    def update(self, ranks):
        own = places(self.parameters, ranks)[1]
        return self.once + own * self.a_parameter + ranks * self.a_rank


def link(name, machine):
    """(latency, bandwidth, overhead of a message on both sides, whether all ranks share it) in seconds and bytes."""
    latency, bandwidth, overhead_of, _ = NETWORKS[name]
    overhead = machine["overhead"][overhead_of]
    if latency is None:
        return machine["latency"], machine["bandwidth"], overhead, True
    return latency, bandwidth, overhead, False


def machine_of(measured):
    """From exchanges.cpp with two ranks and with eight, on two cores."""
    found = {"overhead": {}}
    for name, (two, eight) in measured.items():
        # Every two of eight ranks exchange a message each way, and two cores do the work of all.
        found["overhead"][name] = eight["all_gather"] * 1e-6 * 2 / (8 * 7)
    two = measured["shared memory"][0]
    found["latency"] = max(0.0, two["all_gather"] * 1e-6 - found["overhead"]["shared memory"])
    moved = two["elements"] * SUM_BYTES  # half of the sum each way
    found["bandwidth"] = moved / ((two["reduce_scatter"] - two["adding"] / 2) * 1e-6)
    found["adding"] = two["adding"] * 1e-6 / two["elements"]
    return found


def parts_of_step(task, network, batch, ranks, machine):
    """Seconds of a step: gradients if they were divided evenly, and what comes on top, by reason."""
    latency, bandwidth, overhead, is_shared = link(network, machine)
    ideal = task.gradient(batch) / ranks
    parts = dict.fromkeys(REASONS, 0.0)
    parts["fixed batch"] = task.gradient(largest_of(batch / ranks, ranks)) - ideal
    parts["noise and update"] = task.update(ranks)
    if ranks > 1:
        for what, own in exchanges(task.parameters, ranks):
            sent, got, out, into = traffic(what, own, 0)  # nobody has more than rank 0
            parts["latency"] += latency + overhead * (sent + got) / 2
            moved = sum(own) * (ranks - 1) if is_shared else max(out, into)
            parts["bandwidth"] += moved / bandwidth
            if what == "reduce_scatter":
                parts["noise and update"] += into / SUM_BYTES * machine["adding"]
    return ideal, parts


def predict(task, network, batch, machine):
    """One line for each number of ranks."""
    lines = []
    for ranks in RANKS:
        ideal, parts = parts_of_step(task, network, batch, ranks, machine)
        seconds = ideal + sum(parts.values())
        if ranks == 1:
            first, first_update = seconds, parts["noise and update"]
        parts["noise and update"] -= first_update / ranks  # the rest is more than a division among ranks
        lines.append({"ranks": ranks, "milliseconds": seconds * 1e3, "speed_up": first / seconds,
                      "efficiency": first / seconds / ranks, "bytes_sent": bytes_sent(task.parameters, ranks, 0),
                      "lost_to": {name: lost * 1e3 for name, lost in parts.items()}})
    return lines


def end_of_scaling(lines):
    """The most ranks that are at least half efficient, what ends that, and the fastest line."""
    good = lines[0]["ranks"]
    for line in lines:
        if line["efficiency"] < LEAST_EFFICIENCY:
            reason = max(line["lost_to"], key=line["lost_to"].get)
            break
        good, reason = line["ranks"], ""
    return good, reason, min(lines, key=lambda line: line["milliseconds"])


def number(value, digits=3):
    """So many digits that count, without an exponent."""
    if value == 0:
        return "0"
    return f"{value:,.{max(0, digits - 1 - math.floor(math.log10(abs(value))))}f}"


def tasks_of(measured):
    found = {name: Task(each) for name, each in measured["tasks"].items()}
    layer = found.pop("gpt2_layer")
    factor = (GPT2["layers"] * GPT2["layer_parameters"] + GPT2["table"]) / GPT2["layer_parameters"]
    found["transformer"] = layer.scaled(GPT2["parameters"], factor)
    return found


def measured_speed_up(source, name):
    """Of two ranks over one, which the model does not know."""
    steps = source["measured"]["tasks"].get(name, {}).get("steps")
    return number(steps["1"] / steps["2"]) if steps else ""


def model(source):
    """Results files of what was measured (`source`) and the pictures' lines."""
    machine = machine_of(source["measured"]["exchanges"])
    tasks = tasks_of(source["measured"])
    head = {key: source[key] for key in ("machine", "date", "version")}
    rows, predictions = [], {}
    for name, title in TASKS.items():
        for network in NETWORKS:
            row = [title if network == next(iter(NETWORKS)) else "", network]
            for batch in BATCHES:
                lines = predict(tasks[name], network, batch, machine)
                predictions[f"{name}, {network}, {batch}"] = lines
                good, reason, best = end_of_scaling(lines)
                row += [f"{good:,}", reason, f"{number(best['speed_up'])} on {best['ranks']:,}"]
            rows.append(row)
    columns = ["task", "network"]
    for batch in BATCHES:
        columns += [f"{batch:,} a step: half efficient up to", "what ends it", "most speed-up"]
    results = {"ranks_model": {
        "what": "a model of a step's time on 1 to 1,024 ranks of one thread: up to how many ranks at least half of their "
                "speed is left, which part of a step takes most of what is lost on twice as many, and the most speed-up",
        "commands": ["sh bench/ranks/parts.sh", "python3 bench/ranks/model.py --update"], **head,
        "note": "modelled, not measured: see bench/ranks/model.py; machine and date are those of the parts of a step",
        "align": "ll" + "rlr" * len(BATCHES), "columns": columns, "rows": rows, "predictions": predictions}}
    rows = []
    for name, title in TASKS.items():
        task = tasks[name]
        rows.append([title, f"{task.parameters:,}", number(bytes_sent(task.parameters, 2, 0) / 1e6),
                     number(bytes_sent(task.parameters, 1024, 0) / 1e6), number(task.gradient(1) * 1e6),
                     number(task.gradient(256) / 256 * 1e6), number(task.update(1) * 1e3), number(task.update(1024) * 1e3),
                     number(predictions[f"{name}, shared memory, 256"][1]["speed_up"]), measured_speed_up(source, name)])
    results["ranks_steps"] = {
        "what": "what the model knows of a step of one thread: megabytes that rank 0 sends, microseconds of a record's "
                "gradient, milliseconds of noise, update and all that is not gradients; the least of several",
        "commands": results["ranks_model"]["commands"], **head,
        "note": "the transformer is modelled: "
                f"{number((GPT2['layers'] * GPT2['layer_parameters'] + GPT2['table']) / GPT2['layer_parameters'])} times one "
                "measured layer of 768 features on 128 positions, by the floating-point operations of its products",
        "align": "lrrrrrrrrr",
        "columns": ["task", "parameters", "MB sent by one of 2", "of 1,024", "gradient of one record alone, us",
                    "of one of 256, us", "all else on 1 rank, ms", "on 1,024, ms",
                    "modelled speed-up on 2, shared memory, 256 a step", "measured"], "rows": rows}
    rows = []
    for network, (_, _, _, text) in NETWORKS.items():
        latency, bandwidth, overhead, _ = link(network, machine)
        rows.append([network, number(latency * 1e6, 2), number(bandwidth / 1e9), number(overhead * 1e6, 2), text])
    results["networks"] = {
        "what": "networks of the model: latency and bandwidth of a link, and a processor's time for one message, both sides "
                "together, which was measured over TCP to the same machine or in shared memory",
        "commands": results["ranks_model"]["commands"], **head, "align": "lrrrl",
        "columns": ["network", "latency, us", "GB/s each way", "a message, us", "source"], "rows": rows}
    return results


COLOURS = dict(zip(NETWORKS, ("#6b7280", "#b91c1c", "#c2410c", "#0b5fa5", "#15803d")))


def picture(predictions, batch):
    """Speed-up over ranks, a panel a task, both axes logarithmic; one self-contained SVG."""
    side, gap, left, top = 200, 58, 56, 84
    width = left + 3 * (side + gap)
    height = top + 2 * (side + gap + 20) + 10
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
           'font-family="sans-serif" font-size="12" role="img" '
           f'aria-label="Modelled speed-up on 1 to 1,024 ranks at {batch:,} records a step">',
           f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
           f'<text x="{left}" y="28" font-size="16" fill="#222222">Modelled speed-up at {batch:,} records a step</text>']

    def text(x, y, content, anchor="start", colour="#222222"):
        out.append(f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}">{content}</text>')

    def polyline(points, style):
        out.append('<polyline fill="none" points="' + " ".join(f"{x:.1f},{y:.1f}" for x, y in points) + f'" {style}/>')

    for i, (name, title) in enumerate(TASKS.items()):
        x0, y0 = left + i % 3 * (side + gap), top + i // 3 * (side + gap + 20)

        def at(ranks, speed):
            return (x0 + side * math.log2(ranks) / 10, y0 + side * (1 - min(max(math.log2(speed), 0), 10) / 10))

        text(x0, y0 - 10, title)
        for power in (0, 5, 10):
            x, y = at(2**power, 2**power)
            polyline([(x, y0), (x, y0 + side)], 'stroke="#e5e7eb"')
            polyline([(x0, y), (x0 + side, y)], 'stroke="#e5e7eb"')
            text(x, y0 + side + 16, f"{2**power:,}", "middle", "#555555")
            text(x0 - 6, y + 4, f"{2**power:,}", "end", "#555555")
        text(x0 + side / 2, y0 + side + 32, "ranks", "middle", "#555555")
        polyline([at(1, 1), at(1024, 1024)], 'stroke="#9ca3af" stroke-dasharray="3 3"')
        for network, colour in COLOURS.items():
            lines = predictions[f"{name}, {network}, {batch}"]
            polyline([at(line["ranks"], line["speed_up"]) for line in lines], f'stroke="{colour}" stroke-width="2"')
    x, y = left + 2 * (side + gap), top + side + gap + 20
    for i, (network, colour) in enumerate([*COLOURS.items(), ("as many as ranks", "#9ca3af")]):
        dashes = ' stroke-dasharray="3 3"' if i == len(COLOURS) else ""
        polyline([(x, y + 22 * i + 30), (x + 28, y + 22 * i + 30)], f'stroke="{colour}" stroke-width="2"{dashes}')
        text(x + 36, y + 22 * i + 34, network)
    return "\n".join([*out, "</svg>"]) + "\n"


def as_json(result):
    """Rows, and lines of predictions, take one line each."""
    def short(value):
        return json.dumps(value, ensure_ascii=False)

    pieces = []
    for key, value in result.items():
        if key in ("rows", "commands", "columns"):
            body = "[\n    " + ",\n    ".join(short(each) for each in value) + "\n  ]"
        elif key == "predictions":
            rounded = {name: [[line["ranks"], *(float(f"{line[part]:.4g}") for part in ("milliseconds", "speed_up", "efficiency")),
                               line["bytes_sent"], *(float(f"{each:.4g}") for each in line["lost_to"].values())]
                              for line in lines] for name, lines in value.items()}
            names = ["ranks", "milliseconds", "speed_up", "efficiency", "bytes_sent", *(f"ms lost to {each}" for each in REASONS)]
            body = ("{\n    \"\": " + short(names) + ",\n    "
                    + ",\n    ".join(f"{short(name)}: {short(lines)}" for name, lines in rounded.items()) + "\n  }")
        else:
            body = short(value)
        pieces.append(f"  {short(key)}: {body}")
    return "{\n" + ",\n".join(pieces) + "\n}\n"


def as_markdown(result):
    lines = ["| " + " | ".join(cells) + " |" for cells in [result["columns"], *result["rows"]]]
    rule = "|" + "|".join(" ---: " if each == "r" else " --- " for each in result["align"]) + "|"
    return "\n".join([lines[0], rule, *lines[1:]]) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measured", type=pathlib.Path, default=RESULTS / "ranks_parts.json", metavar="FILE")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--out", type=pathlib.Path, default=pathlib.Path("out/ranks"), metavar="DIR")
    how.add_argument("--update", action="store_true")
    how.add_argument("--check", action="store_true")
    options = parser.parse_args()
    results = model(json.loads(options.measured.read_text(encoding="utf-8")))
    svg = picture(results["ranks_model"]["predictions"], BATCHES[-1])
    if options.update or options.check:
        files = {RESULTS / f"{name}.json": as_json(result) for name, result in results.items()} | {PICTURE: svg}
    else:
        files = {options.out / f"{name}.{kind}": make(result) for name, result in results.items()
                 for kind, make in (("json", as_json), ("md", as_markdown))} | {options.out / "ranks_model.svg": svg}
    if options.check:
        stale = [path for path, text in files.items() if not path.exists() or path.read_text(encoding="utf-8") != text]
        print("\n".join(f"{path.relative_to(ROOT)} is not what the model says; run bench/ranks/model.py --update"
                        for path in stale) or "the model's results are those of what was measured")
        return 1 if stale else 0
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    if not options.update:
        for result in results.values():
            print(f"\n{result['what']}\n\n{as_markdown(result)}", end="")
        print(f"\nwrote {options.out}/ranks_model.json, .md and .svg, and what they are made of")
    return 0


if __name__ == "__main__":
    sys.exit(main())
