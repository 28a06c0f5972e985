# SPDX-License-Identifier: Apache-2.0
"""PyTorch's torch.func: vmap of grad of one sample's loss."""

import torch
from torch.func import functional_call, grad, vmap

from frameworks.torch_plain import TorchTraining, records, version  # noqa: F401


def norms_of(gradients):
    """gradients: one tensor [batch, ...] for each parameter."""
    return torch.stack([g.flatten(1).norm(2, dim=1) for g in gradients]).norm(2, dim=0)


def clip_and_update(training, gradients, batch):
    """What torch.func and BackPACK leave to the user."""
    with torch.no_grad():
        factors = (1 / norms_of(gradients)).clamp(max=1)
        for parameter, g in zip(training.own_parameters, gradients):
            total = torch.tensordot(factors, g, dims=1)
            total += training.noise * torch.randn_like(total)
            parameter -= training.rate / batch * total


class Training(TorchTraining):
    def __init__(self, task, batch, variant):
        super().__init__(task, "vmap")
        names = {id(parameter): name for name, parameter in self.module.named_parameters()}
        self.trained = [parameter for parameter in self.own_parameters if parameter.requires_grad]
        names = [names[id(parameter)] for parameter in self.trained]
        module, criterion = self.module, self.criterion()

        def loss(parameters, x, y):
            outputs = functional_call(module, dict(zip(names, parameters)), (x.unsqueeze(0),))
            return criterion(outputs, y.unsqueeze(0))

        self.sample_gradients = vmap(grad(loss), in_dims=(None, 0, 0))

    def step(self, x, y):
        gradients = self.sample_gradients(tuple(p.detach() for p in self.trained), x, y)
        if self.task.update:
            clip_and_update(self, gradients, len(y))
        else:
            self.norms = norms_of(gradients)
            for parameter, g in zip(self.own_parameters, gradients):
                parameter.grad = g.mean(0)
