#!/usr/bin/env bash
# charts.sh: tests the Helm charts with Helm 3 and 4; needs no cluster. ARGS adds go test flags.
# Everything it needs comes from Go modules, the first time in some minutes: both Helms and helm-unittest.
set -euo pipefail
shopt -s inherit_errexit
cd "$(dirname "${BASH_SOURCE[0]}")/.."

HELM3=$(scripts/helm.sh 3)
HELM4=$(scripts/helm.sh 4)
unittest=$(scripts/helm.sh unittest)
SIDECAR_BIN=$PWD/bin/sidecar
export HELM3 HELM4 SIDECAR_BIN

[ -x "$SIDECAR_BIN" ] || { echo "charts: no bin/sidecar: make build" >&2; exit 1; }
"$unittest" --strict deploy/helm/amqp-sidecar
read -r -a extra <<<"${ARGS:-}"
go test -tags charts -count=1 "${extra[@]}" ./test/charts/
