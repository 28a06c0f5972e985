#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# tests/golden/make_golden.py - float64 per-sample gradients by PyTorch, the oracle of the golden tests
"""Writes data/<group>.json (numbers) and <group>_cases.inc (C++ network types) next to this file.

    python3 make_golden.py              both; needs PyTorch (CPU)
    python3 make_golden.py --headers    only the .inc files; needs no PyTorch
    python3 make_golden.py --check      writes nothing; fails if the .inc files are not what it would write

The cases are in golden_cases.py, the layers that they are made of in golden_layers.py. Nothing that is written depends
on the library under test. Before a case is written it is checked:

  * per-sample gradients by a loop over batches of one equal those of torch.func.vmap(torch.func.grad) to 1e-12;
  * their sum over the samples equals the gradient of the batch's summed loss to 1e-12;
  * up to 40 of their columns equal central differences of the losses (not in exact or formula cases);
  * no ReLU input and no two largest values of a max-pool window are so close that rounding could decide between them,
    except where exact arithmetic makes them equal;
  * cases about such ties and zeros have other gradients under another rule (last maximum wins; derivative 1 at 0).
"""

import argparse
import contextlib
import math
import pathlib
import platform
import random
import statistics
import sys
import zlib

from golden_cases import GROUPS
from golden_layers import BCE, CE, build, pair, per_sample_losses

try:
    import torch
    import torch.nn as nn
    import torch.nn.functional as F
except ImportError:
    torch = None

HERE = pathlib.Path(__file__).resolve().parent

GAP = 1e-4      # how far a ReLU input stays from 0, and a window's largest value from its second largest
STRIDE = 29     # of a formula case's gradients every 29th is kept


class Degenerate(Exception):
    """This draw lies too close to a kink; draw again."""


