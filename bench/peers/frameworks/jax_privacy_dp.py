# SPDX-License-Identifier: Apache-2.0
"""jax_privacy: clipped_grad; noise and update as in jax_dp.py, the whole step compiled."""

import jax
import jax_privacy
from jax import numpy as jnp

from frameworks.jax_plain import JaxTraining, add_noise, descend, losses_of, records  # noqa: F401


def version():
    return f"jax_privacy {jax_privacy.__version__}, jax {jax.__version__}"


class Training(JaxTraining):
    def __init__(self, task, batch, variant):
        losses = losses_of(task)

        def loss(parameters, x, y):
            return losses(parameters, x, y).mean()

        clipped_sum = jax_privacy.clipped_grad(loss, l2_clip_norm=1.0, batch_argnums=(1, 2))
        sum_and_norms = jax_privacy.clipped_grad(loss, l2_clip_norm=jnp.inf, batch_argnums=(1, 2),
                                                 return_grad_norms=True)

        def update(parameters, x, y, rate, noise, key):
            return descend(parameters, add_noise(clipped_sum(parameters, x, y), key, noise), rate / batch)

        def gradients(parameters, x, y):
            total, more = sum_and_norms(parameters, x, y)
            return jax.tree.map(lambda g: g / batch, total), more.grad_norms

        super().__init__(task, update, gradients)
