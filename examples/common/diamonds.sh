#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# examples/common/diamonds.sh FILE - writes the table of 53,940 diamonds (R's ggplot2; here from the wheel of plotnine, of
# which nothing is installed or run) into FILE.
set -eu

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
if ! python3 -m pip download --quiet --no-deps --only-binary :all: --disable-pip-version-check --dest "$folder" \
  plotnine==0.15.9 >"$folder/log" 2>&1; then
  cat "$folder/log" >&2
  echo "examples/run.sh: could not fetch the package plotnine from PyPI, whose table the example tabular uses by itself;" \
    "with --csv FILE it uses yours" >&2
  exit 1
fi
python3 -m zipfile -e "$folder"/plotnine-*.whl "$folder/wheel"
mv "$folder/wheel/plotnine/data/diamonds.csv" "$1"
