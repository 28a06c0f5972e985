# SPDX-License-Identifier: Apache-2.0
"""JAX: vmap of grad of one sample's loss, clip, sum and noise, the whole step compiled."""

import jax
from jax import numpy as jnp

from frameworks.jax_plain import JaxTraining, add_noise, descend, losses_of, norm_of, records, version  # noqa: F401


class Training(JaxTraining):
    def __init__(self, task, batch, variant):
        losses = losses_of(task)
        gradient = jax.grad(lambda parameters, x, y: losses(parameters, x[None], y[None])[0])

        def clipped(parameters, x, y):
            g = gradient(parameters, x, y)
            norm = norm_of(g)
            return jax.tree.map(lambda leaf: leaf / jnp.maximum(norm, 1), g)

        def update(parameters, x, y, rate, noise, key):
            rows = jax.vmap(clipped, (None, 0, 0))(parameters, x, y)
            total = add_noise(jax.tree.map(lambda g: g.sum(0), rows), key, noise)
            return descend(parameters, total, rate / batch)

        def gradients(parameters, x, y):
            rows = jax.vmap(gradient, (None, 0, 0))(parameters, x, y)
            return jax.tree.map(lambda g: g.mean(0), rows), jax.vmap(norm_of)(rows)

        super().__init__(task, update, gradients)
