# SPDX-License-Identifier: Apache-2.0
"""JAX without privacy, the whole step compiled. The base of the other JAX peers."""

import jax
import numpy
from jax import numpy as jnp

import problem


def version():
    return f"jax {jax.__version__}"


def records(inputs, labels):
    """Channels-last, as JAX's users keep images."""
    return numpy.ascontiguousarray(inputs.transpose(0, 2, 3, 1)) if inputs.ndim == 4 else inputs, labels


def cross_entropy(logits, labels):
    return -jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], 1)[:, 0]


def add_noise(tree, key, deviation):
    leaves, structure = jax.tree.flatten(tree)
    keys = jax.random.split(key, len(leaves))
    noisy = [leaf + deviation * jax.random.normal(k, leaf.shape) for leaf, k in zip(leaves, keys)]
    return jax.tree.unflatten(structure, noisy)


def descend(parameters, gradient, rate):
    return jax.tree.map(lambda p, g: p - rate * g, parameters, gradient)


class JaxTraining:
    """update(parameters, x, y, rate, noise, key) gives the parameters after a step; it is compiled here."""

    def __init__(self, task, update):
        def step(parameters, x, y, rate, noise, key, count):
            return update(parameters, x, y, rate, noise, jax.random.fold_in(key, count))

        self.task = task
        self.update = jax.jit(step, donate_argnums=0)
        self.key = jax.random.key(1)

    def start(self, parameters, rate, noise):
        self.values = jax.device_put(problem.jax_parameters(self.task, parameters))
        self.rate, self.noise = numpy.float32(rate), numpy.float32(noise)
        self.count = 0

    def step(self, x, y):
        self.count += 1
        count = numpy.uint32(self.count)
        self.values = jax.block_until_ready(self.update(self.values, x, y, self.rate, self.noise, self.key, count))

    def parameters(self):
        return problem.flat_parameters(self.task, self.values)


class Training(JaxTraining):
    def __init__(self, task, batch, variant):
        logits = problem.jax_logits(task)

        def loss(parameters, x, y):
            return cross_entropy(logits(parameters, x), y).mean()

        def update(parameters, x, y, rate, noise, key):
            return descend(parameters, jax.grad(loss)(parameters, x, y), rate)

        super().__init__(task, update)
