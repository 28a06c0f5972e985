#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# bench/compile_time/run.sh [--check] [--compiler CXX] [--repeat COUNT] - what compiling the single header and some
# networks costs: seconds, memory, code size, longest symbol, against the budgets. --check fails when one is exceeded.
set -eu

root=$(cd "$(dirname "$0")/../.." && pwd)
sh "$root/.ci/install.sh" g++ binutils python3 libeigen3-dev
exec python3 "$root/bench/compile_time/ledger.py" "$@"
