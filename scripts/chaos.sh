#!/usr/bin/env bash
# chaos.sh [run|selftest] [FLAG...]: test/chaos on a private broker that may be killed. -h lists the flags.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
command=run
case ${1:-} in run | selftest) command=$1 && shift ;; esac
bin=$(mktemp -d "${TMPDIR:-/tmp}/sidecar-chaos-bin.XXXXXX")
trap 'rm -rf "$bin"' EXIT
go build -o "$bin/chaos" ./test/chaos
scripts/broker.sh run 0 "$bin/chaos" "$command" "$@"
