#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""random_networks.py --compiler CXX --out FOLDER [--first N] [--count N] [--what laws,plans,...] - draws networks
and asks of each what random_networks.hpp says: nobody has thought of their combinations of layers.

    laws           the laws of layers, and of lengths, on the host
    plans          the plans of large networks, whose values share places, give what the plan of small ones gives
    devices        a device that the host emulates gives what the host gives, under both of its plans
    certificates   no gradient, and no layer's part of one, is longer than was proven

A network is known by its number. What fails stays in FOLDER, as NUMBER.cpp and NUMBER.txt.
"""

import argparse
import collections
import concurrent.futures
import math
import os
import pathlib
import random
import subprocess
import sys

TOP = pathlib.Path(__file__).resolve().parents[2]
FLAGS = ["-std=c++20", "-O0", "-march=native", "-w", "-DBOOST_TEST_DYN_LINK", f"-I{TOP}/include", f"-I{TOP}/tests"]
LIBRARIES = ["-lboost_unit_test_framework", "-pthread"]
WHAT = ("laws", "plans", "devices", "certificates")

# kind: vector (features), sequence (positions, features), channels (channels, positions), image, volume
Shape = collections.namedtuple("Shape", "kind dims varying")
# What may stand somewhere: `same_place`, no layer that changes positions or ends them; `keys`, none that is tied.
Place = collections.namedtuple("Place", "depth same_place keys")
CHANNELS_FIRST = {"channels": 1, "image": 2, "volume": 3}  # axes of pixels
ACTIVATIONS = ("relu", "tanh", "sigmoid", "gelu", "gelu_tanh", "softplus", "silu", "leaky_relu<>", "elu<>",
               "scale<std::ratio<3, 4>>")
DEEPEST = 3


def of(name, *arguments):
    """A C++ type of the library; arguments are text, numbers, or nothing."""
    given = ", ".join(str(each) for each in arguments if each not in ("", None))
    return f"pg::{name}<{given}>"


class Drawing:
    def __init__(self, number):
        self.random = random.Random(number)
        self.tied = []  # (key, layers, features in, features out)

    def pick(self, *choices):
        return self.random.choice(choices)

    def to(self, low, high):
        return self.random.randint(low, high)

    def some(self, *options):
        return [f"pg::{each}" for each in options if self.random.random() < 0.3]

    def divisor(self, number):
        return self.pick(*[each for each in range(1, number + 1) if number % each == 0])

    # Each of these gives (text, shape behind it), or None where it does not fit.

    def activation(self, shape, place):
        return f"pg::{self.pick(*ACTIVATIONS)}", shape

    def feature_layer(self, shape, place):
        """On vectors, or position by position."""
        width, features = shape.dims[-1], self.to(2, 9)
        name = self.pick("linear", "linear", "linear", "lora", "swiglu", "added_bias", "norm", "group_sort",
                         "slice" if shape.kind == "vector" else "norm")
        if name == "lora":
            text = of(name, self.to(1, 3), of("linear", features, *self.some("no_bias")))
        elif name in ("linear", "swiglu"):
            text = of(name, features, *self.some("no_bias"))
        elif name == "slice":
            first = self.to(0, width - 1)
            features = self.to(1, width - first)
            text = of(name, first, features)
        else:
            features = width
            if name == "norm" and width > 1:
                text = self.pick("pg::layer_norm<>", "pg::layer_norm<pg::no_affine>", "pg::layer_norm<pg::no_bias>",
                                 "pg::rms_norm<>")
            elif name == "group_sort" and width % 2 == 0:
                text = "pg::group_sort<2>"
            else:
                text = "pg::added_bias"
        return text, shape._replace(dims=shape.dims[:-1] + (features,))

    def tied_layer(self, shape, place):
        """The second use of a key, or the first."""
        if not place.keys:
            return None
        fitting = [each for each in self.tied if each[2] == shape.dims[-1]]
        if not fitting or self.random.random() < 0.3:
            features = self.pick(shape.dims[-1], self.to(2, 9))
            layers = self.pick(of("linear", features), of("linear", features, "pg::no_bias"),
                               of("linear", features) + ", pg::tanh")
            fitting = [(len(self.tied) + 1, layers, shape.dims[-1], features)]
            self.tied.append(fitting[0])
        key, layers, _, features = self.pick(*fitting)
        return of("tied", key, layers), shape._replace(dims=shape.dims[:-1] + (features,))

    def fold(self, shape, place):
        if shape.dims[0] % 2 != 0 or place.same_place:
            return None
        dims = (shape.dims[0] // 2, 2)
        return f"pg::reshape<pg::shape{{{dims[0]}, {dims[1]}}}>", Shape("sequence", dims, False)

    def recurrent(self, shape, place):
        hidden, options = self.to(1, 4), self.some("bidirectional", "layers<2>", self.pick("one_bias", "no_bias"))
        end = "" if place.same_place else self.pick("", "pg::last_output", "pg::mean_output")
        width = hidden * (2 if "pg::bidirectional" in options else 1)
        behind = Shape("vector", (width,), False) if end else shape._replace(dims=(shape.dims[0], width))
        return of(self.pick("rnn", "gru", "lstm"), hidden, *options, end), behind

    def attention(self, shape, place):
        positions, width = shape.dims
        if width % 3 == 0 and self.random.random() < 0.5:
            return (of("scaled_dot_product_attention", self.divisor(width // 3), *self.some("causal")),
                    shape._replace(dims=(positions, width // 3)))
        if width > 1 and self.random.random() < 0.3:
            return of("transformer_encoder_layer", self.divisor(width), self.to(2, 6),
                      *self.some("pre_norm", "gelu_activation")), shape
        return of("multihead_attention", self.divisor(width), *self.some("causal", "no_bias", "kv_bias")), shape

    def positions_layer(self, shape, place):
        positions, width = shape.dims
        name = self.pick("learned_positions", "sinusoidal_positions", "transpose", "sequence_bias", "take", "end", "end")
        if name in ("learned_positions", "sinusoidal_positions"):
            return f"pg::{name}", shape
        if place.same_place:
            return None
        if name == "transpose":
            return "pg::transpose", Shape("channels", (width, positions), shape.varying)
        if name == "sequence_bias":
            return "pg::sequence_bias", shape._replace(dims=(positions + 1, width))
        if name == "end":
            return self.pick("pg::mean_over_positions", "pg::select_last"), Shape("vector", (width,), False)
        count = self.to(1, positions)
        first = 0 if shape.varying else self.to(0, positions - count)
        return of("take_positions", first, count), shape._replace(dims=(count, width))

    def convolution(self, shape, place):
        """Any windows that fit: overlapping, apart, beyond the ends, leaving the end out."""
        axes = CHANNELS_FIRST[shape.kind]
        if place.same_place and shape.varying:
            return None
        if place.same_place:
            channels = self.to(1, 6)
            return (of(f"conv{axes}d", channels, 3, "pg::padding<1>", *self.some("no_bias")),
                    shape._replace(dims=(channels,) + shape.dims[1:]))
        drawn = []  # kernel, stride, padding, dilation and windows of an axis
        for size in shape.dims[1:]:
            rest = -1
            while rest < 0:
                kernel, stride, padding, dilation = self.to(1, 3), self.to(1, 3), self.to(0, 2), self.to(1, 2)
                rest = size + 2 * padding - (kernel - 1) * dilation - 1
            drawn.append((kernel, stride, padding, dilation, rest // stride + 1))
        *options, sizes = zip(*drawn)
        listed = [", ".join(map(str, each)) for each in options]
        groups = self.divisor(shape.dims[0]) if self.random.random() < 0.4 else 1
        channels = groups * self.to(1, 3)
        return (of(f"conv{axes}d", channels, f"pg::extent{{{listed[0]}}}" if axes > 1 else listed[0],
                   of("stride", listed[1]), of("padding", listed[2]), of("dilation", listed[3]), of("groups", groups),
                   *self.some("no_bias")), shape._replace(dims=(channels, *sizes)))

    def transposed_convolution(self, shape, place):
        if shape.kind != "image" or place.same_place or math.prod(shape.dims[1:]) > 16:
            return None
        channels, kernel, stride = self.to(1, 4), self.to(2, 3), self.to(1, 2)
        sizes = tuple((size - 1) * stride + kernel for size in shape.dims[1:])
        return (of("conv_transpose2d", channels, kernel, of("stride", stride), *self.some("no_bias")),
                shape._replace(dims=(channels, *sizes)))

    def pool(self, shape, place):
        axes = CHANNELS_FIRST[shape.kind]
        if place.same_place or min(shape.dims[1:]) < 2:
            return None
        kernel, stride = self.to(1, 2), self.to(1, 2)
        padding = 0 if shape.varying else self.to(0, kernel // 2)
        sizes = tuple((size + 2 * padding - kernel) // stride + 1 for size in shape.dims[1:])
        return (of(f"{self.pick('max', 'avg')}_pool{axes}d", kernel, of("stride", stride), of("padding", padding)),
                shape._replace(dims=(shape.dims[0], *sizes)))

    def pixel_layer(self, shape, place):
        """Norms and what moves pixels, which samples with lengths cannot have."""
        axes, pixels = CHANNELS_FIRST[shape.kind], math.prod(shape.dims[1:])
        name = self.pick("channel_affine", "group_norm", "instance_norm", "upsample", "flatten", "transpose")
        if name == "transpose" and shape.kind == "channels" and not place.same_place:
            return "pg::transpose", Shape("sequence", (shape.dims[1], shape.dims[0]), shape.varying)
        if shape.varying:
            return None
        if name == "channel_affine":
            return "pg::channel_affine", shape
        groups = self.divisor(shape.dims[0])
        if name == "group_norm" and shape.dims[0] // groups * pixels > 1:
            return of("group_norm", groups), shape
        if name == "instance_norm" and pixels > 1:
            return f"pg::instance_norm{axes}d<>", shape
        if name == "upsample" and pixels <= 12 and not place.same_place:
            return "pg::upsample<2>", shape._replace(dims=(shape.dims[0], *(2 * each for each in shape.dims[1:])))
        if name == "flatten" and not place.same_place:
            return "pg::flatten", Shape("vector", (math.prod(shape.dims),), False)
        return None

    def wrapped(self, shape, place):
        name = self.pick("sequential", "recomputed", "recomputed", "parameter_group", "frozen", "repeat")
        keeps = name == "repeat"
        inside = Place(place.depth + 1, place.same_place or keeps, place.keys and name not in ("frozen", "repeat"))
        text, behind = self.layers(shape, inside, self.to(1, 3))
        if keeps and behind != shape:
            return text, behind
        number = {"repeat": 2, "parameter_group": self.to(1, 3)}.get(name)
        return of(name, number, text), behind

    def residual(self, shape, place):
        text, behind = self.layers(shape, place._replace(depth=place.depth + 1, same_place=True), self.to(1, 3))
        if behind == shape:
            return of("residual", text), behind
        if shape.kind in ("vector", "sequence"):
            shortcut = of("linear", behind.dims[-1])
        elif shape.varying:
            return None
        else:
            shortcut = of(f"conv{CHANNELS_FIRST[shape.kind]}d", behind.dims[0], 1)
        return of("residual", text, of("projection", shortcut)), behind

    def branches(self, shape, place):
        inside = place._replace(depth=place.depth + 1, same_place=True)
        name = self.pick("parallel", "merge", "cross_attention")
        drawn = [self.layers(shape, inside, self.to(1, 2)) for _ in range(2)]
        texts = [of("sequential", text) for text, _ in drawn]
        if shape.kind in CHANNELS_FIRST:
            channels = sum(behind.dims[0] for _, behind in drawn)
            return of("parallel_channels", *texts), shape._replace(dims=(channels,) + shape.dims[1:])
        if name == "merge":
            features = self.to(1, 5)
            equal = [of("sequential", text, of("linear", features)) for text, _ in drawn]
            return (of("merge", "pg::elementwise_product", *equal),
                    shape._replace(dims=shape.dims[:-1] + (features,)))
        if name == "cross_attention" and shape.kind == "sequence":
            return (of(name, self.divisor(drawn[0][1].dims[1]), of("queries", drawn[0][0]), of("memory", drawn[1][0]),
                       *self.some("causal", "no_bias", "kv_bias")), drawn[0][1])
        features = sum(behind.dims[-1] for _, behind in drawn)
        return of("parallel", *texts, "pg::sequential<>"), shape._replace(
            dims=shape.dims[:-1] + (features + shape.dims[-1],))

    def layer(self, shape, place):
        kinds = {"vector": [self.feature_layer] * 4 + [self.tied_layer] * 2 + [self.fold],
                 "sequence": [self.feature_layer] * 3 + [self.tied_layer, self.recurrent, self.attention,
                                                         self.attention, self.positions_layer, self.positions_layer]}
        of_pixels = [self.convolution] * 4 + [self.pixel_layer] * 2 + [self.pool, self.transposed_convolution]
        choices = [self.activation] + kinds.get(shape.kind, of_pixels)
        if place.depth < DEEPEST:
            choices += [self.wrapped] * 2 + [self.residual, self.branches]
        while True:
            drawn = self.pick(*choices)(shape, place)
            if drawn is not None:
                return drawn

    def layers(self, shape, place, count):
        texts = []
        for _ in range(count):
            text, shape = self.layer(shape, place)
            texts.append(text)
        return ", ".join(texts), shape

    def network(self):
        """The input, the layers with `CLASSES` for the last one's outputs, and the loss."""
        kind = self.pick("vector", "sequence", "image", "image", "channels", "volume", "ids", "ids", "lengths")
        start, loss, varying = "", "pg::cross_entropy", False
        if kind == "ids":
            positions, vocabulary, features = self.to(3, 7), self.pick(5, 9, 12), self.to(2, 6)
            shown, varying = f"pg::token_ids({positions}, {vocabulary})", self.random.random() < 0.5
            shape = Shape("sequence", (positions, features), varying)
            table = self.pick("embedding", "embedding", "embedding_bag", "tied")
            if table == "embedding":
                start = of(table, features, *self.some("padding_idx<2>"))
            elif table == "embedding_bag":
                start = of(table, features, self.pick("", "pg::bag_sum", "pg::padding_idx<1>"))
                shape = Shape("vector", (features,), False)
            else:
                start = of("tied", 0, of("embedding", features))
        else:
            dims = {"vector": (self.to(3, 9),), "channels": (self.to(1, 4), self.to(3, 8)),
                    "image": (self.to(1, 3), self.to(3, 6), self.to(3, 6)),
                    "volume": (self.to(1, 2), self.to(2, 3), self.to(2, 4), self.to(2, 3))}.get(
                        kind, (self.to(3, 7), self.to(2, 6)))
            varying = kind == "lengths"
            shape = Shape({"lengths": "sequence"}.get(kind, kind), dims, varying)
            shown = f"pg::shape{{{', '.join(map(str, dims))}}}"
        tokens = kind == "ids" and table == "tied" and self.random.random() < 0.7
        text, behind = self.layers(shape, Place(0, tokens, True), self.to(2, 5))
        end = []
        if tokens:  # a language model: its table once more
            end = [of("linear", features), of("tied", 0, of("linear", vocabulary, "pg::no_bias"))]
            loss = "pg::token_cross_entropy<>"
        else:
            if behind.kind == "channels" and behind.varying:
                end, behind = ["pg::transpose"], behind._replace(kind="sequence")
            if behind.kind == "sequence":
                end.append(self.pick("pg::mean_over_positions", "pg::select_last"))
            elif behind.kind != "vector":
                end.append("pg::flatten")
            end.append("pg::linear<CLASSES>")
        if varying:
            shown = f"pg::variable({shown})"
        return shown, ", ".join(each for each in (start, text, *end) if each), loss, varying


