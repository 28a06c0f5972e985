#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# bench/peers/run.sh [--task T,...] [--batch B,...] [--threads N] [--seconds S] [--frameworks F,...] [--out DIR] -
# trains the same networks with PyTorch, Opacus, BackPACK, JAX, jax_privacy and pergrad, in turns on the same cores;
# writes DIR/peers.json, DIR/peers.md and DIR/peers.svg (default out/peers). --help lists tasks and frameworks.
set -eu

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

sh "$here/install.sh"

exec "$venv/bin/python" "$here/run.py" "$@"
