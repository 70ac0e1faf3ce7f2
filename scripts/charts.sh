#!/usr/bin/env bash
# charts.sh: tests the Helm charts with Helm 3 and 4; needs no cluster. ARGS adds go test flags.
# Everything it needs comes from Go modules, the first time in some minutes: both Helms, helm-unittest, and the API's
# descriptions of Kubernetes, the Prometheus operator and KEDA.
set -euo pipefail
shopt -s inherit_errexit
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# The versions that scripts/kube.sh runs.
KUBERNETES=v1.36.3
PROMETHEUS_OPERATOR=v0.85.0
KEDA=v2.21.0

module() { (cd / && GOFLAGS='' go mod download -json "$1") | sed -n 's/.*"Dir": "\(.*\)".*/\1/p'; }

HELM3=$(scripts/helm.sh 3)
HELM4=$(scripts/helm.sh 4)
unittest=$(scripts/helm.sh unittest)
operator=$(module "github.com/prometheus-operator/prometheus-operator@$PROMETHEUS_OPERATOR")/example/prometheus-operator-crd
keda=$(module "github.com/kedacore/keda/v2@$KEDA")/config/crd/bases
KUBE_OPENAPI=$(module "k8s.io/kubernetes@$KUBERNETES")/api/openapi-spec/swagger.json
KUBE_CRDS=$operator/monitoring.coreos.com_podmonitors.yaml:$operator/monitoring.coreos.com_prometheusrules.yaml
KUBE_CRDS+=:$keda/keda.sh_scaledobjects.yaml:$keda/keda.sh_triggerauthentications.yaml
SIDECAR_BIN=$PWD/bin/sidecar
export HELM3 HELM4 KUBE_OPENAPI KUBE_CRDS SIDECAR_BIN

[ -x "$SIDECAR_BIN" ] || { echo "charts: no bin/sidecar: make build" >&2; exit 1; }
"$unittest" --strict deploy/helm/amqp-sidecar
read -r -a extra <<<"${ARGS:-}"
go test -tags charts -count=1 "${extra[@]}" ./test/charts/
