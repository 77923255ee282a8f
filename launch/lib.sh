# shellcheck shell=bash
# Sourced by the launchers: usage, checks, the run's own flags, TPU slices.

# Every machine of a cloud job sees the same files here.
readonly SHARE=/mnt/share
# The flags of the run itself, passed on unchanged, and its workdir.
run=()
workdir=""

# Prints the comment at the head of the launcher.
usage() {
  awk 'NR > 1 { if (!sub(/^# ?/, "")) exit; print }' "$0"
}

refuse() {
  echo "error: $*" >&2
  exit 2
}

# Transparent huge pages for malloc: we measured that they speed up decoding on CPU, where
# every step walks over the whole cache. glibc reads this once, when a process starts.
use_huge_pages() {
  if [[ "$(uname -s)" == Linux ]]; then
    export GLIBC_TUNABLES="${GLIBC_TUNABLES:-glibc.malloc.hugetlb=1}"
  fi
}

# Keeps a flag of the run itself; refuses any other.
keep_flag() {
  case "$1" in
    --workdir=?*) workdir="${1#*=}" ;;
    --config=?* | --config.?*=* | --stage=?*) ;;
    --workdir | --config | --config.* | --stage) refuse "write $1=VALUE" ;;
    *) refuse "unknown flag '$1'; --help lists the flags" ;;
  esac
  run+=("$1")
}

# needed VALUE FLAG: stops if the flag is missing.
needed() {
  [[ -n "$1" ]] || refuse "$2 is missing"
}

# Refuses a run without a recipe or a workdir.
check_run() {
  [[ " ${run[*]-}" == *" --config="* ]] || refuse "--config=FILE is missing"
  needed "$workdir" --workdir=DIR
}

# Returns whether the workdir is in a bucket that several machines can write to.
in_bucket() {
  [[ "$workdir" == gs://?*/?* ]]
}

# Refuses a workdir that would be lost with its machine.
check_outlives() {
  in_bucket || [[ "$workdir" == "$SHARE"/?* ]] ||
    refuse "--workdir=$workdir is lost with its machine; choose one under $SHARE," \
      "or gs://BUCKET/RUN"
}

# Refuses a name that is invalid for a cloud resource, or as a prefix of machine names.
check_name() {
  [[ "$1" =~ ^[a-z]([a-z0-9-]{0,38}[a-z0-9])?$ ]] ||
    refuse "--name=$1 is invalid; use at most 40 of a-z, 0-9 and -, from a letter"
}

check_count() {
  [[ "$2" =~ ^[0-9]+$ ]] || refuse "$1=$2 is not a whole number"
}

# Prints its arguments as words that a shell would read back.
quoted() {
  local word words=() mark="'\\''"
  for word; do
    [[ "$word" =~ ^[A-Za-z0-9_./:=,@%+-]+$ ]] || word="'${word//\'/$mark}'"
    words+=("$word")
  done
  echo "${words[*]}"
}

# slice v5e:4x4: sets the slice's chips and hosts, and its names in the clouds.
# shellcheck disable=SC2034 # read by the launchers
slice() {
  local flat=" 1x1 2x2 2x4 4x4 4x8 8x8 8x16 16x16 "
  [[ "$1" =~ ^(v4|v5e|v5p|v6e):([1-9][0-9]*)x([1-9][0-9]*)(x([1-9][0-9]*))?$ ]] ||
    refuse "--topology=$1 is invalid; give v4, v5e, v5p or v6e and a shape: v5e:4x4"
  shape="${1#*:}"
  chips=$((BASH_REMATCH[2] * BASH_REMATCH[3] * ${BASH_REMATCH[5]:-1}))
  case "${BASH_REMATCH[1]}" in
    v5e | v6e)
      [[ "$flat" == *" $shape "* ]] || refuse "--topology=$1: shapes are$flat"
      # Up to 8 chips share a host; larger slices have 4 on each.
      host_chips=$((chips > 8 ? 4 : chips))
      ;;
    *)
      [[ -n "${BASH_REMATCH[5]:-}" && $((chips % 4)) == 0 ]] ||
        refuse "--topology=$1: give three sides, with whole hosts of 4 chips: 2x2x4"
      host_chips=4
      ;;
  esac
  hosts=$((chips / host_chips))
  case "$1" in
    v4:*)
      accelerator=(--type=v4 --topology="$shape")
      runtime=tpu-ubuntu2204-base
      gke_accelerator=tpu-v4-podslice machine=ct4p-hightpu-4t
      ;;
    v5e:*)
      accelerator=(--accelerator-type="v5litepod-$chips")
      runtime=v2-alpha-tpuv5-lite
      gke_accelerator=tpu-v5-lite-podslice machine="ct5lp-hightpu-${host_chips}t"
      ;;
    v5p:*)
      # By its cores, two per chip, because gcloud accepts no shape for this type.
      accelerator=(--accelerator-type="v5p-$((2 * chips))")
      runtime=v2-alpha-tpuv5
      gke_accelerator=tpu-v5p-slice machine=ct5p-hightpu-4t
      ;;
    v6e:*)
      accelerator=(--accelerator-type="v6e-$chips")
      runtime=v2-alpha-tpuv6e
      gke_accelerator=tpu-v6e-slice machine="ct6e-standard-${host_chips}t"
      ;;
  esac
}
