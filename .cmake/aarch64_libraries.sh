#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# .cmake/aarch64_libraries.sh DIR [NVCC] - fetches what programs for a 64-bit Arm need beside a cross compiler: zlib, from
# Debian into DIR/usr; with NVCC also the CUDA runtime of its version, from PyPI into DIR/cuda. An apt with lists of its
# own does the former: nothing of this system changes. Exit code 3 where zlib cannot be fetched.
set -eu

mkdir -p "$1/apt/state/lists/partial" "$1/apt/cache/archives/partial"
dir=$(cd "$1" && pwd)
apt() {
  apt-get -o "Dir::State=$dir/apt/state" -o "Dir::State::lists=$dir/apt/state/lists" -o "Dir::Cache=$dir/apt/cache" \
    -o Dir::State::status=/dev/null -o APT::Architecture=arm64 -o APT::Architectures=arm64 "$@"
}
if ! { apt update && (cd "$dir/apt" && apt download zlib1g zlib1g-dev); } >"$dir/apt/log" 2>&1; then
  echo "no zlib for aarch64 from Debian: $(tail -n 1 "$dir/apt/log")" >&2
  exit 3
fi
for package in "$dir"/apt/zlib1g*.deb; do dpkg-deb -x "$package" "$dir"; done
rm -rf "$dir/apt"

[ $# -ge 2 ] || exit 0
version=$("$2" --version | sed -n 's/.*release \([0-9]*\.[0-9]*\).*/\1/p')
package=nvidia-cuda-runtime
[ "${version%%.*}" -ge 13 ] || package=$package-cu${version%%.*}
rm -rf "$dir/cuda" "$dir/wheel"
python3 -m pip download --quiet --no-deps --only-binary=:all: --platform=manylinux2014_aarch64 "$package==$version.*" \
  -d "$dir/wheel"
python3 -m zipfile -e "$dir"/wheel/*.whl "$dir/wheel/unpacked"
mkdir "$dir/cuda"
mv "$(dirname "$(find "$dir/wheel/unpacked" -name libcudart_static.a)")" "$dir/cuda/lib"
rm -rf "$dir/wheel"
