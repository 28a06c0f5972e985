#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# bench/cuda/run.sh [--out DIR] [--minutes M] [--peers F,...] - builds the device part with nvcc, checks it on the GPU
# of this machine against the host executor and under compute-sanitizer, and times it next to PyTorch, JAX and Opacus
# where they can be imported. Writes DIR/cuda.json, cuda.md and cuda.svg (default out/cuda). Needs no network. Without
# nvcc or a usable GPU: one line that says what is missing, exit code 3.
set -eu

root=$(cd "$(dirname "$0")/../.." && pwd)

nvcc=
for each in "${CUDACXX-}" "$(command -v nvcc 2>/dev/null || true)" /usr/local/cuda/bin/nvcc /opt/cuda/bin/nvcc; do
  if [ -n "$each" ] && [ -x "$each" ]; then
    nvcc=$each
    break
  fi
done
if [ -z "$nvcc" ]; then
  echo "bench/cuda/run.sh: no CUDA toolkit: nvcc is not in PATH nor in /usr/local/cuda/bin" >&2
  exit 3
fi
if ! command -v python3 >/dev/null 2>&1; then
  echo "bench/cuda/run.sh: no python3" >&2
  exit 3
fi

PYTHONDONTWRITEBYTECODE=1 exec python3 "$root/bench/cuda/run.py" --nvcc "$nvcc" "$@"
