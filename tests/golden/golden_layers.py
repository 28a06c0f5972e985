# SPDX-License-Identifier: Apache-2.0
# tests/golden/golden_layers.py - the C++ spelling and the PyTorch module of every layer and loss
"""A layer is described once and knows both; this file is the only place where the C++ names are spelled."""

import contextlib

try:
    import torch
    import torch.nn as nn
    import torch.nn.functional as F
except ImportError:  # the C++ side can be written without
    torch = nn = F = None

NS = "pergrad::"


class Layer:
    """cpp: C++ type; make: function of the input shape (without batch) that gives the nn.Module."""

    def __init__(self, cpp, make):
        self.cpp, self.make = NS + cpp, make


class mode:
    """How modules with more than one implementation compute: see make_golden.py."""
    explicit = False    # by loops and masks that are written out here instead of by PyTorch's own module
    lengths = None      # [batch] positions that count, of samples padded to one length


@contextlib.contextmanager
def computing(explicit=False, lengths=None):
    mode.explicit, mode.lengths = explicit, lengths
    try:
        yield
    finally:
        mode.explicit, mode.lengths = False, None


def cpp_numbers(value):
    return str(value) if isinstance(value, int) else ", ".join(map(str, value))


def cpp_kernel(kernel):
    return str(kernel) if isinstance(kernel, int) else f"{NS}extent{{{cpp_numbers(kernel)}}}"


def cpp_options(**options):
    """The options that are not None: `stride=2` is `stride<2>`, `no_bias=True` is `no_bias`."""
    given = [(name, value) for name, value in options.items() if value is not None and value is not False]
    return [NS + name + ("" if value is True else f"<{cpp_numbers(value)}>") for name, value in given]


def cpp_join(name, arguments):
    return f"{name}<{', '.join(arguments)}>"


def unless(default, value):
    return None if value == default else value


def linear(out, bias=True):
    return Layer(cpp_join("linear", [str(out)] + cpp_options(no_bias=not bias)),
                 lambda shape: nn.Linear(shape[-1], out, bias=bias))


def conv(name, module, out, kernel, stride=1, padding=0, dilation=1, groups=1, bias=True):
    arguments = [str(out), cpp_kernel(kernel)]
    arguments += cpp_options(stride=unless(1, stride), padding=unless(0, padding), dilation=unless(1, dilation),
                             groups=unless(1, groups), no_bias=not bias)
    return Layer(cpp_join(name, arguments),
                 lambda shape: getattr(nn, module)(shape[0], out, kernel, stride, padding, dilation, groups, bias))


def conv1d(out, kernel, **options):
    return conv("conv1d", "Conv1d", out, kernel, **options)


def conv2d(out, kernel, **options):
    return conv("conv2d", "Conv2d", out, kernel, **options)


def conv3d(out, kernel, **options):
    return conv("conv3d", "Conv3d", out, kernel, **options)


def conv_transpose2d(out, kernel, stride=1, padding=0, output_padding=0, dilation=1, groups=1, bias=True):
    arguments = [str(out), cpp_kernel(kernel)]
    arguments += cpp_options(stride=unless(1, stride), padding=unless(0, padding),
                             output_padding=unless(0, output_padding), dilation=unless(1, dilation),
                             groups=unless(1, groups), no_bias=not bias)
    return Layer(cpp_join("conv_transpose2d", arguments),
                 lambda shape: nn.ConvTranspose2d(shape[0], out, kernel, stride, padding, output_padding, groups, bias,
                                                  dilation))


def upsample(factor):
    return Layer(f"upsample<{factor}>", lambda shape: nn.Upsample(scale_factor=factor))


def pool(name, module, kernel, stride, padding):
    arguments = [cpp_kernel(kernel)] + cpp_options(stride=stride, padding=unless(0, padding))
    return Layer(cpp_join(name, arguments), lambda shape: getattr(nn, module)(kernel, stride, padding))


def max_pool1d(kernel, stride=None, padding=0):
    return pool("max_pool1d", "MaxPool1d", kernel, stride, padding)


def avg_pool1d(kernel, stride=None, padding=0):
    return pool("avg_pool1d", "AvgPool1d", kernel, stride, padding)


def adaptive_avg_pool1d(length):
    return Layer(f"adaptive_avg_pool1d<{length}>", lambda shape: nn.AdaptiveAvgPool1d(length))


def max_pool3d(kernel, stride=None, padding=0):
    return pool("max_pool3d", "MaxPool3d", kernel, stride, padding)


def avg_pool3d(kernel, stride=None, padding=0):
    return pool("avg_pool3d", "AvgPool3d", kernel, stride, padding)


