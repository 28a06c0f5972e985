#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# tests/golden/make_golden.py - float64 per-sample gradients by PyTorch, the oracle of the golden tests
"""Writes data/<group>.json (numbers) and <group>_cases.inc (C++ network types) next to this file.

    python3 make_golden.py [GROUP...]   both; needs PyTorch (CPU); of these groups, or of all
    python3 make_golden.py --headers    only the .inc files; needs no PyTorch
    python3 make_golden.py --check      writes nothing; fails if the .inc files are not what it would write

The cases are in golden_*cases.py, the layers that they are made of in golden_layers.py and golden_sequences.py. Nothing
that is written depends on the library under test. Before a case is written it is checked:

  * per-sample gradients by a loop over batches of one equal those of torch.func.vmap(torch.func.grad) to 1e-12. The
    loop uses PyTorch's modules, on samples that are cut to their length; under vmap recurrent layers and embeddings are
    written out, attention takes another path, and samples of varying length are padded and masked;
  * their sum over the samples equals the gradient of the batch's summed loss to 1e-12; samples of varying length are
    padded, packed for recurrent layers, masked for attention;
  * up to 40 of their columns equal central differences of the losses (not in exact or formula cases);
  * no ReLU input and no two largest values of a max-pool window are so close that rounding could decide between them,
    except where exact arithmetic makes them equal;
  * cases about such ties and zeros have other gradients under another rule (last maximum wins; derivative 1 at 0).
"""

import argparse
import copy
import math
import pathlib
import platform
import random
import statistics
import sys
import zlib

import golden_more_cases        # noqa: F401 (adds to GROUPS)
import golden_sequence_cases    # noqa: F401 (adds to GROUPS)
from golden_cases import GROUPS
from golden_kinks import Degenerate, check_kinks, check_tie_rule, other_rules
from golden_layers import Ids, build, computing, per_sample_losses, shared, takes_bits, takes_classes, takes_tokens

try:
    import torch
    import torch.nn as nn
except ImportError:
    torch = None

HERE = pathlib.Path(__file__).resolve().parent

STRIDE = 29     # of a formula case's gradients every 29th is kept


