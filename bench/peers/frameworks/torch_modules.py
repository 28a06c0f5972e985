# SPDX-License-Identifier: Apache-2.0
"""Modules that torch.nn lacks or that differ between the peers that use PyTorch."""

import torch
from torch import nn
from torch.nn import functional


class MeanOverPositions(nn.Module):
    def forward(self, x):
        return x.mean(1)


class AddConstant(nn.Module):
    def __init__(self, values):
        super().__init__()
        self.values = torch.from_numpy(values)  # not a buffer: Opacus refuses modules with buffers

    def forward(self, x):
        if self.values.device != x.device:  # once: a graph must not copy
            self.values = self.values.to(x.device)
        return x + self.values


class Outputs(nn.Module):
    """A recurrent module's outputs without its final state: all steps', or the last's."""

    def __init__(self, cell, last):
        super().__init__()
        self.cell, self.last = cell, last

    def forward(self, x):
        outputs, _ = self.cell(x)
        return outputs[:, -1] if self.last else outputs


def recurrent(kind, features, size, biases, last, flavour):
    """A bias too many is frozen at zero. Under vmap nn.RNN and nn.GRU fail and nn.LSTM goes through the samples one by
    one; Opacus' modules need no special rule."""
    from_opacus = flavour in ("opacus", "vmap")
    bias = biases > 0 or flavour == "backpack"  # which knows recurrent modules with biases only
    if from_opacus:
        from opacus.layers import DPGRU, DPLSTM, DPRNN
        cell = {"rnn": DPRNN, "gru": DPGRU, "lstm": DPLSTM}[kind](features, size, bias=bias, batch_first=True)
        parts = (cell.l0.ih, cell.l0.hh)
        parameters = [part.weight for part in parts] + [part.bias for part in parts if bias]
    else:
        cell = {"rnn": nn.RNN, "gru": nn.GRU, "lstm": nn.LSTM}[kind](features, size, bias=bias, batch_first=True)
        parameters = [cell.weight_ih_l0, cell.weight_hh_l0] + ([cell.bias_ih_l0, cell.bias_hh_l0] if bias else [])
    for parameter in parameters[2 + biases:]:
        nn.init.zeros_(parameter.requires_grad_(False))
    parameters = parameters[:2 + biases]
    if flavour == "backpack":
        from backpack.custom_module.reduce_tuple import ReduceTuple
        from backpack.custom_module.slicing import Slicing
        return nn.Sequential(cell, ReduceTuple(0), *[Slicing((slice(None), -1))] * last), parameters
    return Outputs(cell, last), parameters


def mended_attention(features, heads):
    """Opacus' DPMultiheadAttention, whose batch_first (1.6.0) mixes up heads and positions: its operations, arranged
    as torch.nn's."""
    from opacus.layers import DPMultiheadAttention

    class MendedAttention(DPMultiheadAttention):
        def forward(self, query, key, value, need_weights=False):
            def apart(x):  # [batch * heads, positions, features of a head]
                return x.unflatten(2, (self.num_heads, -1)).transpose(1, 2).flatten(0, 1)

            q, k, v = apart(self.qlinear(query)) * self.head_dim**-0.5, apart(self.klinear(key)), self.vlinear(value)
            shares = functional.softmax(torch.bmm(q, k.transpose(1, 2)), dim=-1)
            mixed = torch.bmm(shares, apart(v)).unflatten(0, (-1, self.num_heads))
            return self.out_proj(mixed.transpose(1, 2).flatten(2)), None

    return MendedAttention(features, heads, batch_first=True)


def attention(features, heads, flavour):
    if flavour == "opacus":
        return mended_attention(features, heads)
    return nn.MultiheadAttention(features, heads, batch_first=True)


def attention_parameters(module):
    if module.in_proj_weight is not None:
        return [module.in_proj_weight, module.in_proj_bias, *module.out_proj.parameters()]
    thirds = (module.qlinear, module.klinear, module.vlinear)
    return [*[part.weight for part in thirds], *[part.bias for part in thirds], *module.out_proj.parameters()]


class CrossAttention(nn.Module):
    def __init__(self, features, heads, queries, flavour):
        super().__init__()
        self.attention = attention(features, heads, flavour)
        self.queries = queries

    def forward(self, x):
        memory = x[:, self.queries:]
        return self.attention(x[:, :self.queries], memory, memory, need_weights=False)[0]


