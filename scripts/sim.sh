#!/usr/bin/env bash
# sim.sh: the sidecar against a model of the broker, one seed after the other. SEEDS (10000) from FROM (1), or SEED alone,
# with its log, up to AGAIN (20) times until it fails. SIM_BUGS=all: each deliberate bug, each step and each scene of bad messages instead of the seeds.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

for name in SEEDS FROM SEED AGAIN; do
  [[ ${!name:-1} =~ ^[0-9]+$ ]] || { echo "sim: $name=${!name} is not a number" >&2; exit 64; }
done

# Each run leaves little behind: collecting it less often takes a fifth off.
export GOGC=${GOGC:-400}
run=(go test ./internal/sim -run '^TestSeeds$' -v -timeout 30m)
if [ "${SIM_BUGS:-}" = all ]; then
  exec go test ./internal/sim -run 'Mutants|EveryStep|BadMessages|Outage' -timeout 30m -count=1 -sim.all
fi
if [ -n "${SEED:-}" ]; then
  exec "${run[@]}" -failfast -count="${AGAIN:-20}" -sim.seeds=1 -sim.seed="$SEED"
fi
"${run[@]}" -count=1 -sim.seeds="${SEEDS:-10000}" -sim.seed="${FROM:-1}" | { grep -v '^=== ' || true; }
