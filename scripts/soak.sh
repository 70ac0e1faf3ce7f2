#!/usr/bin/env bash
# soak.sh [FLAG...]: all that is too long for each change, one after the other: 10,000 seeds of the simulation and each of its
# deliberate bugs, each deliberate bug of the storm, and a storm of a million messages and 200 faults. FLAGs are the storm's
# (test/chaos). PARTS (default "sim bugs storm") narrows it, SEEDS the seeds.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

for part in ${PARTS:-sim bugs storm}; do
  echo "soak: $part"
  case $part in
    sim)
      scripts/sim.sh
      SIM_BUGS=all scripts/sim.sh ;;
    bugs) scripts/chaos.sh selftest ;;
    storm)
      scripts/chaos.sh run -messages 1000000 -faults 200 -rate 1500 -warm-up 20000 -app-timeout 500ms -stretch 2 "$@" ;;
    *) echo "soak: PARTS=$part: use sim, bugs, storm" >&2; exit 64 ;;
  esac
done
