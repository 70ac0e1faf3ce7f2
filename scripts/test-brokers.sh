#!/usr/bin/env bash
# test-brokers.sh: the tests that talk to a broker, against one version of RabbitMQ after the other. Ends with a line per
# version, and fails if any of them failed.
# VERSIONS (default 3.10 4.0 4.3), PKG and ARGS narrow it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

read -r -a versions <<<"${VERSIONS:-3.10 4.0 4.3}"
packages=${PKG:-}
if [[ -z $packages ]]; then
  for p in ./internal/amqpwire ./internal/broker ./internal/consume ./internal/deadletter ./internal/publish ./internal/outbox ./internal/management ./internal/topology ./internal/topologytest ./internal/sim/calibrate ./internal/app ./test; do
    if [[ -d $p ]]; then packages+="$p "; fi
  done
fi

# The brokers are this script's, whatever the caller has.
unset AMQP_URL BROKER_CTL BROKER_VERSION BROKER_DIR
state=$(mktemp -d)
trap 'rm -rf "$state"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

failed=0 summary=
for version in "${versions[@]}"; do
  echo "test-brokers: RabbitMQ $version"
  : >"$state/version"
  result=passed begin=$SECONDS
  # shellcheck disable=SC2016 # the inner script expands its own variables
  PKG=$packages TEST_BROKER_VERSION=$version scripts/broker.sh run 0 bash -c '
    echo "$BROKER_VERSION" >"$1"
    exec scripts/test.sh
  ' test-brokers "$state/version" 2>&1 | tee "$state/out" || result=FAILED failed=1
  # The runner's own last line: DONE 12 tests, 1 failure in 3.4s
  tests=$(sed -n 's/^DONE \([0-9]*\) tests.*/\1/p' "$state/out" | tail -n 1)
  # Nothing ran, nothing is proved.
  if [[ $result = passed && ${tests:-0} = 0 ]]; then result="FAILED: no tests" failed=1; fi
  said=$(cat "$state/version")
  summary+=$(printf '%-10s %-7s %5s tests %5ds' "${said:-$version: no broker}" "$result" "${tests:-0}" $((SECONDS - begin)))$'\n'
done
printf '\ntest-brokers:\n%s' "$summary"
exit "$failed"
