# SPDX-License-Identifier: Apache-2.0
# tests/golden/golden_more_cases.py - cases in one and three dimensions, normalised, and of blocks used in other ways
"""Adds to GROUPS of golden_cases.py."""

from golden_cases import BCE, CE, MSE, add, conv_name, cycle
from golden_layers import (adaptive_avg_pool1d, adaptive_avg_pool3d, avg_pool1d, avg_pool2d, avg_pool3d,
                           channel_affine, conv1d, conv2d, conv3d, conv_transpose2d, dropout, flatten, frozen, gelu,
                           group_norm, instance_norm, layer_norm, linear, lora, max_pool1d, max_pool2d, max_pool3d,
                           parallel, parameter_group, relu, repeat, reshape, residual, rms_norm, scale, sequential,
                           sigmoid, tanh, tied, transpose, upsample)

# ---------------------------------------------------------------------------------------------------------------------
# Convolution in one and three dimensions and transposed: alone, and behind another layer
# ---------------------------------------------------------------------------------------------------------------------


def add_convolutions(group, name, make, first, geometries):
    for index, (shape, out, kernel, options, behind) in enumerate(geometries):
        add(group, conv_name(name, shape, out, kernel, options), shape, [make(out, kernel, **options), flatten],
            cycle(index), 1 + index % 4)
        if behind:
            add(group, conv_name("behind_" + name, shape, out, kernel, options), (shape[0] % 3 + 1,) + shape[1:],
                [first(shape[0]), tanh, make(out, kernel, **options), flatten], cycle(index, 2), 1 + (index + 2) % 4)


add_convolutions("conv1d", "conv1d", conv1d, lambda channels: conv1d(channels, 1), [
    ((1, 1), 1, 1, {}, False),
    ((2, 7), 3, 3, {}, True),
    ((3, 6), 2, 2, dict(bias=False), True),
    ((2, 9), 3, 3, dict(stride=2), True),                                               # last position read
    ((2, 8), 2, 3, dict(stride=3, padding=2), True),                                    # last position unread
    ((1, 10), 2, 4, dict(stride=2, padding=1, bias=False), True),
    ((2, 9), 2, 3, dict(padding=2, dilation=2), True),
    ((1, 11), 3, 3, dict(stride=2, padding=1, dilation=3), True),
    ((4, 6), 4, 3, dict(padding=1, groups=2), True),
    ((3, 7), 6, 2, dict(stride=2, groups=3, bias=False), True),                         # depthwise, multiplier 2
    ((6, 5), 3, 2, dict(dilation=2, groups=3), True),
    ((2, 3), 2, 3, {}, False),                                                          # kernel as long as the input
    ((2, 3), 2, 1, dict(padding=1), True),                                              # border sees padding only
    ((1, 8), 2, 2, dict(stride=3), True),                                               # stride beyond the kernel
    ((1, 24), 3, 9, dict(stride=2, padding=4), False),
])
add("conv1d", "conv1d_stack", (2, 12),
    [conv1d(3, 3, padding=1), relu, conv1d(4, 3, stride=2), tanh, conv1d(3, 2, dilation=2), flatten, linear(3)], CE, 3)

add_convolutions("conv3d", "conv3d", conv3d, lambda channels: conv3d(channels, (1, 1, 1)), [
    ((1, 1, 1, 1), 1, (1, 1, 1), {}, False),
    ((2, 3, 4, 3), 2, (2, 2, 2), {}, True),
    ((1, 4, 3, 5), 2, (3, 2, 3), dict(bias=False), True),
    ((2, 5, 4, 3), 2, (3, 3, 3), dict(stride=(2, 2, 2), padding=(1, 1, 1)), True),
    ((1, 5, 4, 6), 2, (2, 3, 1), dict(stride=(2, 1, 3), padding=(1, 0, 2)), True),
    ((1, 5, 5, 4), 2, (3, 2, 2), dict(padding=(2, 0, 1), dilation=(2, 3, 1)), True),
    ((4, 3, 2, 3), 4, (2, 1, 2), dict(padding=(1, 0, 0), groups=2), True),
    ((2, 3, 3, 3), 4, (2, 2, 3), dict(stride=(1, 2, 1), groups=2, bias=False), True),   # depthwise, multiplier 2
    ((2, 3, 2, 4), 2, (3, 2, 4), {}, False),                                            # kernel as large as the input
])

