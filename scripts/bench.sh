#!/usr/bin/env bash
# bench.sh [FLAG...]: measures the sidecar beside programs written by hand, on a private broker and a private PostgreSQL.
# -h lists the flags.
# It reads the servers' CPU time from /proc, so they run as processes of this machine, never in docker.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

case " $* " in *" -h "* | *" --help "*) exec go run ./bench -h ;; esac
if [ -z "${TEST_BROKER:-}" ]; then
  TEST_BROKER=package
  [ -z "${TEST_BROKER_VERSION:-}" ] || TEST_BROKER=root # another one than this machine's own
  export TEST_BROKER
fi
run=(scripts/broker.sh run 0 go run ./bench "$@")
# Only the outbox needs a database, which says how long its statements take.
case "$*" in
  *-only*outbox* | *-only*produce*) ;;
  *-only*) exec "${run[@]}" ;;
esac
export POSTGRES_EXTRA_CONF="shared_preload_libraries = 'pg_stat_statements'
${POSTGRES_EXTRA_CONF:-}"
exec scripts/postgres.sh run 0 "${run[@]}"