def adaptive_avg_pool3d(*size):
    return Layer(f"adaptive_avg_pool3d<{cpp_numbers(size)}>", lambda shape: nn.AdaptiveAvgPool3d(size))


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
gelu_tanh = Layer("gelu_tanh", lambda shape: nn.GELU(approximate="tanh"))
silu = Layer("silu", lambda shape: nn.SiLU())
flatten = Layer("flatten", lambda shape: nn.Flatten())


def leaky_relu(slope=0.01):
    return Layer(cpp_join("leaky_relu", [] if slope == 0.01 else [str(slope)]), lambda shape: nn.LeakyReLU(slope))


def elu(alpha=1.0):
    return Layer(cpp_join("elu", [] if alpha == 1.0 else [str(alpha)]), lambda shape: nn.ELU(alpha))


# ---------------------------------------------------------------------------------------------------------------------
# Normalisation. Options: affine or not, and epsilon as (numerator, denominator); else PyTorch's own.
# ---------------------------------------------------------------------------------------------------------------------


def norm(name, arguments, affine, epsilon, make):
    eps = {} if epsilon is None else dict(eps=epsilon[0] / epsilon[1])
    return Layer(cpp_join(name, arguments + cpp_options(no_affine=not affine, eps=epsilon)),
                 lambda shape: make(shape, **eps))


def layer_norm(axes=None, affine=True, bias=True, epsilon=None):
    return norm("layer_norm", cpp_options(axes=axes, no_bias=not bias), affine, epsilon, lambda shape, **eps:
                nn.LayerNorm(shape[-(axes or 1):], elementwise_affine=affine, bias=bias, **eps))


def rms_norm(axes=None, affine=True, epsilon=None):
    return norm("rms_norm", cpp_options(axes=axes), affine, epsilon, lambda shape, **eps:
                nn.RMSNorm(shape[-(axes or 1):], elementwise_affine=affine, **eps))


def group_norm(groups, affine=True, epsilon=None):
    return norm("group_norm", [str(groups)], affine, epsilon, lambda shape, **eps:
                nn.GroupNorm(groups, shape[0], affine=affine, **eps))


def instance_norm(rank, affine=True, epsilon=None):
    return norm(f"instance_norm{rank}d", [], affine, epsilon, lambda shape, **eps:
                getattr(nn, f"InstanceNorm{rank}d")(shape[0], affine=affine, **eps))


def make_channel_affine(shape):
    class ChannelAffine(nn.Module):
        def __init__(self):
            super().__init__()
            self.gain = nn.Parameter(torch.ones(shape[0]))
            self.shift = nn.Parameter(torch.zeros(shape[0]))

        def forward(self, x):
            view = (1, -1) + (1,) * (x.dim() - 2)
            return x * self.gain.view(view) + self.shift.view(view)

    return ChannelAffine()


channel_affine = Layer("channel_affine", make_channel_affine)


# ---------------------------------------------------------------------------------------------------------------------
# Without parameters
# ---------------------------------------------------------------------------------------------------------------------


def function(cpp, f):
    """A layer that is a function of the batch."""
    def make(shape):
        class Function(nn.Module):
            def forward(self, x):
                return f(x)

        return Function()

    return Layer(cpp, make)


def reshape(*shape):
    return function(f"reshape<{NS}shape{{{cpp_numbers(shape)}}}>", lambda x: x.reshape(x.shape[0], *shape))


def scale(numerator, denominator=1):
    return function(f"scale<{cpp_ratio(numerator, denominator)}>", lambda x: x * (numerator / denominator))


def cpp_ratio(numerator, denominator=1):
    return f"std::ratio<{numerator}>" if denominator == 1 else f"std::ratio<{numerator}, {denominator}>"


def dropout(numerator, denominator):
    """As in evaluation: nothing is dropped."""
    return function(f"dropout<{numerator / denominator}>", lambda x: x)


transpose = function("transpose", lambda x: x.transpose(1, 2))


# ---------------------------------------------------------------------------------------------------------------------
# Networks
# ---------------------------------------------------------------------------------------------------------------------


def cpp_list(layers):
    return ", ".join(layer.cpp for layer in layers)


class Ids(tuple):
    """The shape of an input of integers."""


def build(layers, shape):
    """nn.Sequential of the layers and the shape it gives."""
    modules, probe = [], torch.zeros(1, *shape, dtype=torch.int64 if isinstance(shape, Ids) else torch.float64)
    for layer in layers:
        kind = tuple if probe.is_floating_point() else Ids
        module = layer.make(kind(probe.shape[1:])).double()
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


shared = {}    # key of a tied block -> its module, in the network that is being built


