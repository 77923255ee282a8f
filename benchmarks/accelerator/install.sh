#!/usr/bin/env bash
# bash benchmarks/accelerator/install.sh WHEELS TARGET: installs the wheels in a folder
# into TARGET, without an index. PYTHONPATH=TARGET then finds them before others.
set -euo pipefail

if [[ $# -ne 2 ]]; then
  echo "usage: bash benchmarks/accelerator/install.sh WHEELS TARGET" >&2
  exit 2
fi
python3 -m pip install --quiet --no-index --no-deps --no-compile --no-cache-dir \
  --upgrade --target "$2" "$1"/*.whl
