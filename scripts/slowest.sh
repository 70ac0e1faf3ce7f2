#!/usr/bin/env bash
# slowest.sh [N]: the N (default 20) slowest packages and tests of the last scripts/test.sh, in seconds, and the CPU
# seconds of each package. The time of a test that
# runs beside others counts from its turn on, its wait for the second node included. Subtests that run beside each other are not
# part of their test's time.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

events=.cache/test-events.json most=${1:-20}
[[ $most =~ ^[1-9][0-9]*$ ]] || { echo "slowest: $most is not a number from 1" >&2; exit 64; }
[ -s "$events" ] || { echo "slowest: there is no $events: run make test first" >&2; exit 1; }
grep -E '"Action":"(pass|fail)","Package"' "$events" >/dev/null || { echo "slowest: no package ended in $events: run make test again" >&2; exit 1; }

# rows prints seconds and name of what ended, one a line: packages, or tests.
rows() { # packages|tests
  sed -nE 's/.*"Action":"(pass|fail)","Package":"([^"]*)"(,"Test":"([^"]*)")?,"Elapsed":([0-9.]+).*/\5 \2 \4/p' "$events" |
    awk -v what="$1" '(what == "packages") == (NF == 2) {printf "%9.2f  %s\n", $1, $2 (NF > 2 ? "  " $3 : "")}' |
    sort -rn | head -n "$most" || true
}
# make check takes results from the cache, and measures no package.
if grep '^package' .cache/test-cpu >/dev/null 2>&1; then
  CPU_FILE=.cache/test-cpu scripts/cpu.sh report | sed -n "1,$((most + 2))p" # below two heading lines
else
  echo "slowest packages (s); make check measures no CPU, make test does"
  rows packages
fi
echo "slowest tests (s)"
rows tests
