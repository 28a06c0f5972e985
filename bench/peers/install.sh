#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# bench/peers/install.sh - installs the peers of requirements.txt into build/peers/venv, unless they are there
set -eu

# What requirements.txt brings on x86-64 Linux, measured by du after installing on 2026-11-21. Half of it are CUDA's
# libraries: the package index's torch needs them to be imported, and it offers no variant without.
venv_gigabytes=6.4

root=$(cd "$(dirname "$0")/../.." && pwd)
here=$root/bench/peers
venv=$root/build/peers/venv

if ! cmp -s "$here/requirements.txt" "$venv/installed.txt"; then
  echo "bench/peers/install.sh: installing the peers into $venv: about $venv_gigabytes GB" >&2
  mkdir -p "$root/build/peers"
  rm -rf "$venv"
  python3 -m venv "$venv"
  "$venv/bin/python" -m pip install --quiet --no-cache-dir -r "$here/requirements.txt"
  echo "bench/peers/install.sh: it takes $(du -sm "$venv" | cut -f1) MiB" >&2
  cp "$here/requirements.txt" "$venv/installed.txt"
fi