def another_loss(number, loss):
    """Of a stream of its own: what stands for a network stays what it was."""
    drawing = Drawing(f"the loss of {number}")
    if "token" in loss:
        return of("token_cross_entropy", *drawing.some("ignore_index<1>", "sum_over_positions"))
    return "pg::" + drawing.pick("cross_entropy", "cross_entropy_with_label_smoothing<0.1>", "focal<>", "huber<0.5>",
                                 "mean_squared_error", "binary_cross_entropy_with_logits")


def program(number, what):
    shown, layers, loss, varying = Drawing(number).network()
    loss = another_loss(number, loss)
    # Twins of the network that are other types: an entry without layers tells them apart.
    text = f"""// network {number}
#include "network/random_networks.hpp"

namespace pg = pergrad;
template <class Scalar, std::size_t Twin, std::size_t Classes = 3>
using net = pg::basic_network<Scalar, {shown}, told_results::twin<Twin>, {layers.replace("CLASSES", "Classes")}>;
using loss = {loss};
PERGRAD_RANDOM_PLANS(net)
"""
    if "laws" in what:
        text += "BOOST_AUTO_TEST_CASE(laws) { random_networks::laws<net<double, 0>, net<float, 0>, loss>(); }\n"
        if varying:
            text += "BOOST_AUTO_TEST_CASE(lengths) { random_networks::lengths<net<double, 0>, loss>(); }\n"
    if "plans" in what:
        text += ("BOOST_AUTO_TEST_CASE(plans) { random_networks::plans<loss, net<double, 0>, net<double, 1>, "
                 "net<double, 2>, net<double, 3>>(); }\n")
    if "devices" in what:
        text += ("BOOST_AUTO_TEST_CASE(devices) { random_networks::devices<net<double, 0>, loss>(); "
                 "random_networks::devices<net<double, 4>, loss>(); }\n")
    if "certificates" in what:
        text += "BOOST_AUTO_TEST_CASE(certificates) { random_networks::certificates<net<float, 0>, loss>(); }\n"
    return text