def formula_values(count, a, b, c, modulus, divisor):
    """((a i^2 + b i + c) mod modulus - floor(modulus / 2)) / divisor: integers, then one rounding, in any language."""
    values = [((a * i * i + b * i + c) % modulus - modulus // 2) / divisor for i in range(count)]
    return torch.tensor(values, dtype=torch.float64)


def trained(module):
    return [p for p in module.parameters() if p.requires_grad]


def frozen(module):
    return [p for p in module.parameters() if not p.requires_grad]


def lengths_of(case):
    return torch.tensor(case.lengths) if case.lengths else None


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
        if case.vocabulary:
            inputs = torch.tensor([rng.randrange(case.vocabulary) for _ in range(case.batch * size)])
        else:
            inputs = torch.tensor([number(case.range) for _ in range(case.batch * size)], dtype=torch.float64)
        for parameter in module.parameters():
            fan_in = parameter[0].numel() if parameter.dim() > 1 else 4
            values = [number(math.sqrt(3 / fan_in)) for _ in range(parameter.numel())]
            parameter.data.copy_(torch.tensor(values, dtype=torch.float64).reshape(parameter.shape))
    inputs = inputs.reshape(case.batch, *case.shape)
    if takes_tokens(case.loss):
        positions, classes = outputs
        targets = torch.tensor([[rng.randrange(classes) for _ in range(positions)] for _ in range(case.batch)])
    elif takes_classes(case.loss):
        targets = torch.tensor([rng.randrange(outputs) for _ in range(case.batch)])
    elif takes_bits(case.loss):
        targets = torch.tensor([[float(rng.randint(0, 1)) for _ in range(outputs)] for _ in range(case.batch)]).double()
    else:
        targets = torch.tensor([[round(rng.uniform(-1, 1), 3) for _ in range(outputs)] for _ in range(case.batch)],
                               dtype=torch.float64)
    if case.tweak:
        with torch.no_grad():
            case.tweak(inputs, targets, [p.data for p in module.parameters()])
    return inputs, targets, recipe


def flat(tensors):
    return torch.cat([t.reshape(-1) for t in tensors])


def by_loop(case, module, inputs, targets):
    rows, outputs, losses = [], [], []
    for b in range(case.batch):
        x = inputs[b:b + 1, :case.lengths[b]] if case.lengths else inputs[b:b + 1]
        y = module(x)
        loss = per_sample_losses(case.loss, y, targets[b:b + 1])
        gradients = torch.autograd.grad(loss.sum(), trained(module), materialize_grads=True)
        rows.append(flat(gradients))
        outputs.append(y.detach().reshape(-1))
        losses.append(loss.detach().reshape(()))
    return torch.stack(outputs), torch.stack(losses), torch.stack(rows)


def by_vmap(case, module, inputs, targets):
    from torch.func import functional_call, grad, vmap
    from torch.nn.attention import SDPBackend, sdpa_kernel
    module = copy.deepcopy(module)    # functional_call does not put back what is used twice
    parameters = {name: p.detach() for name, p in module.named_parameters() if p.requires_grad}

    def loss(parameters, x, t, length):
        with computing(explicit=True, lengths=length.unsqueeze(0) if case.lengths else None):
            y = functional_call(module, parameters, (x.unsqueeze(0),))
        return per_sample_losses(case.loss, y, t.unsqueeze(0)).sum()

    lengths = lengths_of(case) if case.lengths else torch.zeros(case.batch)
    with sdpa_kernel(SDPBackend.MATH):
        gradients = vmap(grad(loss), in_dims=(None, 0, 0, 0))(parameters, inputs, targets, lengths)
    return torch.cat([gradients[name].reshape(case.batch, -1) for name in parameters], dim=1)


def difference(a, b):
    """Largest difference, relative to the largest magnitude of b."""
    return float((a - b).abs().max()) / max(float(b.abs().max()), 1e-300)


def untrained_rows(module):
    """Columns of an embedding's padding row: it is read, and its gradient is zero by definition."""
    columns, offset = set(), 0
    tables = {id(m.weight): m.padding_idx for m in module.modules() if isinstance(m, (nn.Embedding, nn.EmbeddingBag))}
    for parameter in trained(module):
        row = tables.get(id(parameter))
        if row is not None:
            columns |= set(range(offset + row * parameter.shape[1], offset + (row + 1) * parameter.shape[1]))
        offset += parameter.numel()
    return columns


def by_differences(case, module, inputs, targets, gradients, rng):
    """Largest error of up to 40 columns of the gradients against central differences of the losses."""
    theta = nn.utils.parameters_to_vector(trained(module)).detach()
    step, worst = 1e-6, 0.0
    columns = rng.sample(range(len(theta)), min(40, len(theta)))
    columns = [column for column in columns if column not in untrained_rows(module)]
    with torch.no_grad(), computing(lengths=lengths_of(case)):
        for column in columns:
            sides = []
            for sign in (1, -1):
                moved = theta.clone()
                moved[column] += sign * step
                nn.utils.vector_to_parameters(moved, trained(module))
                sides.append(per_sample_losses(case.loss, module(inputs), targets))
            slope = (sides[0] - sides[1]) / (2 * step)
            worst = max(worst, float((slope - gradients[:, column]).abs().max()))
        nn.utils.vector_to_parameters(theta, trained(module))
    scale = max(float(gradients.abs().max()), float(sides[0].abs().max()))
    return worst / scale


def compute(case):
    shared.clear()
    module, out_shape = build(case.layers, Ids(case.shape) if case.vocabulary else case.shape)
    assert len(out_shape) == (2 if takes_tokens(case.loss) else 1), (case.name, out_shape)
    for attempt in range(2000):
        rng = random.Random(zlib.crc32(case.name.encode()) + attempt)
        inputs, targets, recipe = draw(case, rng, module, out_shape if takes_tokens(case.loss) else out_shape[0])
        try:
            with computing(explicit=True, lengths=lengths_of(case)):
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
    with computing(lengths=lengths_of(case)):
        total = per_sample_losses(case.loss, module(inputs), targets).sum()
    summed = flat(torch.autograd.grad(total, trained(module), materialize_grads=True))
    errors["sum"] = difference(summed, gradients.sum(0))
    assert errors["vmap"] < 1e-12 and errors["sum"] < 1e-12, (case.name, errors)
    if not case.exact and not case.formula:
        errors["differences"] = by_differences(case, module, inputs, targets, gradients, rng)
        assert errors["differences"] < 1e-7, (case.name, errors)
    assert bool(torch.isfinite(gradients).all()) and bool(torch.isfinite(losses).all()), case.name

    factors = torch.where(norms > clip, clip / norms, torch.ones_like(norms))
    clipped = (factors[:, None] * gradients).sum(0)

    theta = nn.utils.parameters_to_vector(trained(module)).detach()
    fields = {
        "batch": case.batch,
        "input_size": math.prod(case.shape),
        "parameter_count": len(theta),
        "inputs": recipe.get("inputs", inputs),
        "targets": targets,
        "parameters": recipe.get("parameters", theta),
        "frozen": flat(frozen(module)).detach() if frozen(module) else None,
        "lengths": lengths_of(case),
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
    return {key: value for key, value in fields.items() if value is not None}, errors, attempt


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


def write_data(groups):
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    torch.backends.mha.set_fastpath_enabled(False)
    check_tie_rule()
    made_by = dict(torch=torch.__version__, python=platform.python_version(), machine=platform.machine(),
                   cpu_capability=torch.backends.cpu.get_cpu_capability())
    print("versions:", made_by)
    (HERE / "data").mkdir(exist_ok=True)
    worst, count, size = {}, 0, 0
    for group in groups:
        parts, cases = [], GROUPS[group]
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
    parser.add_argument("groups", nargs="*", metavar="GROUP", choices=[[], *GROUPS], help="default: all")
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
    write_data(options.groups or GROUPS)


if __name__ == "__main__":
    main()
