#!/usr/bin/env bash
# soak.sh [FLAG...]: all that is too long for each change, one after the other: 10,000 seeds of the simulation and each of its
# deliberate bugs, each deliberate bug of the storm, a storm of a million messages and 200 faults, the same with queues of RabbitMQ 4.3
# that delay retries themselves, one of a million messages of 10,000 keys in order, with 100 faults, and one of a million messages in
# batches, a hundred lost connections, large messages of each kind in a small memory cgroup, each scenario of the benchmark on a tenth of
# its messages, the tests of files that begin with `//go:build nightly`, every check with every topology, and the one-line bugs of
# test/mutants (MUTANTS='dispatch' takes those whose file or sentence matches). FLAGs are the storms' (test/chaos).
# PARTS (default "sim bugs storm native order batches cuts memory bench nightly topologies mutants") narrows it, SEEDS the seeds.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# measure runs each scenario of the benchmark, which fails where a ledger does not balance: a message is missing, came twice, or is left in
# a queue. What is written may be published, and names neither the machine nor its directories. Two kinds of retries need RabbitMQ 4.3.
measure() {
  local host rc=0
  host=$(hostname)
  rm -rf bench/out
  scripts/bench.sh -quick
  TEST_BROKER_VERSION=4.3 scripts/bench.sh -quick -only retries
  grep -F -e "\"$host\"" -e "$PWD" -e "$(dirname "$(mktemp -u)")/" bench/out/*.json || rc=$?
  if [ "$rc" != 1 ]; then
    echo "soak: bench/out is missing, or shows what is this machine's own" >&2
    return 1
  fi
}

# nightly runs the tests of files that begin with //go:build nightly, and no others of their packages.
nightly() {
  local files packages names
  mapfile -t files < <(grep -rlE --include='*_test.go' '^//go:build ([^/]*[ (])?nightly' bench cmd internal scripts test | grep -v ^test/mutants/ | sort)
  packages=$(printf './%s/\n' "${files[@]%/*}" | sort -u | paste -sd ' ')
  names=$(sed -nE 's/^func (Test[A-Za-z0-9_]*)\(t \*testing\.T\).*/\1/p' "${files[@]}" | grep -vx TestMain | paste -sd '|')
  GOFLAGS="${GOFLAGS:-} -tags=nightly" PKG=$packages ARGS="-run ^($names)\$" scripts/test.sh
}

all=(sim bugs storm native order batches cuts memory bench nightly topologies mutants)
read -r -a parts <<<"${PARTS-${all[*]}}"
for part in "${parts[@]:-}"; do
  case " ${all[*]} " in *" ${part:-,} "*) ;; *) echo "soak: PARTS=${PARTS-}: use one or more of ${all[*]}" >&2; exit 64 ;; esac
done

for part in "${parts[@]}"; do
  echo "soak: $part"
  case $part in
    sim)
      scripts/sim.sh
      SIM_BUGS=all scripts/sim.sh ;;
    bugs)
      scripts/chaos.sh selftest
      TEST_BROKER_VERSION=4.3 scripts/chaos.sh selftest -native ;;
    storm)
      scripts/chaos.sh run -messages 1000000 -faults 200 -rate 1500 -warm-up 20000 -app-timeout 500ms -stretch 2 "$@" ;;
    native)
      TEST_BROKER_VERSION=4.3 scripts/chaos.sh run -topology native -retry-delay 1s -max-retries 5 -messages 1000000 -faults 200 \
        -rate 2500 -concurrency 50 -prefetch 200 -warm-up 20000 -app-timeout 1s -stretch 0.5 -outbox 2000 -rollback 200 -publish 1000 "$@" ;;
    order)
      scripts/chaos.sh queues -queues 0 -ordered 1 -replicas 2 -messages 1000000 -keys 10000 -faults 100 -rate 1000 -concurrency 50 \
        -prefetch 200 "$@" ;;
    batches)
      scripts/chaos.sh run -gather 100 -concurrency 10 -messages 1000000 -faults 200 -rate 2500 -warm-up 20000 -app-timeout 1s -stretch 0.5 \
        -outbox 2000 -rollback 200 -publish 1000 "$@" ;;
    cuts) make chaos KIND=cuts ARGS="$*" ;;
    memory) LARGE_MESSAGES=all make test PKG=./test/ ARGS='-run LargeMessages -v -timeout 2h' ;;
    bench) measure ;;
    nightly) nightly ;;
    mutants) GOFLAGS="${GOFLAGS:-} -tags=nightly" TEST_PARALLEL=2 PKG=./test/mutants/ ARGS='-v -timeout 4h' scripts/postgres.sh run 0 scripts/test.sh ;;
    topologies) TOPOLOGY_SEED=all make test PKG=./internal/topologytest/ ;;
  esac
done
