#!/usr/bin/env bash
# bash launch/quickstart.sh [--stage=S] [--config.a.b=v ...]: runs a small full pipeline.
# Makes .venv, installs, runs configs/quickstart.py into runs/quickstart and prints the
# path of the report. You can stop it at any time: run it again and it continues.
set -euo pipefail
root="$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)"

# shellcheck source=launch/lib.sh
source "$root/launch/lib.sh"

for word; do
  case "$word" in
    -h | --help)
      usage
      exit
      ;;
    --?*) ;;
    *) refuse "'$word' is not a flag; write --NAME=VALUE" ;;
  esac
done

bash "$root/launch/venv.sh"
use_huge_pages
# If a flag is given twice, the last one counts, so you can also change these two.
exec "$root/.venv/bin/python" -m rlvr_jax.main \
  --config="$root/configs/quickstart.py" --workdir="$root/runs/quickstart" "$@"
