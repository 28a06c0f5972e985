#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# examples/run.sh [--example NAME] [FLAGS...] - installs what is missing, builds one example for this machine and runs
# it with FLAGS in the current folder. The default example is fashion_mnist; --help shows its flags.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
example=fashion_mnist
case ${1-} in
  --example)
    [ $# -ge 2 ] || { echo "examples/run.sh: --example needs a name" >&2; exit 2; }
    example=$2
    shift 2
    ;;
  --example=*)
    example=${1#--example=}
    shift
    ;;
esac

# An unknown name is told at once, with the names that there are; each stands behind a number or alone.
names=
for source in "$root"/examples/*.cpp; do
  name=$(basename "$source" .cpp)
  names="$names ${name#[0-9][0-9]_}"
done
case " $names " in
  *" $example "*) ;;
  *) echo "examples/run.sh: there is no example '$example'; there are:$names" >&2; exit 2 ;;
esac
echo "building $example ..." >&2

# The quickstart needs a compiler only, and leaves nothing behind.
if [ "$example" = quickstart ]; then
  sh "$root/.ci/install.sh" g++
  folder=$(mktemp -d)
  trap 'rm -rf "$folder"' EXIT
  trap 'exit 130' INT TERM
  "${CXX:-g++}" -std=c++20 -O2 -march=native -I"$root/include" "$root/examples/01_quickstart.cpp" \
    -o "$folder/quickstart" -pthread
  status=0
  "$folder/quickstart" "$@" || status=$?
  exit "$status"
fi

case $example in
  fashion_* | dp_ftrl) data=dataset-fashion-mnist ;;
  word_language) data="wamerican wngerman wfrench wspanish witalian wdutch" ;;
  eigen) data=libeigen3-dev ;;
  tabular) data="python3 python3-pip" ;;
  *) data= ;;
esac
# shellcheck disable=SC2086  # the list is meant to be split
sh "$root/.ci/install.sh" g++ cmake ninja-build libcli11-dev nlohmann-json3-dev zlib1g-dev $data

build=$root/build/examples
mkdir -p "$build"
log=$build/run.log
if ! { cmake -S "$root" --preset examples &&
       cmake --build "$build" --parallel "$(nproc)" --target "$example"; } >"$log" 2>&1; then
  cat "$log" >&2
  echo "examples/run.sh: could not build the example $example" >&2
  exit 1
fi

# The table of nobody in particular, where no other one is named: diamonds, out of a package of PyPI.
if [ "$example" = tabular ]; then
  case " $* " in
    *" --csv"* | *" --predict"* | *" --help "* | *" -h "*) ;;
    *)
      csv=$build/diamonds.csv
      [ -e "$csv" ] || sh "$root/examples/common/diamonds.sh" "$csv" >&2
      set -- --csv "$csv" --target cut --schema "$root/examples/common/diamonds.schema.json" --held-out 20 "$@"
      ;;
  esac
fi
exec "$build/examples/$example" "$@"
