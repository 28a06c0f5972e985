#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# tests/host/other_compilers.sh - the kernels of all targets and the noise, compiled and run with g++ 11, the oldest one
# that the library is for, and with newer clangs than the oldest: Debian's clang-19, and the one in PyPI's ziglang, which
# brings its own standard library. Installs them, ziglang into build/. Part of the long tests, tests/run.sh --all.
set -eu

root=$(cd "$(dirname "$0")/../.." && pwd)
build=$root/build/other_compilers
mkdir -p "$build/boost_alone"
sh "$root/.ci/install.sh" g++-11 clang-19 libboost-test-dev python3-venv
[ -x "$build/venv/bin/pip" ] || python3 -m venv "$build/venv"
"$build/venv/bin/pip" install --quiet --disable-pip-version-check ziglang
export ZIG_GLOBAL_CACHE_DIR="$build/zig" ZIG_LOCAL_CACHE_DIR="$build/zig"

ln -sfn /usr/include/boost "$build/boost_alone/boost"  # without the other headers of this machine
for source in boost/test/included/unit_test.hpp host/targets_test.cpp host/product_test.cpp host/whole_step_test.cpp \
  host/winograd_test.cpp host/pairs_test.cpp; do
  echo "#include \"$source\""
done >"$build/kernels.cpp"

# check COMPILER FLAGS...: the compiler may be several words.
check() {
  compiler=$1
  shift
  echo "$compiler $*: $($compiler --version | head -n 1)"
  $compiler -std=c++20 -O2 "$@" -Wall -Wextra -Werror -I"$root/include" "$root/tests/privacy/noise_hash.cpp" \
    -o "$build/noise_hash"
  "$build/noise_hash"
  # Boost 1.74 derives from what C++17 removed.
  $compiler -std=c++20 -O2 "$@" -Wall -Wextra -Werror -D_LIBCPP_ENABLE_CXX17_REMOVED_UNARY_BINARY_FUNCTION \
    -DBOOST_TEST_MODULE=kernels -I"$root/include" -I"$root/tests" -isystem "$build/boost_alone" "$build/kernels.cpp" \
    -o "$build/kernels" -pthread
  "$build/kernels" --color_output=no
}

# For any processor, with the kernels of all targets, and for this one.
# It warns of what several sources in one make of unnamed namespaces.
check g++-11 -Wno-subobject-linkage
check g++-11 -Wno-subobject-linkage -march=native
# Tuned so, g++ does not contract what a loop with one sum adds up.
check g++ -Wno-subobject-linkage -march=native -mtune=znver3
check clang++-19
check clang++-19 -march=native
zig="$build/venv/bin/python -m ziglang c++"
check "$zig" -march=x86_64
check "$zig" -march=native
