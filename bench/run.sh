#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# bench/run.sh [--out DIR] [FILTER] - installs what is missing, builds the benchmarks for this machine and runs those
# whose name matches the regular expression FILTER; writes DIR/results.json (default out/bench) and prints a table.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
out=out/bench
filter=
while [ $# -gt 0 ]; do
  case $1 in
    --out)
      [ $# -ge 2 ] || { echo "bench/run.sh: --out needs a folder" >&2; exit 2; }
      out=$2
      shift
      ;;
    --out=*) out=${1#--out=} ;;
    -h | --help)
      sed -n '3,4s/^# //p' "$0"
      exit 0
      ;;
    -*)
      echo "bench/run.sh: unknown option $1; usage: bench/run.sh [--out DIR] [FILTER]" >&2
      exit 2
      ;;
    *)
      [ -z "$filter" ] || { echo "bench/run.sh: one FILTER, not $filter and $1; say '$filter|$1'" >&2; exit 2; }
      filter=$1
      ;;
  esac
  shift
done

sh "$root/.ci/install.sh" g++ cmake ninja-build python3 libeigen3-dev libbenchmark-dev

build=$root/build/bench
mkdir -p "$build" "$out"
log=$build/run.log
if ! { cmake -S "$root" --preset bench &&
       cmake --build "$build" --parallel "$(nproc)" --target pergrad_bench; } >"$log" 2>&1; then
  cat "$log" >&2
  echo "bench/run.sh: could not build the benchmarks" >&2
  exit 1
fi
filter=${filter:-.}
if ! "$build/bench/pergrad_bench" --benchmark_list_tests --benchmark_filter="$filter" | grep -q .; then
  echo "bench/run.sh: no benchmark's name matches $filter" >&2  # what an earlier run wrote stays
  exit 1
fi
"$build/bench/pergrad_bench" --benchmark_filter="$filter" --benchmark_counters_tabular=true \
  --benchmark_out="$out/results.json" --benchmark_out_format=json
echo
status=0
python3 "$root/bench/summary.py" "$out/results.json" || status=$?  # 1 if a benchmark failed
echo "wrote $out/results.json"
exit $status
