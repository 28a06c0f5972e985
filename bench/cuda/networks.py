# SPDX-License-Identifier: Apache-2.0
"""The networks that are built, checked and timed: bench/peers' table and a tiny one. Standard library only."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "peers"))

import problem  # noqa: E402

TINY = problem.Task("a small network with every kind of node, for the sanitizers", (1, 10, 9), (
    problem.conv(4, 3, 2, 1), problem.relu, problem.max_pool(2, 1), problem.flatten, problem.linear(8), problem.sigmoid,
    problem.linear(3)))
TIMED = ("mnist_cnn", "mlp", "cifar_cnn", "lstm", "vgg16")
TASKS = {"tiny": TINY, **{name: problem.TASKS[name] for name in TIMED}}
SMALL = ("mnist_cnn", "mlp")
MORE = ("lstm", "vgg16")  # what is timed only after all of the others
OWN_BATCHES = {"lstm": (16, 256), "vgg16": (8,)}
OWN_RECORDS = {"lstm": 4096, "vgg16": 64}
# Of the comparison with the host executor, which would take minutes for the last.
OWN_CHECKED_RECORDS = {"lstm": 24, "vgg16": 0}
