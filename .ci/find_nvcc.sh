#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# .ci/find_nvcc.sh - prints the path of an nvcc that knows C++20; where there is none, says so instead, exit code 3.
set -eu

too_old=
for nvcc in "${CUDACXX-}" "$(command -v nvcc 2>/dev/null || true)" "${CUDA_HOME:+$CUDA_HOME/bin/nvcc}" \
  "${CUDA_PATH:+$CUDA_PATH/bin/nvcc}" /usr/local/cuda/bin/nvcc /opt/cuda/bin/nvcc; do
  if [ -z "$nvcc" ] || [ ! -x "$nvcc" ]; then
    continue
  fi
  # "release 13.0, V13.0.88"; C++20 is known from 12.0 on.
  version=$("$nvcc" --version 2>/dev/null | sed -n 's/.*release \([0-9.]*\).*/\1/p' | head -n 1)
  if [ "${version%%.*}" -ge 12 ] 2>/dev/null; then
    echo "$nvcc"
    exit 0
  fi
  too_old="$nvcc is of CUDA ${version:-that is not known}"
done
if [ -n "$too_old" ]; then
  echo "no usable CUDA toolkit: $too_old, and C++20 needs 12.0 or newer"
else
  echo "no CUDA toolkit: nvcc is not in PATH nor in /usr/local/cuda/bin"
fi
exit 3
