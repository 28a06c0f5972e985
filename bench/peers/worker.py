# SPDX-License-Identifier: Apache-2.0
"""One peer in a process of its own: `worker.py MODULE VARIANT TASK FOLDER`, then commands on stdin.

    prepare BATCH FILE   first step with rate BATCH and without noise, so that it subtracts the (clipped) sum of the
                         first batch's gradients from the parameters; writes the parameters to FILE. In a task without
                         update: the mean of the first batch's gradients, in the DP frameworks followed by the
                         samples' norms
    run SECONDS          steps with rate 0.15 and noise multiplier 1.1 from the initial parameters; answers their times.
                         In a task without update: forward and backward only
    release              forgets the network and what it needed

Every answer is one line of JSON. peak_mb is the most memory that the process ever held; step_mb, of `release`, the most
during the last run minus what is left after the release: libraries and data.
"""

import ctypes
import gc
import importlib
import json
import os
import pathlib
import re
import sys
import time

import numpy

import problem

RATE = 0.15
NOISE = 1.1


def peak_mb():
    """Since the start, or since forget_peak. Not ru_maxrss: that begins with what the process held that started us."""
    status = pathlib.Path("/proc/self/status").read_text(encoding="ascii")
    return int(re.search(r"VmHWM:\s*(\d+)", status)[1]) * 1024e-6


def held_mb():
    return int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") * 1e-6


def forget_peak():
    """From now on the peak is that of what comes; false where the kernel cannot do that. See proc(5), clear_refs."""
    try:
        pathlib.Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return False
    return True


def give_back():
    """What the C library keeps for later."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)


class Session:
    def __init__(self, module, variant, task, folder):
        self.module, self.variant, self.task = module, variant, task
        self.initial = numpy.load(folder / "initial.npy")
        self.inputs, self.labels = module.records(*problem.read_records(task, folder), variant)
        self.training = None
        self.earlier_peak = 0.0
        self.peak_is_of_run = False

    def step(self):
        batch = self.batch
        if self.first + batch > len(self.labels):
            self.first = 0
        here = slice(self.first, self.first + batch)
        self.training.step(self.inputs[here], self.labels[here])
        self.first += batch

    def seconds_of_step(self):
        begin = time.perf_counter()
        self.step()
        return time.perf_counter() - begin

    def start(self, rate, noise):
        self.training.start(self.initial, rate, noise)
        self.first = 0

    def release(self):
        peak, known = peak_mb(), self.peak_is_of_run
        self.training, self.peak_is_of_run = None, False
        give_back()
        return {"step_mb": peak - held_mb()} if known else {}

    def prepare(self, batch, path):
        self.release()
        self.batch = int(batch)
        begin = time.perf_counter()
        self.training = self.module.Training(self.task, self.batch, self.variant)
        self.start(float(self.batch), 0.0)
        self.step()
        first = time.perf_counter() - begin
        if self.task.update:
            numpy.save(path, self.training.parameters())
        else:
            numpy.save(path, numpy.concatenate([part for part in self.training.gradients() if part is not None]))
        return {"version": self.module.version(), "first_step_seconds": first, "peak_mb": self.peak_mb()}

    def peak_mb(self):
        return max(self.earlier_peak, peak_mb())

    def run(self, seconds):
        self.start(RATE, NOISE)
        give_back()
        self.earlier_peak = self.peak_mb()
        self.peak_is_of_run = forget_peak()
        times = [self.seconds_of_step()]
        if times[0] < float(seconds):
            times = []  # it found others' data in the caches
        total = sum(times)
        while total < float(seconds):
            times.append(self.seconds_of_step())
            total += times[-1]
        return {"microseconds": [t * 1e6 for t in times], "peak_mb": self.peak_mb()}


def main():
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever a library prints goes to the log
    module, variant, task, folder = sys.argv[1:]
    session = None
    for line in sys.stdin:
        command, *arguments = line.rstrip("\n").split(" ", 2)  # a file's name is last, and may have spaces
        if session is None:
            session = Session(importlib.import_module(f"frameworks.{module}"), variant, problem.TASKS[task],
                              pathlib.Path(folder))
        print(json.dumps(getattr(session, command)(*arguments)), file=answers, flush=True)


if __name__ == "__main__":
    main()
