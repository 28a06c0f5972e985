#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# bench/one_binary/run.sh [SECONDS [ROUNDS]] - private steps of two CNNs (batch 256, one thread) and the noise, in a
# program for any x86-64 and in one for this machine, in turns; prints microseconds a sample or a million Gaussians, and
# the ratio of the best of ROUNDS runs (default 3) of SECONDS (default 0.8) each. Takes some minutes: a step of the
# baseline is slow.
set -eu

root=$(cd "$(dirname "$0")/../.." && pwd)
usage() {
  echo "usage: bench/one_binary/run.sh [SECONDS [ROUNDS]], for example 0.8 5; got $1" >&2
  exit 2
}
[ $# -le 2 ] || usage "$*"
seconds=${1:-0.8}
rounds=${2:-3}
case $seconds in
  *[!0-9.]* | *.*.* | .) usage "$seconds" ;;
esac
case $rounds in
  *[!0-9]* | 0*) usage "$rounds" ;;
esac
build=$root/build/one_binary
mkdir -p "$build"
for flags in -O2 "-O2 -march=native"; do
  # shellcheck disable=SC2086  # the flags are meant to be split
  ${CXX:-g++} -std=c++20 $flags -DNDEBUG -I"$root/include" -I"$root/bench" "$root/bench/one_binary/steps.cpp" \
    -o "$build/steps${flags#-O2}" -pthread
done
for round in $(seq "$rounds"); do  # into files: a program that ends early must not pass for a short table
  "$build/steps" 256 "$seconds" >"$build/any.$round"
  "$build/steps -march=native" 256 "$seconds" >"$build/native.$round"
done
for round in $(seq "$rounds"); do
  sed 's/^/any /' "$build/any.$round"
  sed 's/^/native /' "$build/native.$round"
done | awk '
  { key = $2 " " $3; if (!(($1, key) in best) || $4 < best[$1, key]) best[$1, key] = $4; if (!(key in seen)) { seen[key] = ++count; keys[count] = key } }
  $1 == "native" { if (!($2 in native) || $4 < native[$2]) native[$2] = $4 }
  END {
    printf "%-12s%-10s%14s%14s%8s\n", "what", "kernels", "any x86-64", "this machine", "ratio"
    for (i = 1; i <= count; ++i) {
      split(keys[i], name, " ")
      if (("any", keys[i]) in best)
        printf "%-12s%-10s%14.1f%14.1f%8.2f\n", name[1], name[2], best["any", keys[i]], native[name[1]], best["any", keys[i]] / native[name[1]]
    }
  }'
