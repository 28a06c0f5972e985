# SPDX-License-Identifier: Apache-2.0
"""One peer on the GPU: `peer.py FRAMEWORK TASK FOLDER SECONDS CHECKED_BATCH BATCH...`, one line of JSON a batch.

Networks and steps are those of bench/peers; records, first parameters and the clipped sum to compare with come from
ours (FOLDER). Everything lies on the GPU before it is timed; FP32 without TF32. `us` is the time of a step: by CUDA
events (PyTorch, median) or of calls that are waited for together (JAX, median of groups); in jax_scan many steps are
one call.
"""

import json
import os
import pathlib
import sys
import time

os.environ.setdefault("OMP_NUM_THREADS", "8")
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "peers"))

import numpy  # noqa: E402

import problem  # noqa: E402

RATE = 0.15
NOISE = 1.1
MODULES = {"torch": ("torch_plain", "eager"), "torch_vmap": ("vmap", "vmap"), "opacus_hooks": ("opacus_dp", "hooks"),
           "opacus_ghost": ("opacus_dp", "ghost")}
LARGEST_DIFFERENCE = 1e-4


def median(values):
    return sorted(values)[len(values) // 2]


class Records:
    def __init__(self, task, folder):
        self.initial = numpy.fromfile(folder / "initial.f32", "float32")
        self.sum = numpy.fromfile(folder / "sum.f32", "float32")
        self.inputs = numpy.fromfile(folder / "inputs.f32", "float32").reshape(-1, *task.input)
        self.labels = numpy.fromfile(folder / "labels.i32", "int32")

    def difference(self, before, after):
        """Of the clipped sum that a step with this rate and without noise has subtracted, to ours."""
        found = before.astype("float64") - after.astype("float64")
        return float(numpy.linalg.norm(found - self.sum) / numpy.linalg.norm(self.sum))


class TorchPeer:
    def __init__(self, name, task, records):
        import importlib

        import torch

        module, self.variant = MODULES[name]
        torch.backends.cuda.matmul.allow_tf32 = False
        torch.backends.cudnn.allow_tf32 = False
        torch.backends.cudnn.benchmark = True
        if not torch.cuda.is_available():
            raise SystemExit("PyTorch sees no GPU")
        self.torch, self.task, self.records = torch, task, records
        self.module = importlib.import_module(f"frameworks.{module}")
        plain = importlib.import_module("frameworks.torch_plain")
        plain.flat = lambda tensors: numpy.concatenate([t.detach().cpu().numpy().ravel() for t in tensors])
        self.private = name != "torch"
        self.version = self.module.version()
        self.inputs = torch.from_numpy(records.inputs).cuda()
        self.labels = torch.from_numpy(records.labels).long().cuda()

    def prepare(self, batch, rate, noise):
        self.training = None
        self.torch.cuda.empty_cache()
        self.torch.cuda.reset_peak_memory_stats()
        self.held = self.torch.cuda.memory_allocated()
        self.training = self.module.Training(self.task, batch, self.variant)
        self.training.module.to("cuda")
        self.training.start(self.records.initial, rate, noise)
        self.batch, self.first = batch, 0

    def step(self):
        if self.first + self.batch > len(self.labels):
            self.first = 0
        here = slice(self.first, self.first + self.batch)
        self.training.step(self.inputs[here], self.labels[here])
        self.first += self.batch

    def difference(self):
        self.step()
        return self.records.difference(self.records.initial, self.training.parameters())

    def time(self, seconds):
        end = time.monotonic() + seconds
        for _ in range(10):
            self.step()
        pairs = []
        self.torch.cuda.synchronize()
        while len(pairs) < 30 or (len(pairs) < 300 and time.monotonic() < end):
            pair = [self.torch.cuda.Event(enable_timing=True) for _ in range(2)]
            pair[0].record()
            self.step()
            pair[1].record()
            pairs.append(pair)
            if time.monotonic() > end + 5:
                break
        self.torch.cuda.synchronize()
        return median([begin.elapsed_time(finish) * 1e3 for begin, finish in pairs])

    def peak_mb(self):
        return (self.torch.cuda.max_memory_allocated() - self.held) * 1e-6


class JaxPeer:
    private = True

    def __init__(self, name, task, records):
        import jax

        jax.config.update("jax_default_matmul_precision", "highest")
        if jax.default_backend() != "gpu":
            raise SystemExit("JAX sees no GPU")
        from frameworks import jax_dp

        self.jax, self.module, self.task, self.records = jax, jax_dp, task, records
        self.scan = name == "jax_scan"
        self.version = jax_dp.version()
        self.inputs, self.labels = jax.device_put(jax_dp.records(records.inputs, records.labels))

    def prepare(self, batch, rate, noise):
        jax = self.jax
        self.training = self.module.Training(self.task, batch, "jit")
        self.training.start(self.records.initial, rate, noise)
        self.batch = batch
        self.batches = [jax.block_until_ready((self.inputs[i:i + batch], self.labels[i:i + batch]))
                        for i in range(0, 8 * batch, batch)]
        self.steps = 64
        if self.scan:
            step = self.training.compiled

            def many(values, inputs, labels, rate, noise, key, count):
                def one(values, i):
                    return step(values, inputs[i % 8], labels[i % 8], rate, noise, key, count + i), None

                return jax.lax.scan(one, values, jax.numpy.arange(self.steps, dtype="uint32"))[0]

            self.many = jax.jit(many, donate_argnums=0)
            self.stacked = jax.block_until_ready(tuple(jax.numpy.stack(part) for part in zip(*self.batches)))

    def difference(self):
        self.training.step(*self.batches[0])
        return self.records.difference(self.records.initial, self.training.parameters())

    def group(self):
        """Time of some steps, waited for together, a step."""
        t = self.training
        begin = time.perf_counter()
        if self.scan:
            t.values = self.many(t.values, *self.stacked, t.rate, t.noise, t.key, numpy.uint32(t.count))
            t.count += self.steps
        else:
            for i in range(self.steps):
                t.count += 1
                t.values = t.compiled(t.values, *self.batches[i % 8], t.rate, t.noise, t.key, numpy.uint32(t.count))
        self.jax.block_until_ready(t.values)
        return (time.perf_counter() - begin) * 1e6 / self.steps

    def time(self, seconds):
        self.group()  # compiles
        end = time.monotonic() + seconds
        groups = []
        while len(groups) < 3 or (len(groups) < 50 and time.monotonic() < end):
            groups.append(self.group())
        return median(groups)

    def peak_mb(self):
        return self.jax.local_devices()[0].memory_stats()["peak_bytes_in_use"] * 1e-6


def main():
    name, task_name, folder, seconds, checked, *batches = sys.argv[1:]
    end = time.monotonic() + float(seconds)
    task = problem.TASKS[task_name]
    peer = (JaxPeer if name.startswith("jax") else TorchPeer)(name, task, Records(task, pathlib.Path(folder)))
    difference = None
    if peer.private:
        peer.prepare(int(checked), float(checked), 0.0)
        difference = peer.difference()
        if not difference <= LARGEST_DIFFERENCE:
            print(json.dumps({"version": peer.version, "failure": f"WRONG: its clipped sum differs by {difference:.1e}"}))
            return
    for batch in map(int, batches):
        row = {"batch": batch, "version": peer.version, "private": peer.private}
        if difference is not None:
            row["difference"] = difference
        if time.monotonic() > end:
            row["failure"] = "no time left"
        else:
            try:
                peer.prepare(batch, RATE, NOISE)
                row["us"] = peer.time(min(1.0, max(0.2, end - time.monotonic())))
                row["peak_mb"] = peer.peak_mb()
            except Exception as problem_found:  # such as no memory: the next batch may still do
                row["failure"] = f"{type(problem_found).__name__}: {problem_found}"[:300]
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
