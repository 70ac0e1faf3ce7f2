#!/usr/bin/env bash
# examples.sh [python|node|go|apps]: sets up what the programs of examples/outbox and the apps of examples/app-* need, all or one,
# and prints lines to eval:
#   EXAMPLES_PYTHON  a Python with psycopg: the python3 of PATH if it has it, else Debian's, with the package
#   EXAMPLES_NODE    a directory with a copy of examples/outbox/node and the packages of its lock file
#   EXAMPLES_GO      the program of examples/outbox/go
#   EXAMPLES_FLASK   a Python with Flask for examples/app-flask, in the same way. The Java of examples/app-java has to be in PATH
# Those that are set already are taken as they are.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
cache=$PWD/.cache/examples
mkdir -p "$cache"
# Two of these may run at the same time.
exec 9>"$cache/lock"
flock 9

wanted=${1:-python node go apps}

if [[ $wanted = *python* && -z ${EXAMPLES_PYTHON:-} ]]; then
  EXAMPLES_PYTHON=$(command -v python3 || true)
  if ! "${EXAMPLES_PYTHON:-false}" -c 'import psycopg' 2>/dev/null; then
    scripts/need.sh python3:psycopg python3 python3-psycopg 9>&-
    EXAMPLES_PYTHON=/usr/bin/python3
  fi
fi

if [[ $wanted = *node* && -z ${EXAMPLES_NODE:-} ]]; then
  scripts/need.sh node nodejs 9>&-
  EXAMPLES_NODE=$cache/node
  mkdir -p "$EXAMPLES_NODE"
  if ! cmp -s examples/outbox/node/package-lock.json "$EXAMPLES_NODE/installed.json"; then
    scripts/need.sh npm npm 9>&-
    echo "fetching the packages of examples/outbox/node (once)" >&2
    cp examples/outbox/node/{package.json,package-lock.json,.npmrc} "$EXAMPLES_NODE/"
    # Without a network npm would wait for minutes before it takes what its cache has.
    (cd "$EXAMPLES_NODE" && npm ci --silent --prefer-offline --fetch-retry-mintimeout=1000 --fetch-retry-maxtimeout=3000 \
      --ignore-scripts --no-audit --no-fund >&2)
    cp examples/outbox/node/package-lock.json "$EXAMPLES_NODE/installed.json"
  fi
  cp examples/outbox/node/{package.json,orders.js} "$EXAMPLES_NODE/"
fi

if [[ $wanted = *go* && -z ${EXAMPLES_GO:-} ]]; then
  EXAMPLES_GO=$cache/orders
  go build -C examples/outbox/go -o "$EXAMPLES_GO" .
fi

if [[ $wanted = *apps* && -z ${EXAMPLES_FLASK:-} ]]; then
  scripts/need.sh node nodejs 9>&-
  # A program of one file is compiled when it is run, which a Java runtime alone cannot do.
  scripts/need.sh javac default-jdk-headless 9>&-
  EXAMPLES_FLASK=$(command -v python3 || true)
  if ! "${EXAMPLES_FLASK:-false}" -c 'import flask' 2>/dev/null; then
    scripts/need.sh python3:flask python3 python3-flask 9>&-
    EXAMPLES_FLASK=/usr/bin/python3
  fi
fi

for name in EXAMPLES_PYTHON EXAMPLES_NODE EXAMPLES_GO EXAMPLES_FLASK; do
  if [ -n "${!name:-}" ]; then printf 'export %s=%q\n' "$name" "${!name}"; fi
done
