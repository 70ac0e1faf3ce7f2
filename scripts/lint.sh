#!/usr/bin/env bash
# Everything that can be said about the sources without running them. Changes nothing. Each part runs, whatever the others say.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

failed=()
# part NAME COMMAND...: the command runs in a shell of its own, because bash ignores -e in a condition.
part() {
  echo "lint: $1"
  bash -euo pipefail -c "$2" || failed+=("$1")
}

part "go.mod" 'for dir in . examples/outbox/go test/producers/go; do go -C "$dir" mod tidy -diff; done'
part "go vet" 'go vet -tags charts,kubernetes,nightly ./... && for dir in examples/outbox/go test/producers/go; do go -C "$dir" vet ./...; done'
part "builds for other systems" 'for os in darwin windows; do GOOS=$os CGO_ENABLED=0 go build -o /dev/null ./cmd/sidecar; done'
part "golangci-lint" 'scripts/golangci.sh run'
# First without tests: a function of a program that only tests call is a finding, too. Then all code, that of the tests
# included. deadcode exits with 0 whatever it prints.
part "dead code" '
  deadcode=$(scripts/gotool.sh golang.org/x/tools/cmd/deadcode@v0.52.0)
  dead=$("$deadcode" ./cmd/... ./scripts/... ./bench/... && "$deadcode" -tags charts,kubernetes,nightly -test ./...)
  if [ -n "$dead" ]; then printf "%s\n" "$dead" >&2; exit 1; fi'
part "links in the documentation" 'scripts/links.sh'
part "findings" '
  for f in findings/*.sh; do
    grep -qF "(${f##*/})" findings/README.md || [ "$f" = findings/all.sh ] || { echo "$f has no row in findings/README.md" >&2; exit 1; }
  done'
part "words (scripts/words.tsv says what to write instead)" 'scripts/words.sh'
part "new commits" 'scripts/commits.sh'
part "age of the figures" 'scripts/measured.sh'
part "figures that are more than 30 % off" 'scripts/figures.sh'
part "workflows" 'scripts/workflows.sh'
part "docker-compose.yml" 'scripts/compose.sh check'
part "each bug of test/mutants has its place" 'python3 -c "
import json, sys
for m in json.load(open(\"test/mutants/mutants.json\")):
    if open(m[\"file\"]).read().count(m[\"old\"]) != 1: sys.exit(\"test/mutants: not once in the source: \" + m[\"what\"])"'
part "no program and nothing large is kept" '
  git ls-files -z | xargs -0 -r stat -c "%s %n" | awk "\$1 > 1048576 {print \"lint: \" \$2 \" has \" \$1 \" bytes\"; bad = 1} END {exit bad}"'
# A convenience, not a gate: bash -n always runs, shellcheck where the machine has it or may install it.
part "shell scripts" '
  mapfile -t shell < <(git ls-files "*.sh" .ci/run)
  for f in "${shell[@]}"; do bash -n "$f"; done
  if scripts/need.sh shellcheck shellcheck; then
    shellcheck --severity=warning "${shell[@]}"
  else
    echo "lint: continuing without shellcheck" >&2
  fi'

for name in "${failed[@]}"; do echo "lint: FAILED: $name" >&2; done
[ ${#failed[@]} = 0 ]
