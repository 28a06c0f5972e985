# SPDX-License-Identifier: Apache-2.0
"""BackPACK: the extension BatchGrad."""

import importlib.metadata

import torch
from backpack import backpack, extend
from backpack.extensions import BatchGrad
from torch import nn

from frameworks.torch_plain import TorchTraining, records  # noqa: F401
from frameworks.vmap import clip_and_update


def version():
    return f"backpack {importlib.metadata.version('backpack-for-pytorch')}, torch {torch.__version__}"


class Training(TorchTraining):
    def __init__(self, task, batch, variant):
        super().__init__(task)
        self.model = extend(self.module)
        self.loss = extend(nn.CrossEntropyLoss(reduction="sum"))

    def step(self, x, y):
        for parameter in self.own_parameters:
            parameter.grad = None
        with backpack(BatchGrad()):
            self.loss(self.model(x), y).backward()
        gradients = [parameter.grad_batch for parameter in self.own_parameters]
        clip_and_update(self, gradients, len(y))
        for parameter in self.own_parameters:
            del parameter.grad_batch
