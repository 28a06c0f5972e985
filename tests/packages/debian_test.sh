#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# tests/packages/debian_test.sh FOLDER - builds the Debian package without a network, unpacks it, and builds the program of
# tests/consume with what is in it, by CMake and by pkg-config, all in FOLDER/debian_test.
set -eu

root=$(cd "$(dirname "$0")/../.." && pwd)
folder=$1/debian_test
rm -rf "$folder"
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
sh "$root/.ci/install.sh" cmake g++ debhelper dpkg-dev ninja-build pkgconf

# Without a network where the kernel lets us have none.
offline() {
  if unshare -rn true 2>/dev/null; then unshare -rn "$@"; else
    echo "note: this system forbids unshare, so the network stays" >&2
    "$@"
  fi
}
package=$(offline sh "$root/packaging/debian/build.sh" "$folder")

[ "$(dpkg-deb -f "$package" Architecture)" = all ]
dpkg-deb -x "$package" "$folder/installed"
# All headers, and the same ones.
diff -r "$root/include" "$folder/installed/usr/include"
for file in copyright changelog.Debian.gz changelog.gz examples/01_quickstart.cpp; do
  [ -e "$folder/installed/usr/share/doc/libpergrad-dev/$file" ]
done

offline cmake -S "$root/tests/consume/find_package" -B "$folder/cmake" -G Ninja -DCMAKE_BUILD_TYPE=Debug \
  -DCMAKE_PREFIX_PATH="$folder/installed/usr" -DCMAKE_FIND_USE_PACKAGE_REGISTRY=OFF
offline cmake --build "$folder/cmake"
"$folder/cmake/consume"

PKG_CONFIG_PATH=$folder/installed/usr/share/pkgconfig
export PKG_CONFIG_PATH
# xargs reads blanks as pkg-config quotes them.
pkg-config --cflags --libs pergrad | xargs g++ -std=c++20 "$root/tests/consume/main.cpp" -o "$folder/consume"
"$folder/consume"
echo "the Debian package serves CMake and pkg-config"