def run(command, log, seconds):
    with open(log, "a", encoding="utf-8") as out:
        try:
            return subprocess.run(command, stdout=out, stderr=out, timeout=seconds, check=False).returncode
        except subprocess.TimeoutExpired:
            out.write(f"longer than {seconds} s: {' '.join(map(str, command))}\n")
            return 1


def check(number, options):
    """Whether network `number` keeps what is asked of it."""
    source, log, binary = (options.out / f"{number}{end}" for end in (".cpp", ".txt", ".bin"))
    source.write_text(program(number, options.what), encoding="utf-8")
    log.write_text("", encoding="utf-8")
    fine = (run([options.compiler, f"-I{options.out}", *FLAGS, source, "-o", binary, *LIBRARIES], log, 900) == 0
            and run([binary], log, 900) == 0)
    binary.unlink(missing_ok=True)
    for each in (source, log) if fine else ():
        each.unlink()
    return fine


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--compiler", default="g++")
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--count", type=int, default=10)
    parser.add_argument("--what", type=lambda text: text.split(","), default=list(WHAT), help=f"of {','.join(WHAT)}")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    options = parser.parse_args()
    unknown = set(options.what) - set(WHAT)
    if unknown or options.count < 1:
        parser.error(f"--what: not known: {', '.join(sorted(unknown))}" if unknown else "--count: at least 1")
    options.out.mkdir(parents=True, exist_ok=True)
    numbers = range(options.first, options.first + options.count)
    # Read once, as g++ finds it in front of the header itself.
    precompiled = options.out / "network" / "random_networks.hpp.gch"
    precompiled.parent.mkdir(exist_ok=True)
    header = TOP / "tests" / "network" / "random_networks.hpp"
    subprocess.run([options.compiler, *FLAGS, "-x", "c++-header", header, "-o", precompiled], check=True)
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        found = dict(zip(numbers, pool.map(lambda number: check(number, options), numbers)))
    for number in (number for number, fine in found.items() if not fine):
        print(f"network {number}: see {options.out / str(number)}.cpp and .txt\n"
              + (options.out / f"{number}.txt").read_text(encoding="utf-8", errors="replace")[:2000])
    print(f"{sum(found.values())} of {len(found)} networks keep {', '.join(options.what)}")
    return 0 if all(found.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
