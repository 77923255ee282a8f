#!/usr/bin/env bash
# sbatch [--nodes=2 --partition=P ...] launch/slurm.sh [--restarts=20]
#     --config=FILE --workdir=DIR [--config.a.b=v ...] [--stage=S]
# bash launch/slurm.sh --print --config=FILE --workdir=DIR
#
# A Slurm job with one process per GPU, on any number of nodes. Submit it from the root
# of the project, after: bash launch/venv.sh gpu. Project and workdir must be on a file
# system that all nodes see.
#
# Two minutes before its time is up, the run saves and exits with 75. The job then puts
# itself back into the queue, as Slurm does if it is preempted or a node is lost, and
# continues from the checkpoint. Any other exit code ends it: 1 failed, 2 bad usage.
#
#   --restarts how often to go back into the queue
#   --print    print the command of all nodes, run nothing
#
# Options of sbatch and their defaults, which its command line can override:

#SBATCH --job-name=rlvr_jax
#SBATCH --nodes=1
#SBATCH --gpus-per-node=8
#SBATCH --ntasks-per-node=8
#SBATCH --cpus-per-task=8
#SBATCH --time=24:00:00
#SBATCH --signal=TERM@120
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=%x-%j.log
set -euo pipefail
# Slurm runs a copy of this file; the project is where the job was submitted.
root="${SLURM_SUBMIT_DIR:-$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)}"
if [[ ! -f "$root/launch/lib.sh" ]]; then
  echo "error: $root is not the root of the project; submit from there" >&2
  exit 2
fi
# shellcheck source=launch/lib.sh
source "$root/launch/lib.sh"

restarts=20 print=""
while (($#)); do
  case "$1" in
    --help) usage && grep '^#SBATCH' "$0" | cut -c 2- && exit ;;
    --restarts=*) restarts="${1#*=}" ;;
    --print) print=1 ;;
    *) keep_flag "$1" ;;
  esac
  shift
done
check_run
check_count --restarts "$restarts"
cd -- "$root"
# A minute after one process has ended, the remaining ones are ended too.
command=(srun --wait=60 --cpus-per-task="${SLURM_CPUS_PER_TASK:-8}"
  .venv/bin/python -m rlvr_jax.main "${run[@]}")
if [[ -n "$print" ]]; then
  quoted "${command[@]}"
  exit
fi
[[ -n "${SLURM_JOB_ID:-}" ]] || refuse "not a Slurm job; use sbatch instead of bash"
[[ -x .venv/bin/python ]] || refuse "no .venv in $root; make it: bash launch/venv.sh gpu"
# JAX gives the process of local rank i the GPU i.
gpus="${SLURM_GPUS_PER_NODE:-}" tasks="${SLURM_NTASKS_PER_NODE:-}"
[[ "${gpus##*:}" == "$tasks" ]] ||
  refuse "--gpus-per-node=$gpus and --ntasks-per-node=$tasks must be equal"

# Slurm's signal is for the processes; this script only waits for them.
trap : TERM
status=0
"${command[@]}" || status=$?
if ((status == 75 && ${SLURM_RESTART_COUNT:-0} < restarts)); then
  # Not if the user canceled the job, or Slurm has already put it back.
  if [[ "$(squeue --noheader --format=%T --jobs="$SLURM_JOB_ID")" == RUNNING ]]; then
    scontrol requeue "$SLURM_JOB_ID"
  fi
fi
exit "$status"
