#!/usr/bin/env bash
# kubernetes.sh: the tests of test/kubernetes: builds the images, boots a cluster (kube.sh) and a broker (broker.sh) that its
# pods reach, runs the tests and removes both. ARGS adds go test flags (ARGS='-run TestRollout -v').
#
# KUBE_DIR     a running cluster of kube.sh, which stays: for one run after another while a test is written
# KUBECONFIG   any other cluster, e.g. of kind. Then this has to be said as well:
#   E2E_LOAD             a command that makes image archives known to it, e.g. "kind load image-archive"
#   E2E_HOST             the address of this machine as its pods reach it
#   E2E_AMQP_URL         a broker's URL as its pods reach it
#   E2E_AMQP_URL_LOCAL   the same broker's URL as it is reached from here
# E2E_HELM3, E2E_HELM4   binaries to take instead of those of scripts/helm.sh
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# Inside the cluster's network there is no other network: what comes from elsewhere is fetched before.
prepare() {
  local version
  runner=$(scripts/gotool.sh gotest.tools/gotestsum@v1.13.0)
  E2E_HELM3=${E2E_HELM3:-$(scripts/helm.sh 3)}
  E2E_HELM4=${E2E_HELM4:-$(scripts/helm.sh 4)}
  # Names that the chart and `image:` of any pod take without a registry.
  version=$(sed -n 's/^appVersion: *"\{0,1\}\([^"]*\)"\{0,1\}$/\1/p' deploy/helm/amqp-sidecar/Chart.yaml)
  E2E_IMAGE=docker.io/library/amqp-sidecar:$version E2E_APP_IMAGE=docker.io/library/e2e-app:1
  export runner E2E_HELM3 E2E_HELM4 E2E_IMAGE E2E_APP_IMAGE
  CGO_ENABLED=0 go build -trimpath -o "$work/app" ./test/kubernetes/app
  scripts/image.sh build -t "$E2E_IMAGE" -o "$work/sidecar.tar" >"$work/image.log" 2>&1 || { tail -n 30 "$work/image.log" >&2; exit 1; }
  scripts/kube/image.sh "$E2E_APP_IMAGE" "$work/app" "$work/app.tar"
  make build >/dev/null # the tests of the injection ask it what it makes of a configuration
  go vet -tags kubernetes ./test/kubernetes/...
  # A node's pods do not reach the ports of a docker engine.
  export TEST_BROKER=${TEST_BROKER:-package}
  [ -n "${E2E_AMQP_URL:-}" ] || scripts/broker.sh get
}

own_cluster() {
  local dir=${KUBE_DIR:-}
  if [ -z "$dir" ]; then
    dir=$work/kube
    trap 'scripts/kube.sh down "$work/kube"; rm -rf "$work"' EXIT
  fi
  scripts/kube.sh up "$dir" >/dev/null
  scripts/kube.sh load "$dir" "$work/sidecar.tar" "$work/app.tar"
  scripts/kube.sh crds "$dir"
  scripts/kube.sh in "$dir" "$0" inside
}

is_given() { [ -n "${KUBECONFIG:-}" ] && [ -z "${KUBE_DIR:-}" ]; }

is_said() {
  local name
  for name in E2E_LOAD E2E_HOST E2E_AMQP_URL E2E_AMQP_URL_LOCAL; do
    [ -n "${!name:-}" ] || { echo "kubernetes.sh: with KUBECONFIG, $name has to be set (see the head of this script)" >&2; exit 64; }
  done
}

given_cluster() {
  local name
  for name in sidecar app; do $E2E_LOAD "$work/$name.tar"; done
  scripts/kube.sh crds -
  run_tests
}

# with_user: the user guest can only log in from where the broker runs.
with_user() {
  "$BROKER_CTL" -q add_user e2e e2e-password >/dev/null
  "$BROKER_CTL" -q set_permissions e2e '.*' '.*' '.*'
  export E2E_HOST=$KUBE_HOST E2E_AMQP_URL_LOCAL=$AMQP_URL
  export E2E_AMQP_URL=amqp://e2e:e2e-password@$KUBE_HOST:${AMQP_URL##*:}
  run_tests
}

run_tests() {
  local extra events rc=0 skipped
  read -r -a extra <<<"${ARGS:-}"
  events=$(mktemp)
  "$runner" --format "${FORMAT:-testname}" --format-hide-empty-pkg --jsonfile "$events" -- \
    -tags kubernetes -count=1 -timeout 30m -p 1 "${extra[@]}" ./test/kubernetes ./test/kubernetes/inject || rc=$? # one after the other: both install policies
  # A test that skips itself proves nothing.
  if skipped=$(grep '"Action":"skip"' "$events" | grep '"Test":'); then
    printf 'skipped tests count as failures:\n%s\n' "$skipped" >&2
    rc=1
  fi
  rm -f "$events"
  return "$rc"
}

case ${1:-} in
  inside) BROKER_LISTEN=0.0.0.0 exec scripts/broker.sh run 0 "$0" with-user ;;
  with-user) with_user ;;
  '')
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM
    if is_given; then is_said; fi
    prepare
    if is_given; then given_cluster; else own_cluster; fi
    ;;
  *) sed -n '2,/^set -euo/{/^set -euo/d;s/^# \{0,1\}//;p;}' "$0" >&2; exit 64 ;;
esac
