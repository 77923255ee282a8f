#!/usr/bin/env bash
# bash launch/tpu_worker.sh --attempt=ID [--nfs=HOST:/DIR] FLAGS OF THE RUN
#
# One worker's part of launch/tpu_vm.sh: mounts the share if there is one, installs, runs.
set -euo pipefail
root="$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)"
# shellcheck source=launch/lib.sh
source "$root/launch/lib.sh"

attempt="" nfs=""
while (($#)); do
  case "$1" in
    --help) usage && exit ;;
    --attempt=*) attempt="${1#*=}" ;;
    --nfs=*) nfs="${1#*=}" ;;
    *) keep_flag "$1" ;;
  esac
  shift
done
needed "$attempt" --attempt=ID
check_run
in_bucket || needed "$nfs" --nfs=HOST:/DIR

apt_get() {
  sudo DEBIAN_FRONTEND=noninteractive \
    apt-get -o DPkg::Lock::Timeout=600 --yes --quiet=2 "$@"
}

# Returns whether a process is our run and still alive.
is_run() {
  [[ -n "$1" ]] && grep --quiet --text rlvr_jax "/proc/$1/cmdline" 2>/dev/null
}

# Stops the run of an earlier attempt, with time for its checkpoint.
stop_leftover() {
  local second
  is_run "$1" || return 0
  kill "$1"
  for ((second = 0; second < 120; second++)); do
    is_run "$1" || return 0
    sleep 1
  done
  kill -KILL "$1"
}

record="$HOME/.rlvr_jax_attempt" before="" pid=""
if [[ -e "$record" ]]; then
  read -r before pid <"$record"
  stop_leftover "$pid"
fi
# If a connection breaks, gcloud repeats the command on that worker only. A worker that
# starts alone would wait in vain for the others, so all of them must start again.
if [[ "$before" == "$attempt" ]]; then
  echo "the connection to $(hostname) broke; all workers must start again" >&2
  exit 75
fi
echo "$attempt $$" >"$record"

if [[ -n "$nfs" ]] && ! mountpoint --quiet "$SHARE"; then
  apt_get update
  apt_get install nfs-common
  sudo mkdir -p "$SHARE"
  sudo mount -t nfs "$nfs" "$SHARE"
  [[ -w "$SHARE" ]] || sudo chown "$(id -u)" "$SHARE"
fi
# The images come with Python 3.10.
if ! python3.12 -c 'import ensurepip' 2>/dev/null; then
  sudo add-apt-repository --yes ppa:deadsnakes/ppa
  apt_get install python3.12-venv
fi
extras=tpu
if in_bucket; then
  extras=tpu,gcs
fi
PYTHON=python3.12 bash "$root/launch/venv.sh" "$extras"
# libtpu starts faster with huge pages.
sudo tee /sys/kernel/mm/transparent_hugepage/enabled <<<always >/dev/null

# The user id on the next slice may be different.
umask 0
cd -- "$root"
export JAX_COMPILATION_CACHE_DIR="$HOME/.jax_cache"
if [[ -n "$nfs" ]]; then
  JAX_COMPILATION_CACHE_DIR="$SHARE/.jax_cache"
fi
exec .venv/bin/python -m rlvr_jax.main "${run[@]}"
