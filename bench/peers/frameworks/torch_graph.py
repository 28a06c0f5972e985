# SPDX-License-Identifier: Apache-2.0
"""PyTorch without privacy, the whole step captured into a CUDA graph: what replays it copies its batch to one place."""

import torch

from frameworks import torch_plain
from frameworks.torch_plain import records, version  # noqa: F401

WARM_UP = 3  # steps on a side stream before a capture, as PyTorch's documentation has it


class Training(torch_plain.Training):
    def __init__(self, task, batch, variant):
        if not torch.cuda.is_available():
            raise RuntimeError("needs a GPU")
        super().__init__(task, batch, variant)
        self.graph = None

    def start(self, parameters, rate, noise):
        self.graph = None  # it has the former rate
        super().start(parameters, rate, noise)

    def capture(self, x, y):
        self.x, self.y = x.clone(), y.clone()
        before = [parameter.detach().clone() for parameter in self.own_parameters]
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(WARM_UP):
                super().step(self.x, self.y)
        torch.cuda.current_stream().wait_stream(side)
        with torch.no_grad():
            for parameter, value in zip(self.own_parameters, before):
                parameter.copy_(value)
        # Without gradients, which then come from the graph's own memory.
        self.optimizer.zero_grad(set_to_none=True)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            super().step(self.x, self.y)
        self.graph = graph

    def step(self, x, y):
        if self.graph is None:
            self.capture(x, y)
        self.x.copy_(x)
        self.y.copy_(y)
        self.graph.replay()
