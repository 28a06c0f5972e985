#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# examples/run_cuda.sh [FLAGS...] - finds or installs nvcc and what else is missing, builds examples/09_fashion_mnist.cu for
# the GPU of this machine (for Orin, Hopper and Thor, with PTX for later ones, where there is none) and runs it with
# FLAGS in the current folder; --help shows them. Without a usable GPU: one line that says what is missing, exit code 3.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)

nvcc=$(sh "$root/.ci/find_nvcc.sh") || {
  # In Debian it is in non-free, which a machine may not have, and before Debian 13 it is too old.
  case $(apt-cache policy nvidia-cuda-toolkit 2>/dev/null | sed -n 's/ *Candidate: //p') in
    1[2-9].* | [2-9][0-9].*) sh "$root/.ci/install.sh" nvidia-cuda-toolkit >/dev/null 2>&1 || true ;;
  esac
  nvcc=$(sh "$root/.ci/find_nvcc.sh") || {
    echo "examples/run_cuda.sh: $nvcc; nor can this system install one" >&2
    exit 3
  }
}
echo "building fashion_mnist_cuda ..." >&2
sh "$root/.ci/install.sh" g++ cmake ninja-build libcli11-dev nlohmann-json3-dev zlib1g-dev dataset-fashion-mnist

# "8.7" of the first GPU becomes 87; nothing if nobody knows of one, or if nvcc does not know it: then what
# .cmake/cuda.cmake chooses, which ends with PTX.
found=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | head -n 1 | tr -cd '0-9' || true)
if [ -n "$found" ] && "$nvcc" --list-gpu-arch | grep -qx "compute_$found"; then
  architectures=-DCMAKE_CUDA_ARCHITECTURES=$found-real
else
  architectures=-UCMAKE_CUDA_ARCHITECTURES
fi

build=$root/build/examples-cuda
mkdir -p "$build"
log=$build/run.log
if ! { cmake -S "$root" --preset examples-cuda -DPERGRAD_NVCC="$nvcc" "$architectures" &&
       cmake --build "$build" --parallel "$(nproc)" --target fashion_mnist_cuda; } >"$log" 2>&1; then
  cat "$log" >&2
  echo "examples/run_cuda.sh: could not build the example" >&2
  exit 1
fi
exec "$build/examples/fashion_mnist_cuda" "$@"
