# SPDX-License-Identifier: Apache-2.0
"""PyTorch's torch.func: vmap of grad of one sample's loss."""

import torch
from torch.func import functional_call, grad, vmap
from torch.nn import functional

from frameworks.torch_plain import TorchTraining, records, version  # noqa: F401


def clip_and_update(training, gradients, batch):
    """What torch.func and BackPACK leave to the user. gradients: one tensor [batch, ...] for each parameter."""
    with torch.no_grad():
        norms = torch.stack([g.flatten(1).norm(2, dim=1) for g in gradients]).norm(2, dim=0)
        factors = (1 / norms).clamp(max=1)
        for parameter, g in zip(training.own_parameters, gradients):
            total = torch.tensordot(factors, g, dims=1)
            total += training.noise * torch.randn_like(total)
            parameter -= training.rate / batch * total


class Training(TorchTraining):
    def __init__(self, task, batch, variant):
        super().__init__(task)
        names = [name for name, _ in self.module.named_parameters()]
        module = self.module

        def loss(parameters, x, y):
            logits = functional_call(module, dict(zip(names, parameters)), (x.unsqueeze(0),))
            return functional.cross_entropy(logits, y.unsqueeze(0))

        self.gradients = vmap(grad(loss), in_dims=(None, 0, 0))

    def step(self, x, y):
        gradients = self.gradients(tuple(p.detach() for p in self.own_parameters), x, y)
        clip_and_update(self, gradients, len(y))
