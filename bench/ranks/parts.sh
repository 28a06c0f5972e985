#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# bench/ranks/parts.sh [--rounds N] [--out DIR] - measures what model.py starts from: the parts of a rank's step, and
# exchanges between ranks on this machine; and steps of one and of two ranks, to see how far the model is off. Writes
# DIR/ranks_parts.json (default out/ranks); the least of N rounds (default 3), which take turns.
set -eu

root=$(cd "$(dirname "$0")/../.." && pwd)
sh "$root/.ci/install.sh" g++ python3 libopenmpi-dev openmpi-bin
build=$root/build/ranks
mkdir -p "$build"
for program in parts exchanges steps; do
  OMPI_CXX=${CXX:-g++} mpicxx -std=c++20 -O2 -march=native -DNDEBUG -I"$root/include" "$root/bench/ranks/$program.cpp" \
    -o "$build/$program" -pthread
done
exec python3 "$root/bench/ranks/parts.py" --build "$build" "$@"
