#!/usr/bin/env bash
# Everything that can be said about the sources without running them. Changes nothing.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

echo "lint: go.mod"
go mod tidy -diff
echo "lint: go vet"
go vet ./...
echo "lint: golangci-lint"
scripts/golangci.sh run
echo "lint: links in the documentation"
scripts/links.sh

mapfile -t shell < <(git ls-files '*.sh' .ci/run)
echo "lint: ${#shell[@]} shell scripts"
for f in "${shell[@]}"; do bash -n "$f"; done
# A convenience, not a gate: bash -n above always runs, shellcheck where the machine has it or may install it.
if scripts/need.sh shellcheck shellcheck; then
  shellcheck --severity=warning "${shell[@]}"
else
  echo "lint: continuing without shellcheck" >&2
fi
