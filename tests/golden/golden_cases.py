# SPDX-License-Identifier: Apache-2.0
# tests/golden/golden_cases.py - the networks, losses and batch sizes of the golden tests
"""Images and vectors; golden_more_cases.py has the rest and the list of all groups."""

from golden_layers import (BCE, CE, MSE, NS, adaptive_avg_pool2d, avg_pool2d, binary_focal, conv2d, cpp_list, elu,
                           flatten, focal, gelu, huber, leaky_relu, linear, max_pool2d, relu, repeat, residual,
                           sequential, sigmoid, silu, smoothed, softplus, tanh)

GROUPS = {}    # name of a data file -> its cases; one group is one C++ translation unit


class Case:
    """shape: of one input; exact: inputs and parameters are multiples of 1/4, so that the first layers do not round;
    ties: the gradient depends on which of equal values max-pooling takes; zeros: it depends on ReLU's derivative at 0;
    negative: every max-pool input is negative; formula: inputs and parameters are a formula of the index and only some
    gradient entries are kept; range: of the inputs; tweak: function of (inputs, targets, parameters), edits them;
    vocabulary: inputs are ids below it; lengths: of each sample, which is padded with numbers that mean nothing."""

    def __init__(self, name, shape, layers, loss, batch, exact=False, ties=False, zeros=False, negative=False,
                 formula=False, range=2.0, tweak=None, vocabulary=None, lengths=None):
        self.name, self.shape, self.layers, self.loss, self.batch = name, shape, layers, loss, batch
        self.exact, self.ties, self.zeros, self.negative = exact, ties, zeros, negative
        self.formula, self.range, self.tweak, self.vocabulary, self.lengths = formula, range, tweak, vocabulary, lengths

    def cpp(self):
        shape = f"{NS}shape{{{', '.join(map(str, self.shape))}}}"
        if self.vocabulary:
            shape = f"{NS}token_ids({self.shape[0]}, {self.vocabulary})"
        if self.lengths:
            shape = f"{NS}variable({shape})"
        network = f"{NS}basic_network<double, {shape}, {cpp_list(self.layers)}>"
        return f"PERGRAD_GOLDEN({self.name}, ({network}), {NS}{self.loss})"


def add(group, name, shape, layers, loss, batch, **options):
    GROUPS.setdefault(group, []).append(Case(name, shape, layers, loss, batch, **options))


def cycle(index, offset=0):
    return [MSE, CE, MSE, BCE][(index + offset) % 4]


# ---------------------------------------------------------------------------------------------------------------------
# Convolution: each geometry alone, where nobody needs the input gradient, and behind another layer, whose gradient is
# made of it.
# ---------------------------------------------------------------------------------------------------------------------

# (input shape, output channels, kernel, options, also behind another layer)
GEOMETRIES = [
    ((1, 1, 1), 1, 1, {}, False),
    ((2, 5, 5), 2, 3, {}, True),
    ((3, 5, 6), 2, 2, dict(bias=False), True),                                          # even kernel
    ((2, 6, 6), 2, 3, dict(stride=2), True),                                            # last row and column unread
    ((2, 7, 8), 3, 3, dict(stride=3, padding=2), True),
    ((1, 8, 7), 2, 4, dict(stride=2, padding=1), True),
    ((2, 5, 4), 2, (3, 2), dict(), True),
    ((2, 4, 7), 3, (1, 3), dict(padding=(0, 1)), True),
    ((1, 9, 3), 2, (5, 1), dict(stride=(2, 1), padding=(2, 0), bias=False), True),
    ((2, 6, 5), 2, (2, 3), dict(stride=(1, 3), padding=(1, 2)), True),
    ((2, 3, 3), 2, 3, dict(), False),                                                   # kernel as large as the image
    ((2, 3, 3), 2, 1, dict(padding=1), True),                                           # border sees padding only
    ((2, 3, 4), 2, 2, dict(padding=2), True),                                           # corners see padding only
    ((1, 8, 8), 2, 2, dict(stride=3), True),                                            # stride beyond the kernel
    ((2, 5, 6), 3, 1, dict(stride=2, bias=False), True),
    ((1, 7, 7), 2, 3, dict(dilation=2), True),
    ((2, 6, 7), 2, 3, dict(padding=2, dilation=2, bias=False), True),
    ((1, 8, 5), 3, (3, 2), dict(padding=(1, 0), dilation=(1, 2)), True),
    ((1, 9, 6), 2, (3, 2), dict(stride=(2, 1), padding=(2, 1), dilation=(3, 2)), True),
    ((4, 4, 5), 4, 3, dict(padding=1, groups=2), True),
    ((6, 4, 3), 3, 2, dict(groups=3, bias=False), True),
    ((3, 5, 5), 3, 3, dict(padding=1, groups=3), True),                                 # depthwise
    ((2, 6, 5), 6, (3, 2), dict(stride=2, groups=2), True),                             # depthwise, multiplier 3
    ((4, 7, 6), 6, (3, 2), dict(stride=(2, 1), padding=(1, 0), dilation=(1, 2), groups=2, bias=False), True),
    ((2, 1, 9), 3, (1, 3), dict(stride=2, padding=(0, 1)), False),                      # one row
    ((1, 12, 12), 2, 8, dict(stride=2, padding=3), False),
]


