#!/usr/bin/env bash
# check.sh: what to run before each commit. go vet for all packages, the other Go linters for those that differ from BASE (default HEAD, so what is not
# committed; BASE=origin/main for a branch), syntax of the shell scripts that differ, and the tests of the packages of cmd and
# internal that differ or use one that does, without the race detector. What needs PostgreSQL, a browser, or minutes is left to make test, and
# so are topologytest, management and deadletter, the longest, unless they differ themselves.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

base=${BASE:-HEAD}
git rev-parse -q --verify "$base^{commit}" >/dev/null || { echo "check: BASE=$base is not a commit" >&2; exit 64; }
mapfile -t changed < <({ git diff --name-only "$base" && git ls-files --others --exclude-standard; } | sort -u)
dirs=() shell=()
for f in "${changed[@]}"; do
  case $f in
    examples/outbox/*) ;; # a module of its own
    *.go) if ls "$(dirname "$f")"/*.go >/dev/null 2>&1; then dirs+=("./$(dirname "$f")"); fi ;; # the file may be deleted
    *.sh | .ci/run) if [ -e "$f" ]; then shell+=("$f"); fi ;;
  esac
done
mapfile -t dirs < <(printf '%s\n' ${dirs[@]+"${dirs[@]}"} | sort -u | sed '/^$/d')
echo "check: ${#changed[@]} files differ from $base, in ${#dirs[@]} Go packages and ${#shell[@]} shell scripts"
for f in ${shell[@]+"${shell[@]}"}; do bash -n "$f"; done
linted=passed tested=passed
# What changed may be used by packages that did not.
go vet -tags charts,kubernetes,nightly ./... || linted=FAILED
if ((${#dirs[@]})); then
  # Exclusions of packages that are not linted here are no news.
  scripts/golangci.sh run "${dirs[@]}" 2> >(grep -v 'runner/exclusion_rules' >&2) || linted=FAILED
fi
# A file that is none of Go belongs to the package above it.
differ=$(for f in "${changed[@]}"; do
  case $f in
    cmd/* | internal/*)
      d=$(dirname "$f")
      until [ "$d" = . ] || compgen -G "$d/*.go" >/dev/null; do d=$(dirname "$d"); done
      echo "sidecar/$d" ;;
    go.mod | go.sum) go list ./cmd/... ./internal/... ;;
  esac
done)
packages=$(go list -test -f '{{.ImportPath}} {{join .Deps " "}}' ./cmd/... ./internal/... | awk -v differ="$differ" '
  BEGIN {n = split(differ, list); for (i = 1; i <= n; i++) differs[list[i]]}
  sub(/\.test$/, "", $1) {
    hit = $1 in differs
    if ($1 !~ /\/(topologytest|management|deadletter)$/) for (i = 2; i <= NF; i++) if ($i in differs) hit = 1
    if (hit) print $1
  }' | paste -sd ' ')
if [ -n "$packages" ]; then
  RACE=none FAST=1 PKG=$packages scripts/test.sh || tested=FAILED
else
  echo "check: no package of cmd or internal uses what differs"
fi
echo "check: lint $linted, tests $tested, $SECONDS s"
[ "$linted $tested" = "passed passed" ]
