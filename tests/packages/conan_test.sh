#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# tests/packages/conan_test.sh FOLDER - makes the Conan package without a network and lets the recipe's test take it, all in
# FOLDER/conan_test. Conan itself is installed there once.
set -eu

root=$(cd "$(dirname "$0")/../.." && pwd)
folder=$1/conan_test
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
sh "$root/.ci/install.sh" cmake g++ make python3 python3-venv
if [ ! -x "$folder/conan/bin/conan" ]; then
  python3 -m venv "$folder/conan"
  "$folder/conan/bin/pip" install --quiet --disable-pip-version-check conan==2.34.0
fi

offline() {
  if unshare -rn true 2>/dev/null; then unshare -rn "$@"; else
    echo "note: this system forbids unshare, so the network stays" >&2
    "$@"
  fi
}
# A copy, as Conan builds inside the recipe's folder; a home of its own.
rm -rf "$folder/source" "${folder:?}/home"
mkdir -p "$folder/source"
cp -r "$root/include" "$root/packaging" "$root/LICENSE" "$folder/source/"
CONAN_HOME=$folder/home
export CONAN_HOME
conan() { offline "$folder/conan/bin/conan" "$@"; }
conan profile detect
conan create "$folder/source/packaging/conan" -s compiler.cppstd=20
# One package for all settings, of exactly the headers.
path=$("$folder/conan/bin/conan" cache path "$("$folder/conan/bin/conan" list 'pergrad/*:*' --format=compact |
  grep -o 'pergrad/[^ ]*:[0-9a-f]*' | head -n 1)")
diff -r "$root/include" "$path/include"
# C++17 is refused before anything is compiled.
if conan create "$folder/source/packaging/conan" -s compiler.cppstd=17 >"$folder/cpp17.log" 2>&1; then
  echo "C++17 was accepted" >&2
  exit 1
fi
grep -q 'C++ standard' "$folder/cpp17.log" || { cat "$folder/cpp17.log" >&2; exit 1; }
echo "the Conan package serves CMake"
