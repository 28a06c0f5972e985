#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# bench/cuda/run.sh [--out DIR] [--minutes M] [--peers F,...] ... - builds the device part with nvcc, runs its tests on
# the GPU of this machine, checks it against the host executor and under compute-sanitizer, and times it next to PyTorch,
# JAX and Opacus where they can be imported. Writes DIR/cuda.json, cuda.md and cuda.svg (default out/cuda). Needs no
# network. --help lists all options. Without nvcc or a usable GPU: one line that says what is missing, exit code 3.
# $PYTHON is the Python that has the peers, python3 otherwise. PERGRAD_FAKE_CUDA=1, for tests of this script itself: no
# GPU, kernels are emulated by the host, and what is measured means nothing.
set -eu

root=$(cd "$(dirname "$0")/../.." && pwd)
python=${PYTHON:-python3}

nvcc=$(sh "$root/.ci/find_nvcc.sh") || {
  echo "bench/cuda/run.sh: $nvcc" >&2
  exit 3
}
if ! command -v "$python" >/dev/null 2>&1; then
  echo "bench/cuda/run.sh: no $python" >&2
  exit 3
fi

PYTHONDONTWRITEBYTECODE=1 exec "$python" "$root/bench/cuda/run.py" --nvcc "$nvcc" "$@"
