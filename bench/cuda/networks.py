# SPDX-License-Identifier: Apache-2.0
"""The networks that are built, checked and timed: bench/peers' table and two small ones. Standard library only."""

import dataclasses
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "peers"))

import language  # noqa: E402
import problem  # noqa: E402
import sequences  # noqa: E402

TINY = problem.Task("a small network with every kind of node, for the sanitizers", (1, 10, 9), (
    problem.conv(4, 3, 2, 1), problem.relu, problem.max_pool(2, 1), problem.flatten, problem.linear(8), problem.sigmoid,
    problem.linear(3)))
# Some products are of several positions, so that tensor cores form them; attention of more than one tile, with heads of
# 12 and, where it is causal, of 18 columns.
TINY_SEQUENCES = problem.Task("a small network of ids with attention and an LSTM, for checks and the sanitizers", (70,), (
    sequences.Embedding(20, 36), sequences.TransformerEncoderLayer(3, 48), language.Gpt2Block(2),
    sequences.Recurrent("lstm", 16), sequences.MeanOverPositions(), problem.linear(3)), vocabulary=20)
ONLY_CHECKED = {"tiny": TINY, "tiny_sequences": TINY_SEQUENCES}
TIMED = ("mnist_cnn", "mlp", "cifar_cnn", "lstm", "vgg16", "lk_transformer", "gpt2_small_lora")
TASKS = {**ONLY_CHECKED, **{name: problem.TASKS[name] for name in TIMED}}
# Its first parameters are our layers', of which logits are large, not those of bench/peers.
TASKS["gpt2_small_lora"] = dataclasses.replace(TASKS["gpt2_small_lora"], largest_difference=1e-3)
SMALL = ("mnist_cnn", "mlp")
MORE = ("lstm", "vgg16", "lk_transformer", "gpt2_small_lora")  # what is timed only after all of the others
OWN_BATCHES = {"lstm": (16, 256), "vgg16": (8,), "lk_transformer": (32,), "gpt2_small_lora": (8,)}
OWN_RECORDS = {"lstm": 4096, "vgg16": 64, "lk_transformer": 128, "gpt2_small_lora": 64}
TAUGHT = (*ONLY_CHECKED, "mnist_cnn", "mlp", "cifar_cnn", "lstm")  # whose loss goes down within some steps
# Of the comparison with the host executor, which would take minutes for two.
OWN_CHECKED_RECORDS = {"lstm": 24, "vgg16": 0, "lk_transformer": 24, "gpt2_small_lora": 0}
