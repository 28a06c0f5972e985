# SPDX-License-Identifier: Apache-2.0
# tests/golden/golden_kinks.py - places where a gradient jumps: maxima that tie, and ReLU at 0
"""A case stays away from them, or is about them: then its gradients are others under other rules."""

import contextlib
import math

from golden_layers import F, nn, torch

GAP = 1e-4      # how far an input of a (leaky) ReLU stays from 0, and a window's largest value from its second largest
MAX_POOLS = (nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d) if torch else ()


class Degenerate(Exception):
    """This draw lies too close to a kink; draw again."""


def check_kinks(case, module, inputs):
    """Refuses inputs whose gradient rounding could change."""
    gap = 1e-9 if case.formula else GAP

    def watch(layer, arguments):
        x = arguments[0].detach()
        if isinstance(layer, (nn.ReLU, nn.LeakyReLU)):
            zero = x == 0
            if not case.exact and bool(zero.any()) or bool((x[~zero].abs() < gap).any()):
                raise Degenerate
        elif isinstance(layer, nn.Softplus):
            # PyTorch replaces softplus(x) by x beyond 20; between 19 and 40 that differs from the function.
            if bool(((x > 19) & (x < 40)).any()):
                raise Degenerate
        elif isinstance(layer, MAX_POOLS):
            if case.negative and bool((x >= 0).any()):
                raise Degenerate
            windows = pool_windows(layer, x)
            if windows.shape[-1] > 1:
                top = windows.topk(2, dim=-1).values
                difference = top[..., 0] - top[..., 1]
                tie = difference == 0
                if not case.exact and bool((top[..., 0][tie] != 0).any()):
                    raise Degenerate
                if bool((difference[~tie] < gap).any()):
                    raise Degenerate

    hooks = [m.register_forward_pre_hook(watch) for m in module.modules()]
    try:
        with torch.no_grad():
            module(inputs)
    finally:
        for hook in hooks:
            hook.remove()


def pool_windows(layer, x):
    """[batch, channel, place..., position in the window]"""
    rank = x.dim() - 2
    kernel, stride, padding = ((value,) * rank if isinstance(value, int) else value
                               for value in (layer.kernel_size, layer.stride, layer.padding))
    windows = F.pad(x, [p for p in reversed(padding) for _ in range(2)], value=-math.inf)
    for axis in range(rank):
        windows = windows.unfold(2 + axis, kernel[axis], stride[axis])
    return windows.flatten(2 + rank)


@contextlib.contextmanager
def other_rules():
    """The last maximum of a window takes its gradient, and ReLU's derivative at 0 is 1."""
    def last_maximum(layer, x):
        windows = pool_windows(layer, x)
        order = torch.arange(1, windows.shape[-1] + 1)
        last = ((windows == windows.amax(-1, keepdim=True)) * order).argmax(-1, keepdim=True)
        return windows.gather(-1, last).squeeze(-1)

    replaced = {nn.ReLU: lambda layer, x: torch.where(x >= 0, x, 0 * x)} | {pool: last_maximum for pool in MAX_POOLS}
    kept = {module: module.forward for module in replaced}
    for module, forward in replaced.items():
        module.forward = forward
    try:
        yield
    finally:
        for module, forward in kept.items():
            module.forward = forward


def check_tie_rule():
    """The first maximum in row-major order receives a max-pool window's gradient."""
    x = torch.ones(1, 1, 3, 3, dtype=torch.float64, requires_grad=True)
    F.max_pool2d(x, 2, 1).sum().backward()
    assert x.grad.flatten().tolist() == [1, 1, 0, 1, 1, 0, 0, 0, 0], "PyTorch's tie rule has changed"
