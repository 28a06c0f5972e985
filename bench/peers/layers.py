# SPDX-License-Identifier: Apache-2.0
"""Layers of the tasks' tables: what each is called and how it is computed in every framework.

A layer knows the shape it gives for the shape of one sample, its tensors of parameters in PyTorch's order, its type in
our library, its module in PyTorch and its function in JAX. `torch` gives the module and its parameters in the order of
`weights`; one may be split there (DPMultiheadAttention keeps the three parts of in_proj_weight apart). Flavours:
"torch" (torch.nn), "opacus" (its replacements for what it cannot hook into), "vmap" (for what has no rule for vmap),
"backpack" (one module an operation).
`jax` computes a batch, images channels-last; its matrices are [in, out].
"""

import dataclasses
import math


@dataclasses.dataclass(frozen=True)
class Weight:
    """A tensor of parameters, shaped as in PyTorch. Starts uniform in centre +- bound."""
    shape: tuple
    bound: float
    centre: float = 0.0
    table: bool = False  # of rows to look up: stays as it is in JAX
    frozen: bool = False  # not trained: behind all others in the flat vector

    @property
    def count(self):
        return math.prod(self.shape)

    def to_jax(self, values, image):
        """values: of this shape; image: the shape that was flattened into this matrix's input, or None."""
        if len(self.shape) == 4:
            return values.transpose(2, 3, 1, 0)
        if len(self.shape) == 1 or self.table:
            return values
        if image:
            return values.reshape(self.shape[0], *image).transpose(2, 3, 1, 0).reshape(-1, self.shape[0])
        return values.T

    def from_jax(self, values, image):
        if len(self.shape) == 4:
            return values.transpose(3, 2, 0, 1)
        if len(self.shape) == 1 or self.table:
            return values
        if image:
            channels, height, width = image
            return values.reshape(height, width, channels, self.shape[0]).transpose(3, 2, 0, 1)
        return values.T


def affine(outputs, *inputs):
    """Weight and bias as nn.Linear and nn.Conv2d start."""
    bound = 1 / math.sqrt(math.prod(inputs))
    return [Weight((outputs, *inputs), bound), Weight((outputs,), bound)]


class Layer:
    def output(self, shape):
        return shape

    def weights(self, shape):
        return []

    def torch(self, shape, flavour):
        """(module, its parameters in the order of weights)"""
        module = self.module(shape)
        return module, list(module.parameters())


def cpp_options(layer, usual_stride=1):
    given = f", pg::stride<{layer.stride}>" if layer.stride != usual_stride else ""
    return given + (f", pg::padding<{layer.padding}>" if layer.padding else "")


