#!/usr/bin/env bash
# gotest.sh FLAG... -- PACKAGE...: go test -json. Without the race detector run, beside the others: test, bench and scripts, which drive another process (a
# sidecar, a browser, a Prometheus); simulation and topologytest, which repeat code that has it in its own tests; and packages that start no
# goroutine and share nothing. 2 packages of each kind run at a time, 4 where all are of one kind (TEST_PACKAGES). RACE=all has it everywhere, RACE=none nowhere.
set -euo pipefail

flags=(-json -vet=off) # vet is a part of make lint
while [ "$1" != -- ]; do flags+=("$1"); shift; done
shift
list=$(go list "$@")
mapfile -t packages <<<"$list"
without='^sidecar/(test|bench|scripts|internal/(sim|topologytest|amqpvalue|management|message|retry|terminal|testkit/(ca|console|judge|must|prometheus)))(/|$)|internal/topology$'
case ${RACE:-} in all) without='^$' ;; none) without=. ;; esac
mapfile -t plain < <(printf '%s\n' "${packages[@]}" | grep -E "$without")
mapfile -t raced < <(printf '%s\n' "${packages[@]}" | grep -vE "$without")
lines=$(mktemp)
# finish writes what compilers, linkers and tests took, all children of this script.
finish() {
  times >"$lines"
  echo "all $("${BASH_SOURCE[0]%/*}/cpu.sh" children <"$lines")" >>"$CPU_FILE"
  rm -f "$lines"
}
trap finish EXIT
both=$((${#plain[@]} && ${#raced[@]}))
flags=(-p "${TEST_PACKAGES:-$((both ? 2 : 4))}" "${flags[@]}")
raced() { if ((${#raced[@]})); then go test -race "${flags[@]}" "${raced[@]}"; fi; }
plain() { if ((${#plain[@]})); then CGO_ENABLED=0 go test "${flags[@]}" "${plain[@]}"; fi; }
rc=0
if ((${#raced[@]} == 0)); then
  plain || rc=$?
else
  plain >"$lines" & # lines of two processes in one pipe could end up in each other
  raced || rc=$?
  wait $! || rc=$?
  cat "$lines"
fi
exit "$rc"