add_convolutions("transposed", "conv_transpose2d", conv_transpose2d, lambda channels: conv2d(channels, 1), [
    ((1, 1, 1), 1, 1, {}, False),
    ((2, 3, 4), 3, 3, {}, True),
    ((3, 3, 3), 2, 2, dict(bias=False), True),
    ((2, 3, 3), 2, 2, dict(stride=2), True),
    ((2, 3, 4), 2, 3, dict(stride=2, padding=1), True),
    ((2, 3, 4), 2, 3, dict(stride=2, padding=1, output_padding=1), True),               # doubles height and width
    ((1, 3, 2), 2, (3, 2), dict(stride=(3, 2), padding=(1, 0), output_padding=(2, 1)), True),
    ((2, 4, 4), 2, 3, dict(padding=2), True),
    ((2, 3, 3), 2, 2, dict(dilation=2), True),
    ((1, 3, 3), 2, (2, 3), dict(stride=2, padding=(1, 2), output_padding=1, dilation=(3, 2)), True),
    ((4, 3, 3), 4, 2, dict(groups=2), True),
    ((4, 3, 2), 6, 3, dict(stride=2, padding=1, groups=2, bias=False), True),
    ((3, 2, 3), 3, 3, dict(stride=2, output_padding=1, groups=3), True),                # depthwise
    ((2, 2, 3), 2, 2, dict(stride=3), True),                                            # gaps between windows
])
add("transposed", "upsample_2", (2, 3, 4), [conv2d(2, 2), upsample(2), flatten], MSE, 3)
add("transposed", "upsample_3_between", (2, 3, 2), [conv2d(3, 1), tanh, upsample(3), conv2d(2, 3, stride=2), flatten],
    MSE, 2)
add("transposed", "upsample_first", (1, 3, 3), [upsample(2), conv2d(2, 3), relu, flatten, linear(3)], CE, 3)
add("transposed", "down_and_up", (2, 6, 6),
    [conv2d(3, 3, stride=2, padding=1), relu, conv_transpose2d(2, 3, stride=2, padding=1, output_padding=1), tanh,
     conv2d(1, 3, padding=1), flatten], MSE, 2)

# ---------------------------------------------------------------------------------------------------------------------
# Pooling in one and three dimensions, behind a convolution
# ---------------------------------------------------------------------------------------------------------------------


def far_below_zero(inputs, targets, parameters):
    parameters[1].sub_(9.0)


for index, (name, shape, layer, options) in enumerate([
    ("max1_2_uncovered", (2, 7), max_pool1d(2), {}),
    ("max1_3_s2_p1", (2, 8), max_pool1d(3, stride=2, padding=1), {}),
    ("max1_2_s1", (3, 6), max_pool1d(2, stride=1), {}),
    ("max1_1_s2", (2, 5), max_pool1d(1, stride=2), {}),
    ("max1_global", (3, 6), max_pool1d(6), {}),
    ("max1_4_s2_p2_negative", (2, 7), max_pool1d(4, stride=2, padding=2), dict(negative=True, tweak=far_below_zero)),
    ("max1_2_s1_ties", (2, 8), max_pool1d(2, stride=1), dict(exact=True, ties=True)),
    ("avg1_2_uncovered", (2, 7), avg_pool1d(2), {}),
    ("avg1_3_s2_p1", (2, 8), avg_pool1d(3, stride=2, padding=1), {}),
    ("avg1_4_s3_p2", (1, 9), avg_pool1d(4, stride=3, padding=2), {}),
    ("adaptive1_1", (3, 5), adaptive_avg_pool1d(1), {}),
    ("adaptive1_3_of_7", (2, 7), adaptive_avg_pool1d(3), {}),
    ("adaptive1_5_of_3", (2, 3), adaptive_avg_pool1d(5), {}),                           # windows share inputs
    ("max3_2", (2, 4, 5, 4), max_pool3d((2, 2, 2)), {}),
    ("max3_mixed", (1, 5, 4, 6), max_pool3d((3, 2, 3), stride=(2, 1, 3), padding=(1, 0, 1)), {}),
    ("max3_p1_negative", (1, 3, 3, 3), max_pool3d((2, 2, 2), padding=(1, 1, 1)),
     dict(negative=True, tweak=far_below_zero)),
    ("max3_ties", (1, 3, 4, 3), max_pool3d((2, 2, 2), stride=(1, 1, 1)), dict(exact=True, ties=True)),
    ("avg3_2", (2, 4, 5, 4), avg_pool3d((2, 2, 2)), {}),
    ("avg3_mixed", (1, 5, 4, 6), avg_pool3d((3, 2, 3), stride=(2, 1, 3), padding=(1, 0, 1)), {}),
    ("adaptive3_1x1x1", (3, 2, 3, 2), adaptive_avg_pool3d(1, 1, 1), {}),
    ("adaptive3_2x3x2", (2, 5, 4, 2), adaptive_avg_pool3d(2, 3, 2), {}),
    ("adaptive3_larger", (1, 2, 2, 3), adaptive_avg_pool3d(3, 2, 4), {}),               # windows share inputs
]):
    first = conv1d(shape[0], 1) if len(shape) == 2 else conv3d(shape[0], (1, 1, 1))
    add("pool13", name, (2,) + shape[1:], [first, layer, flatten], cycle(index), 1 + index % 4, **options)