def conv_name(prefix, shape, out, kernel, options):
    def label(value):
        return str(value) if isinstance(value, int) else "x".join(map(str, value))

    letters = {"stride": "s", "padding": "p", "output_padding": "op", "dilation": "d", "groups": "g"}
    parts = [prefix, "x".join(map(str, shape)), f"o{out}", "k" + label(kernel)]
    parts += [letters[key] + label(value) for key, value in options.items() if key != "bias"]
    return "_".join(parts + ([] if options.get("bias", True) else ["nobias"]))


for index, (shape, out, kernel, options, behind) in enumerate(GEOMETRIES):
    add("conv", conv_name("conv2d", shape, out, kernel, options), shape, [conv2d(out, kernel, **options), flatten],
        cycle(index), 1 + index % 5)
    if behind:
        add("conv_input", conv_name("behind_conv2d", shape, out, kernel, options), (shape[0] % 3 + 1,) + shape[1:],
            [conv2d(shape[0], 1), tanh, conv2d(out, kernel, **options), flatten], cycle(index, 2), 1 + (index + 2) % 5)


def blacken_first(inputs, targets, parameters):
    inputs[0] = 0


add("conv", "conv2d_zero_image", (2, 4, 4), [conv2d(2, 3, padding=1), flatten], MSE, 2, tweak=blacken_first)

# ---------------------------------------------------------------------------------------------------------------------
# Pooling, behind a convolution: its input gradient matters.
# ---------------------------------------------------------------------------------------------------------------------


def same_but_for_unused_channel(inputs, targets, parameters):
    """Every pooled value ties; the gradient of the weight 0 of the second channel still tells positions apart."""
    inputs[:, 0] = 0.5
    parameters[0][:, 1] = 0


def far_below_zero(inputs, targets, parameters):
    parameters[1].sub_(9.0)


# (name, shape that is pooled, layer, options)
for index, (name, shape, layer, options) in enumerate([
    ("max_2_uncovered_5x7", (1, 5, 7), max_pool2d(2), {}),
    ("max_2_4x6", (2, 4, 6), max_pool2d(2), {}),
    ("max_2_s1_4x4", (2, 4, 4), max_pool2d(2, stride=1), {}),
    ("max_3_s2_p1_6x7", (2, 6, 7), max_pool2d(3, stride=2, padding=1), {}),
    ("max_3_s3_p1_8x8", (1, 8, 8), max_pool2d(3, stride=3, padding=1), {}),
    ("max_2x3_5x7", (2, 5, 7), max_pool2d((2, 3)), {}),
    ("max_3x2_s1x2_p1x0_4x5", (2, 4, 5), max_pool2d((3, 2), stride=(1, 2), padding=(1, 0)), {}),
    ("max_4_s2_p2_6x6", (1, 6, 6), max_pool2d(4, stride=2, padding=2), {}),
    ("max_1_s2_5x4", (2, 5, 4), max_pool2d(1, stride=2), {}),
    ("max_global_3x4", (3, 3, 4), max_pool2d((3, 4)), {}),
    ("max_3_s2_p1_negative_5x6", (2, 5, 6), max_pool2d(3, stride=2, padding=1),
     dict(negative=True, tweak=far_below_zero)),
    ("max_2_p1_negative_3x3", (2, 3, 3), max_pool2d(2, padding=1), dict(negative=True, tweak=far_below_zero)),
    ("max_2_s1_ties_4x5", (2, 4, 5), max_pool2d(2, stride=1), dict(exact=True, ties=True)),
    ("max_3_s2_p1_ties_6x5", (2, 6, 5), max_pool2d(3, stride=2, padding=1), dict(exact=True, ties=True)),
    ("max_3_s1_p1_constant_4x4", (2, 4, 4), max_pool2d(3, stride=1, padding=1),
     dict(exact=True, ties=True, tweak=same_but_for_unused_channel)),
    ("avg_2_uncovered_5x7", (1, 5, 7), avg_pool2d(2), {}),
    ("avg_3_s2_p1_6x7", (2, 6, 7), avg_pool2d(3, stride=2, padding=1), {}),
    ("avg_2x3_s1x2_5x6", (2, 5, 6), avg_pool2d((2, 3), stride=(1, 2)), {}),
    ("avg_3x2_s2x1_p1x0_5x4", (1, 5, 4), avg_pool2d((3, 2), stride=(2, 1), padding=(1, 0)), {}),
    ("avg_4_s3_p2_7x7", (1, 7, 7), avg_pool2d(4, stride=3, padding=2), {}),
    ("adaptive_1x1_5x3", (3, 5, 3), adaptive_avg_pool2d(1, 1), {}),
    ("adaptive_2x3_4x6", (2, 4, 6), adaptive_avg_pool2d(2, 3), {}),
    ("adaptive_3x2_7x5", (2, 7, 5), adaptive_avg_pool2d(3, 2), {}),
    ("adaptive_4x3_5x7", (1, 5, 7), adaptive_avg_pool2d(4, 3), {}),
    ("adaptive_larger_3x5_2x3", (2, 2, 3), adaptive_avg_pool2d(3, 5), {}),              # windows share inputs
]):
    channels, height, width = shape
    if index % 2 and not options:
        add("pool", name, (1, height - 1, width - 1), [conv2d(channels, 2, padding=1), layer, flatten], cycle(index),
            1 + index % 5)
    else:
        add("pool", name, (2, height, width), [conv2d(channels, 1), layer, flatten], cycle(index), 1 + index % 5,
            **options)

