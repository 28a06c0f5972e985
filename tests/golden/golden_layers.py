# SPDX-License-Identifier: Apache-2.0
# tests/golden/golden_layers.py - the C++ spelling and the PyTorch module of every layer and loss
"""A layer is described once and knows both; this file is the only place where the C++ names are spelled."""

try:
    import torch
    import torch.nn as nn
    import torch.nn.functional as F
except ImportError:  # the C++ side can be written without
    torch = None

NS = "pergrad::"


class Layer:
    """cpp: C++ type; make: function of the input shape (without batch) that gives the nn.Module."""

    def __init__(self, cpp, make):
        self.cpp, self.make = NS + cpp, make


def pair(value):
    return value if isinstance(value, tuple) else (value, value)


def cpp_kernel(kernel):
    return str(kernel) if isinstance(kernel, int) else f"{NS}extent{{{kernel[0]}, {kernel[1]}}}"


def cpp_option(name, value):
    return f"{NS}{name}<{value}>" if isinstance(value, int) else f"{NS}{name}<{value[0]}, {value[1]}>"


def cpp_join(name, arguments):
    return f"{name}<{', '.join(arguments)}>"


def linear(out, bias=True):
    arguments = [str(out)] + ([] if bias else [NS + "no_bias"])
    return Layer(cpp_join("linear", arguments), lambda shape: nn.Linear(shape[0], out, bias=bias))


def conv2d(out, kernel, stride=1, padding=0, dilation=1, groups=1, bias=True):
    arguments = [str(out), cpp_kernel(kernel)]
    if stride != 1:
        arguments.append(cpp_option("stride", stride))
    if padding != 0:
        arguments.append(cpp_option("padding", padding))
    if dilation != 1:
        arguments.append(cpp_option("dilation", dilation))
    if groups != 1:
        arguments.append(cpp_option("groups", groups))
    if not bias:
        arguments.append(NS + "no_bias")
    return Layer(cpp_join("conv2d", arguments),
                 lambda shape: nn.Conv2d(shape[0], out, kernel, stride, padding, dilation, groups, bias))


def pool(name, module, kernel, stride, padding):
    arguments = [cpp_kernel(kernel)]
    if stride is not None:
        arguments.append(cpp_option("stride", stride))
    if padding != 0:
        arguments.append(cpp_option("padding", padding))
    return Layer(cpp_join(name, arguments), lambda shape: getattr(nn, module)(kernel, stride, padding))


def max_pool2d(kernel, stride=None, padding=0):
    return pool("max_pool2d", "MaxPool2d", kernel, stride, padding)


def avg_pool2d(kernel, stride=None, padding=0):
    return pool("avg_pool2d", "AvgPool2d", kernel, stride, padding)


def adaptive_avg_pool2d(height, width):
    return Layer(f"adaptive_avg_pool2d<{height}, {width}>", lambda shape: nn.AdaptiveAvgPool2d((height, width)))


relu = Layer("relu", lambda shape: nn.ReLU())
tanh = Layer("tanh", lambda shape: nn.Tanh())
sigmoid = Layer("sigmoid", lambda shape: nn.Sigmoid())
softplus = Layer("softplus", lambda shape: nn.Softplus())
gelu = Layer("gelu", lambda shape: nn.GELU())
flatten = Layer("flatten", lambda shape: nn.Flatten())


def cpp_list(layers):
    return ", ".join(layer.cpp for layer in layers)


def build(layers, shape):
    """nn.Sequential of the layers and the shape it gives."""
    modules, probe = [], torch.zeros(1, *shape, dtype=torch.float64)
    for layer in layers:
        module = layer.make(tuple(probe.shape[1:])).double()
        with torch.no_grad():
            probe = module(probe)
        modules.append(module)
    return nn.Sequential(*modules), tuple(probe.shape[1:])


def sequential(*layers):
    return Layer(f"sequential<{cpp_list(layers)}>", lambda shape: build(layers, shape)[0])


def repeat(count, *layers):
    return Layer(f"repeat<{count}, {cpp_list(layers)}>", lambda shape: build(layers * count, shape)[0])


def residual(*body, projection=()):
    """body(x) + x, or body(x) + projection(x); parameters: the body's, then the projection's."""
    tail = [f"{NS}projection<{cpp_list(projection)}>"] if projection else []

    def make(shape):
        class Residual(nn.Module):
            def __init__(self):
                super().__init__()
                self.body = build(body, shape)[0]
                self.skip = build(projection, shape)[0]

            def forward(self, x):
                return self.body(x) + self.skip(x)

        return Residual()

    return Layer(f"residual<{', '.join([layer.cpp for layer in body] + tail)}>", make)


# Losses: one scalar per sample.
CE, MSE, BCE = "cross_entropy", "mean_squared_error", "binary_cross_entropy_with_logits"


def per_sample_losses(loss, outputs, targets):
    if loss == CE:
        return F.cross_entropy(outputs, targets, reduction="none")
    if loss == MSE:
        return F.mse_loss(outputs, targets, reduction="none").mean(dim=1)
    return F.binary_cross_entropy_with_logits(outputs, targets, reduction="none").mean(dim=1)
