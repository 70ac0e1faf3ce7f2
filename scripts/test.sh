#!/usr/bin/env bash
# test.sh: runs the tests against a private broker and ends with the runner's own summary.
#   PKG     packages, default ./...
#   ARGS    more flags of go test
#   RACE    all: every package and the sidecar that the black-box tests run have the race detector; none: nothing has it;
#           unset: see scripts/gotest.sh
#   FAST=1  takes results of unchanged tests from Go's cache, and leaves out packages that need PostgreSQL; tests that talk to a
#           broker always run
# scripts/slowest.sh shows what took long. TEST_PACKAGES packages run at a time (2 with the race detector beside 2
# without, 4 where all are of one kind), and TEST_PARALLEL tests of each (12: those that wait for the second node count, too).
# The tests of the console need a Chromium and axe-core: CONSOLE_BROWSER and CONSOLE_AXE name those to take, else both are
# fetched. CONSOLE_SCREENSHOTS names a directory for its pictures (else only failed tests make one).
# The broker of a shell below scripts/broker.sh (AMQP_URL, BROKER_CTL, BROKER_DIR, BROKER_SCRIPT) is used instead of a private one, and so is
# the PostgreSQL of one below scripts/postgres.sh (POSTGRES_DSN). Packages that do not speak to PostgreSQL get none.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

runner=$(scripts/gotool.sh gotest.tools/gotestsum@v1.13.0)

# The race detector needs cgo, and that a compiler with libc's headers: fresh images have neither.
if [ "${RACE:-}" != none ]; then
  export CGO_ENABLED=1
  compiles() { printf '#include <stdlib.h>\n' | gcc -x c -fsyntax-only - 2>/dev/null; }
  if ! compiles && ! { scripts/need.sh gcc gcc libc6-dev && compiles; }; then
    export CGO_ENABLED=0 RACE=none
    echo "test: NO C COMPILER, RUNNING WITHOUT THE RACE DETECTOR" >&2
  fi
fi
if [ "${RACE:-}" = all ]; then export SIDECAR_TEST_RACE=1; fi
# A quorum queue that has dead-lettered to a queue which was deleted or killed at that moment tries again after three minutes by
# default, longer than a test waits.
export BROKER_ERL_ARGS=${BROKER_ERL_ARGS:-"-rabbit dead_letter_worker_publisher_confirm_timeout 20000"}
export BROKER_DATA=${BROKER_DATA:-memory}
# Booting a node takes ten seconds of computing, on a machine that may be busy with other things.
export BROKER_START_TIMEOUT=${BROKER_START_TIMEOUT:-300}
# Times must not depend on the zone of the machine. Nearly all machines that run tests are in UTC, which hides it when they do.
export TZ=${TEST_TZ:-Asia/Kolkata}