add("pool13", "max1_before_conv", (2, 9), [max_pool1d(2), conv1d(3, 2), flatten], MSE, 2)
add("pool13", "avg3_before_conv", (1, 4, 4, 4), [avg_pool3d((2, 2, 2)), conv3d(2, (2, 2, 2)), flatten], MSE, 2)

# ---------------------------------------------------------------------------------------------------------------------
# Normalisation: of the input, and behind and in front of other layers
# ---------------------------------------------------------------------------------------------------------------------

for name, make in [("layer_norm", layer_norm), ("rms_norm", rms_norm)]:
    add("norms", f"{name}_of_input", (6,), [make()], MSE, 3)
    add("norms", f"{name}_between_linear", (4,), [linear(6), make(), tanh, linear(3)], CE, 4)
    add("norms", f"{name}_plain", (4,), [linear(5), make(affine=False), linear(2)], MSE, 3)
    add("norms", f"{name}_epsilon", (4,), [linear(5), make(epsilon=(1, 4)), linear(2)], MSE, 2)
    add("norms", f"{name}_of_positions", (3, 4), [linear(5), make(), gelu, linear(2), flatten], MSE, 3)
    add("norms", f"{name}_twice", (4,), [linear(5), make(), linear(4), sigmoid, make(affine=False), linear(3)], BCE, 2)
add("norms", "layer_norm_no_bias", (4,), [linear(5), layer_norm(bias=False), tanh, linear(2)], MSE, 3)
add("norms", "rms_norm_axes_2", (3, 4), [linear(3), rms_norm(axes=2), flatten, linear(2)], MSE, 2)
add("norms", "layer_norm_axes_1", (3, 4), [linear(4), layer_norm(axes=1), flatten, linear(2)], MSE, 2)
add("norms", "layer_norm_axes_2", (3, 4), [linear(4), layer_norm(axes=2), flatten, linear(3)], CE, 3)
add("norms", "layer_norm_axes_2_of_image", (2, 3, 4), [conv2d(2, 1), layer_norm(axes=2), flatten, linear(3)], CE, 2)
add("norms", "layer_norm_axes_3_of_image", (2, 4, 3), [conv2d(3, 2), layer_norm(axes=3), relu, flatten, linear(2)],
    MSE, 2)
add("norms", "layer_norm_axes_2_plain", (3, 4), [linear(3), layer_norm(axes=2, affine=False), flatten], MSE, 2)
for affine in [True, False]:
    tail = "" if affine else "_plain"
    add("norms", f"group_norm_2_of_6{tail}", (4,), [linear(6), group_norm(2, affine), tanh, linear(2)], MSE, 3)
    add("norms", f"group_norm_1_of_3x5{tail}", (2, 5),
        [conv1d(3, 1), group_norm(1, affine), flatten, linear(2)], MSE, 3)
    add("norms", f"group_norm_2_of_4x3x3{tail}", (2, 4, 3),
        [conv2d(4, 2), group_norm(2, affine), relu, conv2d(2, 2), flatten], MSE, 2)
    add("norms", f"group_norm_3_of_3x3x2{tail}", (2, 3, 2), [conv2d(3, 1), group_norm(3, affine), flatten, linear(3)],
        CE, 3)
    add("norms", f"group_norm_2_of_4x2x3x2{tail}", (1, 2, 3, 2),
        [conv3d(4, (1, 1, 1)), group_norm(2, affine), flatten, linear(2)], MSE, 2)
    add("norms", f"instance_norm1d{tail}", (2, 6),
        [conv1d(3, 2), instance_norm(1, affine), tanh, conv1d(2, 2), flatten], MSE, 3)
    add("norms", f"instance_norm2d{tail}", (2, 4, 3),
        [conv2d(3, 2), instance_norm(2, affine), gelu, flatten, linear(3)], CE, 2)
    add("norms", f"instance_norm3d{tail}", (1, 3, 2, 3),
        [conv3d(2, (2, 1, 2)), instance_norm(3, affine), flatten, linear(2)], MSE, 2)
