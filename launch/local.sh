#!/usr/bin/env bash
# bash launch/local.sh --processes=N --config=FILE --workdir=DIR [more flags]: one run as
# N cooperating processes on this machine. Their output is prefixed with [0], [1], ...
# SIGTERM and SIGINT go to all. Exit code: 0 if all are done, 75 if all stopped after a
# checkpoint, else the code of the process that failed first; the others are then ended
# too. PYTHON=... names an interpreter to use instead of .venv's.
set -euo pipefail
root="$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)"

# How long the other processes may take to end and say why, after one has failed.
last_words_s=60

usage() {
  sed -n '2,6s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"
}

count=""
flags=()
for flag in "$@"; do
  case "$flag" in
    --help | -h)
      usage
      exit 0
      ;;
    --processes=*) count="${flag#*=}" ;;
    *) flags+=("$flag") ;;
  esac
done
if ! [[ "$count" =~ ^[1-9][0-9]{0,2}$ ]]; then
  echo "error: --processes=${count:-N is missing}; give a whole number from 1 to 999:" \
    "bash launch/local.sh --processes=2 --config=FILE --workdir=DIR" >&2
  exit 2
fi

python="${PYTHON:-$root/.venv/bin/python}"
if ! command -v "$python" >/dev/null; then
  echo "error: no $python; run launch/quickstart.sh once, or set PYTHON" >&2
  exit 1
fi
port="$("$python" -c 'import socket
with socket.socket() as s:
    s.bind(("127.0.0.1", 0))
    print(s.getsockname()[1])')"

export JAX_COORDINATOR_ADDRESS="127.0.0.1:$port" JAX_NUM_PROCESSES="$count"
prefix() {
  local line
  trap '' INT # Ctrl-C is for the processes, which still print their last lines
  while IFS= read -r line || [[ -n "$line" ]]; do
    printf '[%s] %s\n' "$1" "$line"
  done
}

set -m # a group per process: Ctrl-C only reaches this script, which forwards it once
left=()
for ((i = 0; i < count; i++)); do
  JAX_PROCESS_ID="$i" PYTHONUNBUFFERED=1 "$python" -m rlvr_jax.main \
    "${flags[@]+"${flags[@]}"}" \
    > >(prefix "$i") 2> >(prefix "$i" >&2) &
  left+=("$!")
done

forward() {
  kill -s "$1" "${left[@]}" 2>/dev/null || true
}
trap 'forward TERM' TERM
trap 'forward INT' INT
trap 'forward HUP' HUP # the terminal was closed

code=0
deadline=0
while ((${#left[@]})); do
  sleep 0.2 || true
  running=()
  for pid in "${left[@]}"; do
    if kill -0 "$pid" 2>/dev/null; then
      running+=("$pid")
      continue
    fi
    status=0
    wait "$pid" || status=$?
    # A stop only counts if nothing has failed; of several failures the first counts.
    if ((status != 0 && (code == 0 || code == 75))); then
      code="$status"
      ((status == 75)) || deadline=$((SECONDS + last_words_s))
    fi
  done
  left=("${running[@]+"${running[@]}"}")
  if ((deadline && SECONDS >= deadline)); then
    forward KILL
  fi
done
exit "$code"
