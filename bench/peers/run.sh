#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# bench/peers/run.sh [--task T,...] [--batch B,...] [--threads N] [--seconds S] [--frameworks F,...] [--out DIR] -
# trains the same networks with PyTorch, Opacus, BackPACK, JAX, jax_privacy and pergrad, in turns on the same cores;
# writes DIR/peers.json, DIR/peers.md and DIR/peers.svg (default out/peers). --help lists tasks and frameworks.
set -eu

# What requirements.txt brings on x86-64 Linux, measured by du after installing on 2026-11-21. Half of it are CUDA's
# libraries: the package index's torch needs them to be imported, and it offers no variant without.
venv_gigabytes=6.4

root=$(cd "$(dirname "$0")/../.." && pwd)
here=$root/bench/peers
venv=$root/build/peers/venv
export PYTHONDONTWRITEBYTECODE=1

sh "$root/.ci/install.sh" g++ python3 python3-venv util-linux

python3 "$here/arguments.py" "$@"  # a wrong word must not cost an installation
for word in "$@"; do
  case $word in
    -h | --help) exit 0 ;;
  esac
done

if ! cmp -s "$here/requirements.txt" "$venv/installed.txt"; then
  echo "bench/peers/run.sh: installing the peers into $venv: about $venv_gigabytes GB" >&2
  mkdir -p "$root/build/peers"
  rm -rf "$venv"
  python3 -m venv "$venv"
  "$venv/bin/python" -m pip install --quiet --no-cache-dir -r "$here/requirements.txt"
  echo "bench/peers/run.sh: it takes $(du -sm "$venv" | cut -f1) MiB" >&2
  cp "$here/requirements.txt" "$venv/installed.txt"
fi

exec "$venv/bin/python" "$here/run.py" "$@"
