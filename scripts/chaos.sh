#!/usr/bin/env bash
# chaos.sh [run|queues|selftest|cluster] [FLAG...]: test/chaos on a private broker that may be killed, or on three of them, beside a
# private PostgreSQL that may be too.
# -h lists the flags.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
command=run
case ${1:-} in run | queues | selftest | cluster) command=$1 && shift ;; esac
# A quorum queue that has dead-lettered to a queue which was deleted at that moment tries again after three minutes by default.
export BROKER_ERL_ARGS=${BROKER_ERL_ARGS:-"-rabbit dead_letter_worker_publisher_confirm_timeout 20000"}
# A shorter heartbeat notices half-open links sooner.
export BROKER_EXTRA_CONF="heartbeat = 5
${BROKER_EXTRA_CONF:-}"
bin=$(mktemp -d "${TMPDIR:-/tmp}/sidecar-chaos-bin.XXXXXX")
trap 'rm -rf "$bin"' EXIT
go build -o "$bin/chaos" ./test/chaos
case $command in
  queues) scripts/broker.sh run 0 "$bin/chaos" queues "$@" ;;
  cluster) scripts/postgres.sh run 0 scripts/cluster.sh "$bin/chaos" run "$@" ;;
  *) scripts/postgres.sh run 0 scripts/broker.sh run 0 "$bin/chaos" "$command" "$@" ;;
esac
