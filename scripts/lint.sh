#!/usr/bin/env bash
# Everything that can be said about the sources without running them. Changes nothing.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

echo "lint: go.mod"
go mod tidy -diff
for nested in examples/outbox/go test/producers/go; do go -C $nested mod tidy -diff; done
echo "lint: go vet"
go vet -tags charts,kubernetes,nightly ./...
for nested in examples/outbox/go test/producers/go; do go -C $nested vet ./...; done
echo "lint: builds for other systems"
for os in darwin windows; do GOOS=$os CGO_ENABLED=0 go build -o /dev/null ./cmd/sidecar; done
echo "lint: golangci-lint"
scripts/golangci.sh run
echo "lint: dead code"
deadcode=$(scripts/gotool.sh golang.org/x/tools/cmd/deadcode@v0.52.0)
# First without tests: a function of a program that only tests call is a finding, too. Then all code, that of the tests
# included. deadcode exits with 0 whatever it prints.
dead=$("$deadcode" ./cmd/... ./scripts/... ./bench/... && "$deadcode" -tags charts,kubernetes,nightly -test ./...)
if [ -n "$dead" ]; then printf '%s\n' "$dead" >&2; exit 1; fi
echo "lint: links in the documentation"
scripts/links.sh
echo "lint: findings"
for f in findings/*.sh; do
  grep -qF "(${f##*/})" findings/README.md || [ "$f" = findings/all.sh ] || { echo "$f has no row in findings/README.md" >&2; exit 1; }
done
echo "lint: words (scripts/words.tsv says what to write instead)"
scripts/words.sh
echo "lint: new commits"
scripts/commits.sh
echo "lint: age of the figures, and those that are more than 30 % off"
scripts/measured.sh
scripts/figures.sh

echo "lint: workflows"
scripts/workflows.sh
echo "lint: docker-compose.yml"
scripts/compose.sh check

echo "lint: no program and nothing large is kept"
git ls-files -z | xargs -0 -r stat -c '%s %n' | awk '$1 > 1048576 {print "lint: " $2 " has " $1 " bytes"; bad = 1} END {exit bad}'

mapfile -t shell < <(git ls-files '*.sh' .ci/run)
echo "lint: ${#shell[@]} shell scripts"
for f in "${shell[@]}"; do bash -n "$f"; done
# A convenience, not a gate: bash -n above always runs, shellcheck where the machine has it or may install it.
if scripts/need.sh shellcheck shellcheck; then
  shellcheck --severity=warning "${shell[@]}"
else
  echo "lint: continuing without shellcheck" >&2
fi
