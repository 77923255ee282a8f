#!/usr/bin/env bash
# bash launch/quickstart.sh [--stage=S] [--config.a.b=v ...]: the whole pipeline, small.
# Makes .venv, installs, runs configs/quickstart.py into runs/quickstart and prints where
# the report is. Cut it at any moment and run it again: it goes on where it stopped.
set -euo pipefail
root="$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)"

# shellcheck source=launch/lib.sh
source "$root/launch/lib.sh"

bash "$root/launch/venv.sh"
use_huge_pages
# A flag given twice counts as given last, so --config and --workdir can be changed too.
exec "$root/.venv/bin/python" -m rlvr_jax.main \
  --config="$root/configs/quickstart.py" --workdir="$root/runs/quickstart" "$@"
