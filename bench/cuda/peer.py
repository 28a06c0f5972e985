# SPDX-License-Identifier: Apache-2.0
"""The peers of one family: `peer.py torch|jax [--device cpu]`, asked by run.py.

Reads one job a line, JSON, and answers each with one line of JSON:
  {"do": "check", "framework": F, "task": T, "folder": D, "batch": B, "steps": N}   is it right?
  {"do": "time",  "framework": F, "task": T, "folder": D, "batch": B, "seconds": S, "precision": "float" or "tf32"}
Networks and steps are those of bench/peers; records, first parameters and the sums to compare with come from ours (D).
Everything lies on the device before it is timed; FP32, without TF32 unless the job's precision is that. `us` is the
time of a step: between CUDA events of successive steps (PyTorch, median) or of calls that are waited for together (JAX,
and everything on a processor; median of groups); in jax_scan many steps are one call. `loop_us` is the host's clock over
all steps.
"""

import argparse
import json
import os
import pathlib
import sys
import time
import traceback

os.environ.setdefault("OMP_NUM_THREADS", str(min(8, os.cpu_count() or 1)))
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "peers"))

import numpy  # noqa: E402

import networks  # noqa: E402
import problem  # noqa: E402

RATE = 0.15
NOISE = 1.1
MODULES = {"torch": ("torch_plain", "eager"), "torch_compiled": ("torch_plain", "compile"),
           "torch_graph": ("torch_graph", "eager"), "torch_vmap": ("vmap", "vmap"), "opacus_hooks": ("opacus_dp", "hooks"),
           "opacus_ghost": ("opacus_dp", "ghost")}
WITHOUT_DP = ("torch", "torch_compiled", "torch_graph")
CYCLE = 8  # batches that JAX takes in turns


class Wrong(Exception):
    """The peer computes something else than it should."""


