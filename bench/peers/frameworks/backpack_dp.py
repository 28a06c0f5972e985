# SPDX-License-Identifier: Apache-2.0
"""BackPACK: the extension BatchGrad; BatchL2Grad where only norms are asked for."""

import importlib.metadata

import torch
from backpack import backpack, extend
from backpack.extensions import BatchGrad, BatchL2Grad

from frameworks.torch_plain import TorchTraining, records  # noqa: F401
from frameworks.vmap import clip_and_update


def version():
    return f"backpack {importlib.metadata.version('backpack-for-pytorch')}, torch {torch.__version__}"


class Training(TorchTraining):
    def __init__(self, task, batch, variant):
        super().__init__(task, "backpack")
        self.model = extend(self.module)
        self.loss = extend(self.criterion(reduction="sum" if task.update else "mean"))

    def field(self, name):
        try:
            return [getattr(parameter, name) for parameter in self.own_parameters]
        except AttributeError:
            without = sorted({type(module).__name__ for module in self.module.modules()
                              if any(not hasattr(p, name) for p in module.parameters(recurse=False))})
            raise NotImplementedError(f"BackPACK has no {name} for {', '.join(without)}") from None

    def step(self, x, y):
        for parameter in self.own_parameters:
            parameter.grad = None
        if self.task.update:
            with backpack(BatchGrad()):
                self.loss(self.model(x), y).backward()
            clip_and_update(self, self.field("grad_batch"), len(y))
            for parameter in self.own_parameters:
                del parameter.grad_batch
        else:
            with backpack(BatchL2Grad()):
                self.loss(self.model(x).flatten(1), y.flatten(1)).backward()
            squares = torch.stack(self.field("batch_l2")).sum(0)
            self.norms = squares.sqrt() * len(y)
