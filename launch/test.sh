#!/usr/bin/env bash
# bash launch/test.sh [--all] [PYTEST ARGUMENTS]: runs the checks, the same as in CI.
# The everyday checks cover every theorem at least once. They take about 8 minutes on
# two cores with nothing compiled, and 5 to 6 with their programs kept. --all adds the tests of
# tests/slow.txt (up to an hour) and then ten minutes of mutants, which check the tests:
# use it before an issue is closed; CI does too.
# With --all, do not give -m: the tests run in two parts, and it would change both.
# Makes .venv if it is missing. Stops at the first step that fails, and names it.
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."

extras=test mutants=0 all=0
if [[ "${1:-}" == --all ]]; then
  shift
  all=1
  mutants=$(($# == 0 ? 40 : 0))  # none if only some tests run
  extras=test,s3,gcs,emulators,gym,trackio,wandb
fi
bash launch/venv.sh "$extras"
export PATH="$PWD/.venv/bin:$PATH"
# Dozens of processes start, and each would compile every module that it imports again.
unset PYTHONDONTWRITEBYTECODE
# XLA takes most of the tests' time, so compiled programs are kept between runs and
# shared by all clones.
cache="${XDG_CACHE_HOME:-$HOME/.cache}/rlvr_jax/tests"
export JAX_COMPILATION_CACHE_DIR="${JAX_COMPILATION_CACHE_DIR:-$cache}"
export JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS=0
# LLVM's optimizations take over a third of that, for programs that run briefly, so they
# are off; XLA's stay on. On a busy machine, a virtual device may wait long for the
# others; by default XLA would give up.
patience=600
flags="--xla_backend_optimization_level=0 \
--xla_cpu_collective_timeout_seconds=$patience \
--xla_cpu_collective_call_terminate_timeout_seconds=$patience"
# XLA's newer way to emit fusions takes half of the rest. Only with it do two different
# programs agree bit for bit in what they share, as slow tests demand.
everyday="$flags --xla_cpu_use_fusion_emitters=false"
# One worker more than cores, because one often waits for a process or a disk.
workers=$(($(nproc) < 8 ? $(nproc) + 1 : 8))

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

# run_tests FLAGS [PYTEST ARGUMENTS]: XLA_FLAGS= bash launch/test.sh tests the programs
# that users run. With --all one of two runs may find no tests, pytest's code 5.
empty=0
run_tests() {
  local flags="${XLA_FLAGS-$1}" code=0
  shift
  XLA_FLAGS="$flags" pytest --numprocesses="$workers" --dist=loadfile \
    --no-loadscope-reorder "$@" || code=$?
  if ((all && code == 5)); then
    empty=$((empty + 1))
    return
  fi
  return "$code"
}

# Types are checked in parallel with the tests; the result is printed after them. What
# mypy remembers is kept for new clones too: the check then takes 1 s instead of 50.
export MYPY_CACHE_DIR="$PWD/.mypy_cache"
types_kept="${XDG_CACHE_HOME:-$HOME/.cache}/rlvr_jax/types"
if [[ ! -d "$MYPY_CACHE_DIR" ]]; then
  mkdir -p "$types_kept" "$MYPY_CACHE_DIR"
  tar -xf "$types_kept/mypy.tar" -C "$MYPY_CACHE_DIR" 2>/dev/null || true
fi
types="$(mktemp)"
mypy >"$types" 2>&1 &
checker=$!
trap 'kill "$checker" 2>/dev/null || true; rm -f "$types"' EXIT

step format ruff format --check
step lint ruff check
step shell shellcheck launch/*.sh .ci/run
step imports lint-imports --no-logo
step tests run_tests "$everyday" "$@"
if ((all)); then
  slow="slow and not exhaustive and not live and not gpu"
  step "slow tests" run_tests "$flags" -m "$slow" "$@"
  if ((empty == 2)); then
    echo "FAILED: no tests ran" >&2
    exit 1
  fi
fi
echo "== types: mypy"
if ! wait "$checker"; then
  cat "$types"
  echo "FAILED: types" >&2
  exit 1
fi
cat "$types"
# Under its name in one step: another clone may read it at this moment.
mkdir -p "$types_kept"
tar -cf "$types_kept/$$.tar" -C "$MYPY_CACHE_DIR" .
mv "$types_kept/$$.tar" "$types_kept/mypy.tar"
if ((mutants)); then
  step mutants python -m tests.mutants --sample="$mutants"
fi
echo "all passed in $SECONDS s"
