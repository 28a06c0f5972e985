#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# tests/run.sh [--all] [CTEST OPTIONS...] - installs what the tests need and is missing, builds them into build/tests,
# runs them. With --all those that search take their time, too, and newer compilers than the oldest that is supported
# compile the kernels.
set -eu

if [ "${1-}" = --all ]; then
  shift
  export PERGRAD_LONG_TESTS=1
fi

root=$(cd "$(dirname "$0")/.." && pwd)
sh "$root/.ci/install.sh" g++ cmake ninja-build pkgconf python3 python3-numpy clang libeigen3-dev libboost-test-dev \
  libsodium-dev nlohmann-json3-dev libcli11-dev zlib1g-dev libbenchmark-dev dataset-fashion-mnist \
  wamerican wngerman wfrench wspanish witalian wdutch

cmake -S "$root" --preset tests
cmake --build "$root/build/tests" --parallel "$(nproc)"
if [ -n "${PERGRAD_LONG_TESTS-}" ]; then sh "$root/tests/host/newer_clang.sh"; fi
exec ctest --test-dir "$root/build/tests" --no-tests=error --output-on-failure --parallel "$(nproc)" "$@"
