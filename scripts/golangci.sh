#!/usr/bin/env bash
# golangci.sh ARGS...: the pinned golangci-lint.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

tool=$(scripts/gotool.sh github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0)
# A cache of our own: results of another checkout in the same home directory would carry its paths.
export GOLANGCI_LINT_CACHE=$PWD/.cache/golangci-lint
exec "$tool" "$@"
