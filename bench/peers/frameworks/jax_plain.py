# SPDX-License-Identifier: Apache-2.0
"""JAX without privacy, the whole step compiled. The base of the other JAX peers."""

import jax
import numpy
from jax import numpy as jnp

import problem


def version():
    return f"jax {jax.__version__}"


def records(inputs, targets, variant):
    """Channels-last, as JAX's users keep images, and on cache lines: XLA reads such a batch where it is and copies any
    other, which costs the perceptron at batch 2048 0.8 ms a step."""
    def placed(values):
        if values.ndim == 4:
            values = values.transpose(0, 2, 3, 1)
        if values.flags.c_contiguous and values.ctypes.data % 64 == 0:
            return values
        room = numpy.empty(values.nbytes + 64, numpy.uint8)
        start = -room.ctypes.data % 64
        result = room[start:start + values.nbytes].view(values.dtype).reshape(values.shape)
        result[...] = values
        return result

    return [placed(inputs), placed(targets)]


def losses_of(task):
    """f(parameters, x, y), one number a sample."""
    outputs = problem.jax_outputs(task)

    def cross_entropy(parameters, x, y):
        return -jnp.take_along_axis(jax.nn.log_softmax(outputs(parameters, x)), y[:, None], 1)[:, 0]

    def mean_squared_error(parameters, x, y):
        return ((outputs(parameters, x) - y) ** 2).reshape(len(y), -1).mean(1)

    def token_cross_entropy(parameters, x, y):
        powers = jax.nn.log_softmax(outputs(parameters, x))
        return -jnp.take_along_axis(powers, y[..., None], 2)[..., 0].mean(1)

    return {"cross_entropy": cross_entropy, "mean_squared_error": mean_squared_error,
            "token_cross_entropy": token_cross_entropy}[task.loss]


def norm_of(tree):
    return jnp.sqrt(sum(jnp.vdot(leaf, leaf) for leaf in jax.tree.leaves(tree)))


def add_noise(tree, key, deviation):
    leaves, structure = jax.tree.flatten(tree)
    keys = jax.random.split(key, len(leaves))
    noisy = [leaf + deviation * jax.random.normal(k, leaf.shape) for leaf, k in zip(leaves, keys)]
    return jax.tree.unflatten(structure, noisy)


def descend(parameters, gradient, rate):
    return jax.tree.map(lambda p, g: p - rate * g, parameters, gradient)


class JaxTraining:
    """Compiles what a step is.

    update(parameters, x, y, rate, noise, key) gives the parameters after a step; gradients(parameters, x, y), for tasks
    without update, the mean of the samples' gradients and in the DP peers their norms.
    """

    def __init__(self, task, update, gradients):
        def step(parameters, x, y, rate, noise, key, count):
            return update(parameters, x, y, rate, noise, jax.random.fold_in(key, count))

        self.task = task
        self.compiled = jax.jit(step, donate_argnums=0) if task.update else jax.jit(gradients)
        self.key = jax.random.key(1)

    def start(self, parameters, rate, noise):
        self.values = jax.device_put(problem.jax_parameters(self.task, parameters))
        self.rate, self.noise = numpy.float32(rate), numpy.float32(noise)
        self.count = 0

    def step(self, x, y):
        self.count += 1
        if self.task.update:
            result = self.compiled(self.values, x, y, self.rate, self.noise, self.key, numpy.uint32(self.count))
            self.values = jax.block_until_ready(result)
        else:
            self.results = None
            self.results = jax.block_until_ready(self.compiled(self.values, x, y))

    def parameters(self):
        return problem.flat_parameters(self.task, self.values)

    def gradients(self):
        mean, norms = self.results
        return problem.flat_parameters(self.task, mean), None if norms is None else numpy.asarray(norms)


class Training(JaxTraining):
    def __init__(self, task, batch, variant):
        losses = losses_of(task)
        gradient = jax.grad(lambda parameters, x, y: losses(parameters, x, y).mean())

        def update(parameters, x, y, rate, noise, key):
            return descend(parameters, gradient(parameters, x, y), rate)

        super().__init__(task, update, lambda parameters, x, y: (gradient(parameters, x, y), None))