add("norms", "group_norm_epsilon", (2, 3, 3),
    [conv2d(4, 1), group_norm(2, epsilon=(1, 10)), flatten, linear(2)], MSE, 2)
add("norms", "instance_norm2d_epsilon", (2, 3, 3), [conv2d(2, 1), instance_norm(2, epsilon=(1, 10)), flatten], MSE, 2)
add("norms", "group_norm_of_input", (4, 3, 3), [group_norm(2), flatten], MSE, 2)
add("norms", "instance_norm1d_of_input", (2, 5), [instance_norm(1), flatten], MSE, 2)
add("norms", "channel_affine_of_image", (2, 3, 3), [conv2d(3, 2), channel_affine, relu, flatten, linear(2)], CE, 3)
add("norms", "channel_affine_of_input", (3, 2, 2), [channel_affine, flatten], MSE, 2)
add("norms", "channel_affine_frozen", (2, 3, 3),
    [conv2d(3, 2, bias=False), frozen(channel_affine), tanh, conv2d(2, 2), flatten], MSE, 2)

# ---------------------------------------------------------------------------------------------------------------------
# Blocks that are shared, frozen, adapted or side by side
# ---------------------------------------------------------------------------------------------------------------------

add("structure", "tied_linear_twice", (4,), [tied(1, linear(4)), tanh, tied(1, linear(4))], MSE, 3)
add("structure", "tied_linear_three_times", (3,),
    [tied(1, linear(3)), tanh, tied(1, linear(3)), gelu, linear(3), sigmoid, tied(1, linear(3))], CE, 4)
add("structure", "tied_nobias", (3,), [tied(1, linear(3, bias=False)), tied(1, linear(3, bias=False))], MSE, 2)
add("structure", "tied_two_keys", (4,),
    [tied(1, linear(4)), tanh, tied(2, linear(4)), tanh, tied(1, linear(4)), tanh, tied(2, linear(4)), linear(2)],
    MSE, 3)
add("structure", "tied_block", (4,), [tied(1, linear(5), tanh, linear(4)), tied(1, linear(5), tanh, linear(4))], CE, 3)
add("structure", "tied_of_positions", (3, 4), [tied(1, linear(4)), tanh, tied(1, linear(4)), flatten], MSE, 2)
add("structure", "tied_conv", (2, 5, 4),
    [tied(1, conv2d(2, 3, padding=1)), tanh, tied(1, conv2d(2, 3, padding=1)), flatten, linear(3)], CE, 3)
add("structure", "tied_conv_other_sizes", (2, 6, 6),
    [tied(1, conv2d(2, 2)), relu, max_pool2d(2, stride=1), tied(1, conv2d(2, 2)), flatten], MSE, 2)
add("structure", "tied_conv1d", (2, 7), [tied(1, conv1d(2, 2)), tanh, tied(1, conv1d(2, 2)), flatten], MSE, 2)
add("structure", "tied_in_residual", (4,),
    [linear(4), residual(tied(1, linear(4)), tanh), residual(tied(1, linear(4)), tanh), linear(2)], MSE, 3)
add("structure", "tied_projection", (4,), [residual(tied(1, linear(3)), tanh, projection=[tied(1, linear(3))])], MSE, 3)
add("structure", "tied_norm", (4,), [linear(5), tied(1, layer_norm()), linear(5), tied(1, layer_norm()), linear(2)],
    MSE, 3)
add("structure", "tied_branches", (4,), [parallel([tied(1, linear(3)), tanh], [tied(1, linear(3)), relu]), linear(2)],
    CE, 3)
add("structure", "frozen_first", (4,), [frozen(linear(5)), tanh, linear(3)], CE, 3)
add("structure", "frozen_middle", (4,), [linear(5), tanh, frozen(linear(4), gelu, linear(4)), linear(3)], MSE, 3)
add("structure", "frozen_last", (4,), [linear(5), relu, frozen(linear(3))], CE, 4)
add("structure", "frozen_two_blocks", (3,), [frozen(linear(4)), linear(4), tanh, frozen(linear(3, bias=False)),
                                             linear(2)], MSE, 2)
add("structure", "frozen_conv_first", (2, 5, 5),
    [frozen(conv2d(3, 3, padding=1), relu), conv2d(2, 2), tanh, flatten, linear(3)], CE, 2)
add("structure", "frozen_conv_middle", (2, 5, 4), [conv2d(2, 2), tanh, frozen(conv2d(3, 2)), flatten, linear(2)],
    MSE, 2)