def formula_values(count, a, b, c, modulus, divisor):
    """((a i^2 + b i + c) mod modulus - floor(modulus / 2)) / divisor: integers, then one rounding, in any language."""
    values = [((a * i * i + b * i + c) % modulus - modulus // 2) / divisor for i in range(count)]
    return torch.tensor(values, dtype=torch.float64)


def draw(case, rng, module, outputs):
    """Inputs, targets, and the module's parameters: short decimals, or multiples of 1/4 in an exact case."""
    size = math.prod(case.shape)
    recipe = {}
    if case.formula:
        recipe["inputs"] = dict(a=3, b=17, c=5, modulus=2003, divisor=1000)
        recipe["parameters"] = dict(a=7, b=29, c=11, modulus=1999, divisor=10000)
        inputs = formula_values(case.batch * size, **recipe["inputs"])
        total = sum(p.numel() for p in module.parameters())
        nn.utils.vector_to_parameters(formula_values(total, **recipe["parameters"]), module.parameters())
    else:
        def number(scale):
            return rng.randint(-4, 4) / 4 if case.exact else round(rng.uniform(-scale, scale), 3)
        inputs = torch.tensor([number(case.range) for _ in range(case.batch * size)], dtype=torch.float64)
        for parameter in module.parameters():
            fan_in = parameter[0].numel() if parameter.dim() > 1 else 4
            values = [number(math.sqrt(3 / fan_in)) for _ in range(parameter.numel())]
            parameter.data.copy_(torch.tensor(values, dtype=torch.float64).reshape(parameter.shape))
    inputs = inputs.reshape(case.batch, *case.shape)
    if case.loss == CE:
        targets = torch.tensor([rng.randrange(outputs) for _ in range(case.batch)])
    elif case.loss == BCE:
        targets = torch.tensor([[float(rng.randint(0, 1)) for _ in range(outputs)] for _ in range(case.batch)]).double()
    else:
        targets = torch.tensor([[round(rng.uniform(-1, 1), 3) for _ in range(outputs)] for _ in range(case.batch)],
                               dtype=torch.float64)
    if case.tweak:
        with torch.no_grad():
            case.tweak(inputs, targets, [p.data for p in module.parameters()])
    return inputs, targets, recipe


def check_kinks(case, module, inputs):
    """Refuses inputs whose gradient rounding could change."""
    gap = 1e-9 if case.formula else GAP

    def watch(layer, arguments):
        x = arguments[0].detach()
        if isinstance(layer, nn.ReLU):
            zero = x == 0
            if not case.exact and bool(zero.any()) or bool((x[~zero].abs() < gap).any()):
                raise Degenerate
        elif isinstance(layer, nn.Softplus):
            # PyTorch replaces softplus(x) by x beyond 20; between 19 and 40 that differs from the function.
            if bool(((x > 19) & (x < 40)).any()):
                raise Degenerate
        elif isinstance(layer, nn.MaxPool2d):
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
    """[batch, channel, row, column, position in the window]"""
    (kh, kw), (sh, sw), (ph, pw) = pair(layer.kernel_size), pair(layer.stride), pair(layer.padding)
    padded = F.pad(x, (pw, pw, ph, ph), value=-math.inf)
    return padded.unfold(2, kh, sh).unfold(3, kw, sw).flatten(4)


@contextlib.contextmanager
def other_rules():
    """The last maximum of a window takes its gradient, and ReLU's derivative at 0 is 1."""
    def last_maximum(layer, x):
        windows = pool_windows(layer, x)
        order = torch.arange(1, windows.shape[-1] + 1)
        last = ((windows == windows.amax(-1, keepdim=True)) * order).argmax(-1, keepdim=True)
        return windows.gather(-1, last).squeeze(-1)

    kept = nn.MaxPool2d.forward, nn.ReLU.forward
    nn.MaxPool2d.forward, nn.ReLU.forward = last_maximum, lambda layer, x: torch.where(x >= 0, x, 0 * x)
    try:
        yield
    finally:
        nn.MaxPool2d.forward, nn.ReLU.forward = kept


def flat(tensors):
    return torch.cat([t.reshape(-1) for t in tensors])


def by_loop(case, module, inputs, targets):
    rows, outputs, losses = [], [], []
    for b in range(case.batch):
        y = module(inputs[b:b + 1])
        loss = per_sample_losses(case.loss, y, targets[b:b + 1])
        rows.append(flat(torch.autograd.grad(loss.sum(), list(module.parameters()))))
        outputs.append(y.detach().reshape(-1))
        losses.append(loss.detach().reshape(()))
    return torch.stack(outputs), torch.stack(losses), torch.stack(rows)


def by_vmap(case, module, inputs, targets):
    from torch.func import functional_call, grad, vmap
    parameters = {name: p.detach() for name, p in module.named_parameters()}

    def loss(parameters, x, t):
        y = functional_call(module, parameters, (x.unsqueeze(0),))
        return per_sample_losses(case.loss, y, t.unsqueeze(0)).sum()

    gradients = vmap(grad(loss), in_dims=(None, 0, 0))(parameters, inputs, targets)
    return torch.cat([gradients[name].reshape(case.batch, -1) for name in parameters], dim=1)


def difference(a, b):
    """Largest difference, relative to the largest magnitude of b."""
    return float((a - b).abs().max()) / max(float(b.abs().max()), 1e-300)


def by_differences(case, module, inputs, targets, gradients, rng):
    """Largest error of up to 40 columns of the gradients against central differences of the losses."""
    theta = nn.utils.parameters_to_vector(module.parameters()).detach()
    step, worst = 1e-6, 0.0
    columns = rng.sample(range(len(theta)), min(40, len(theta)))
    with torch.no_grad():
        for column in columns:
            sides = []
            for sign in (1, -1):
                moved = theta.clone()
                moved[column] += sign * step
                nn.utils.vector_to_parameters(moved, module.parameters())
                sides.append(per_sample_losses(case.loss, module(inputs), targets))
            slope = (sides[0] - sides[1]) / (2 * step)
            worst = max(worst, float((slope - gradients[:, column]).abs().max()))
        nn.utils.vector_to_parameters(theta, module.parameters())
    scale = max(float(gradients.abs().max()), float(sides[0].abs().max()))
    return worst / scale


def compute(case):
    module, out_shape = build(case.layers, case.shape)
    assert len(out_shape) == 1, (case.name, out_shape)
    for attempt in range(2000):
        rng = random.Random(zlib.crc32(case.name.encode()) + attempt)
        inputs, targets, recipe = draw(case, rng, module, out_shape[0])
        try:
            check_kinks(case, module, inputs)
            outputs, losses, gradients = by_loop(case, module, inputs, targets)
            squared = (gradients * gradients).sum(1)
            norms = squared.sqrt()
            clip = float(f"{0.8 * statistics.median(norms.tolist()):.6g}")
            with other_rules():
                changed = difference(by_loop(case, module, inputs, targets)[2], gradients) > 1e-3
            if clip > 0 and changed == (case.ties or case.zeros):
                break
        except Degenerate:
            pass
    else:
        raise SystemExit(f"{case.name}: no draw is what the case wants")

    errors = {"vmap": difference(by_vmap(case, module, inputs, targets), gradients)}
    total = per_sample_losses(case.loss, module(inputs), targets).sum()
    errors["sum"] = difference(flat(torch.autograd.grad(total, list(module.parameters()))), gradients.sum(0))
    assert errors["vmap"] < 1e-12 and errors["sum"] < 1e-12, (case.name, errors)
    if not case.exact and not case.formula:
        errors["differences"] = by_differences(case, module, inputs, targets, gradients, rng)
        assert errors["differences"] < 1e-7, (case.name, errors)
    assert bool(torch.isfinite(gradients).all()) and bool(torch.isfinite(losses).all()), case.name

    factors = torch.where(norms > clip, clip / norms, torch.ones_like(norms))
    clipped = (factors[:, None] * gradients).sum(0)

    theta = nn.utils.parameters_to_vector(module.parameters()).detach()
    fields = {
        "batch": case.batch,
        "input_size": math.prod(case.shape),
        "parameter_count": len(theta),
        "inputs": recipe.get("inputs", inputs),
        "targets": targets,
        "parameters": recipe.get("parameters", theta),
        "l2_clip_norm": clip,
        "outputs": outputs,
        "losses": losses,
        "squared_norms": squared,
    }
    if case.formula:
        fields["gradient_stride"] = STRIDE
        fields["gradients"] = gradients.reshape(-1)[::STRIDE]
        fields["clipped_sum"] = clipped[::STRIDE]
    else:
        fields["gradients"] = gradients
        fields["clipped_sum"] = clipped
    return fields, errors, attempt


# ---------------------------------------------------------------------------------------------------------------------
# Files
# ---------------------------------------------------------------------------------------------------------------------


def json_value(value):
    """Numbers as the shortest decimal that reads back as the same double; a matrix as one flat array, a row a line."""
    if isinstance(value, dict):
        return "{" + ", ".join(f'"{key}": {json_value(item)}' for key, item in value.items()) + "}"
    if isinstance(value, str):
        return f'"{value}"'
    if torch.is_tensor(value):
        rows = value.reshape(value.shape[0], -1).tolist() if value.dim() > 1 else [value.tolist()]
        return "[" + ",\n".join(",".join(map(repr, row)) for row in rows) + "]"
    return repr(value)


def write_headers(only_check):
    stale = []
    for group, cases in GROUPS.items():
        lines = ["// SPDX-License-Identifier: Apache-2.0",
                 f"// tests/golden/{group}_cases.inc - networks of data/{group}.json; made by make_golden.py",
                 "// clang-format off"]
        lines += [case.cpp() for case in cases] + ["// clang-format on", ""]
        path, text = HERE / f"{group}_cases.inc", "\n".join(lines)
        if only_check:
            stale += [] if path.exists() and path.read_text() == text else [path.name]
        else:
            path.write_text(text)
    if stale:
        sys.exit(f"make_golden.py: stale, run make_golden.py --headers: {', '.join(stale)}")


def check_tie_rule():
    """The first maximum in row-major order receives a max-pool window's gradient."""
    x = torch.ones(1, 1, 3, 3, dtype=torch.float64, requires_grad=True)
    F.max_pool2d(x, 2, 1).sum().backward()
    assert x.grad.flatten().tolist() == [1, 1, 0, 1, 1, 0, 0, 0, 0], "PyTorch's tie rule has changed"


def write_data():
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    check_tie_rule()
    made_by = dict(torch=torch.__version__, python=platform.python_version(), machine=platform.machine(),
                   cpu_capability=torch.backends.cpu.get_cpu_capability())
    print("versions:", made_by)
    (HERE / "data").mkdir(exist_ok=True)
    worst, count, size = {}, 0, 0
    for group, cases in GROUPS.items():
        parts = []
        for case in cases:
            fields, errors, attempt = compute(case)
            body = ",\n".join(f'"{key}": {json_value(value)}' for key, value in fields.items())
            parts.append(f'"{case.name}": {{\n{body}}}')
            for key, value in errors.items():
                worst[key] = max(worst.get(key, (0.0, "")), (value, case.name))
            count += 1
            print(f"{group:10} {case.name:60} batch {case.batch} parameters {fields['parameter_count']:5}"
                  f" outputs {fields['outputs'].shape[1]:3} draw {attempt}")
        path = HERE / "data" / f"{group}.json"
        path.write_text(f'{{"made_by": {json_value(made_by)},\n"cases": {{\n' + ",\n".join(parts) + "}}\n")
        size += path.stat().st_size
    print(f"{count} cases, {size} bytes; largest disagreements: {worst}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--headers", action="store_true", help="only the C++ case lists; needs no PyTorch")
    parser.add_argument("--check", action="store_true", help="only compare the C++ case lists with what is there")
    options = parser.parse_args()
    names = [case.name for cases in GROUPS.values() for case in cases]
    assert len(names) == len(set(names)), sorted(n for n in names if names.count(n) > 1)
    write_headers(options.check)
    if options.headers or options.check:
        return
    if torch is None:
        sys.exit("make_golden.py: PyTorch is not installed (pip install torch); --headers needs none")
    write_data()


if __name__ == "__main__":
    main()
