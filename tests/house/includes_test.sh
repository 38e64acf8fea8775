#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The include check passes on this tree and fails on a copy with one include that goes upstream.
set -eu
root=$1
"$root/tests/house/includes.py" "$root"
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
(cd "$root" && tar cf - base proto data graph plan kernels coll worker daemon ctl docs) | tar xf - -C "$copy"
printf '#include "worker/step/vote.h"\n' >> "$copy/base/arena.c"
if "$root/tests/house/includes.py" "$copy" >"$copy/said"; then
    echo "the check did not notice base/ including worker/"; exit 1
fi
grep -q 'base/ may not include worker/step/vote.h' "$copy/said"
printf '#include "graph/import/import.h"\n' >> "$copy/graph/shapes/shapes.c"
"$root/tests/house/includes.py" "$copy" >"$copy/said" && exit 1
grep -q 'graph/shapes/ may not include graph/import/import.h' "$copy/said" ||
    { echo "the check did not notice graph/shapes/ including graph/import/"; exit 1; }
