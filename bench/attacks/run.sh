#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# bench/attacks/run.sh [TRIALS] - attacks the noise of the library, of its former releases, PyTorch, Opacus, NumPy and
# JAX (which are installed from PyPI), and prints the table of docs/privacy.md#released-bits. TRIALS: 200 by default.
set -eu

root=$(cd "$(dirname "$0")/../.." && pwd)
here=$root/bench/attacks
work=$root/build/attacks
venv=$work/venv
export PYTHONDONTWRITEBYTECODE=1
trials=${1-200}
case $trials in  # before 6 GB are installed
  '' | *[!0-9]* | 0* | ?????????*)
    echo "bench/attacks/run.sh: TRIALS must be a number from 1 to 99999999, got '$trials'" >&2
    exit 2
    ;;
esac
[ $# -le 1 ] || { echo "bench/attacks/run.sh: takes TRIALS alone, got '$2' as well" >&2; exit 2; }

sh "$root/.ci/install.sh" g++ python3 python3-venv
mkdir -p "$work"
grep -E '^(torch|opacus|jax|numpy)==' "$root/bench/peers/requirements.txt" >"$work/requirements.txt"
if ! cmp -s "$work/requirements.txt" "$venv/installed.txt"; then
  echo "bench/attacks/run.sh: installing the peers into $venv: about 6 GB" >&2
  rm -rf "$venv"
  python3 -m venv "$venv"
  "$venv/bin/python" -m pip install --quiet --no-cache-dir -r "$work/requirements.txt"
  cp "$work/requirements.txt" "$venv/installed.txt"
fi

g++ -std=c++20 -O2 -march=native -I"$root/include" -I"$root/tests" "$here/released.cpp" -o "$work/released" -pthread
"$work/released" "$work" "$trials" >"$work/ours.tsv"
exec "$venv/bin/python" "$here/peers.py" "$work" "$trials"
