#!/usr/bin/env bash
# bash launch/test.sh [PYTEST ARGUMENTS]: the gate, the same here and in CI.
# Makes .venv if it is missing. Stops at the first step that fails, and names it.
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."

bash launch/venv.sh test
export PATH="$PWD/.venv/bin:$PATH"
# Most of the tests' time is XLA's: programs are kept from one run to the next.
export JAX_COMPILATION_CACHE_DIR="$PWD/.jax_cache"
export JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS=0.1
# LLVM's own optimizations take a good third of it, for programs that run briefly;
# XLA's stay. XLA_FLAGS= bash launch/test.sh tests the programs that users run.
export XLA_FLAGS="${XLA_FLAGS---xla_backend_optimization_level=0}"

step() {
  local name="$1" started="$SECONDS"
  shift
  echo "== $name: $*"
  if ! "$@"; then
    echo "FAILED: $name" >&2
    exit 1
  fi
  echo "== $name passed in $((SECONDS - started)) s"
}

step format ruff format --check
step lint ruff check
step shell shellcheck launch/*.sh .ci/run
step imports lint-imports --no-logo
step types mypy
step tests pytest --numprocesses=logical --maxprocesses=8 --dist=loadfile "$@"
echo "all passed in $SECONDS s"