read -r -a packages <<<"${PKG:-./...}"
list=$(go list "${packages[@]}" 2>&1) || { echo "test: PKG=${PKG:-}: $list" >&2; exit 64; }
imports='{{.ImportPath}} {{.TestImports}} {{.XTestImports}}'
if [ -n "${FAST:-}" ]; then
  needs=sidecar/internal/postgrestest
  mapfile -t without < <(go list -f "$imports" "${packages[@]}" | grep "$needs" | cut -d' ' -f1)
  mapfile -t packages < <(go list -f "$imports" "${packages[@]}" | grep -v "$needs" | cut -d' ' -f1)
  ((${#without[@]} == 0)) || echo "test: left to make test: ${without[*]}"
  ((${#packages[@]})) || exit 0
fi
# The console is tested in a real browser. Only its tests need one.
if go list "${packages[@]}" | grep '/test/console$' >/dev/null; then
  if [ -z "${CONSOLE_BROWSER:-}" ]; then
    # The shell is the browser without its own windows, which cost a headless Chromium as much as the page. Not every release has it.
    for CONSOLE_BROWSER in chromium-headless-shell chromium; do
      if scripts/need.sh $CONSOLE_BROWSER $CONSOLE_BROWSER fonts-dejavu-core; then break; fi
    done
    CONSOLE_BROWSER=$(command -v $CONSOLE_BROWSER)
  fi
  CONSOLE_AXE=${CONSOLE_AXE:-$(scripts/axe.sh)}
  export CONSOLE_BROWSER CONSOLE_AXE
fi
# The examples of the outbox are run as they are: Python with psycopg, Node with pg, Go.
if go list "${packages[@]}" | grep '/test$' >/dev/null; then
  tools=$(scripts/examples.sh)
  eval "$tools"
fi
# The blocks of the documentation are pasted where no docker engine can be reached, and there is nothing to install from.
if go list "${packages[@]}" | grep '/test/docs$' >/dev/null; then
  TEST_BROKER_VERSION='' TEST_BROKER=package scripts/broker.sh get
  scripts/postgres.sh get
  scripts/need.sh python3 python3
  scripts/need.sh curl curl
  scripts/need.sh ip iproute2
fi
# Completion is tested in each shell, the manual page by mandoc. The first call installs what is missing of all three.
if go list "${packages[@]}" | grep '/test$' >/dev/null; then
  for tool in fish zsh mandoc; do scripts/need.sh $tool fish zsh mandoc; done
fi
# The metrics are scraped by a real Prometheus, and promtool tests the alerts. Both are in one package.
if go list "${packages[@]}" | grep -E '/test(/metrics|/console)?$' >/dev/null; then scripts/need.sh promtool prometheus; fi
read -r -a extra <<<"${ARGS:-}"
mkdir -p .cache
events=$(mktemp "$PWD/.cache/test-events.XXXXXX") # another run may go on in this directory
export CPU_FILE=$events.cpu CPU_SERVERS=$events.servers
: >"$CPU_FILE"
: >"$CPU_SERVERS"
if [ -s "${BROKER_DIR:-}/pid" ]; then echo "broker $(cat "$BROKER_DIR/pid")" >"$CPU_SERVERS"; fi
scripts/cpu.sh sample &
sampler=$!
finish() {
  kill "$sampler" 2>/dev/null || true
  if [ -s "$events" ]; then # else nothing ran, and the record of the last run stays
    mv -f "$events" .cache/test-events.json
    mv -f "$CPU_FILE" .cache/test-cpu
  fi
  rm -f "$CPU_SERVERS" "$events" "$CPU_FILE"
}
trap finish EXIT
# Tests wait far more than they compute, so many run at a time: each has a virtual host or a database of its own.
# -trimpath: packages that another checkout of the same commit has compiled are taken from the cache.
# -count=1: the tests depend on a broker and on the binary they build, which the test cache cannot see.
# -w: nothing reads debug information, and linking takes a quarter less without.
order=(-shuffle=on -count=1 -exec "'$PWD/scripts/cpu.sh' run")
if [ -n "${FAST:-}" ]; then order=(); fi # a result of a binary that another program runs is not kept
suite=("$runner" --format "${FORMAT:-pkgname-and-test-fails}" --format-hide-empty-pkg --jsonfile "$events" --raw-command -- scripts/gotest.sh
  "${order[@]}" -parallel "${TEST_PARALLEL:-12}" -trimpath -ldflags=-w -timeout 30m "${extra[@]}" -- "${packages[@]}")

if [ -z "${AMQP_URL:-}" ]; then suite=(scripts/broker.sh run 0 "${suite[@]}"); fi
if [ -z "${POSTGRES_DSN:-}" ] &&
  go list -f "$imports" "${packages[@]}" | grep -E 'sidecar/internal/postgrestest|jackc/pgx' >/dev/null; then
  # Processes are killed, the machine is not.
  suite=(env POSTGRES_FSYNC="${POSTGRES_FSYNC:-off}" scripts/postgres.sh run 0 "${suite[@]}")
fi
"${suite[@]}"

grep '"Action":"run"' "$events" >/dev/null || { echo "test: no test ran: PKG=${PKG:-./...} ARGS=${ARGS:-}" >&2; exit 1; }
# A test that skips itself proves nothing. (Packages without tests report a skip too, but no test name.)
if skipped=$(grep '"Action":"skip"' "$events" | grep '"Test":'); then
  echo "skipped tests count as failures:" >&2
  echo "$skipped" >&2
  exit 1
fi
