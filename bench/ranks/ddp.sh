#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# bench/ranks/ddp.sh [--task T,...] [--rounds N] [--seconds S] [--out DIR] - private steps at 256 by two processes of one
# thread: ours over MPI beside Opacus' DistributedDataParallel over gloo, which take turns. First the sums of clipped
# gradients are compared. Writes DIR/ddp.json (default out/ranks). Installs the peers (bench/peers/README.md).
set -eu

root=$(cd "$(dirname "$0")/../.." && pwd)
export PYTHONDONTWRITEBYTECODE=1
sh "$root/.ci/install.sh" g++ python3 python3-venv util-linux libopenmpi-dev openmpi-bin
python3 "$root/bench/ranks/ddp.py" --check-words "$@"  # a wrong word must not cost an installation
for word in "$@"; do
  case $word in
    -h | --help) exit 0 ;;
  esac
done
sh "$root/bench/peers/install.sh"
exec "$root/build/peers/venv/bin/python" "$root/bench/ranks/ddp.py" "$@"
