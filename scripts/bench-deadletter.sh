#!/usr/bin/env bash
# bench-deadletter.sh [FLAG...]: what the dlq commands cost on a private broker. -h lists the flags.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

case " $* " in *" -h "* | *" --help "*) exec go run ./bench/deadletter -h ;; esac
if [ -n "${AMQP_URL:-}" ]; then exec go run ./bench/deadletter "$@"; fi
exec scripts/broker.sh run 0 go run ./bench/deadletter "$@"
