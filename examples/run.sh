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

case $example in
  fashion_*) data=dataset-fashion-mnist ;;
  word_language) data="wamerican wngerman wfrench wspanish witalian wdutch" ;;
  eigen) data=libeigen3-dev ;;
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
exec "$build/examples/$example" "$@"