class EncoderLayer(nn.Module):
    """nn.TransformerEncoderLayer around an attention of either kind."""

    def __init__(self, features, heads, inner, flavour):
        super().__init__()
        self.attention = attention(features, heads, flavour)
        self.linear1, self.linear2 = nn.Linear(features, inner), nn.Linear(inner, features)
        self.norm1, self.norm2 = nn.LayerNorm(features), nn.LayerNorm(features)

    def forward(self, x):
        x = self.norm1(x + self.attention(x, x, x, need_weights=False)[0])
        return self.norm2(x + self.linear2(torch.relu(self.linear1(x))))


class LearnedPositions(nn.Module):
    def __init__(self, positions, features):
        super().__init__()
        self.table = nn.Embedding(positions, features)  # which all peers know, unlike a parameter of one's own

    def forward(self, x):
        places = torch.arange(x.shape[1], device=x.device).expand(x.shape[0], -1)
        return x + self.table(places)


class ClassToken(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.token = nn.Embedding(1, features)

    def forward(self, x):
        return torch.cat([x, self.token(torch.zeros(x.shape[0], 1, dtype=torch.long, device=x.device))], 1)


class OnePosition(nn.Module):
    def __init__(self, position):
        super().__init__()
        self.position = position

    def forward(self, x):
        return x[:, self.position]


class Patches(nn.Module):
    def forward(self, x):
        return x.flatten(2).transpose(1, 2)


class LoraLinear(nn.Module):
    """W x + b + B A x, of which A and B are trained."""

    def __init__(self, features, outputs, rank):
        super().__init__()
        self.down, self.up = nn.Linear(features, rank, bias=False), nn.Linear(rank, outputs, bias=False)
        self.base = nn.Linear(features, outputs).requires_grad_(False)

    def forward(self, x):
        return self.base(x) + self.up(self.down(x))


def attend(heads, q, k, v, causal):
    """PyTorch's fused attention."""
    def apart(x):
        return x.unflatten(2, (heads, -1)).transpose(1, 2)

    return functional.scaled_dot_product_attention(apart(q), apart(k), apart(v), is_causal=causal).transpose(1, 2).flatten(2)


class Gpt2Block(nn.Module):
    def __init__(self, features, heads, rank):
        super().__init__()
        self.heads, trains = heads, rank == 0
        self.norm1, self.norm2 = nn.LayerNorm(features), nn.LayerNorm(features)
        self.out = nn.Linear(features, features)
        self.inner, self.outer = nn.Linear(features, 4 * features), nn.Linear(4 * features, features)
        self.requires_grad_(trains)
        self.projection = nn.Linear(features, 3 * features) if trains else LoraLinear(features, 3 * features, rank)

    def in_order(self):
        parts = (self.norm1, self.projection, self.out, self.norm2, self.inner, self.outer)
        return [p for part in parts for p in part.parameters()]

    def forward(self, x):
        q, k, v = self.projection(self.norm1(x)).chunk(3, 2)
        x = x + self.out(attend(self.heads, q, k, v, True))
        return x + self.outer(functional.gelu(self.inner(self.norm2(x)), approximate="tanh"))


class EncoderBlock(nn.Module):
    def __init__(self, features, heads, inner, norm_first, epsilon):
        super().__init__()
        self.heads, self.norm_first = heads, norm_first
        self.norm1, self.norm2 = nn.LayerNorm(features, epsilon), nn.LayerNorm(features, epsilon)
        self.q, self.k, self.v, self.out = (nn.Linear(features, features) for _ in range(4))
        self.inner, self.outer = nn.Linear(features, inner), nn.Linear(inner, features)

    def in_order(self):
        attention, feed = (self.q, self.k, self.v, self.out), (self.inner, self.outer)
        parts = ((self.norm1, *attention, self.norm2, *feed) if self.norm_first
                 else (*attention, self.norm1, *feed, self.norm2))
        return [p for part in parts for p in part.parameters()]

    def attention(self, x):
        return self.out(attend(self.heads, self.q(x), self.k(x), self.v(x), False))

    def feed_forward(self, x):
        return self.outer(functional.gelu(self.inner(x)))

    def forward(self, x):
        if self.norm_first:
            x = x + self.attention(self.norm1(x))
            return x + self.feed_forward(self.norm2(x))
        x = self.norm1(x + self.attention(x))
        return self.norm2(x + self.feed_forward(x))
