# SPDX-License-Identifier: Apache-2.0
"""The tasks: one table of layers each, from which every framework's network is made, ours included.

Parameters travel between frameworks as one flat float32 vector in PyTorch's order, inputs as [records, channels,
height, width]. JAX computes channels-last, as its users do: its weights are rearranged on their way in and out, outside
what is timed.
"""

import dataclasses
import math

CLASSES_SEED = 20240229
LEAST_DATA_BYTES = 64 << 20  # more than caches hold, so that a step reads its batch from memory as it would in training


@dataclasses.dataclass(frozen=True)
class Layer:
    kind: str
    size: int = 0  # output channels, output features, or side of an adaptive pool's output
    kernel: int = 0
    stride: int = 1
    padding: int = 0


def conv(size, kernel, stride=1, padding=0):
    return Layer("conv", size, kernel, stride, padding)


def linear(size):
    return Layer("linear", size)


def max_pool(kernel, stride=None):
    return Layer("max_pool", 0, kernel, stride or kernel)


def avg_pool(kernel):
    return Layer("avg_pool", 0, kernel, kernel)


def adaptive_avg_pool(size):
    return Layer("adaptive_avg_pool", size)


relu, sigmoid, flatten = Layer("relu"), Layer("sigmoid"), Layer("flatten")


@dataclasses.dataclass(frozen=True)
class Task:
    source: str
    input: tuple
    layers: tuple
    batches: tuple = (16, 256, 2048)
    default: bool = False
    # between two frameworks' sums of a batch's gradients, relative, in L2; where it is more, README.md says why
    largest_difference: float = 1e-4


def vgg(widths):
    layers = []
    for width in widths:
        layers += [max_pool(2)] if width == "pool" else [conv(width, 3, padding=1), relu]
    return layers


def rochette_toy(depth, width, rate, kernel):
    """Rochette et al.'s toy networks: convolutions with padding 2, ReLU, a pool after every second one, one linear."""
    layers = []
    for i in range(depth):
        layers += [conv(int(width * rate**i), kernel, padding=2), relu]
        layers += [max_pool(2)] if i % 2 == 1 else []
    return (*layers, flatten, linear(10))


TASKS = {
    "mnist_cnn": Task("Subramani et al. 2021 and Yousefpour et al. 2021: MNIST CNN, 26,010 parameters", (1, 28, 28), (
        conv(16, 8, 2, 3), relu, max_pool(2, 1), conv(32, 4, 2), relu, max_pool(2, 1),
        flatten, linear(32), relu, linear(10)), default=True),
    "cifar_cnn": Task("Subramani et al. 2021 and Yousefpour et al. 2021: CIFAR-10 CNN, 605,226 parameters", (
        3, 32, 32), (
        conv(32, 3, padding=1), relu, conv(32, 3, padding=1), relu, avg_pool(2),
        conv(64, 3, padding=1), relu, conv(64, 3, padding=1), relu, avg_pool(2),
        conv(128, 3, padding=1), relu, conv(128, 3, padding=1), relu, avg_pool(2),
        conv(256, 3, padding=1), relu, conv(10, 3, padding=1), adaptive_avg_pool(1), flatten), default=True),
    "mlp": Task("Lee and Kifer 2021: MLP 784-128-256-10, sigmoid", (784,), (
        linear(128), sigmoid, linear(256), sigmoid, linear(10)), default=True),
    "lee_kifer_cnn": Task("Lee and Kifer 2021: MNIST CNN", (1, 28, 28), (
        conv(20, 5), relu, max_pool(2), conv(50, 5), relu, max_pool(2), flatten, linear(128), relu, linear(10))),
    "alexnet": Task("Rochette et al. 2019, Table 1: AlexNet without dropout at 256 x 256", (3, 256, 256), (
        conv(64, 11, 4, 2), relu, max_pool(3, 2), conv(192, 5, padding=2), relu, max_pool(3, 2),
        conv(384, 3, padding=1), relu, conv(256, 3, padding=1), relu, conv(256, 3, padding=1), relu, max_pool(3, 2),
        adaptive_avg_pool(6), flatten, linear(4096), relu, linear(4096), relu, linear(1000)), batches=(16,),
        largest_difference=5e-4),
    "vgg16": Task("Rochette et al. 2019, Table 1: VGG16 without dropout at 256 x 256", (3, 256, 256), (
        *vgg([64, 64, "pool", 128, 128, "pool", 256, 256, 256, "pool", 512, 512, 512, "pool", 512, 512, 512, "pool"]),
        adaptive_avg_pool(7), flatten, linear(4096), relu, linear(4096), relu, linear(1000)), batches=(8,)),
    "rochette_1": Task("Rochette et al. 2019, Figure 1: 3 layers, 25 channels, rate 2, kernel 3", (3, 256, 256),
                       rochette_toy(3, 25, 2, 3), batches=(8,), largest_difference=2e-3),
    "rochette_2": Task("Rochette et al. 2019, Figure 2, but at 64 x 64: 3 layers, 256 channels, kernel 5",
                       (3, 64, 64), rochette_toy(3, 256, 1, 5), batches=(8,)),
    "rochette_3": Task("Rochette et al. 2019, Figure 3: 3 layers, 25 channels, rate 2, kernel 5", (3, 256, 256),
                       rochette_toy(3, 25, 2, 5), batches=(8,), largest_difference=2e-3),
    "opacus_linear": Task("Yousefpour et al. 2021: linear 512 x 512, here as a classifier's training step", (512,), (
        linear(512),), batches=(16, 512)),
    "opacus_conv": Task("Yousefpour et al. 2021: convolution 64 -> 64, 8 x 8, here with a mean over positions and a "
                        "classifier's training step", (64, 50, 100), (
        conv(64, 8), adaptive_avg_pool(1), flatten), batches=(16,)),
}


