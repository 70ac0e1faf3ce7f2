#!/usr/bin/env bash
# measured.sh [FILE [COMMITS]]: warns of figures in FILE (docs/performance.md) that were measured more than COMMITS (150) ago. It
# never fails: to measure takes half an hour and a quiet machine. A clone without that history says nothing.
set -euo pipefail
[ $# -gt 0 ] || cd "$(dirname "${BASH_SOURCE[0]}")/.."

file=${1:-docs/performance.md}
while read -r commit; do
  age=$(git rev-list --count "$commit..HEAD" 2>/dev/null) || continue
  [ "$age" -le "${2:-150}" ] ||
    echo "warning: $file has figures of $commit, $age commits ago; make bench-docs measures them again" >&2
done < <(sed -nE 's/^Measured [-0-9]+ at ([^, ]+),.*/\1/p' "$file" | sed 's/-dirty$//' | sort -u)
