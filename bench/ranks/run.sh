#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# bench/ranks/run.sh [ROUNDS [STEPS]] - private steps at 256 by one rank of two threads and by two ranks of one thread, by
# turns; prints milliseconds (the least of ROUNDS medians of STEPS steps; default 3 rounds of 5) and what share of one
# rank's speed two ranks reach.
set -eu

root=$(cd "$(dirname "$0")/../.." && pwd)
rounds=${1:-3}
steps=${2:-5}
for number in "$rounds" "$steps"; do
  case $number in
    '' | *[!0-9]* | 0*) echo "usage: bench/ranks/run.sh [ROUNDS [STEPS]], for example 3 5; got '$number'" >&2; exit 2 ;;
  esac
done
sh "$root/.ci/install.sh" g++ libopenmpi-dev openmpi-bin
build=$root/build/ranks
mkdir -p "$build"
OMPI_CXX=${CXX:-g++} mpicxx -std=c++20 -O2 -march=native -DNDEBUG -I"$root/include" "$root/bench/ranks/steps.cpp" \
  -o "$build/steps" -pthread
as_root=
[ "$(id -u)" -ne 0 ] || as_root=--allow-run-as-root
measure() {
  # shellcheck disable=SC2086  # nothing, or one word
  mpirun $as_root --oversubscribe --bind-to none -np "$1" "$build/steps" "$2" "$3" "$steps"
}
printf '%-12s%14s%14s%8s\n' task '1 rank x 2' '2 ranks x 1' speed
for task in mnist_cnn cifar_cnn lstm; do
  : >"$build/$task.txt"
  for round in $(seq "$rounds"); do
    one=$(measure 1 "$task" 2)
    two=$(measure 2 "$task" 1)
    echo "$one $two" >>"$build/$task.txt"
  done
  awk -v task="$task" '
    NR == 1 || $1 < one { one = $1 }
    NR == 1 || $2 < two { two = $2 }
    END { printf "%-12s%14.1f%14.1f%8.2f\n", task, one, two, one / two }' "$build/$task.txt"
done