@dataclasses.dataclass(frozen=True)
class Conv(Layer):
    size: int
    kernel: int
    stride: int = 1
    padding: int = 0

    def output(self, shape):
        return self.size, *((side + 2 * self.padding - self.kernel) // self.stride + 1 for side in shape[1:])

    def weights(self, shape):
        return affine(self.size, shape[0], self.kernel, self.kernel)

    def cpp(self, shape):
        return f"pg::conv2d<{self.size}, {self.kernel}{cpp_options(self)}>"

    def module(self, shape):
        from torch import nn
        return nn.Conv2d(shape[0], self.size, self.kernel, self.stride, self.padding)

    def jax(self, shape, x, weight, bias):
        from jax import lax
        return lax.conv_general_dilated(x, weight, (self.stride,) * 2, ((self.padding,) * 2,) * 2,
                                        dimension_numbers=("NHWC", "HWIO", "NHWC")) + bias


@dataclasses.dataclass(frozen=True)
class Linear(Layer):
    size: int

    def output(self, shape):
        return *shape[:-1], self.size

    def weights(self, shape):
        return affine(self.size, shape[-1])

    def cpp(self, shape):
        return f"pg::linear<{self.size}>"

    def module(self, shape):
        from torch import nn
        return nn.Linear(shape[-1], self.size)

    def jax(self, shape, x, weight, bias):
        return x @ weight + bias


@dataclasses.dataclass(frozen=True)
class Pool(Layer):
    """Of images; kind "max" or "avg"."""
    kind: str
    kernel: int
    stride: int
    padding: int = 0

    def output(self, shape):
        return shape[0], *((side - self.kernel) // self.stride + 1 for side in shape[1:])

    def cpp(self, shape):
        return f"pg::{self.kind}_pool2d<{self.kernel}{cpp_options(self, self.kernel)}>"

    def module(self, shape):
        from torch import nn
        return {"max": nn.MaxPool2d, "avg": nn.AvgPool2d}[self.kind](self.kernel, self.stride)

    def jax(self, shape, x):
        from jax import lax, numpy as jnp
        window, strides = (1, self.kernel, self.kernel, 1), (1, self.stride, self.stride, 1)
        if self.kind == "max":
            return lax.reduce_window(x, -jnp.inf, lax.max, window, strides, "VALID")
        return lax.reduce_window(x, 0.0, lax.add, window, strides, "VALID") / self.kernel**2


@dataclasses.dataclass(frozen=True)
class AdaptiveAvgPool(Layer):
    size: int

    def output(self, shape):
        return shape[0], self.size, self.size

    def cpp(self, shape):
        return f"pg::adaptive_avg_pool2d<{self.size}>"

    def module(self, shape):
        from torch import nn
        return nn.AdaptiveAvgPool2d(self.size)

    def jax(self, shape, x):
        import numpy
        from jax import numpy as jnp

        def averages(outputs, inputs):  # pooling of one axis as a matrix
            matrix = numpy.zeros((outputs, inputs), numpy.float32)
            for i in range(outputs):
                begin, end = i * inputs // outputs, -((-(i + 1) * inputs) // outputs)
                matrix[i, begin:end] = 1 / (end - begin)
            return matrix

        if self.size == 1:
            return x.mean((1, 2), keepdims=True)
        return jnp.einsum("bhwc,ih,jw->bijc", x, averages(self.size, shape[1]), averages(self.size, shape[2]))


@dataclasses.dataclass(frozen=True)
class Activation(Layer):
    kind: str

    def cpp(self, shape):
        return f"pg::{self.kind}"

    def module(self, shape):
        from torch import nn
        return {"relu": nn.ReLU, "sigmoid": nn.Sigmoid, "tanh": nn.Tanh}[self.kind]()

    def jax(self, shape, x):
        import jax
        return getattr(jax.nn, self.kind)(x)


@dataclasses.dataclass(frozen=True)
class Flatten(Layer):
    def output(self, shape):
        return (math.prod(shape),)

    def cpp(self, shape):
        return "pg::flatten"

    def module(self, shape):
        from torch import nn
        return nn.Flatten()

    def jax(self, shape, x):
        return x.reshape(x.shape[0], -1)


def normalised(x, epsilon=1e-5):
    """JAX: the last axis, its mean taken away, divided by its standard deviation."""
    from jax import lax
    centred = x - x.mean(-1, keepdims=True)
    return centred * lax.rsqrt((centred * centred).mean(-1, keepdims=True) + epsilon)


@dataclasses.dataclass(frozen=True)
class Norm(Layer):
    """kind "layer" (over the last axis), "instance" (of [channels, positions]), "group" (of [channels])."""
    kind: str
    groups: int = 0

    def weights(self, shape):
        count = shape[-1] if self.kind == "layer" else shape[0]
        return [Weight((count,), 0.5, 1.0), Weight((count,), 0.5)]

    def cpp(self, shape):
        return {"layer": "pg::layer_norm<>", "instance": "pg::instance_norm1d<>",
                "group": f"pg::group_norm<{self.groups}>"}[self.kind]

    def module(self, shape):
        from torch import nn
        return {"layer": lambda: nn.LayerNorm(shape[-1]),
                "instance": lambda: nn.InstanceNorm1d(shape[0], affine=True),
                "group": lambda: nn.GroupNorm(self.groups, shape[0])}[self.kind]()

    def jax(self, shape, x, weight, bias):
        if self.kind == "layer":
            return normalised(x) * weight + bias
        if self.kind == "instance":
            return normalised(x) * weight[:, None] + bias[:, None]
        return normalised(x.reshape(x.shape[0], self.groups, -1)).reshape(x.shape) * weight + bias
