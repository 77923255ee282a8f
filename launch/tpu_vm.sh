#!/usr/bin/env bash
# bash launch/tpu_vm.sh --name=N --topology=v5e:4x4 --project=P --zone=Z
#     [--nfs=HOST:/DIR] [--spot] [--restarts=20] [--keep] [--print]
#     --config=FILE --workdir=gs://BUCKET/RUN|/mnt/share/DIR [--config.a.b=v ...] [--stage=S]
# bash launch/tpu_vm.sh --delete --name=N --project=P --zone=Z [--print]
#
# Runs one command on all workers of a Cloud TPU slice, and repeats it until it ends. It
# requests the slice (or uses the slice with that name), copies the last commit, mounts
# the share at /mnt/share, installs, and runs. After exit code 75, a lost connection or a
# preemption it starts over, and the run continues from its checkpoint.
#
#   --nfs      the file share that outlives the machines (Filestore, or any NFS); needed
#              unless the workdir is on gs://, which the slice's account must then write
#   --spot     use machines that cost less and may be preempted at any time
#   --restarts how often to start over before giving up
#   --keep     keep the slice, and pay for it, after the run has ended
#   --delete   delete the slice and exit
#   --print    print every command, run none
#
# Needs gcloud, git and the key in the agent: ssh-add ~/.ssh/google_compute_engine.
# Run it where it will not be interrupted (tmux). If it is, run the command again.
# Exit code: the run's; 1 also if the cloud refused; 2 bad usage.
set -euo pipefail
root="$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)"
# shellcheck source=launch/lib.sh
source "$root/launch/lib.sh"

name="" topology="" project="" zone="" nfs="" config=""
spot="" restarts=20 keep="" delete="" print=""
while (($#)); do
  case "$1" in
    --help) usage && exit ;;
    --name=*) name="${1#*=}" ;;
    --topology=*) topology="${1#*=}" ;;
    --project=*) project="${1#*=}" ;;
    --zone=*) zone="${1#*=}" ;;
    --nfs=*) nfs="${1#*=}" ;;
    --restarts=*) restarts="${1#*=}" ;;
    --spot) spot=--spot ;;
    --keep) keep=1 ;;
    --delete) delete=1 ;;
    --print) print=1 ;;
    --config=*) config="${1#*=}" && keep_flag "$1" ;;
    *) keep_flag "$1" ;;
  esac
  shift
done

check() {
  needed "$name" --name=NAME
  needed "$project" --project=PROJECT
  needed "$zone" --zone=ZONE
  check_name "$name"
  check_count --restarts "$restarts"
  [[ -n "$print" ]] || command -v gcloud >/dev/null ||
    refuse "gcloud is not on the PATH; see https://cloud.google.com/sdk/docs/install"
  [[ -z "$delete" ]] || return 0
  needed "$topology" --topology=v5e:4x4
  slice "$topology"
  check_run
  [[ -z "$nfs" ]] && in_bucket || [[ "$nfs" =~ ^[^:/]+:/[^:/][^:]*$ ]] ||
    refuse "--nfs=$nfs is not a share; write HOST:/DIR"
  check_outlives
  [[ "$config" == "$SHARE"/* || "$config" == gs://* ]] || is_committed ||
    refuse "--config=$config is not in the last commit, and only that is copied"
}

# Whether the last commit has the config: a file, or a recipe by name.
is_committed() {
  git -C "$root" cat-file -e "HEAD:${config#./}" 2>/dev/null ||
    git -C "$root" cat-file -e "HEAD:configs/$config.py" 2>/dev/null
}

# Runs a command, or prints it.
do_or_print() {
  if [[ -n "$print" ]]; then
    quoted "$@" >&3
  else
    "$@"
  fi
}

tpus() {
  do_or_print gcloud compute tpus "$@" --project="$project" --zone="$zone"
}

# Prints the state of the request for the slice, or nothing without a request.
state() {
  tpus queued-resources list --filter="name~/$name\$" --format='value(state.state)'
}

delete_slice() {
  tpus queued-resources delete "$name" --force --quiet
}

delete_unless_kept() {
  [[ -n "$keep" ]] || delete_slice
}

give_up() {
  echo "error: $*" >&2
  exit 1
}

# Uses up one restart and waits a while.
start_over() {
  if ((restarts-- == 0)); then
    delete_unless_kept || true
    give_up "$1, and no restart is left; the same command continues from the checkpoint"
  fi
  echo "$1; starting over, $restarts restarts left"
  sleep 30
}

# Returns when the slice is ready.
bring_up() {
  local now="" before=""
  while true; do
    before="$now"
    if ! now="$(state)"; then
      start_over "cannot read the state of $name"
      continue
    fi
    case "$now" in
      ACTIVE) return ;;
      "")
        tpus queued-resources create "$name" --node-id="$name" "${accelerator[@]}" \
          --runtime-version="$runtime" ${spot:+"$spot"} ||
          give_up "the cloud refused to make $name"
        [[ -z "$print" ]] || return 0
        ;;
      SUSPENDED) delete_slice ;; # preempted: only the name is left
      FAILED) give_up "the request $name failed; see it with gcloud, then --delete" ;;
      *)
        [[ "$now" == "$before" ]] || echo "$name: $now"
        sleep 30
        ;;
    esac
  done
}

# Runs the command on all workers; returns the first exit code that is not 0, or 255 if
# the command could not be sent.
attempt() {
  local bundle="$scratch/$name.bundle" id=FIRST
  [[ -n "$print" ]] || id="$(date +%s)-$restarts"
  local command="git init --quiet rlvr_jax && cd rlvr_jax"
  command+=" && git fetch --quiet ../$name.bundle HEAD"
  command+=" && git checkout --quiet --force FETCH_HEAD"
  command+=" && bash launch/tpu_worker.sh --attempt=$id${nfs:+ $(quoted "--nfs=$nfs")}"
  command+=" $(quoted "${run[@]}")"
  do_or_print git -C "$root" bundle create --quiet "$bundle" HEAD || return 255
  tpus tpu-vm scp "$bundle" "$name:$name.bundle" --worker=all || return 255
  tpus tpu-vm ssh "$name" --worker=all --command="$command"
}

exec 3>&1
check
scratch="${TMPDIR:-/tmp}"
if [[ -z "$print" ]]; then
  scratch="$(mktemp --directory)" # an unpredictable name
  trap 'rm -rf "$scratch"' EXIT
fi
if [[ -n "$delete" ]]; then
  delete_slice
  exit
fi
while true; do
  bring_up
  status=0
  attempt || status=$?
  case "$status" in
    0 | 2) break ;;
    1)
      # If a machine is taken away, the others fail before the state shows it.
      sleep 60
      [[ "$(state)" != ACTIVE ]] || break
      ;;
  esac
  start_over "the run ended with $status"
done
delete_unless_kept
exit "$status"
