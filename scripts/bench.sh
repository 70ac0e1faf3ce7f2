#!/usr/bin/env bash
# bench.sh [FLAG...]: measures the sidecar beside a hand-written consumer on a private broker. -h lists the flags.
# It reads the broker's CPU time from /proc, so the broker runs as a process of this machine, never in docker.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

case " $* " in *" -h "* | *" --help "*) exec go run ./bench -h ;; esac
if [ -z "${TEST_BROKER:-}" ]; then
  export TEST_BROKER=package
fi
exec scripts/broker.sh run 0 go run ./bench "$@"
