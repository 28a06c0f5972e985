# SPDX-License-Identifier: Apache-2.0
"""summary_test.py FOLDER: summary.py on made-up results: what it says of each goal, met and missed."""

import json
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent


def row(name, **values):
    return {"run_name": name, "run_type": "iteration", "real_time": 1.0, **values}


def step(name, us, gflops, peak, touched):
    return row(name, us_per_sample=us, gflops=gflops, peak_bytes=peak * 1e6, touched_bytes=touched * 1e6)


def cell(number, chosen_vs_best):
    return row(f"norm_methods/{number}/27/32", label="gram", chosen_vs_best=chosen_vs_best, gram=5.0, gram_ratio=1.2,
               product=7.0, product_ratio=0.9)


RESULTS = [
    row("fma_peak", gflops=100.0), row("gemm/1024", gflops=80.0),
    row("noise/26010", gaussians_per_second=450e6, label="avx512"),
    row("noise/1048576", gaussians_per_second=299e6, label="avx512"),
    row("noise/7", gaussians_per_second=210e6, label="avx2"), row("noise/8", gaussians_per_second=26e6, label="baseline"),
    *[cell(number, 1.0) for number in range(18)], cell(18, 1.09), cell(19, 1.11),
    step("cifar_cnn/non_private/16/1", 10.0, 70.0, 100, 50), step("cifar_cnn/dp/16/1", 11.0, 59.0, 100, 54),
    step("cifar_cnn/non_private/2048/1", 10.0, 70.0, 100, 50), step("cifar_cnn/dp/2048/1", 10.4, 61.0, 105.2, 57.5),
    step("alexnet/non_private/16/2", 10.0, 70.0, 990, 600), step("alexnet/dp/16/2", 12.6, 60.0, 1001, 620),
    row("mnist_cnn/privacy/256/2", dp_over_non_private=1.081, iterations=2, pairs=9.0), row("lstm/privacy/16/1", dp_over_non_private=1.049, pairs=30.0),
    row("mnist_cnn/short_sums/2048/2", short_over_long=1.031, pairs=25.0),
]
BROKEN = {**row("broken/dp/16/1"), "error_occurred": True, "error_message": "a result is not finite"}

# Lines by their beginning: words that must be there in this order.
WANTED = {
    "norm methods:": "19 of 20 blocks, 95.0% (>= 95% met)",
    "18/27/32": "gram 1.09 7 (0.90) 5 (1.20)",
    "noise/26010": "avx512 450 >= 300 met",
    "noise/1048576": "avx512 299 >= 300 missed",
    "noise/7": "avx2 210 >= 150 met",
    "noise/8": "baseline 26 -",
    "cifar_cnn batch 16, 1 thread": "10.00 11.00 1.100 <= 1.3 met 59.0 0.74 met 0.59 (>= 0.6 missed)",
    "cifar_cnn batch 2048, 1 thread": "10.00 10.40 1.040 <= 1.08 met 61.0 0.76 met 0.61 (>= 0.6 met)",
    "cifar_cnn/dp, 1 thread": "100.00 105.20 1.052 missed 54.00 57.50 1.065 missed",
    "cifar_cnn/non_private, 1 thread": "100.00 100.00 1.000 met 50.00 50.00 1.000 met",
    "mnist_cnn batch 256, 2 threads": "1.081 <= 1.08 missed 9",
    "lstm batch 16, 1 thread": "1.049 <= 1.05 met 30",
    "mnist_cnn/short_sums/2048/2": "1.031 <= 1.03 missed 25",
}
MEMORY = {
    "cifar_cnn batch 16, 1 thread": "100.00 100.00 1.000 met 50.00 54.00 1.080 missed",
    "alexnet batch 16, 2 threads": "990.00 1001.00 (<= 1000 missed) 1.011 met 600.00 620.00 1.033 met",
}


def check(said, wanted):
    for begin, words in wanted.items():
        lines = [" ".join(line.removeprefix(begin).split()) for line in said.splitlines() if line.startswith(begin)]
        if words not in lines and not any(line.endswith(words) for line in lines):
            sys.exit(f"summary.py says of {begin}: {lines}, not {words}")


def main():
    file = pathlib.Path(sys.argv[1]) / "made_up_results.json"
    file.write_text(json.dumps({"benchmarks": RESULTS}), encoding="utf-8")
    done = subprocess.run([sys.executable, str(HERE / "summary.py"), str(file)], text=True, capture_output=True,
                          check=False)
    if done.returncode != 0:
        sys.exit(f"summary.py ends with {done.returncode}: {done.stderr}")
    check(done.stdout, WANTED)
    check(done.stdout[done.stdout.index("peak, non-private"):], MEMORY)
    file.write_text(json.dumps({"benchmarks": [*RESULTS, BROKEN]}), encoding="utf-8")
    done = subprocess.run([sys.executable, str(HERE / "summary.py"), str(file)], text=True, capture_output=True,
                          check=False)
    if done.returncode == 0 or done.stderr != "broken/dp/16/1 failed: a result is not finite\n":
        sys.exit(f"summary.py of a failed benchmark: status {done.returncode}: {done.stderr}")
    check(done.stdout, WANTED)
    for wrong in ("{}", "[", ""):
        file.write_text(wrong, encoding="utf-8")
        done = subprocess.run([sys.executable, str(HERE / "summary.py"), str(file)], text=True, capture_output=True,
                              check=False)
        if done.returncode == 0 or "Traceback" in done.stderr:
            sys.exit(f"summary.py of {wrong!r}: status {done.returncode}: {done.stderr}")


if __name__ == "__main__":
    main()