add("pool", "relu_max_2_s1", (1, 5, 5), [conv2d(2, 2), relu, max_pool2d(2, stride=1), flatten, linear(3)], CE, 4)
add("pool", "relu_max_3_s2_p1_ties", (2, 6, 5),
    [conv2d(2, 2), relu, max_pool2d(3, stride=2, padding=1), flatten, linear(3)], CE, 3, exact=True, ties=True)
add("pool", "max_before_conv", (2, 6, 6), [max_pool2d(2), conv2d(3, 2), flatten], MSE, 2)
add("pool", "avg_before_linear", (2, 5, 5), [avg_pool2d(3, stride=2, padding=1), flatten, linear(4)], CE, 3)

# ---------------------------------------------------------------------------------------------------------------------
# Linear layers, activations, losses
# ---------------------------------------------------------------------------------------------------------------------

add("dense", "linear_1x1", (1,), [linear(1)], MSE, 1)
add("dense", "linear_5x3", (5,), [linear(3)], MSE, 2)
add("dense", "linear_7x1_bce", (7,), [linear(1)], BCE, 4)
add("dense", "linear_4x6_bce", (4,), [linear(6)], BCE, 5)
add("dense", "linear_4x6_ce", (4,), [linear(6)], CE, 5)
add("dense", "linear_3x2_ce_nobias", (3,), [linear(2, bias=False)], CE, 1)
add("dense", "linear_image", (2, 3, 4), [flatten, linear(3)], CE, 2)
add("dense", "linear_17x9", (17,), [linear(9)], MSE, 3)
add("dense", "linear_twice_nobias", (4,), [linear(5, bias=False), linear(3, bias=False)], MSE, 3)
for index, (name, layer) in enumerate([("relu", relu), ("tanh", tanh), ("sigmoid", sigmoid), ("softplus", softplus),
                                       ("gelu", gelu)]):
    add("dense", f"{name}_between_linear", (4,), [linear(6), layer, linear(3)], cycle(index), 2 + index % 4)
    add("dense", f"{name}_of_conv", (2, 4, 3), [conv2d(3, 2), layer, flatten], cycle(index, 1), 1 + index % 5)
    add("dense", f"{name}_wide_range", (3,), [linear(5), layer, linear(2)], MSE, 5, range=12.0)
add("dense", "gelu_of_input", (5,), [gelu, linear(3)], MSE, 3)


def beyond_overflow(inputs, targets, parameters):
    inputs[0, 0], inputs[0, 1], inputs[1, 0], inputs[1, 1] = 800.0, 64.0, -900.0, 4.0
    parameters[0].fill_(1.0)


def dead_second_sample(inputs, targets, parameters):
    inputs[1] = 0
    parameters[1].fill_(-0.5)
    parameters[3].fill_(-0.125)


def first_target_is_output(inputs, targets, parameters):
    targets[0] = parameters[0] @ inputs[0] + parameters[1]


