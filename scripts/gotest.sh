#!/usr/bin/env bash
# gotest.sh FLAG... -- PACKAGE...: go test -json. What is below test and bench drives another process (a sidecar, a browser, a Prometheus), in which the
# race detector of its own process finds nothing: it runs without, beside the others. RACE=all has it everywhere, RACE=none nowhere.
set -euo pipefail

flags=(-json -vet=off) # vet is a part of make lint
while [ "$1" != -- ]; do flags+=("$1"); shift; done
shift
mapfile -t packages < <(go list "$@")
mapfile -t outside < <(printf '%s\n' "${packages[@]}" | grep -E '^sidecar/(test|bench)(/|$)')
mapfile -t inside < <(printf '%s\n' "${packages[@]}" | grep -vE '^sidecar/(test|bench)(/|$)')
case ${RACE:-} in
  all) exec go test -race "${flags[@]}" "${packages[@]}" ;;
  none) exec go test "${flags[@]}" "${packages[@]}" ;;
esac
if ((${#inside[@]} == 0)); then CGO_ENABLED=0 exec go test "${flags[@]}" "${outside[@]}"; fi
if ((${#outside[@]} == 0)); then exec go test -race "${flags[@]}" "${inside[@]}"; fi
# Lines of two processes in one pipe could end up in each other.
lines=$(mktemp)
trap 'rm -f "$lines"' EXIT
CGO_ENABLED=0 go test "${flags[@]}" "${outside[@]}" >"$lines" &
rc=0
go test -race "${flags[@]}" "${inside[@]}" || rc=$?
wait $! || rc=$?
cat "$lines"
exit "$rc"
