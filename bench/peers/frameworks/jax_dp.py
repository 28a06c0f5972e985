# SPDX-License-Identifier: Apache-2.0
"""JAX: vmap of grad of one sample's loss, clip, sum and noise, the whole step compiled."""

import jax
from jax import numpy as jnp

import problem
from frameworks.jax_plain import JaxTraining, add_noise, cross_entropy, descend, records, version  # noqa: F401


class Training(JaxTraining):
    def __init__(self, task, batch, variant):
        logits = problem.jax_logits(task)

        def loss(parameters, x, y):
            return cross_entropy(logits(parameters, x[None]), y[None])[0]

        def clipped(parameters, x, y):
            gradient = jax.grad(loss)(parameters, x, y)
            norm = jnp.sqrt(sum(jnp.vdot(g, g) for g in jax.tree.leaves(gradient)))
            return jax.tree.map(lambda g: g / jnp.maximum(norm, 1), gradient)

        def update(parameters, x, y, rate, noise, key):
            rows = jax.vmap(clipped, (None, 0, 0))(parameters, x, y)
            total = add_noise(jax.tree.map(lambda g: g.sum(0), rows), key, noise)
            return descend(parameters, total, rate / batch)

        super().__init__(task, update)