def median(values):
    return sorted(values)[len(values) // 2]


class Records:
    """What `ours data` has written."""

    def __init__(self, task, folder):
        self.initial = numpy.fromfile(folder / "initial.f32", "float32")
        self.sum = numpy.fromfile(folder / "sum.f32", "float32")
        self.unclipped = numpy.fromfile(folder / "unclipped.f32", "float32")
        self.inputs, self.labels = problem.read_records(task, folder)
        self.on_device = None  # as the family's frameworks want them


class TorchPeer:
    def __init__(self, name, task, records, device):
        import importlib

        import torch

        module, self.variant = MODULES[name]
        torch.backends.cudnn.benchmark = True
        if device == "cuda" and not torch.cuda.is_available():
            raise RuntimeError("PyTorch sees no GPU")
        self.torch, self.task, self.records, self.device = torch, task, records, device
        self.module = importlib.import_module(f"frameworks.{module}")
        plain = importlib.import_module("frameworks.torch_plain")
        plain.flat = lambda tensors: numpy.concatenate([t.detach().cpu().numpy().ravel() for t in tensors])
        self.private = name not in WITHOUT_DP
        self.version = self.module.version()
        if records.on_device is None:
            records.on_device = [part.to(device) for part in plain.records(records.inputs, records.labels, "")]
        self.inputs, self.labels = records.on_device
        self.training = None

    def prepare(self, batch, rate, noise, precision="float"):
        self.torch.backends.cuda.matmul.allow_tf32 = self.torch.backends.cudnn.allow_tf32 = precision == "tf32"
        if self.training is None or self.batch != batch:
            self.training = None
            self.held = 0
            if self.device == "cuda":
                self.torch.cuda.empty_cache()
                self.torch.cuda.reset_peak_memory_stats()
                self.held = self.torch.cuda.memory_allocated()
            self.training = self.module.Training(self.task, batch, self.variant)
            self.training.module.to(self.device)
        self.training.start(self.records.initial, rate, noise)
        self.batch, self.first = batch, 0

    def step(self, stays=False):
        if self.first + self.batch > len(self.labels):
            self.first = 0
        here = slice(self.first, self.first + self.batch)
        self.training.step(self.inputs[here], self.labels[here])
        if not stays:
            self.first += self.batch

    def loss(self):
        """Of the first batch."""
        with self.torch.no_grad():
            logits = self.training.module(self.inputs[:self.batch])
            return float(self.training.criterion()(logits, self.labels[:self.batch]))

    def wait(self):
        if self.device == "cuda":
            self.torch.cuda.synchronize()

    def time(self, seconds):
        """(median of a step in microseconds, mean by the host's clock)"""
        for _ in range(5):
            self.step()
        self.wait()
        if self.device == "cuda" and self.module.__name__ != "frameworks.torch_graph":
            self.torch.cuda.reset_peak_memory_stats()  # of convolutions that cuDNN has tried; a graph takes nothing later
        begin = time.monotonic()
        self.step()
        self.wait()
        once = time.monotonic() - begin
        steps = int(min(1000, max(5, seconds / max(once, 1e-6))))
        events = []
        times = [time.perf_counter()]
        for _ in range(steps):
            if self.device == "cuda":
                events.append(self.torch.cuda.Event(enable_timing=True))
                events[-1].record()
            self.step()
            if self.device != "cuda":
                times.append(time.perf_counter())
        if self.device == "cuda":
            events.append(self.torch.cuda.Event(enable_timing=True))
            events[-1].record()
            self.wait()
            times.append(time.perf_counter())
            each = [a.elapsed_time(b) * 1e3 for a, b in zip(events, events[1:])]
        else:
            each = [(b - a) * 1e6 for a, b in zip(times, times[1:])]
        return median(each), (times[-1] - times[0]) * 1e6 / steps

    def peak_mb(self):
        return (self.torch.cuda.max_memory_allocated() - self.held) * 1e-6 if self.device == "cuda" else None

    def forget(self):
        self.training = None


class JaxPeer:
    private = True

    def __init__(self, name, task, records, device):
        import jax

        if device == "cuda" and jax.default_backend() != "gpu":
            raise RuntimeError("JAX sees no GPU")
        from frameworks import jax_dp
        from frameworks.jax_plain import losses_of

        self.jax, self.module, self.task, self.records = jax, jax_dp, task, records
        self.losses = jax.jit(losses_of(task))
        self.scan = name == "jax_scan"
        self.training = None
        self.version = jax_dp.version()
        if records.on_device is None:
            records.on_device = jax.device_put(jax_dp.records(records.inputs, records.labels, "jit"))
        self.inputs, self.labels = records.on_device

    def prepare(self, batch, rate, noise, precision="float", steps=64):
        jax = self.jax
        jax.config.update("jax_default_matmul_precision", "tensorfloat32" if precision == "tf32" else "highest")
        if self.training is not None and (self.batch, self.precision, self.steps) == (batch, precision, steps):
            self.training.start(self.records.initial, rate, noise)
            return  # it is compiled
        t = self.training = self.module.Training(self.task, batch, "jit")
        t.start(self.records.initial, rate, noise)
        self.batch, self.precision, self.steps = batch, precision, steps
        starts = [i * batch % (len(self.records.labels) - batch + 1) for i in range(CYCLE)]
        self.batches = [jax.block_until_ready((self.inputs[i:i + batch], self.labels[i:i + batch])) for i in starts]
        if self.scan:
            step = t.compiled

            def many(values, inputs, labels, rate, noise, key, count):
                def one(values, i):
                    return step(values, inputs[i % CYCLE], labels[i % CYCLE], rate, noise, key, count + i), None

                return jax.lax.scan(one, values, jax.numpy.arange(steps, dtype="uint32"))[0]

            self.data = jax.block_until_ready(tuple(jax.numpy.stack(part) for part in zip(*self.batches)))
            function = jax.jit(many, donate_argnums=0)
        else:
            self.data = self.batches[0]
            function = t.compiled
        self.call = function.lower(t.values, *self.data, t.rate, t.noise, t.key, numpy.uint32(0)).compile()

    def start_call(self, data):
        t = self.training
        t.values = self.call(t.values, *data, t.rate, t.noise, t.key, numpy.uint32(t.count))
        t.count += self.steps if self.scan else 1

    def step(self, stays=False):
        self.start_call(self.data)
        self.jax.block_until_ready(self.training.values)

    def loss(self):
        return float(self.losses(self.training.values, *self.batches[0]).mean())

    def group(self):
        """Time of some steps, waited for together, a step."""
        begin = time.perf_counter()
        if self.scan:
            self.start_call(self.data)
        else:
            for i in range(self.steps):
                self.start_call(self.batches[i % CYCLE])
        self.jax.block_until_ready(self.training.values)
        return (time.perf_counter() - begin) * 1e6 / self.steps

    def time(self, seconds):
        if not self.scan:  # as many as make 20 ms
            self.steps = 2
            self.group()
            self.steps = int(min(64, max(1, 2e4 / self.group())))
        self.group()
        end = time.monotonic() + seconds
        groups = []
        while len(groups) < 2 or (len(groups) < 50 and time.monotonic() < end):
            groups.append(self.group())
        return median(groups), sum(groups) / len(groups)

    def peak_mb(self):
        """XLA's own account of the compiled step, with one batch of records."""
        found = self.call.memory_analysis()
        if found is None:
            return None
        others = sum(part.nbytes for part in self.data) * (CYCLE - 1) // CYCLE if self.scan else 0
        return (found.temp_size_in_bytes + found.argument_size_in_bytes + found.output_size_in_bytes -
                found.alias_size_in_bytes - others) * 1e-6

    def forget(self):
        self.training = self.call = self.data = self.batches = None


def check(peer, batch, steps):
    """One step subtracts our sum, and the loss goes down in so many more; not asked of 0."""
    options = {"steps": 1} if isinstance(peer, JaxPeer) else {}
    peer.prepare(batch, batch, 0.0, **options)
    before = peer.loss()
    peer.step(stays=True)
    wanted = (peer.records.sum if peer.private else peer.records.unclipped).astype("float64")
    found = (peer.records.initial.astype("float64") - peer.training.parameters())[:len(wanted)]  # frozen ones are last
    difference = float(numpy.linalg.norm(found - wanted) / numpy.linalg.norm(wanted))
    if not difference <= peer.task.largest_difference:
        raise Wrong(f"its {'clipped ' if peer.private else ''}sum differs by {difference:.1e}")
    if steps == 0:
        return {"difference": difference}
    peer.prepare(batch, RATE, 0.0, **options)
    for _ in range(steps):
        peer.step(stays=True)
    after = peer.loss()
    if not after < before:
        raise Wrong(f"its loss goes from {before:.4f} to {after:.4f} in {steps} steps")
    return {"difference": difference, "first_loss": before, "last_loss": after}


def time_steps(peer, batch, seconds, precision):
    peer.prepare(batch, RATE, NOISE, precision)
    us, loop_us = peer.time(seconds)
    return {"us": us, "loop_us": loop_us, "peak_mb": peer.peak_mb()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("family", choices=["torch", "jax"])
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    options = parser.parse_args()
    if options.family == "jax" and options.device == "cpu":
        os.environ["JAX_PLATFORMS"] = "cpu"
    # Answers go where only they go; what the frameworks print becomes a message of this program.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    peers, records = {}, {}
    for line in sys.stdin:
        job = json.loads(line)
        task = networks.TASKS[job["task"]]
        answer, peer = {}, None
        try:
            if job["task"] not in records:
                records[job["task"]] = Records(task, pathlib.Path(job["folder"]))
            key = (job["framework"], job["task"])
            if key not in peers:
                kind = JaxPeer if options.family == "jax" else TorchPeer
                peers[key] = kind(job["framework"], task, records[job["task"]], options.device)
            peer = peers[key]
            answer = {"version": peer.version, "private": peer.private}
            if job["do"] == "check":
                answer.update(check(peer, job["batch"], job["steps"]))
            else:
                answer.update(time_steps(peer, job["batch"], job["seconds"], job["precision"]))
        except Wrong as wrong:
            answer["failure"] = f"WRONG: {wrong}"
        except Exception as problem_found:  # such as no memory: the next batch may still do
            traceback.print_exc()
            answer["failure"] = " ".join(f"{type(problem_found).__name__}: {problem_found}".split())[:300]
        if peer is not None:
            peer.forget()
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
