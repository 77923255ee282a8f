#!/usr/bin/env bash
# bash launch/venv.sh [EXTRA]: makes .venv with the project in it, unless it exists.
# PYTHON=... names an interpreter; the default is the first suitable one on the PATH.
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."

extra="${1:-}"
# Touched when an installation ends; invalid if it is older than pyproject.toml.
stamp=".venv/.installed${extra:+-$extra}"
if [[ -e "$stamp" && "$stamp" -nt pyproject.toml ]]; then
  exit 0
fi

is_recent() {
  "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
}

if [[ ! -x .venv/bin/pip ]]; then
  candidates=(python3 python3.13 python3.12 python3.11)
  if [[ -n "${PYTHON:-}" ]]; then
    candidates=("$PYTHON")
  fi
  python=""
  for candidate in "${candidates[@]}"; do
    if is_recent "$candidate"; then
      python="$candidate"
      break
    fi
  done
  if [[ -z "$python" ]]; then
    echo "error: no Python 3.11 or newer among: ${candidates[*]};" \
      "install one, or name it: PYTHON=/path/to/python3" >&2
    exit 1
  fi
  echo "making .venv with $("$python" --version)"
  "$python" -m venv .venv
fi
echo "installing rlvr_jax${extra:+[$extra]} into .venv"
if [[ -n "$extra" ]]; then
  # An older pip searches twenty minutes and finds no versions that fit all extras.
  .venv/bin/python -m pip install --quiet --no-compile --upgrade "pip>=25"
fi
# Modules are compiled on first import, because most of these are never imported.
.venv/bin/python -m pip install --quiet --no-compile --editable ".${extra:+[$extra]}"
touch "$stamp"
