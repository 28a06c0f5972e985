# SPDX-License-Identifier: Apache-2.0
"""jax_privacy: clipped_grad; noise and update as in jax_dp.py, the whole step compiled."""

import jax
import jax_privacy

import problem
from frameworks.jax_plain import JaxTraining, add_noise, cross_entropy, descend, records  # noqa: F401


def version():
    return f"jax_privacy {jax_privacy.__version__}, jax {jax.__version__}"


class Training(JaxTraining):
    def __init__(self, task, batch, variant):
        logits = problem.jax_logits(task)

        def loss(parameters, x, y):
            return cross_entropy(logits(parameters, x), y).mean()

        clipped_sum = jax_privacy.clipped_grad(loss, l2_clip_norm=1.0, batch_argnums=(1, 2))

        def update(parameters, x, y, rate, noise, key):
            return descend(parameters, add_noise(clipped_sum(parameters, x, y), key, noise), rate / batch)

        super().__init__(task, update)