def one_ordinary_two_far(inputs, targets, parameters):
    inputs[1] *= 1024
    inputs[2] *= -2048


def soften(inputs, targets, parameters):
    targets.mul_(0.625).add_(0.125)


add("dense", "softplus_far", (2,), [linear(4, bias=False), softplus, linear(2)], MSE, 2, exact=True,
    tweak=beyond_overflow)
add("dense", "relu_at_zero", (4,), [linear(6), relu, linear(3)], MSE, 5, exact=True, zeros=True)
add("dense", "relu_zero_gradient", (3,), [linear(4), relu, linear(2), relu], MSE, 3, tweak=dead_second_sample)
add("dense", "mse_zero_loss", (3,), [linear(2)], MSE, 2, exact=True, tweak=first_target_is_output)
add("dense", "ce_far_logits", (3,), [linear(4)], CE, 3, exact=True, tweak=one_ordinary_two_far)
add("dense", "bce_far_logits", (3,), [linear(4)], BCE, 3, exact=True, tweak=one_ordinary_two_far)
add("dense", "bce_soft_targets", (3,), [linear(4)], BCE, 3, tweak=soften)
add("dense", "mlp_deep", (6,),
    [linear(7), relu, linear(5), tanh, linear(6), gelu, linear(4), softplus, linear(3)], CE, 5)

# Activations with constants, and losses with options.
for index, (name, layer) in enumerate([("silu", silu), ("leaky_relu", leaky_relu()), ("leaky_relu_02", leaky_relu(0.2)),
                                       ("elu", elu()), ("elu_05", elu(0.5))]):
    add("elementwise", f"{name}_between_linear", (4,), [linear(6), layer, linear(3)], cycle(index), 2 + index % 4)
    add("elementwise", f"{name}_of_conv", (2, 4, 3), [conv2d(3, 2), layer, flatten], cycle(index, 1), 1 + index % 5)
    add("elementwise", f"{name}_wide_range", (3,), [linear(5), layer, linear(2)], MSE, 5, range=12.0)
for name, loss in [("smoothed", smoothed(0.1)), ("smoothed_all", smoothed(1.0)), ("huber", huber(1.0)),
                   ("huber_03", huber(0.3)), ("focal", focal(2.0)), ("focal_15", focal(1.5)),
                   ("binary_focal", binary_focal(2.0, 0.25)), ("binary_focal_15", binary_focal(1.5, 0.5))]:
    add("elementwise", f"{name}_linear", (4,), [linear(5)], loss, 4)
    add("elementwise", f"{name}_wide_range", (3,), [linear(4), tanh, linear(3)], loss, 5, range=12.0)
add("elementwise", "leaky_silu_elu", (6,), [linear(7), leaky_relu(), linear(5), silu, linear(6), elu(), linear(4)],
    smoothed(0.2), 4)


# ---------------------------------------------------------------------------------------------------------------------
# Deep mixes, residuals, repeats
# ---------------------------------------------------------------------------------------------------------------------

add("mix", "conv_pool_conv_mlp", (1, 8, 8),
    [conv2d(3, 3, padding=1), relu, max_pool2d(2), conv2d(4, 2), tanh, flatten, linear(5), relu, linear(3)], CE, 3)
add("mix", "conv_avg_conv_mlp", (2, 7, 6),
    [conv2d(3, (2, 3), padding=(1, 0)), gelu, avg_pool2d(2), conv2d(3, 2, padding=1), sigmoid, flatten, linear(4),
     softplus, linear(2)], MSE, 2)
add("mix", "depthwise_separable", (3, 6, 6),
    [conv2d(3, 3, padding=1, groups=3, bias=False), conv2d(4, 1), relu, conv2d(4, 3, stride=2, padding=1, groups=4),
     conv2d(3, 1, bias=False), adaptive_avg_pool2d(1, 1), flatten, linear(3)], CE, 4)
add("mix", "dilated_stack", (1, 9, 9),
    [conv2d(2, 3, padding=1), tanh, conv2d(2, 3, padding=2, dilation=2), tanh, conv2d(2, 3, dilation=3), flatten,
     linear(2)], BCE, 3)
add("mix", "five_convs", (1, 7, 7),
    [conv2d(2, 2), tanh, conv2d(2, 2), softplus, conv2d(2, 2), sigmoid, conv2d(2, 2), gelu, conv2d(2, 2), flatten],
    MSE, 2)
add("mix", "strided_all_conv", (2, 11, 10),
    [conv2d(3, 3, stride=2), relu, conv2d(3, (3, 2), stride=(1, 2), padding=1), relu, adaptive_avg_pool2d(2, 1),
     flatten, linear(3)], CE, 5)
