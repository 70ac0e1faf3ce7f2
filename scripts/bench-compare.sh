#!/usr/bin/env bash
# bench-compare.sh: runs the Go benchmarks and compares them with the committed baseline. Exit 1 when a benchmark makes
# more allocations than the baseline's: those do not depend on the machine. Times are only shown.
#   PKG           packages to run (default ./internal/...)
#   COUNT         runs of each benchmark (default 8)
#   BENCHTIME     of each run (default 100ms)
#   UPDATE=1      makes this run the new baseline, after showing the difference
#   BASELINE      the file to compare with (default bench/micro/baseline.txt)
#   COMPARE_WITH  results of an earlier run, to be compared instead of running anything
#   BENCHSTAT     benchstat's binary (default: the pinned version, built when it is missing)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

baseline=${BASELINE:-bench/micro/baseline.txt}
if [ -n "${UPDATE:-}" ] && [ -n "${PKG:-}" ]; then
  echo "bench-compare: UPDATE=1 replaces the whole baseline: leave PKG out" >&2
  exit 64
fi
if [ -z "${UPDATE:-}" ] && ! [ -s "$baseline" ]; then
  echo "bench-compare: $baseline is missing: UPDATE=1 makes it" >&2
  exit 64
fi

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
new=$dir/new.txt

if [ -n "${COMPARE_WITH:-}" ]; then
  cp "$COMPARE_WITH" "$new"
else
  read -r -a packages <<<"${PKG:-./internal/...}"
  go list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}} {{.Dir}}{{end}}' "${packages[@]}" >"$dir/packages.txt"
  echo "bench-compare: building" >&2
  while read -r package source; do
    binary=$dir/${package//\//.}.test
    go test -c -o "$binary" "$package"
    benchmarks=$(cd "$source" && "$binary" -test.list '^Benchmark')
    [ -z "$benchmarks" ] || echo "$binary $source" >>"$dir/binaries.txt"
  done <"$dir/packages.txt"
  [ -s "$dir/binaries.txt" ] || { echo "bench-compare: no benchmark in ${packages[*]}" >&2; exit 64; }
  # Round by round, so that other load on the machine falls on all benchmarks alike and not on all runs of one.
  for round in $(seq "${COUNT:-8}"); do
    echo "bench-compare: round $round of ${COUNT:-8}" >&2
    while read -r binary source; do
      # -cpu: the number is part of a benchmark's name and has to be the same on every machine.
      if ! (cd "$source" && "$binary" -test.run '^$' -test.bench . -test.benchmem -test.cpu 2 \
        -test.benchtime "${BENCHTIME:-100ms}") </dev/null >"$dir/out.txt" 2>&1; then
        cat "$dir/out.txt" >&2
        echo "bench-compare: a benchmark failed" >&2
        exit 1
      fi
      cat "$dir/out.txt" >>"$binary.txt"
    done <"$dir/binaries.txt"
  done
  # One block for each package, each line about the machine once.
  {
    echo "go: $(go env GOVERSION)"
    while read -r binary _; do cat "$binary.txt"; done <"$dir/binaries.txt"
  } | awk '/^(go|goos|goarch|pkg|cpu): / { if (last[$1] != $0) print; last[$1] = $0 } /^Benchmark.*\/op/' >"$new"
fi

# What was not run now is not compared.
awk 'NR == FNR { if ($1 == "pkg:") run[$2] = 1; next }
     $1 == "pkg:" { skip = !($2 in run) }
     !/^(pkg|Benchmark)/ || !skip' "$new" <(cat "$baseline" 2>/dev/null || true) >"$dir/old.txt"

status=0
if [ -s "$dir/old.txt" ]; then
  stat=${BENCHSTAT:-$(scripts/gotool.sh golang.org/x/perf/cmd/benchstat@v0.0.0-20260908200009-22c9c6c9d4da)}
  "$stat" -table pkg -ignore cpu,go baseline="$dir/old.txt" now="$new"
  # Grew: every one of the new runs needed more than the baseline's median. One run that was disturbed, then or now, is
  # no reason, and neither is one in a hundred: maps with many entries differ by that much.
  awk '
    $1 == "pkg:" { pkg = $2 }
    $1 == "cpu:" || $1 == "go:" { key = $1; sub(/^[^ ]+ /, ""); machine[NR != FNR, key] = $0 }
    !/^Benchmark/ { next }
    {
      name = pkg " " $1
      if (!((NR != FNR, name) in seen)) { seen[NR != FNR, name] = 1; order[++names] = name }
      for (i = 3; i < NF; i++) {
        if ($(i + 1) != "allocs/op" && $(i + 1) != "B/op") continue
        id = name SUBSEP $(i + 1)
        if (NR == FNR) { n = ++old[id]; sample[id, n] = $i }
        else if (!(id in least) || $i + 0 < least[id]) least[id] = $i + 0
      }
    }
    function median(id,    n, i, j, v) {
      n = old[id]
      for (i = 2; i <= n; i++)
        for (j = i; j > 1 && sample[id, j - 1] + 0 > sample[id, j] + 0; j--) {
          v = sample[id, j]; sample[id, j] = sample[id, j - 1]; sample[id, j - 1] = v
        }
      return sample[id, int((n + 1) / 2)] + 0
    }
    END {
      if (machine[0, "cpu:"] != machine[1, "cpu:"])
        printf "times: the baseline is of another processor (%s, here %s): they say nothing; allocations do\n", machine[0, "cpu:"], machine[1, "cpu:"]
      if (machine[0, "go:"] != machine[1, "go:"])
        printf "times: the baseline is of another Go (%s, here %s)\n", machine[0, "go:"], machine[1, "go:"]
      for (i = 1; i <= names; i++) {
        name = order[i]
        if (done[name]++) continue
        if (!((0, name) in seen)) { print "new, not in the baseline: " name; continue }
        if (!((1, name) in seen)) { print "gone, only in the baseline: " name; continue }
        id = name SUBSEP "B/op"
        was = median(id)
        if (id in least && least[id] > was + 16 && least[id] > 1.05 * was)
          printf "B/op grew: %s: %d to %d\n", name, was, least[id]
        id = name SUBSEP "allocs/op"
        was = median(id)
        if (id in least && least[id] > 1.01 * was) { printf "ALLOCS/OP GREW: %s: %d to %d\n", name, was, least[id]; grew = 1 }
      }
      exit grew
    }' "$dir/old.txt" "$new" || status=$?
fi

if [ -n "${UPDATE:-}" ]; then
  cp "$new" "$baseline"
  echo "bench-compare: $baseline is of this run now" >&2
  exit 0
fi
exit "$status"
