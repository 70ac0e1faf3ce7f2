#!/usr/bin/env bash
# fuzz.sh: runs every fuzz target for FUZZTIME (default 10m), one after the other, and sums up. None of them needs a broker.
# FUZZTOTAL is the time in seconds for all targets together instead: FUZZTOTAL=3600 is an hour, whatever their number.
# TARGETS narrows them by a regular expression over "package Target" (TARGETS='dispatch|FuzzLoad').
# An input that fails is written below the package's testdata/fuzz, where every later `go test` runs it: commit it with
# the fix. What a run finds interesting otherwise stays in Go's build cache and is where the next run begins.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

time=${FUZZTIME:-10m}
logs=$PWD/.cache/fuzz
mkdir -p "$logs"
mapfile -t targets < <(grep -roE --include='*_test.go' '^func Fuzz[A-Za-z0-9_]+' internal cmd |
  sed -E 's|/[^/]+:func | |' | grep -E -- "${TARGETS:-.}" | sort)
((${#targets[@]})) || { echo "fuzz: no target matches ${TARGETS:-}" >&2; exit 64; }
if [ -n "${FUZZTOTAL:-}" ]; then time=$((FUZZTOTAL / ${#targets[@]}))s; fi

# A busy machine lets Go's fuzzer miss its own end by a moment; it then reports that as a failure of the target.
ended_in_time() { grep -qx ' *context deadline exceeded' "$1" && ! grep -qE 'Failing input|panic:|fatal error' "$1"; }

failed=0 summary=()
for t in "${targets[@]}"; do
  read -r dir name <<<"$t"
  log=$logs/${dir##*/}.$name.log
  echo "fuzz: $t for $time (log: ${log#"$PWD"/})"
  result=ok
  # Minimising is bounded: by default each new input may take a minute, in which nothing else is tried.
  go test -run '^$' -fuzz "^$name\$" -fuzztime "$time" -fuzzminimizetime 1s -timeout 0 "./$dir" >"$log" 2>&1 ||
    if ended_in_time "$log"; then :; else
      result=FAILED failed=1
      grep -v '^fuzz: elapsed' "$log" | tail -n 40 >&2
    fi
  execs=$(grep -oE 'execs: [0-9]+' "$log" | tail -n 1 | grep -oE '[0-9]+' || echo 0)
  found=$(grep -oE 'interesting: [0-9]+ \(total: [0-9]+' "$log" | tail -n 1 | sed -E 's/interesting: ([0-9]+) \(total: ([0-9]+)/\1 \2/' || true)
  summary+=("$(printf '%-6s  %-22s %-16s %10s execs  %s new of %s inputs' "$result" "$dir" "$name" "$execs" ${found:-0 0})")
done
printf '\nfuzz: %s each\n' "$time"
printf '%s\n' "${summary[@]}"
if new=$(git status --porcelain -- 'internal/**/testdata/fuzz' 2>/dev/null) && [ -n "$new" ]; then
  printf 'not committed:\n%s\n' "$new"
fi
exit "$failed"
