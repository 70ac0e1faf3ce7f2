# shellcheck shell=bash
# lib.sh is sourced by each finding:
#
#   . "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
#
# The working directory is then a temporary folder, which is removed at the end, and ROOT is the repository.
#
#   broker VERSION          boots a RabbitMQ of that version (4.3) and no other; exports AMQP_URL, BROKER_CTL, BROKER_VERSION
#   go_program MODULE@V...  builds ./program of the Go source on standard input with these modules, and prints their versions
#   npm_packages NAME@V...  installs these packages, and prints their versions
#   version NAME VERSION    prints the version of what is examined
#   expect WHAT VALUE SEEN  prints WHAT and SEEN; if SEEN is not VALUE the script fails at its end
set -euo pipefail

ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
FOLDER=$(mktemp -d)
changed=0
finish() {
  status=$?
  if [ -d "$FOLDER/broker" ]; then "$ROOT/scripts/broker.sh" rm "$FOLDER/broker" >&2 || true; fi
  rm -rf "$FOLDER"
  [ "$status" = 0 ] || exit "$status"
  exit "$changed"
}
trap finish EXIT
cd "$FOLDER"

broker() {
  local lines
  lines=$(TEST_BROKER_VERSION=$1 "$ROOT/scripts/broker.sh" start "$FOLDER/broker" 0)
  eval "$lines"
  version RabbitMQ "$BROKER_VERSION"
}

go_program() {
  cat >main.go
  go mod init program >&2
  go get "$@" >&2
  go build -o program . >&2
  printf '%s\n' "${@/@/ }"
}

npm_packages() {
  "$ROOT/scripts/need.sh" npm nodejs npm
  npm install --silent --ignore-scripts --no-audit --no-fund "$@" >&2
  printf '%s\n' "${@/@/ }"
}

version() { printf '%s %s\n' "$1" "$2"; }

expect() {
  if [ "$2" = "$3" ]; then
    printf '%s: %s\n' "$1" "$3"
  else
    printf '%s: %s, and was %s\n' "$1" "$3" "$2"
    changed=1
  fi
}
