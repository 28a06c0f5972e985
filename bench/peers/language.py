# SPDX-License-Identifier: Apache-2.0
"""Layers of transformers as language and image models have them: see layers.py. None of them drops anything."""

import dataclasses
import math

from layers import Layer, Weight, affine, normalised

TABLE_BOUND = 0.035  # of a deviation of 0.02, as GPT-2's start


@dataclasses.dataclass(frozen=True)
class TokenEmbedding(Layer):
    """`tied`: the last layer, TiedUnembedding, has the same table."""
    vocabulary: int
    size: int
    tied: bool = False
    frozen: bool = False

    def output(self, shape):
        return *shape, self.size

    def weights(self, shape):
        return [Weight((self.vocabulary, self.size), TABLE_BOUND, table=True, frozen=self.frozen)]

    def cpp(self, shape):
        layer = f"pg::embedding<{self.size}>"
        layer = f"pg::tied<0, {layer}>" if self.tied else layer
        return f"pg::frozen<{layer}>" if self.frozen else layer

    def module(self, shape):
        from torch import nn
        return nn.Embedding(self.vocabulary, self.size).requires_grad_(not self.frozen)

    def jax(self, shape, x, table):
        return table[x]


@dataclasses.dataclass(frozen=True)
class TiedUnembedding(Layer):
    """The first layer's table, multiplied with every position."""
    vocabulary: int
    frozen: bool = False
    tied_to_first = True

    def output(self, shape):
        return shape[0], self.vocabulary

    def cpp(self, shape):
        layer = f"pg::tied<0, pg::linear<{self.vocabulary}, pg::no_bias>>"
        return f"pg::frozen<{layer}>" if self.frozen else layer

    def torch(self, shape, flavour):
        from torch import nn
        return nn.Linear(shape[1], self.vocabulary, bias=False), []

    def jax(self, shape, x, table):
        return x @ table.T


@dataclasses.dataclass(frozen=True)
class LearnedPositions(Layer):
    frozen: bool = False

    def weights(self, shape):
        return [Weight(shape, TABLE_BOUND, table=True, frozen=self.frozen)]

    def cpp(self, shape):
        return "pg::frozen<pg::learned_positions>" if self.frozen else "pg::learned_positions"

    def module(self, shape):
        from frameworks import torch_modules
        return torch_modules.LearnedPositions(*shape).requires_grad_(not self.frozen)

    def jax(self, shape, x, table):
        return x + table


@dataclasses.dataclass(frozen=True)
class LayerNorm(Layer):
    epsilon: float = 1e-5
    frozen: bool = False

    def weights(self, shape):
        return [Weight((shape[-1],), 0.5, 1.0, frozen=self.frozen), Weight((shape[-1],), 0.5, frozen=self.frozen)]

    def cpp(self, shape):
        given = "" if self.epsilon == 1e-5 else f"pg::eps<1, {round(1 / self.epsilon)}>"
        return f"pg::frozen<pg::layer_norm<{given}>>" if self.frozen else f"pg::layer_norm<{given}>"

    def module(self, shape):
        from torch import nn
        return nn.LayerNorm(shape[-1], self.epsilon).requires_grad_(not self.frozen)

    def jax(self, shape, x, gain, shift):
        return normalised(x, self.epsilon) * gain + shift


def frozen_of(weights):
    return [dataclasses.replace(weight, frozen=True) for weight in weights]


def jax_heads(heads, q, k, v, causal):
    import jax

    def apart(x):
        return x.reshape(*x.shape[:2], heads, -1)

    return jax.nn.dot_product_attention(apart(q), apart(k), apart(v), is_causal=causal).reshape(q.shape)


@dataclasses.dataclass(frozen=True)
class Gpt2Block(Layer):
    """x + attention(norm(x)), then x + W2 gelu(W1 norm(x) + b1) + b2. `rank`: only adapters of queries, keys and values
    are trained."""
    heads: int
    rank: int = 0

    def weights(self, shape):
        width = shape[1]
        norm = LayerNorm().weights(shape)
        inner = [*affine(4 * width, width), *affine(width, 4 * width)]
        if self.rank == 0:
            return [*norm, *affine(3 * width, width), *affine(width, width), *norm, *inner]
        adapter = [Weight((self.rank, width), 1 / math.sqrt(width)), Weight((3 * width, self.rank), 0.1)]
        return [*frozen_of(norm), *adapter,
                *frozen_of([*affine(3 * width, width), *affine(width, width), *norm, *inner])]

    def cpp(self, shape):
        width = shape[1]
        if self.rank == 0:
            attention = f"pg::multihead_attention<{self.heads}, pg::causal>"
            norm, inner, end = "pg::layer_norm<>", f"pg::linear<{4 * width}>", f"pg::linear<{width}>"
        else:
            attention = (f"pg::lora<{self.rank}, pg::linear<{3 * width}>>, "
                         f"pg::scaled_dot_product_attention<{self.heads}, pg::causal>, pg::frozen<pg::linear<{width}>>")
            norm, inner, end = (f"pg::frozen<{layer}>" for layer in (
                "pg::layer_norm<>", f"pg::linear<{4 * width}>", f"pg::linear<{width}>"))
        return f"pg::residual<{norm}, {attention}>, pg::residual<{norm}, {inner}, pg::gelu_tanh, {end}>"

    def torch(self, shape, flavour):
        from frameworks import torch_modules
        module = torch_modules.Gpt2Block(shape[1], self.heads, self.rank)
        return module, module.in_order()

    def jax(self, shape, x, gain1, shift1, weight_in, bias_in, out, out_bias, gain2, shift2, inner, inner_bias, outer,
            outer_bias):
        import jax
        from jax import numpy as jnp
        q, k, v = jnp.split((normalised(x) * gain1 + shift1) @ weight_in + bias_in, 3, -1)
        x = x + jax_heads(self.heads, q, k, v, True) @ out + out_bias
        hidden = jax.nn.gelu((normalised(x) * gain2 + shift2) @ inner + inner_bias, approximate=True)
        return x + hidden @ outer + outer_bias


