#!/usr/bin/env bash
# bash launch/reproduce.sh [NAME ...] [--reduced] [--dry_run] [--seeds=0,1] [--arms=A,B]
#      [--parallel=N]
# Runs the experiments of configs/paper by name, or all that need no accelerator. If it
# is stopped, run it again: it continues in runs/paper/NAME, with the table and figures
# in result/. --reduced: two seeds in minutes, which only show that it runs.
# --parallel: N seeds at once, each on its share of the CPU cores.
set -euo pipefail
root="$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)"

# shellcheck source=launch/lib.sh
source "$root/launch/lib.sh"

names=() options=() kind=paper
for word; do
  case "$word" in
    -h | --help)
      usage
      exit
      ;;
    --reduced) kind=paper_reduced options+=("$word") ;;
    -*) options+=("$word") ;;
    *) names+=("$word") ;;
  esac
done
cd "$root"
known="$(cd configs/paper && find . -name '*.py' | sed 's|^\./||; s|\.py$||' | sort | xargs)"
if [[ ${#names[@]} == 0 ]]; then
  read -ra names <<<"$(tr ' ' '\n' <<<"$known" | grep -v / | xargs)"
fi
for name in "${names[@]}"; do
  [[ " $known " == *" $name "* ]] || refuse "no experiment $name; choose from $known"
done

bash launch/venv.sh
use_huge_pages
for name in "${names[@]}"; do
  .venv/bin/python -m rlvr_jax.experiment --config="configs/paper/$name.py" \
    --workdir="runs/$kind/$name" ${options[@]+"${options[@]}"}
done
