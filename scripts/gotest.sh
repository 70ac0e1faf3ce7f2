#!/usr/bin/env bash
# gotest.sh FLAG... -- PACKAGE...: go test -json. What is below test and bench drives another process (a sidecar, a browser, a Prometheus), in which the
# race detector of its own process finds nothing; simulation and topologytest run the packages again that have it in their own tests, a thousand times: these go
# without, beside the others. RACE=all has it everywhere, RACE=none nowhere.
set -euo pipefail

flags=(-json -vet=off) # vet is a part of make lint
while [ "$1" != -- ]; do flags+=("$1"); shift; done
shift
mapfile -t packages < <(go list "$@")
without='^sidecar/(test|bench|internal/sim|internal/topologytest)(/|$)'
mapfile -t plain < <(printf '%s\n' "${packages[@]}" | grep -E "$without")
mapfile -t raced < <(printf '%s\n' "${packages[@]}" | grep -vE "$without")
case ${RACE:-} in
  all) exec go test -race "${flags[@]}" "${packages[@]}" ;;
  none) exec go test "${flags[@]}" "${packages[@]}" ;;
esac
if ((${#raced[@]} == 0)); then CGO_ENABLED=0 exec go test "${flags[@]}" "${plain[@]}"; fi
if ((${#plain[@]} == 0)); then exec go test -race "${flags[@]}" "${raced[@]}"; fi
# Lines of two processes in one pipe could end up in each other.
lines=$(mktemp)
trap 'rm -f "$lines"' EXIT
CGO_ENABLED=0 go test "${flags[@]}" "${plain[@]}" >"$lines" &
rc=0
go test -race "${flags[@]}" "${raced[@]}" || rc=$?
wait $! || rc=$?
cat "$lines"
exit "$rc"
