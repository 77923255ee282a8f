#!/usr/bin/env bash
# bash benchmarks/accelerator/wheels.sh DIR [PYTHON_VERSION]: downloads the packages of
# requirements.txt as wheels for Linux on x86-64, and prints their number and total size.
# PYTHON_VERSION is the version on the target machine, such as 3.12; default: python3's.
# PACKAGES="name name ..." only downloads these, if the machine lacks only some.
set -euo pipefail

here="$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)"
if [[ $# -lt 1 ]]; then
  echo "usage: bash benchmarks/accelerator/wheels.sh DIR [PYTHON_VERSION]" >&2
  exit 2
fi
directory="$1"
version="${2:-$(python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])')}"

wanted=()
while read -r requirement _; do
  name="${requirement%%[><=]*}"
  if [[ -n "$name" && "$name" != "#"* ]] &&
    [[ -z "${PACKAGES:-}" || " $PACKAGES " == *" $name "* ]]; then
    wanted+=("$requirement")
  fi
done < "$here/requirements.txt"

# pip only accepts wheels for exactly these platforms.
platforms=(--platform any)
for tag in manylinux1 manylinux2010 manylinux2014 manylinux_2_{5,12,17,24,26,27,28,31,34,35}; do
  platforms+=(--platform "${tag}_x86_64")
done
mkdir -p "$directory"
python3 -m pip download --quiet --no-deps --only-binary=:all: --dest "$directory" \
  --implementation cp --python-version "$version" "${platforms[@]}" "${wanted[@]}"
echo "$(find "$directory" -name '*.whl' | wc -l) wheels," \
  "$(du -ch "$directory"/*.whl | tail -n 1 | cut -f 1)"
