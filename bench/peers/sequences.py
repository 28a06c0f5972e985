# SPDX-License-Identifier: Apache-2.0
"""Layers of sequences, [positions] of ids or [positions, features]: see layers.py."""

import dataclasses
import math

from layers import Layer, Weight, affine, normalised


@dataclasses.dataclass(frozen=True)
class Embedding(Layer):
    vocabulary: int
    size: int

    def output(self, shape):
        return *shape, self.size

    def weights(self, shape):
        return [Weight((self.vocabulary, self.size), 1.0, table=True)]

    def cpp(self, shape):
        return f"pg::embedding<{self.size}>"

    def module(self, shape):
        from torch import nn
        return nn.Embedding(self.vocabulary, self.size)

    def jax(self, shape, x, table):
        return table[x]


@dataclasses.dataclass(frozen=True)
class MeanOverPositions(Layer):
    def output(self, shape):
        return shape[1:]

    def cpp(self, shape):
        return "pg::mean_over_positions"

    def module(self, shape):
        from frameworks import torch_modules
        return torch_modules.MeanOverPositions()

    def jax(self, shape, x):
        return x.mean(1)


@dataclasses.dataclass(frozen=True)
class SinusoidalPositions(Layer):
    """Adds sin(p / 10000^(2i / features)) to feature 2i at position p, the cosine to feature 2i + 1."""

    def table(self, shape):
        import numpy
        positions, features = shape
        angles = numpy.arange(positions)[:, None] / 10000.0 ** (numpy.arange(0, features, 2) / features)
        return numpy.stack([numpy.sin(angles), numpy.cos(angles)], 2).reshape(shape).astype(numpy.float32)

    def cpp(self, shape):
        return "pg::sinusoidal_positions"

    def module(self, shape):
        from frameworks import torch_modules
        return torch_modules.AddConstant(self.table(shape))

    def jax(self, shape, x):
        return x + self.table(shape)


GATES = {"rnn": 1, "gru": 3, "lstm": 4}  # in PyTorch's order: gru r z n, lstm i f g o


@dataclasses.dataclass(frozen=True)
class Recurrent(Layer):
    """kind "rnn" (tanh), "gru" or "lstm"; 0, 1 (on the input's side only) or 2 biases; initial state zero."""
    kind: str
    size: int
    biases: int = 2
    last: bool = False  # the last step's output only

    def output(self, shape):
        return (self.size,) if self.last else (shape[0], self.size)

    def weights(self, shape):
        bound, rows = 1 / math.sqrt(self.size), GATES[self.kind] * self.size
        return [Weight((rows, shape[1]), bound), Weight((rows, self.size), bound),
                *[Weight((rows,), bound)] * self.biases]

    def cpp(self, shape):
        options = {0: ", pg::no_bias", 1: ", pg::one_bias", 2: ""}[self.biases]
        return f"pg::{self.kind}<{self.size}{options}{', pg::last_output' if self.last else ''}>"

    def torch(self, shape, flavour):
        from frameworks import torch_modules
        return torch_modules.recurrent(self.kind, shape[1], self.size, self.biases, self.last, flavour)

    def jax(self, shape, x, weight_ih, weight_hh, bias_ih=0.0, bias_hh=0.0):
        import jax
        from jax import lax, numpy as jnp

        late = bias_hh if self.kind == "gru" else 0.0  # a gru's stays inside: r multiplies a part of it
        early = x.swapaxes(0, 1) @ weight_ih + bias_ih + (0.0 if self.kind == "gru" else bias_hh)
        zeros = jnp.zeros((x.shape[0], self.size), x.dtype)

        def rnn(h, gates):
            h = jnp.tanh(gates + h @ weight_hh)
            return h, h

        def gru(h, gates):
            r, z, n = jnp.split(gates, 3, -1)
            recurrent_r, recurrent_z, recurrent_n = jnp.split(h @ weight_hh + late, 3, -1)
            z = jax.nn.sigmoid(z + recurrent_z)
            n = jnp.tanh(n + jax.nn.sigmoid(r + recurrent_r) * recurrent_n)
            h = (1 - z) * n + z * h
            return h, h

        def lstm(state, gates):
            h, c = state
            i, f, g, o = jnp.split(gates + h @ weight_hh, 4, -1)
            c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            h = jax.nn.sigmoid(o) * jnp.tanh(c)
            return (h, c), h

        step = {"rnn": rnn, "gru": gru, "lstm": lstm}[self.kind]
        _, outputs = lax.scan(step, (zeros, zeros) if self.kind == "lstm" else zeros, early)
        return outputs[-1] if self.last else outputs.swapaxes(0, 1)


def attention_weights(features):
    """in_proj_weight, in_proj_bias, out_proj.weight, out_proj.bias"""
    weight, bias = affine(3 * features, features)
    return [weight, bias, *affine(features, features)]


def jax_attention(heads, queries, memory, weight_in, bias_in, weight_out, bias_out):
    import jax
    from jax import numpy as jnp

    features = queries.shape[-1]

    def apart(x):
        return x.reshape(*x.shape[:2], heads, -1)

    q = queries @ weight_in[:, :features] + bias_in[:features]
    k, v = jnp.split(memory @ weight_in[:, features:] + bias_in[features:], 2, -1)
    mixed = jax.nn.dot_product_attention(apart(q), apart(k), apart(v))
    return mixed.reshape(queries.shape) @ weight_out + bias_out


@dataclasses.dataclass(frozen=True)
class CrossAttention(Layer):
    """The first positions of a record ask, the rest are keys and values."""
    heads: int
    queries: int

    def output(self, shape):
        return self.queries, shape[1]

    def weights(self, shape):
        return attention_weights(shape[1])

    def cpp(self, shape):
        return (f"pg::cross_attention<{self.heads}, pg::queries<pg::take_positions<0, {self.queries}>>, "
                f"pg::memory<pg::take_positions<{self.queries}, {shape[0] - self.queries}>>>")

    def torch(self, shape, flavour):
        from frameworks import torch_modules
        module = torch_modules.CrossAttention(shape[1], self.heads, self.queries, flavour)
        return module, torch_modules.attention_parameters(module.attention)

    def jax(self, shape, x, *weights):
        return jax_attention(self.heads, x[:, :self.queries], x[:, self.queries:], *weights)


@dataclasses.dataclass(frozen=True)
class TransformerEncoderLayer(Layer):
    """nn.TransformerEncoderLayer's defaults (norm after, ReLU) without dropout, parameters in its order."""
    heads: int
    inner: int

    def weights(self, shape):
        features = shape[1]
        norm = [Weight((features,), 0.5, 1.0), Weight((features,), 0.5)]
        return [*attention_weights(features), *affine(self.inner, features), *affine(features, self.inner),
                *norm, *norm]

    def cpp(self, shape):
        return f"pg::transformer_encoder_layer<{self.heads}, {self.inner}>"

    def torch(self, shape, flavour):
        from frameworks import torch_modules
        module = torch_modules.EncoderLayer(shape[1], self.heads, self.inner, flavour)
        rest = [p for part in (module.linear1, module.linear2, module.norm1, module.norm2) for p in part.parameters()]
        return module, torch_modules.attention_parameters(module.attention) + rest

    def jax(self, shape, x, *weights):
        import jax
        attention, (inner, inner_bias, outer, outer_bias, gain1, shift1, gain2, shift2) = weights[:4], weights[4:]
        x = normalised(x + jax_attention(self.heads, x, x, *attention)) * gain1 + shift1
        return normalised(x + jax.nn.relu(x @ inner + inner_bias) @ outer + outer_bias) * gain2 + shift2