@dataclasses.dataclass(frozen=True)
class EncoderBlock(Layer):
    """Of BERT (norms behind) or of ViT (norms in front), with three projections and the exact gelu."""
    heads: int
    inner: int
    norm_first: bool
    epsilon: float

    def weights(self, shape):
        width = shape[1]
        norm = LayerNorm().weights(shape)
        attention = [weight for _ in range(4) for weight in affine(width, width)]
        inner = [*affine(self.inner, width), *affine(width, self.inner)]
        return [*norm, *attention, *norm, *inner] if self.norm_first else [*attention, *norm, *inner, *norm]

    def cpp(self, shape):
        width = f"pg::linear<{shape[1]}>"
        norm = LayerNorm(self.epsilon).cpp(shape)
        attention = (f"pg::parallel<{width}, {width}, {width}>, pg::scaled_dot_product_attention<{self.heads}>, {width}")
        inner = f"pg::linear<{self.inner}>, pg::gelu, {width}"
        if self.norm_first:
            return f"pg::residual<{norm}, {attention}>, pg::residual<{norm}, {inner}>"
        return f"pg::residual<{attention}>, {norm}, pg::residual<{inner}>, {norm}"

    def torch(self, shape, flavour):
        from frameworks import torch_modules
        module = torch_modules.EncoderBlock(shape[1], self.heads, self.inner, self.norm_first, self.epsilon)
        return module, module.in_order()

    def jax(self, shape, x, *weights):
        import jax
        if self.norm_first:
            norm1, attention, norm2, feed = weights[:2], weights[2:10], weights[10:12], weights[12:]
        else:
            attention, norm1, feed, norm2 = weights[:8], weights[8:10], weights[10:14], weights[14:]
        wq, bq, wk, bk, wv, bv, wo, bo = attention

        def norm(values, of):
            return normalised(values, self.epsilon) * of[0] + of[1]

        def attend(values):
            return jax_heads(self.heads, values @ wq + bq, values @ wk + bk, values @ wv + bv, False) @ wo + bo

        def feed_forward(values):
            return jax.nn.gelu(values @ feed[0] + feed[1], approximate=False) @ feed[2] + feed[3]

        if self.norm_first:
            x = x + attend(norm(x, norm1))
            return x + feed_forward(norm(x, norm2))
        x = norm(x + attend(x), norm1)
        return norm(x + feed_forward(x), norm2)


@dataclasses.dataclass(frozen=True)
class OnePosition(Layer):
    """The first one, or the last one."""
    last: bool

    def output(self, shape):
        return shape[1:]

    def cpp(self, shape):
        return "pg::select_last" if self.last else "pg::take_positions<0, 1>, pg::mean_over_positions"

    def module(self, shape):
        from frameworks import torch_modules
        return torch_modules.OnePosition(-1 if self.last else 0)

    def jax(self, shape, x):
        return x[:, -1 if self.last else 0]


@dataclasses.dataclass(frozen=True)
class Patches(Layer):
    """[features, height, width] of an image's patches as positions."""

    def output(self, shape):
        return shape[1] * shape[2], shape[0]

    def cpp(self, shape):
        return f"pg::reshape<pg::shape{{{shape[0]}, {shape[1] * shape[2]}}}>, pg::transpose"

    def module(self, shape):
        from frameworks import torch_modules
        return torch_modules.Patches()

    def jax(self, shape, x):  # channels-last
        return x.reshape(x.shape[0], -1, x.shape[-1])


@dataclasses.dataclass(frozen=True)
class ClassToken(Layer):
    """A learned position behind all others."""

    def output(self, shape):
        return shape[0] + 1, shape[1]

    def weights(self, shape):
        return [Weight((shape[1],), TABLE_BOUND)]

    def cpp(self, shape):
        return "pg::sequence_bias"

    def torch(self, shape, flavour):
        from frameworks import torch_modules
        module = torch_modules.ClassToken(shape[1])
        return module, [module.token.weight]

    def jax(self, shape, x, token):
        from jax import numpy as jnp
        return jnp.concatenate([x, jnp.broadcast_to(token, (x.shape[0], 1, token.shape[0]))], 1)