add("mix", "grouped_pool", (4, 6, 6),
    [conv2d(4, 2, groups=2), max_pool2d(3, stride=2, padding=1), conv2d(6, 2, groups=2, bias=False), flatten,
     linear(2)], MSE, 3)
add("mix", "all_pools", (1, 9, 9),
    [conv2d(2, 2), max_pool2d(2, stride=1), avg_pool2d(3, stride=2, padding=1), adaptive_avg_pool2d(3, 2), flatten],
    MSE, 2)
add("mix", "cnn_scaled", (1, 18, 18),
    [conv2d(2, 8, stride=2, padding=3), relu, max_pool2d(2, stride=1), conv2d(3, 4, stride=2), relu,
     max_pool2d(2, stride=1), flatten, linear(4), relu, linear(3)], CE, 3)
for name, activation in [("tanh", tanh), ("relu", relu)]:
    add("mix", f"cnn_26010_{name}", (1, 28, 28),
        [conv2d(16, 8, stride=2, padding=3), activation, max_pool2d(2, stride=1), conv2d(32, 4, stride=2), activation,
         max_pool2d(2, stride=1), flatten, linear(32), activation, linear(10)], CE, 3, formula=True)
add("mix", "residual_linear", (5,), [residual(linear(4), tanh, linear(5))], MSE, 3)
add("mix", "residual_one_layer", (4,), [linear(3), residual(linear(3, bias=False)), relu, linear(2)], CE, 2)
add("mix", "residual_activation_only", (4,), [linear(3), residual(tanh), linear(2)], MSE, 2)
add("mix", "residual_linear_projection", (5,),
    [residual(linear(4), softplus, linear(3), projection=[linear(3, bias=False)]), tanh, linear(2)], MSE, 3)
add("mix", "residual_conv", (2, 5, 4),
    [conv2d(3, 3, padding=1), relu, residual(conv2d(3, 3, padding=1), relu, conv2d(3, 3, padding=1)), relu, flatten,
     linear(3)], CE, 2)
add("mix", "residual_first_projection", (2, 5, 5),
    [residual(conv2d(3, 3, padding=1), projection=[conv2d(3, 1)]), flatten], MSE, 2)
add("mix", "residual_stride_2_projection", (3, 6, 7),
    [conv2d(2, 1), residual(conv2d(4, 3, stride=2, padding=1), tanh, conv2d(4, 3, padding=1),
                            projection=[conv2d(4, 1, stride=2, bias=False)]), relu, flatten, linear(2)], CE, 3)
add("mix", "residual_pool_projection", (2, 6, 6),
    [conv2d(2, 1), residual(conv2d(3, 2, stride=2), gelu, projection=[avg_pool2d(2), conv2d(3, 1)]), flatten], MSE, 2)
add("mix", "residual_max_pool_body", (2, 4, 5),
    [conv2d(2, 2, padding=1), residual(max_pool2d(3, stride=1, padding=1), conv2d(2, 1)), flatten], MSE, 3)
add("mix", "residual_nested", (4,),
    [linear(4), residual(linear(3), tanh, residual(linear(3), sigmoid), linear(4)), linear(2)], MSE, 3)
add("mix", "residual_nested_conv", (2, 5, 5),
    [sequential(conv2d(2, 3, padding=1),
                residual(conv2d(3, 1), residual(conv2d(3, 3, padding=1), tanh), conv2d(2, 1),
                         projection=[sequential(conv2d(2, 1), softplus)])),
     flatten, linear(2)], CE, 2)
add("mix", "repeat_linear", (4,), [repeat(3, linear(4), tanh), linear(3)], CE, 4)
add("mix", "repeat_once", (3,), [repeat(1, linear(3), gelu), linear(2)], MSE, 2)
add("mix", "repeat_conv", (2, 5, 6), [repeat(3, conv2d(2, 2, padding=1), relu), flatten, linear(2)], CE, 2)
add("mix", "repeat_residual", (2, 4, 4),
    [conv2d(3, 2), repeat(2, residual(conv2d(3, 3, padding=1), tanh)), adaptive_avg_pool2d(2, 2), flatten, linear(3)],
    BCE, 3)
add("mix", "repeat_in_repeat", (4,), [repeat(2, repeat(2, linear(4, bias=False), softplus), linear(4), tanh)], MSE, 5)
add("mix", "sequential_nested", (5,), [sequential(linear(4), relu), sequential(sequential(linear(3)), tanh), linear(2)],
    BCE, 3)
