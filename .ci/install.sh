#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# .ci/install.sh PACKAGE... - installs those of the Debian packages that are missing; if none is, apt is not called.
set -eu

if ! command -v dpkg-query >/dev/null 2>&1; then
  echo "pergrad: this is not a Debian system; going on without installing. Needed are the equivalents of: $*" >&2
  exit 0
fi

missing=
for package in "$@"; do
  case $(dpkg-query -W -f=' ${db:Status-Status} ' "$package" 2>/dev/null || true) in
    *" installed "*) ;;  # not "not-installed"
    *) missing="$missing $package" ;;
  esac
done
[ -n "$missing" ] || exit 0

if [ "$(id -u)" -eq 0 ]; then
  as_root=
elif command -v sudo >/dev/null 2>&1; then
  as_root=sudo
else
  echo "pergrad: these Debian packages are missing:$missing" >&2
  echo "pergrad: installing them needs root or sudo, and this user has neither; as root run: apt-get install$missing" >&2
  exit 1
fi

echo "pergrad: installing$missing" >&2
log=$(mktemp)
trap 'rm -f "$log"' EXIT
# shellcheck disable=SC2086  # the lists are meant to be split
if ! { $as_root apt-get update &&
       $as_root env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 install -y \
         --no-install-recommends $missing; } >"$log" 2>&1; then
  cat "$log" >&2
  echo "pergrad: could not install$missing" >&2
  exit 1
fi
