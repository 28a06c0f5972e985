#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# bench/cuda/wheels.sh DIR - fetches Opacus and what it needs beside PyTorch, NumPy and SciPy, as wheels, for a machine
# with a GPU and without a network: sh bench/cuda/run.sh --wheels DIR. Those three have machine code: they must be
# installed there. Needs python3 with pip, and the package index.
set -eu

if [ $# -ne 1 ]; then
  echo "bench/cuda/wheels.sh: which folder? sh bench/cuda/wheels.sh DIR" >&2
  exit 2
fi
root=$(cd "$(dirname "$0")/../.." && pwd)
opacus=$(grep '^opacus==' "$root/bench/peers/requirements.txt")
"${PYTHON:-python3}" -m pip download --quiet --no-deps --only-binary=:all: -d "$1" "$opacus" opt_einsum
echo "$1: Opacus, for a Python that has PyTorch, NumPy and SciPy"
