# SPDX-License-Identifier: Apache-2.0
"""One peer in a process of its own: `worker.py FRAMEWORK TASK THREADS FOLDER`, then commands on stdin.

    prepare BATCH FILE   first step with rate BATCH and without noise, so that it subtracts the (clipped) sum of the
                         first batch's gradients from the parameters; writes the parameters to FILE
    run SECONDS          steps with rate 0.15 and noise multiplier 1.1 from the initial parameters; answers their times

Every answer is one line of JSON.
"""

import gc
import importlib
import json
import os
import pathlib
import resource
import sys
import time

import numpy

import problem

RATE = 0.15
NOISE = 1.1
FEWEST_STEPS = 3
ENOUGH_SECONDS = 60  # however few steps that were


def peak_mb():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024e-6


class Session:
    def __init__(self, module, variant, task, threads, folder):
        self.module, self.variant, self.task, self.threads = module, variant, task, threads
        self.initial = numpy.load(folder / "initial.npy")
        inputs = numpy.fromfile(folder / "inputs.f32", numpy.float32).reshape(-1, *task.input)
        labels = numpy.fromfile(folder / "labels.i32", numpy.int32)
        self.inputs, self.labels = module.records(inputs, labels)
        self.training = None

    def step(self):
        batch = self.batch
        if self.first + batch > len(self.labels):
            self.first = 0
        here = slice(self.first, self.first + batch)
        self.training.step(self.inputs[here], self.labels[here])
        self.first += batch

    def start(self, rate, noise):
        self.training.start(self.initial, rate, noise)
        self.first = 0

    def prepare(self, batch, path):
        self.training = None
        gc.collect()
        self.batch = int(batch)
        begin = time.perf_counter()
        self.training = self.module.Training(self.task, self.batch, self.variant)
        self.start(float(self.batch), 0.0)
        self.step()
        first = time.perf_counter() - begin
        numpy.save(path, self.training.parameters())
        return {"version": self.module.version(), "first_step_seconds": first, "peak_mb": peak_mb()}

    def run(self, seconds):
        self.start(RATE, NOISE)
        self.step()
        times = []
        total = 0
        while total < float(seconds) or (len(times) < FEWEST_STEPS and total < ENOUGH_SECONDS):
            begin = time.perf_counter()
            self.step()
            times.append(time.perf_counter() - begin)
            total += times[-1]
        return {"microseconds": [t * 1e6 for t in times], "peak_mb": peak_mb()}


def main():
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever a library prints goes to the log
    module, variant, task, threads, folder = sys.argv[1:]
    session = None
    for line in sys.stdin:
        command, *arguments = line.split()
        if session is None:
            session = Session(importlib.import_module(f"frameworks.{module}"), variant, problem.TASKS[task], int(threads),
                              pathlib.Path(folder))
        print(json.dumps(getattr(session, command)(*arguments)), file=answers, flush=True)


if __name__ == "__main__":
    main()
