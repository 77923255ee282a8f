#!/usr/bin/env bash
# bash benchmarks/make_peer_env.sh DIR [grpo|sae]: makes the peers' environment in DIR,
# separate from ours: torch for CPU with transformers and trl (grpo, the default), or with
# sae-lens and dictionary-learning (sae). PYTHON=... names the interpreter,
# TORCH_INDEX=... the index for torch. Run it again to add missing packages.
set -euo pipefail

directory="${1:-}"
case "${2:-grpo}" in
  grpo) peers=(transformers==5.23.0 trl==1.16.0 accelerate peft==0.21.2) ;;
  sae) peers=(sae-lens==6.54.12 dictionary-learning==0.1.0) ;;
  *) directory="" ;;
esac
if [[ $# -gt 2 || -z "$directory" ]]; then
  echo "usage: bash benchmarks/make_peer_env.sh DIR [grpo|sae]" >&2
  exit 2
fi
index="${TORCH_INDEX:-https://download.pytorch.org/whl/cpu}"

"${PYTHON:-python3}" -m venv "$directory"
python="$directory/bin/python"
# PyPI's torch for Linux carries gigabytes of CUDA, which a CPU benchmark never loads.
"$python" -m pip install --quiet --index-url "$index" torch==2.13.0
"$python" -m pip install --quiet torch==2.13.0 "${peers[@]}"
# Some peers pull in PyPI's torchvision. None needs it, and it does not fit this torch.
"$python" -m pip uninstall --quiet --yes torchvision
"$python" -m pip list | grep -iE '^(torch|transformers|trl|peft|sae-lens|dictionary-learning) '
echo "use: --peer_python=$python"
