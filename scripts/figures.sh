#!/usr/bin/env bash
# figures.sh [--last-run]: fails if a figure of the documentation is more than 30 % off, or if the tables of files to read in
# docs/architecture.md name a file that does not exist or count wrongly. With --last-run it compares the time of the last
# `make test` with docs/testing.md instead; that run must have been one of all packages.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

case ${1:-} in '' | --last-run) ;; *) echo "figures: $1: use --last-run or nothing" >&2; exit 64 ;; esac
bad=0
wrong() { echo "figures: $*" >&2; bad=1; }

# figure FILE PATTERN MEASURED: the number that PATTERN, a Perl regular expression, finds in FILE is MEASURED, within 30 %.
figure() {
  local said
  said=$(grep -oPm1 -e "$2" "$1" | head -n 1 | tr -d ,) || true
  if [ -z "$said" ]; then
    wrong "$1: no figure matches $2"
  elif ! awk -v a="$said" -v b="$3" 'BEGIN {exit !(a <= 1.3 * b && b <= 1.3 * a)}'; then
    wrong "$1:$(grep -nPm1 -e "$2" "$1" | cut -d: -f1) says $said, measured $3 ($2)"
  fi
}

# lines FILE...: how many lines they have together.
lines() { cat -- "$@" | wc -l; }
production() { git ls-files "$1/*.go" | grep -v '_test\.go$'; }
tests() { git ls-files "$1/*_test.go"; }

if [ "${1:-}" = --last-run ]; then
  events=.cache/test-events.json
  [ -s "$events" ] || { echo "figures: there is no $events: run make test first" >&2; exit 1; }
  packages=$(sed -nE 's/.*"Action":"(pass|fail)","Package":"([^"]*)","Elapsed".*/\2/p' "$events" | sort -u | wc -l)
  if [ "$packages" -lt 40 ]; then
    echo "figures: the last run had $packages packages, not all: nothing to compare" >&2
    exit 0
  fi
  stamps=$(grep -oP '"Time":"\K[^"]+' "$events" | sort | sed -n '1p;$p')
  mapfile -t stamps <<<"$stamps"
  seconds=$(($(date -d "${stamps[1]}" +%s) - $(date -d "${stamps[0]}" +%s)))
  minutes=$(awk -v s="$seconds" 'BEGIN {printf "%.1f", s / 60}')
  echo "the last run of all packages took $minutes minutes"
  figure docs/testing.md '^\| `make test` .*\| \K[0-9.]+(?= min \|$)' "$minutes"
  exit "$bad"
fi

mapfile -t sources < <(production internal/http1)
figure docs/decisions/0010-own-http-client.md '`internal/http1`\) has about \K[0-9,]+' "$(lines "${sources[@]}")"
mapfile -t sources < <(production internal/dispatch)
figure docs/decisions/0010-own-http-client.md '`internal/dispatch`\) about \K[0-9,]+' "$(lines "${sources[@]}")"
mapfile -t sources < <(tests internal/http1; tests internal/dispatch)
figure docs/decisions/0010-own-http-client.md 'tests about \K[0-9,]+' "$(lines "${sources[@]}")"
mapfile -t sources < <(production internal/amqpwire)
figure docs/decisions/0011-deliveries-bypass-the-client-library.md '^About \K[0-9,]+(?= lines)' "$(lines "${sources[@]}")"
figure docs/decisions/0008-otlp-without-grpc.md 'some \K[0-9]+(?= lines)' "$(lines internal/telemetry/exporter.go)"
figure docs/testing.md 'runs \K[0-9]+(?= packages at a time)' "$(sed -nE 's/.*both \? ([0-9]+).*/\1/p' scripts/gotest.sh)"
figure docs/testing.md 'deliberate bugs, \K[0-9]+(?= one-line bugs)' "$(grep -c '^  "what"' test/mutants/mutants.json)"
figure docs/testing.md 'at a time, \K[0-9]+(?= tests of each)' "$(sed -nE 's/.*TEST_PARALLEL:-([0-9]+).*/\1/p' scripts/test.sh)"
figure docs/testing.md '`topologytest`: \K[0-9]+' "$(sed -nE 's/.*"test.parallel", "([0-9]+)".*/\1/p' internal/topologytest/*_test.go)"

# follow ROW: the files of a row of the table exist, and are as many as it counts.
follow() {
  local files count named=0 part package name
  IFS='|' read -r _ _ files count _ <<<"$1"
  count=${count//[!0-9]/}
  files=$(sed -E 's/ \([^)]*\)//g; s/, the file of the format,/, FORMAT,/' <<<"$files")
  while IFS= read -r part; do
    package=$(sed -nE 's/^ *`([a-z0-9/]+)`:.*/\1/p' <<<"$part")
    [[ $package == */* ]] || package=internal/$package
    while IFS= read -r name; do
      named=$((named + 1))
      [ "$name" = FORMAT ] || [ -f "$package/$name" ] || wrong "docs/architecture.md: there is no $package/$name"
    done < <(grep -oE '[a-z0-9_]+\.go|FORMAT' <<<"$part" || true)
  done < <(tr ';' '\n' <<<"$files")
  [ "$named" = "$count" ] || wrong "docs/architecture.md: a row names $named files and counts $count:$files"
}
rows=$(sed -n '/^| follow | files/,/^$/p' docs/architecture.md | tail -n +3 | grep '^|')
while IFS= read -r row; do follow "$row"; done <<<"$rows"

# decides PACKAGE FUNCTION: the file that defines the function, a step of a message, is in the row of a message.
first=$(head -n 1 <<<"$rows")
decides() {
  local file
  file=$(production "internal/$1" | xargs grep -lE "^func (\([^)]*\) )?$2\(" | head -n 1) || true
  if [ -z "$file" ]; then
    wrong "internal/$1 has no function $2: the row of a message in docs/architecture.md may have changed"
  elif ! grep -qE "\`$1\`:[^;|]*\b${file##*/}" <<<"$first"; then
    wrong "docs/architecture.md: the row of a message lacks $1/${file##*/}, which has $2"
  fi
}
for step in offer handle read recall dispatch decide settle end; do decides consume "$step"; done
decides message FromDelivery
for step in Read Foreign; do decides topology "$step"; done
for step in Dispatch setDisposition; do decides dispatch "$step"; done
decides retry Decide
decides topology Settlement
for file in $(grep -oE '`internal/[a-z0-9/]+\.go`' docs/architecture.md | tr -d '`' | sort -u); do
  [ -f "$file" ] || wrong "docs/architecture.md: there is no $file"
done
exit "$bad"