add("structure", "frozen_in_residual", (4,),
    [linear(4), residual(frozen(linear(4)), tanh, linear(4)), linear(2)], MSE, 3)
add("structure", "frozen_norm", (4,), [linear(5), frozen(layer_norm()), linear(2)], MSE, 3)
add("structure", "lora_first", (5,), [lora(2, 4, 3), tanh, linear(2)], MSE, 3)
add("structure", "lora_behind", (4,), [linear(5), tanh, lora(2, 3, 4)], CE, 3)
add("structure", "lora_twice_nobias", (4,), [lora(1, 5, 1, bias=False), gelu, lora(3, 4, 16, bias=False)], MSE, 2)
add("structure", "lora_of_positions", (3, 4), [linear(4), lora(2, 5, 8), tanh, lora(2, 3, 8), flatten], MSE, 2)
add("structure", "parallel_linear", (4,), [parallel([linear(3), tanh], [linear(2), relu, linear(4)]), linear(3)], CE, 3)
add("structure", "parallel_three_branches", (3,),
    [linear(4), parallel([tanh, linear(2)], [linear(3)], [gelu]), linear(2)], MSE, 3)
add("structure", "parallel_convs", (2, 5, 5),
    [conv2d(2, 1), tanh,
     parallel([conv2d(2, 1)], [conv2d(3, 3, padding=1), relu], [avg_pool2d(3, stride=1, padding=1)]),
     conv2d(2, 2), flatten], MSE, 2)
add("structure", "parallel_of_positions", (3, 4),
    [parallel([linear(2), tanh], [linear(3)]), linear(2), flatten], MSE, 2)
add("structure", "parallel_nested", (4,),
    [parallel([linear(3), parallel([tanh], [sigmoid])], [residual(linear(4), tanh)]), linear(2)], MSE, 3)
add("structure", "parallel_in_residual", (4,),
    [linear(4), residual(parallel([linear(1)], [linear(3), tanh])), linear(2)], MSE, 3)
add("structure", "scale_third", (4,), [linear(5), scale(1, 3), tanh, linear(3)], CE, 3)
add("structure", "scale_first_and_last", (4,), [scale(-5, 2), linear(3), tanh, linear(2), scale(2)], MSE, 3)
add("structure", "scaled_residual", (4,), [linear(4), residual(linear(4), tanh, scale(1, 4)), linear(2)], MSE, 2)
add("structure", "dropout_not_drawn", (4,), [linear(6), dropout(1, 2), tanh, linear(3)], CE, 3)
add("structure", "parameter_groups", (4,),
    [parameter_group(0, linear(5), tanh), parameter_group(1, linear(4)), relu, parameter_group(0, linear(3))], CE, 4)
add("structure", "reshape_vector", (6,), [linear(6), reshape(2, 3), linear(4), tanh, reshape(8), linear(2)], MSE, 3)
add("structure", "reshape_to_image", (5,), [linear(12), reshape(2, 2, 3), conv2d(3, 2), flatten], MSE, 2)
add("structure", "transpose_between_linear", (3, 4),
    [linear(5), transpose, linear(2), tanh, transpose, linear(3), flatten], MSE, 3)
add("structure", "transpose_first", (3, 4), [transpose, linear(2), flatten], MSE, 2)
add("structure", "mixer", (3, 4),
    [residual(layer_norm(), transpose, linear(5), gelu, linear(3), transpose),
     residual(layer_norm(), linear(6), gelu, linear(4)), flatten, linear(3)], CE, 3)
add("structure", "resnet_block", (2, 6, 6),
    [conv2d(4, 3, padding=1, bias=False), group_norm(2), relu,
     residual(conv2d(4, 3, padding=1, bias=False), group_norm(2), relu, conv2d(4, 3, padding=1, bias=False),
              group_norm(2)), relu,
     residual(conv2d(6, 3, stride=2, padding=1, bias=False), group_norm(2), relu,
              conv2d(6, 3, padding=1, bias=False), group_norm(2),
              projection=[conv2d(6, 1, stride=2, bias=False), group_norm(2)]), relu, flatten, linear(3)], CE, 2)
add("structure", "text_convolution", (3, 10),
    [parallel([conv1d(2, 2), relu, max_pool1d(9), flatten], [conv1d(3, 3), relu, max_pool1d(8), flatten],
              [conv1d(2, 4), relu, max_pool1d(7), flatten]), linear(3)], CE, 3)
add("structure", "repeat_normalised", (4,), [linear(4), repeat(2, residual(layer_norm(), linear(5), gelu, linear(4))),
                                             sequential(rms_norm(), linear(2))], MSE, 2)
