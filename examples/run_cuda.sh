#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# examples/run_cuda.sh [FLAGS...] - finds or installs nvcc and what else is missing, builds examples/fashion_mnist.cu for
# the GPU of this machine (for Orin, Hopper and Thor, with PTX for later ones, where there is none) and runs it with
# FLAGS in the current folder; --help shows them. Without a usable GPU: one line that says what is missing, exit code 3.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)

find_nvcc() {
  for nvcc in "${CUDACXX-}" "$(command -v nvcc 2>/dev/null || true)" /usr/local/cuda/bin/nvcc /opt/cuda/bin/nvcc; do
    if [ -n "$nvcc" ] && [ -x "$nvcc" ]; then
      echo "$nvcc"
      return
    fi
  done
}

nvcc=$(find_nvcc)
if [ -z "$nvcc" ]; then
  # In Debian it is in non-free, which a machine may not have; then there is nothing to install it from.
  sh "$root/.ci/install.sh" nvidia-cuda-toolkit >/dev/null 2>&1 || true
  nvcc=$(find_nvcc)
fi
if [ -z "$nvcc" ]; then
  echo "examples/run_cuda.sh: no CUDA toolkit: nvcc is not in PATH nor in /usr/local/cuda/bin, and this system has no package nvidia-cuda-toolkit to install" >&2
  exit 3
fi
sh "$root/.ci/install.sh" g++ cmake ninja-build libcli11-dev nlohmann-json3-dev zlib1g-dev dataset-fashion-mnist

# "8.7" of the first GPU becomes 87; nothing if nobody knows of one.
found=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | head -n 1 | tr -cd '0-9' || true)
architectures=${found:+$found-real}
architectures=${architectures:-87-real;90-real;110}

build=$root/build/examples-cuda
mkdir -p "$build"
log=$build/run.log
if ! { cmake -S "$root" --preset examples-cuda -DPERGRAD_NVCC="$nvcc" -DCMAKE_CUDA_ARCHITECTURES="$architectures" &&
       cmake --build "$build" --parallel "$(nproc)" --target fashion_mnist_cuda; } >"$log" 2>&1; then
  cat "$log" >&2
  echo "examples/run_cuda.sh: could not build the example" >&2
  exit 1
fi
exec "$build/examples/fashion_mnist_cuda" "$@"
