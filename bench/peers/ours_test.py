# SPDX-License-Identifier: Apache-2.0
"""ours_test.py FOLDER: ours.cpp compiles, takes run.py's commands, and its first step subtracts a sum of gradients.

Whether that is the right sum is for the peers to say. Needs a Python with NumPy as smoke.py does.
"""

import math
import os
import pathlib
import sys

import smoke

BATCH = 8


def check(condition, what):
    if not condition:
        sys.exit(f"ours_test.py: {what}")


def commands(peer, initial, folder):
    """The norm of what the first step subtracts, after all commands."""
    import numpy

    path = folder / f"{peer.name}.npy"
    answer = peer.ask(f"prepare {BATCH} {path}")
    check(set(answer) == {"version", "first_step_seconds", "peak_mb"}, f"{peer.name}: prepare: {answer}")
    check(answer["first_step_seconds"] > 0 and answer["peak_mb"] > 1, f"{peer.name}: prepare: {answer}")
    parameters = numpy.load(path).astype(numpy.float64)
    path.unlink()
    check(parameters.shape == initial.shape, f"{peer.name}: {parameters.shape} parameters")
    answer = peer.ask("run 0.01")
    check(set(answer) == {"microseconds", "peak_mb"}, f"{peer.name}: run: {answer}")
    check(answer["microseconds"] and min(answer["microseconds"]) > 0 and answer["peak_mb"] > 1,
          f"{peer.name}: run: {answer}")
    answer = peer.ask("release")  # step_mb is missing where the kernel does not forget a peak
    check(set(answer) <= {"step_mb"} and all(map(math.isfinite, answer.values())), f"{peer.name}: release: {answer}")
    return float(numpy.linalg.norm(initial - parameters))


def main():
    smoke.need_numpy()
    import problem
    import run
    import since

    folder = pathlib.Path(sys.argv[1]).resolve()
    problem.LEAST_DATA_BYTES = 1 << 16  # nothing is timed: two batches and a half
    initial = run.write_problem(problem.dataclasses.replace(problem.TASKS[smoke.TASK], batches=(BATCH,)), folder)
    run.build_ours(folder, "-O1")
    cores = sorted(os.sched_getaffinity(0))[:2]
    norms = {}
    for name in [name for name, (_, module, _) in run.FRAMEWORKS.items() if module is None]:
        peer = run.Peer(name, smoke.TASK, cores, folder, folder, dict(os.environ))
        try:
            norms[peer.private] = commands(peer, initial, folder)
        except run.PeerFailure as failure:
            sys.exit(f"ours_test.py: {name}: {failure}")
        finally:
            peer.end()
    check(0 < norms[True] <= BATCH, f"the sum of {BATCH} gradients clipped to 1 has the norm {norms[True]}")
    check(0 < norms[False] < math.inf, f"the sum of {BATCH} gradients has the norm {norms[False]}")
    ratios = since.compare(problem.TASKS[smoke.TASK], "pergrad_dp", BATCH, {"then": folder, "now": folder}, cores, 0.2)
    check(all(0.1 < ratio < 10 for ratio in ratios), f"since.py: a version beside itself takes {ratios} of its time")
    print(f"ours_test.py: everything as it should be; the sums' norms {norms[True]:.3g} clipped, {norms[False]:.3g} not")


if __name__ == "__main__":
    main()
