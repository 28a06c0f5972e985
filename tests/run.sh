#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# tests/run.sh [--all] [CTEST OPTIONS...] - installs what the tests need and is missing, builds them into build/tests,
# runs them. With --all those that search take their time, programs for a GPU are compiled for all kinds, other
# compilers compile the kernels, and a browser opens the site (build/tests/tests/site/screenshots).
set -eu

long=OFF
long_packages=
architectures=-DCMAKE_CUDA_ARCHITECTURES=87-real
if [ "${1-}" = --all ]; then
  shift
  export PERGRAD_LONG_TESTS=1
  long=ON
  long_packages="chromium python3-pip g++-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user"
  architectures=-UCMAKE_CUDA_ARCHITECTURES
fi

root=$(cd "$(dirname "$0")/.." && pwd)
sh "$root/.ci/install.sh" g++ cmake ninja-build pkgconf git python3 python3-numpy clang libeigen3-dev libboost-test-dev \
  libsodium-dev libmpfr-dev libicu-dev libopenmpi-dev openmpi-bin iproute2 nlohmann-json3-dev libcli11-dev zlib1g-dev \
  libbenchmark-dev dataset-fashion-mnist dict-gcide wordnet-base wamerican wngerman wfrench wspanish witalian wdutch \
  doxygen doxygen-awesome-css $long_packages

# Python's own safetensors, of which Debian has no package: files go through it and back.
if python3 -m pip --version >/dev/null 2>&1 && [ ! -d "$root/build/python/safetensors" ]; then
  python3 -m pip install --quiet --target "$root/build/python" safetensors ||
    echo 'tests/run.sh: no safetensors from the package index, so files.through_python is skipped' >&2
fi
export PYTHONPATH="$root/build/python${PYTHONPATH:+:$PYTHONPATH}"

# What reads the machine code of kernels, where there are any and the toolkit has none.
if [ $long = ON ] && nvcc=$(sh "$root/.ci/find_nvcc.sh") && [ ! -x "$(dirname "$nvcc")/nvdisasm" ]; then
  python3 -m pip install --quiet --upgrade --target "$root/build/nvdisasm" nvidia-cuda-nvdisasm ||
    echo 'tests/run.sh: no nvdisasm from the package index, so bench.cuda_model_of_code is left out' >&2
fi

cmake -S "$root" --preset tests -DPERGRAD_LONG_TESTS=$long $architectures
cmake --build "$root/build/tests" --parallel "$(nproc)"
if [ -n "${PERGRAD_LONG_TESTS-}" ]; then sh "$root/tests/host/other_compilers.sh"; fi
exec ctest --test-dir "$root/build/tests" --no-tests=error --output-on-failure --parallel "$(nproc)" "$@"
