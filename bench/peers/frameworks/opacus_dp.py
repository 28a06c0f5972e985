# SPDX-License-Identifier: Apache-2.0
"""Opacus: per-sample gradients by hooks, by functorch, by expanded weights; ghost clipping."""

import importlib.metadata
import warnings

import torch
from opacus.grad_sample import GradSampleModule, GradSampleModuleExpandedWeights, GradSampleModuleFastGradientClipping
from opacus.optimizers import DPOptimizer, DPOptimizerFastGradientClipping
from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping

from frameworks.torch_plain import TorchTraining, records  # noqa: F401
from frameworks.vmap import norms_of

warnings.filterwarnings("ignore", message=".*backward hook.*")


def version():
    return f"opacus {importlib.metadata.version('opacus')}, torch {torch.__version__}"


class Training(TorchTraining):
    def __init__(self, task, batch, variant):
        super().__init__(task, "opacus")
        self.variant = variant
        optimizer = torch.optim.SGD(self.own_parameters, lr=1.0)
        options = dict(noise_multiplier=0.0, max_grad_norm=1.0, expected_batch_size=batch, loss_reduction="mean")
        self.loss = self.criterion()
        if variant == "ghost":
            self.model = GradSampleModuleFastGradientClipping(self.module, max_grad_norm=1.0, use_ghost_clipping=True)
            self.optimizer = DPOptimizerFastGradientClipping(optimizer, **options)
            if task.update:  # the norms alone need one backward pass only
                self.loss = DPLossFastGradientClipping(self.model, self.optimizer, self.loss, "mean")
        else:
            self.model = {
                "hooks": lambda: GradSampleModule(self.module),
                "functorch": lambda: GradSampleModule(self.module, force_functorch=True),
                "ew": lambda: GradSampleModuleExpandedWeights(self.module),
            }[variant]()
            self.optimizer = DPOptimizer(optimizer, **options)

    def start(self, parameters, rate, noise):
        super().start(parameters, rate, noise)
        self.optimizer.noise_multiplier = noise
        self.optimizer.param_groups[0]["lr"] = rate

    def step(self, x, y):
        self.optimizer.zero_grad()
        self.loss(self.model(x), y).backward()
        if self.task.update:
            self.optimizer.step()
        elif self.variant == "ghost":
            self.norms = self.model.get_norm_sample()
        else:
            self.norms = norms_of([p.grad_sample for p in self.own_parameters])
            for parameter in self.own_parameters:
                if parameter.grad is None:  # expanded weights give the samples' gradients only
                    parameter.grad = parameter.grad_sample.mean(0)
