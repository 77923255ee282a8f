#!/usr/bin/env bash
# bash launch/venv.sh [EXTRA]: makes .venv with the project in it, unless it is there.
# PYTHON=... names another interpreter than the first suitable one on the PATH.
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."

extra="${1:-}"
# Touched when an installation has ended; older than pyproject.toml, it counts no more.
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
  # Of the versions that fit all extras an older pip finds none in twenty minutes.
  .venv/bin/python -m pip install --quiet --no-compile --upgrade "pip>=25"
fi
# Modules are compiled when they are first imported: most of these never are.
.venv/bin/python -m pip install --quiet --no-compile --editable ".${extra:+[$extra]}"
touch "$stamp"
