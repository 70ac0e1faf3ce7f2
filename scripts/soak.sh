#!/usr/bin/env bash
# soak.sh [FLAG...]: all that is too long for each change, one after the other: 10,000 seeds of the simulation and each of its
# deliberate bugs, each deliberate bug of the storm, a storm of a million messages and 200 faults, and one of a million messages of
# 10,000 keys in order, with 100 faults. FLAGs are the storms' (test/chaos). PARTS (default "sim bugs storm order") narrows it,
# SEEDS the seeds.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

for part in ${PARTS:-sim bugs storm order}; do
  echo "soak: $part"
  case $part in
    sim)
      scripts/sim.sh
      SIM_BUGS=all scripts/sim.sh ;;
    bugs) scripts/chaos.sh selftest ;;
    storm)
      scripts/chaos.sh run -messages 1000000 -faults 200 -rate 1500 -warm-up 20000 -app-timeout 500ms -stretch 2 "$@" ;;
    order)
      scripts/chaos.sh queues -queues 0 -ordered 1 -replicas 2 -messages 1000000 -keys 10000 -faults 100 -rate 1000 -concurrency 50 \
        -prefetch 200 "$@" ;;
    *) echo "soak: PARTS=$part: use sim, bugs, storm, order" >&2; exit 64 ;;
  esac
done
