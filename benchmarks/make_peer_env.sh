#!/usr/bin/env bash
# bash benchmarks/make_peer_env.sh DIR: makes the peers' environment in DIR, apart from
# ours: torch for CPU, transformers, trl. PYTHON=... names the interpreter, TORCH_INDEX=...
# the index that torch comes from. Run again, it completes what is missing.
set -euo pipefail

if [[ $# -ne 1 ]]; then
  echo "usage: bash benchmarks/make_peer_env.sh DIR" >&2
  exit 2
fi
directory="$1"
index="${TORCH_INDEX:-https://download.pytorch.org/whl/cpu}"

"${PYTHON:-python3}" -m venv "$directory"
python="$directory/bin/python"
# PyPI's torch for Linux carries gigabytes of CUDA, which a CPU benchmark never loads.
"$python" -m pip install --quiet --index-url "$index" torch==2.13.0
"$python" -m pip install --quiet torch==2.13.0 transformers==5.23.0 trl==1.16.0 accelerate
"$python" -c 'import torch, transformers, trl
print("torch", torch.__version__, "transformers", transformers.__version__, "trl", trl.__version__)'
echo "use: python -m benchmarks.run --peers=hf,trl --peer_python=$python"