def tied(key, *layers):
    """Every block of this key is the same module; its parameters stand where it is first used."""
    def make(shape):
        if key not in shared:
            shared[key] = build(layers, shape)[0]
        return shared[key]

    return Layer(f"tied<{key}, {cpp_list(layers)}>", make)


def frozen(*layers):
    return Layer(f"frozen<{cpp_list(layers)}>", lambda shape: build(layers, shape)[0].requires_grad_(False))


def lora(rank, out, alpha, bias=True):
    """W x + b, frozen, + alpha / rank B (A x); trained: A [rank, in], B [out, rank]."""
    inner = cpp_join(NS + "linear", [str(out)] + cpp_options(no_bias=not bias))

    def make(shape):
        class Lora(nn.Module):
            def __init__(self):
                super().__init__()
                self.base = nn.Linear(shape[-1], out, bias=bias).requires_grad_(False)
                self.down = nn.Linear(shape[-1], rank, bias=False)
                self.up = nn.Linear(rank, out, bias=False)

            def forward(self, x):
                return self.base(x) + alpha / rank * self.up(self.down(x))

        return Lora()

    return Layer(f"lora<{rank}, {inner}, {cpp_ratio(alpha)}>", make)


def parallel(*branches):
    """Each branch is a list of layers; outputs side by side: features of vectors and sequences, channels of images."""
    text = ", ".join(f"{NS}sequential<{cpp_list(branch)}>" for branch in branches)

    def make(shape):
        class Parallel(nn.Module):
            def __init__(self):
                super().__init__()
                self.branches = nn.ModuleList(build(branch, shape)[0] for branch in branches)

            def forward(self, x):
                outputs = [branch(x) for branch in self.branches]
                return torch.cat(outputs, -1 if outputs[0].dim() < 4 else 1)

        return Parallel()

    return Layer(f"parallel<{text}>", make)


def parameter_group(index, *layers):
    return Layer(f"parameter_group<{index}, {cpp_list(layers)}>", lambda shape: build(layers, shape)[0])


# Losses: one scalar per sample, by the C++ name.
CE, MSE, BCE = "cross_entropy", "mean_squared_error", "binary_cross_entropy_with_logits"


def smoothed(share):
    return f"cross_entropy_with_label_smoothing<{share}>"


def huber(delta):
    return f"huber<{delta}>"


def focal(gamma):
    return f"focal<{gamma}>"


def binary_focal(gamma, alpha):
    return f"binary_focal_with_logits<{gamma}, {alpha}>"


def tokens(ignore_index=None, sum=False):
    """A class a position; the ignored one is -100 unless it is given."""
    return cpp_join("token_cross_entropy", cpp_options(ignore_index=ignore_index, sum_over_positions=sum))


def takes_tokens(loss):
    return loss.startswith("token_cross_entropy")


def token_losses(loss, outputs, targets):
    ignored = int(loss.partition("ignore_index<")[2].partition(">")[0] or -100)
    entropy = F.cross_entropy(outputs.transpose(1, 2), targets, reduction="none", ignore_index=ignored).sum(1)
    return entropy if "sum_over_positions" in loss else entropy / (targets != ignored).sum(1).clamp(min=1)


def takes_classes(loss):
    return loss == CE or loss.startswith(("cross_entropy_with", "focal"))


def takes_bits(loss):
    return loss == BCE or loss.startswith("binary_focal")


def per_sample_losses(loss, outputs, targets):
    if takes_tokens(loss):
        return token_losses(loss, outputs, targets)
    name, _, options = loss.partition("<")
    options = [float(option) for option in options.rstrip(">").split(",") if option]
    if takes_classes(loss):
        smoothing = options[0] if name.startswith("cross_entropy_with") else 0.0
        entropy = F.cross_entropy(outputs, targets, reduction="none", label_smoothing=smoothing)
        return entropy * (-torch.expm1(-entropy)) ** options[0] if name == "focal" else entropy
    if name == "huber":
        return F.huber_loss(outputs, targets, reduction="none", delta=options[0]).mean(dim=1)
    if loss == MSE:
        return F.mse_loss(outputs, targets, reduction="none").mean(dim=1)
    entropy = F.binary_cross_entropy_with_logits(outputs, targets, reduction="none")
    if takes_bits(loss) and options:    # Lin et al. 2017; what torchvision.ops.sigmoid_focal_loss computes
        gamma, alpha = options
        p = torch.sigmoid(outputs)
        right = p * targets + (1 - p) * (1 - targets)
        entropy = entropy * (1 - right) ** gamma * (alpha * targets + (1 - alpha) * (1 - targets))
    return entropy.mean(dim=1)
