#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# bench/peers/since.sh REF [--task T,...] [--batch B,...] [--threads N] [--seconds S] - what has become of our own steps
# since the version REF, a commit: the tasks of bench/peers in both by turns; prints a table. Needs no peer.
set -eu

root=$(cd "$(dirname "$0")/../.." && pwd)
export PYTHONDONTWRITEBYTECODE=1
sh "$root/.ci/install.sh" g++ git python3 python3-numpy util-linux
exec /usr/bin/python3 "$root/bench/peers/since.py" "$@"
