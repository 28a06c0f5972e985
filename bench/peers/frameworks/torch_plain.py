# SPDX-License-Identifier: Apache-2.0
"""PyTorch without privacy: eager and compiled, with images stored either way. The base of all other PyTorch peers."""

import os

import numpy
import torch
from torch import nn

import problem

torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
torch.set_num_interop_threads(1)


def version():
    return f"torch {torch.__version__}"


def records(inputs, targets, variant):
    """Whole numbers as int64, which PyTorch's users have; images in the layout of the network."""
    inputs, targets = (torch.from_numpy(values).long() if values.dtype == numpy.int32 else torch.from_numpy(values)
                       for values in (inputs, targets))
    return [inputs.contiguous(memory_format=memory_format(inputs.dim() - 1, variant)), targets]


def memory_format(dimensions, variant):
    return torch.channels_last if variant.endswith("channels_last") and dimensions == 3 else torch.contiguous_format


def flat(tensors):
    return numpy.concatenate([tensor.detach().contiguous().numpy().ravel() for tensor in tensors])


class TokenCrossEntropy(nn.Module):
    """A sample's loss is the mean over its positions."""

    def __init__(self, reduction="mean"):
        super().__init__()
        self.reduction = reduction

    def forward(self, y, targets):
        if self.reduction == "mean":
            return nn.functional.cross_entropy(y.flatten(0, 1), targets.flatten())
        losses = nn.functional.cross_entropy(y.flatten(0, 1), targets.flatten(), reduction="none")
        return losses.view(targets.shape).mean(1)


class TorchTraining:
    """A module whose parameters are set and read as one flat vector, in problem.py's order.

    A task without update leaves the mean of the gradients in .grad and, in the DP peers, their norms in self.norms.
    """

    def __init__(self, task, flavour="torch"):
        self.task = task
        self.module, self.own_parameters = problem.torch_module(task, flavour)
        self.rate = self.noise = 0.0
        self.norms = None

    def criterion(self, **options):
        return {"cross_entropy": nn.CrossEntropyLoss, "mean_squared_error": nn.MSELoss,
                "token_cross_entropy": TokenCrossEntropy}[self.task.loss](**options)

    def start(self, parameters, rate, noise):
        with torch.no_grad():
            begin = 0
            for parameter in self.own_parameters:
                part = parameters[begin:begin + parameter.numel()].reshape(parameter.shape)
                parameter.copy_(torch.from_numpy(part))
                begin += parameter.numel()
        self.rate, self.noise = rate, noise

    def parameters(self):
        return flat(self.own_parameters)

    def gradients(self):
        """The mean of the samples' gradients, and their norms or None."""
        return flat([p.grad for p in self.own_parameters]), None if self.norms is None else self.norms.detach().numpy()


class Training(TorchTraining):
    def __init__(self, task, batch, variant):
        super().__init__(task)
        self.module.to(memory_format=memory_format(len(task.input), variant))
        self.optimizer = torch.optim.SGD(self.own_parameters, lr=1.0)
        criterion = self.criterion()

        def loss(x, y):
            return criterion(self.module(x), y)

        if variant.startswith("compile"):
            torch._dynamo.reset()
            self.loss = torch.compile(loss, dynamic=False)
        else:
            self.loss = loss

    def start(self, parameters, rate, noise):
        super().start(parameters, rate, noise)
        self.optimizer.param_groups[0]["lr"] = rate

    def step(self, x, y):
        self.optimizer.zero_grad(set_to_none=True)
        self.loss(x, y).backward()
        if self.task.update:
            self.optimizer.step()
