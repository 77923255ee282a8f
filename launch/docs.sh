#!/usr/bin/env bash
# bash launch/docs.sh [--serve]: builds the documentation into site/, index.html first.
# Makes .venv if it is missing. --serve shows it at http://127.0.0.1:8000 instead and
# follows changes. Broken links and pages outside the navigation are errors.
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."

case "${1:-}" in
  "") command=(build --strict) ;;
  --serve) command=(serve) ;;
  *)
    echo "usage: bash launch/docs.sh [--serve]" >&2
    exit 2
    ;;
esac
bash launch/venv.sh docs
export NO_MKDOCS_2_WARNING=1 # about another generator
.venv/bin/python -m mkdocs "${command[@]}"
if [[ "${1:-}" != --serve ]]; then
  echo "open $PWD/site/index.html"
fi
