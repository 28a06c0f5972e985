#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# docs/site.sh [FOLDER] - builds the documentation as one site: the chapters of docs/ and the reference from the comments
# of the headers, with one search over both. Every warning and every link that leads nowhere is an error. FOLDER is
# build/site by default; its html/index.html is the first page.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
sh "$root/.ci/install.sh" python3 doxygen doxygen-awesome-css
exec python3 "$root/docs/site/build.py" "${1:-$root/build/site}"