def shapes(task):
    """The shape before each layer, and the last output's."""
    result = [tuple(task.input)]
    for layer in task.layers:
        shape = result[-1]
        if layer.kind in ("conv", "max_pool", "avg_pool"):
            sides = [(side + 2 * layer.padding - layer.kernel) // layer.stride + 1 for side in shape[1:]]
            shape = (layer.size if layer.kind == "conv" else shape[0], *sides)
        elif layer.kind == "adaptive_avg_pool":
            shape = (shape[0], layer.size, layer.size)
        elif layer.kind == "linear":
            shape = (layer.size,)
        elif layer.kind == "flatten":
            shape = (math.prod(shape),)
        result.append(shape)
    return result


def parameter_shapes(task):
    """(weight's shape, outputs) of every layer with parameters, in PyTorch's order; the bias follows its weight."""
    result = []
    for layer, shape in zip(task.layers, shapes(task)):
        if layer.kind == "conv":
            result.append((layer.size, shape[0], layer.kernel, layer.kernel))
        elif layer.kind == "linear":
            result.append((layer.size, shape[0]))
    return result


def parameter_count(task):
    return sum(math.prod(shape) + shape[0] for shape in parameter_shapes(task))


def initial_parameters(task):
    """Uniform in +-1 / sqrt(fan-in), as nn.Linear and nn.Conv2d start."""
    import numpy

    generator = numpy.random.Generator(numpy.random.PCG64(1))
    parts = []
    for shape in parameter_shapes(task):
        bound = 1 / math.sqrt(math.prod(shape[1:]))
        for count in (math.prod(shape), shape[0]):
            parts.append((2 * generator.random(count, dtype=numpy.float32) - 1) * numpy.float32(bound))
    return numpy.concatenate(parts)


def records(task, batches):
    """Made-up records, uniform in [0, 1), and random labels; at least two of the largest batch."""
    import numpy

    generator = numpy.random.Generator(numpy.random.PCG64(CLASSES_SEED))
    size = math.prod(task.input)
    count = max(2 * max(batches), LEAST_DATA_BYTES // (4 * size))
    inputs = generator.random((count, *task.input), dtype=numpy.float32)
    labels = generator.integers(0, math.prod(shapes(task)[-1]), count).astype(numpy.int32)
    return inputs, labels


def cpp_header(task):
    """The network as a type of ours."""

    def options(layer, usual_stride=1):
        given = f", pg::stride<{layer.stride}>" if layer.stride != usual_stride else ""
        return given + (f", pg::padding<{layer.padding}>" if layer.padding else "")

    names = {
        "conv": lambda layer: f"pg::conv2d<{layer.size}, {layer.kernel}{options(layer)}>",
        "linear": lambda layer: f"pg::linear<{layer.size}>",
        "max_pool": lambda layer: f"pg::max_pool2d<{layer.kernel}{options(layer, layer.kernel)}>",
        "avg_pool": lambda layer: f"pg::avg_pool2d<{layer.kernel}{options(layer, layer.kernel)}>",
        "adaptive_avg_pool": lambda layer: f"pg::adaptive_avg_pool2d<{layer.size}>",
    }
    layers = ",\n    ".join(names.get(layer.kind, lambda layer: f"pg::{layer.kind}")(layer) for layer in task.layers)
    return (f"// {task.source}\n#pragma once\n#include <pergrad/pergrad.hpp>\n"
            "namespace task {\nnamespace pg = pergrad;\n"
            f"using network = pg::network<pg::shape{{{', '.join(map(str, task.input))}}},\n    {layers}>;\n"
            f"static_assert(network::parameter_count == {parameter_count(task)});\n}}  // namespace task\n")


def torch_module(task):
    from torch import nn

    modules = []
    for layer, shape in zip(task.layers, shapes(task)):
        modules.append({
            "conv": lambda: nn.Conv2d(shape[0], layer.size, layer.kernel, layer.stride, layer.padding),
            "linear": lambda: nn.Linear(shape[0], layer.size),
            "max_pool": lambda: nn.MaxPool2d(layer.kernel, layer.stride),
            "avg_pool": lambda: nn.AvgPool2d(layer.kernel),
            "adaptive_avg_pool": lambda: nn.AdaptiveAvgPool2d(layer.size),
            "relu": nn.ReLU,
            "sigmoid": nn.Sigmoid,
            "flatten": nn.Flatten,
        }[layer.kind]())
    return nn.Sequential(*modules)


def jax_logits(task):
    """f(parameters, x) for a batch x, channels-last; parameters as jax_parameters gives them."""
    import jax
    import numpy
    from jax import lax, numpy as jnp

    steps = list(zip(task.layers, shapes(task)))

    def averages(outputs, inputs):  # adaptive pooling of one axis as a matrix
        matrix = numpy.zeros((outputs, inputs), numpy.float32)
        for i in range(outputs):
            begin, end = i * inputs // outputs, -((-(i + 1) * inputs) // outputs)
            matrix[i, begin:end] = 1 / (end - begin)
        return matrix

    def logits(parameters, x):
        rest = iter(parameters)
        for layer, shape in steps:
            window = (1, layer.kernel, layer.kernel, 1)
            strides = (1, layer.stride, layer.stride, 1)
            if layer.kind == "conv":
                weight, bias = next(rest)
                x = lax.conv_general_dilated(x, weight, (layer.stride,) * 2, ((layer.padding,) * 2,) * 2,
                                             dimension_numbers=("NHWC", "HWIO", "NHWC")) + bias
            elif layer.kind == "linear":
                weight, bias = next(rest)
                x = x @ weight + bias
            elif layer.kind == "max_pool":
                x = lax.reduce_window(x, -jnp.inf, lax.max, window, strides, "VALID")
            elif layer.kind == "avg_pool":
                x = lax.reduce_window(x, 0.0, lax.add, window, strides, "VALID") / layer.kernel**2
            elif layer.kind == "adaptive_avg_pool":
                x = (x.mean((1, 2), keepdims=True) if layer.size == 1 else
                     jnp.einsum("bhwc,ih,jw->bijc", x, averages(layer.size, shape[1]), averages(layer.size, shape[2])))
            elif layer.kind == "flatten":
                x = x.reshape(x.shape[0], -1)
            else:
                x = getattr(jax.nn, layer.kind)(x)
        return x

    return logits


def _flattened_shapes(task):
    """For every layer with parameters the image that was flattened into its input, or None."""
    result, image = [], None
    for layer, shape in zip(task.layers, shapes(task)):
        if layer.kind == "flatten":
            image = shape
        elif layer.kind in ("conv", "linear"):
            result.append(image if layer.kind == "linear" else None)
            image = None
    return result


def jax_parameters(task, flat):
    """[(weight, bias), ...] with weights [h, w, in, out] and [in, out], inputs of a linear layer channels-last."""
    result, start = [], 0
    for shape, image in zip(parameter_shapes(task), _flattened_shapes(task)):
        weight = flat[start:start + math.prod(shape)].reshape(shape)
        start += weight.size
        bias = flat[start:start + shape[0]]
        start += bias.size
        if len(shape) == 4:
            weight = weight.transpose(2, 3, 1, 0)
        elif image:
            weight = weight.reshape(shape[0], *image).transpose(2, 3, 1, 0).reshape(-1, shape[0])
        else:
            weight = weight.T
        result.append((weight.copy(), bias.copy()))
    return result


def flat_parameters(task, parameters):
    """The inverse of jax_parameters."""
    import numpy

    parts = []
    for (weight, bias), shape, image in zip(parameters, parameter_shapes(task), _flattened_shapes(task)):
        weight = numpy.asarray(weight)
        if len(shape) == 4:
            weight = weight.transpose(3, 2, 0, 1)
        elif image:
            channels, height, width = image
            weight = weight.reshape(height, width, channels, shape[0]).transpose(3, 2, 0, 1)
        else:
            weight = weight.T
        parts += [weight.ravel(), numpy.asarray(bias).ravel()]
    return numpy.concatenate(parts)
