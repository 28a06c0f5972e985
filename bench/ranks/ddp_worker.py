# SPDX-License-Identifier: Apache-2.0
"""One process of Opacus' DistributedDataParallel over gloo: `ddp_worker.py VARIANT TASK FOLDER RECORDS SECONDS FILE`, with
RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT in its environment. Does and prints what ddp_ours.cpp does."""

import json
import os
import pathlib
import re
import sys
import time
import warnings

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "peers"))

import numpy  # noqa: E402
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from opacus.distributed import DifferentiallyPrivateDistributedDataParallel as DPDDP  # noqa: E402
from opacus.grad_sample import GradSampleModule, GradSampleModuleFastGradientClipping  # noqa: E402
from opacus.optimizers.ddpoptimizer import DistributedDPOptimizer  # noqa: E402
from opacus.optimizers.ddpoptimizer_fast_gradient_clipping import DistributedDPOptimizerFastGradientClipping  # noqa: E402
from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping  # noqa: E402

import problem  # noqa: E402
from frameworks.torch_plain import TorchTraining  # noqa: E402

warnings.filterwarnings("ignore", message=".*backward hook.*")


class Training(TorchTraining):
    """As PrivacyEngine makes it: the expected batch of a process is its share."""

    def __init__(self, task, share, variant):
        super().__init__(task, "opacus")
        optimizer = torch.optim.SGD(self.own_parameters, lr=1.0)
        options = dict(noise_multiplier=0.0, max_grad_norm=1.0, expected_batch_size=share, loss_reduction="mean")
        self.loss = self.criterion()
        if variant == "ghost":
            self.model = GradSampleModuleFastGradientClipping(DPDDP(self.module), max_grad_norm=1.0, use_ghost_clipping=True)
            self.optimizer = DistributedDPOptimizerFastGradientClipping(optimizer, **options)
            self.loss = DPLossFastGradientClipping(self.model, self.optimizer, self.loss, "mean")
        else:
            self.model = GradSampleModule(DPDDP(self.module))
            self.optimizer = DistributedDPOptimizer(optimizer, **options)

    def start(self, parameters, rate, noise):
        super().start(parameters, rate, noise)
        self.optimizer.noise_multiplier = noise
        self.optimizer.param_groups[0]["lr"] = rate

    def step(self, x, y):
        self.optimizer.zero_grad()
        self.loss(self.model(x), y).backward()
        self.optimizer.step()


def of_all(value, how):
    tensor = torch.tensor([value], dtype=torch.float64)
    dist.all_reduce(tensor, how)
    return tensor.item()


def main():
    variant, task_name, folder, records, seconds, file = sys.argv[1:]
    folder, records, seconds = pathlib.Path(folder), int(records), float(seconds)
    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    task = problem.TASKS[task_name]
    here = slice(records * rank // ranks, records * (rank + 1) // ranks)
    x, y = (torch.from_numpy(numpy.array(values[here])) for values in problem.read_records(task, folder))
    y = y.long()
    initial = numpy.load(folder / "initial.npy")
    training = Training(task, records // ranks, variant)
    training.start(initial, records, 0.0)
    training.step(x, y)
    if rank == 0:
        training.parameters().astype(numpy.float32).tofile(file)
    training.start(initial, 0.15, 1.1)
    training.step(x, y)
    milliseconds, passed = [], 0.0
    while passed < seconds:
        begin = time.perf_counter()
        training.step(x, y)
        took = time.perf_counter() - begin
        milliseconds.append(took * 1e3)
        passed = of_all(passed + took if rank == 0 else 0.0, dist.ReduceOp.SUM)  # all end with the same step
    # Not ru_maxrss: that begins with what the process held that started us.
    status = pathlib.Path("/proc/self/status").read_text(encoding="ascii")
    peak = of_all(int(re.search(r"VmHWM:\s*(\d+)", status)[1]) * 1024e-6, dist.ReduceOp.MAX)
    if rank == 0:
        print(json.dumps({"peak_mb": round(peak, 1), "milliseconds": [round(each, 4) for each in milliseconds]}))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
