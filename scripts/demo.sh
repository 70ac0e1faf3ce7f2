#!/usr/bin/env bash
# demo.sh             watch messages travel on a private broker; needs bin/sidecar (make demo builds it)
# demo.sh stop DIR    stop what KEEP=1 left running
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# stop DIR: ends what the demonstration started, by the ids it wrote down, and removes the broker with its data.
stop() {
  local file pid
  for file in "$1"/sidecar.pid "$1"/app*.pid; do
    [ -s "$file" ] || continue
    pid=$(cat "$file")
    # After a while the number may be another process: only end what still is what we started.
    if grep -qa -e 'bin/sidecar' -e 'app-python/app.py' "/proc/$pid/cmdline" 2>/dev/null; then
      kill "$pid" 2>/dev/null || true
      for _ in $(seq 100); do kill -0 "$pid" 2>/dev/null || break; sleep 0.1; done
    fi
  done
  if [ -e "$1/broker/source" ]; then scripts/broker.sh rm "$1/broker"; fi
  if [ -e "$1/postgres/bin" ]; then scripts/postgres.sh rm "$1/postgres"; fi
  rm -rf "$1"
}

if [ "${1:-}" = stop ]; then
  [ -e "${2:-}/.sidecar-demo" ] || { echo "demo.sh stop DIR: ${2:-nothing} is not a running demonstration" >&2; exit 64; }
  stop "$2"
  exit
fi

[ -x bin/sidecar ] || { echo "bin/sidecar is missing: run make demo" >&2; exit 1; }
scripts/need.sh python3 python3
scripts/need.sh curl curl
# An example whose language is not here, and cannot be installed, is left out.
examples=()
for language in python node go; do
  if tool=$(scripts/examples.sh $language); then eval "$tool"; else echo "Without the example in $language." >&2; fi
done
[ -z "${EXAMPLES_PYTHON:-}" ] || examples+=(-python "$EXAMPLES_PYTHON")
[ -z "${EXAMPLES_NODE:-}" ] || examples+=(-node "$EXAMPLES_NODE")
[ -z "${EXAMPLES_GO:-}" ] || examples+=(-go "$EXAMPLES_GO")

dir=$(mktemp -d "${TMPDIR:-/tmp}/sidecar-demo.XXXXXX")
touch "$dir/.sidecar-demo"
chmod 711 "$dir" # PostgreSQL runs as a user of its own and has to get through to its data
watcher=
postgres=
clean_up() {
  trap '' INT TERM # a second Ctrl-C must not leave a broker behind
  [ -z "$postgres" ] || wait "$postgres" || true # what is being started is there to be removed afterwards
  [ -z "$watcher" ] || kill "$watcher" 2>/dev/null || true
  stop "$dir"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

go build -o "$dir/demo" ./scripts/demo
echo "starting a private RabbitMQ and a private PostgreSQL …"
POSTGRES_FSYNC=off scripts/postgres.sh start "$dir/postgres" 0 >"$dir/postgres.env" &
postgres=$!
scripts/broker.sh start "$dir/broker" 0 >"$dir/broker.env"
wait "$postgres"
postgres=
# shellcheck source=/dev/null
. "$dir/broker.env"
# shellcheck source=/dev/null
. "$dir/postgres.env"
echo "RabbitMQ $BROKER_VERSION and PostgreSQL $POSTGRES_VERSION are up, app and sidecar follow."
scripts/postgres.sh psql "$dir/postgres" -q -f examples/outbox/schema.sql
echo "\$ sidecar outbox migrate"
SIDECAR_SERVICE=demo-orders SIDECAR_OUTBOX_DSN=$POSTGRES_DSN bin/sidecar outbox migrate >"$dir/migrate.log" 2>&1 ||
  { cat "$dir/migrate.log" >&2; exit 1; }
tail -n 1 "$dir/migrate.log"

flags=(-amqp "$AMQP_URL" -postgres "$POSTGRES_DSN" -dir "$dir" "${examples[@]}")
[ -z "${KEEP:-}" ] || flags+=(-keep)
# In the background: bash runs a trap only between commands, and a SIGTERM must not wait for the end of the show.
"$dir/demo" "${flags[@]}" &
watcher=$!
rc=0
wait "$watcher" || rc=$?
watcher=
[ "$rc" = 0 ] || exit "$rc"

# Only a demonstration that went as promised is left running.
[ -z "${KEEP:-}" ] || trap - EXIT
