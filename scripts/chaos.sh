#!/usr/bin/env bash
# chaos.sh [FLAG...]: one run of test/chaos on a private broker that may be killed. -h lists the flags.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
bin=$(mktemp -d "${TMPDIR:-/tmp}/sidecar-chaos-bin.XXXXXX")
trap 'rm -rf "$bin"' EXIT
go build -o "$bin/chaos" ./test/chaos
scripts/broker.sh run 0 "$bin/chaos" run "$@"
