#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# packaging/debian/build.sh [FOLDER] - builds libpergrad-dev_VERSION-1_all.deb of this working tree in FOLDER, by default
# build/debian. Needs no network once debhelper is there.
set -eu

root=$(cd "$(dirname "$0")/../.." && pwd)
folder=${1:-$root/build/debian}
sh "$root/.ci/install.sh" cmake g++ debhelper dpkg-dev ninja-build
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)

number() { sed -n "s/^#define PERGRAD_VERSION_$1 //p" "$root/include/pergrad/version.hpp"; }
version=$(number MAJOR).$(number MINOR).$(number PATCH)

source=$folder/pergrad-$version
rm -rf "$source" "$folder"/libpergrad-dev_*
mkdir -p "$source"
for part in CMakeLists.txt .cmake include examples README.md LICENSE docs; do cp -r "$root/$part" "$source/"; done
cp -r "$root/packaging/debian" "$source/debian"
rm "$source/debian/build.sh"
# The changelog that Debian wants: one entry, of this version. docs/CHANGELOG.md is installed beside it.
cat >"$source/debian/changelog" <<END
pergrad ($version-1) unstable; urgency=medium

  * Version $version; what has changed is in changelog.gz beside this file.

 -- The pergrad contributors <pergrad@localhost>  $(date -uR -r "$root/docs/CHANGELOG.md")
END

cd "$source"
if ! dpkg-buildpackage --unsigned-source --unsigned-changes --build=binary >"$folder/build.log" 2>&1; then
  cat "$folder/build.log" >&2
  echo "packaging/debian/build.sh: could not build the package" >&2
  exit 1
fi
echo "$folder/libpergrad-dev_${version}-1_all.deb"
