#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# examples/run.sh [--example NAME] [--ranks N] [FLAGS...] - installs what is missing, builds one example for this machine
# and runs it with FLAGS in the current folder. The default example is fashion_mnist; --help shows its flags. --ranks is
# for fashion_mnist_mpi: so many processes of MPI, which share the machine's cores.
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
known=no
for source in "$root"/examples/*.cpp; do
  name=$(basename "$source" .cpp)
  name=${name#[0-9][0-9]_}
  names="$names $name"
  [ "$name" != "$example" ] || known=yes
done
[ $known = yes ] || { echo "examples/run.sh: there is no example '$example'; there are:$names" >&2; exit 2; }

ranks=2
case ${1-} in
  --ranks | --ranks=*)
    if [ "$1" = --ranks ]; then
      ranks=${2-}
      shift
    else
      ranks=${1#--ranks=}
    fi
    case $ranks in
      '' | *[!0-9]* | 0*) echo "examples/run.sh: --ranks needs a number of processes, got '$ranks'" >&2; exit 2 ;;
    esac
    if [ "$example" != fashion_mnist_mpi ]; then
      echo "examples/run.sh: --ranks is for --example fashion_mnist_mpi" >&2
      exit 2
    fi
    shift
    ;;
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
  fashion_mnist_mpi) data="dataset-fashion-mnist libopenmpi-dev openmpi-bin" ;;
  fashion_* | dp_ftrl | certified_training) data=dataset-fashion-mnist ;;
  word_language) data="wamerican wngerman wfrench wspanish witalian wdutch" ;;
  language_model) data="dict-gcide wordnet-base libicu-dev" ;;
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
    *" --csv"* | *" --predict"* | *" --draft-schema"* | *" --help "* | *" -h "*) ;;
    *)
      csv=$build/diamonds.csv
      [ -e "$csv" ] || sh "$root/examples/common/diamonds.sh" "$csv" >&2
      set -- --csv "$csv" --target cut --schema "$root/examples/common/diamonds.schema.json" --held-out 20 "$@"
      ;;
  esac
fi
if [ "$example" = fashion_mnist_mpi ]; then
  threads=$(($(nproc) / ranks))
  [ "$threads" -gt 0 ] || threads=1
  as_root=
  [ "$(id -u)" -ne 0 ] || as_root=--allow-run-as-root
  # Open MPI would bind all threads of a rank to one core. It kills ranks a second after Ctrl-C, and passes SIGUSR1 on,
  # at which they end as they should: so it is not in the terminal's group, and gets that signal for others.
  # shellcheck disable=SC2086  # nothing, or one word
  setsid mpirun $as_root --oversubscribe --bind-to none -np "$ranks" \
    "$build/examples/$example" --threads "$threads" "$@" &
  trap 'kill -USR1 $! 2>/dev/null || true' INT TERM HUP
  status=0
  wait $! || status=$?
  while kill -0 $! 2>/dev/null; do  # a signal had ended the wait
    status=0
    wait $! || status=$?
  done
  exit $status
fi
exec "$build/examples/$example" "$@"
