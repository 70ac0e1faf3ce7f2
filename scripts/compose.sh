#!/usr/bin/env bash
# compose.sh check   the compose file is one by the Compose Specification, and as closed as it says
# compose.sh test    check, and then its services handle the messages of README.md, as Prometheus sees, and stop in the right order
#
# With a docker engine that is `docker compose up`. Without one, as root: every service is run by what this machine has
# (scripts/broker.sh, scripts/postgres.sh, python3, the image in podman, Debian's prometheus), with the environment, the command and the files of
# the compose file, in networks of their own where its names and ports are free.
set -euo pipefail
shopt -s inherit_errexit
cd "$(dirname "${BASH_SOURCE[0]}")/.."

die() { printf 'compose.sh: %s\n' "$*" >&2; exit 1; }
usage() { sed -n '2,/^set -euo/{/^set -euo/d;s/^# \{0,1\}//;p;}' "$0"; }

model() {
  local tool
  tool=$(scripts/gotool.sh github.com/compose-spec/compose-go/v2/cmd@v2.16.2)
  "$tool" -format json docker-compose.yml "$@"
}

run() {
  dir=$(mktemp -d)
  trap 'rm -rf "$dir"' EXIT
  scripts/need.sh python3 python3
  model deploy/compose/subscriptions.yml >/dev/null || die "the compose file for several queues is not valid"
  model >"$dir/model.json" || die "the compose file is not valid"
  python3 scripts/compose/check.py "$dir/model.json"
  [ "$1" = test ] || return 0
  scripts/need.sh curl curl
  if command -v docker >/dev/null && docker info >/dev/null 2>&1; then
    # shellcheck disable=SC2064 # the name of now
    trap "docker compose -p sidecar-compose-test down -v >/dev/null 2>&1; rm -rf '$dir'" EXIT
    docker compose -p sidecar-compose-test up -d --build --wait
    python3 scripts/compose/watch.py "$dir/model.json" 127.0.0.1:9099 \
      docker compose -p sidecar-compose-test exec -T postgres psql -q -U postgres
    return
  fi
  [ "$(id -u)" = 0 ] || die "no docker engine: running its parts needs root"
  # All of it now: below there is no network to install from.
  scripts/need.sh podman podman
  scripts/need.sh runc runc
  scripts/need.sh ip iproute2
  scripts/need.sh prometheus prometheus
  scripts/need.sh wget wget
  scripts/postgres.sh get
  scripts/image.sh build
  # The broker is this script's, whatever the caller has.
  unset AMQP_URL BROKER_CTL BROKER_VERSION BROKER_DIR
  unshare --net --mount --propagation private python3 scripts/compose/parts.py "$dir/model.json" "$dir"
}

case ${1:-}:$# in
  check:1 | test:1) run "$1" ;;
  -h:1 | --help:1 | help:1) usage ;;
  *) usage >&2; exit 64 ;;
esac
