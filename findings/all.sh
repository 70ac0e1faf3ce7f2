#!/usr/bin/env bash
# all.sh: runs all findings, one after the other; exits with 1 if the behaviour of one changed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

bad=0
for f in *.sh; do
  case $f in all.sh | lib.sh) continue ;; esac
  echo "== $f"
  "./$f" || { echo "$f: changed, or could not run" >&2; bad=1; }
done
exit "$bad"
