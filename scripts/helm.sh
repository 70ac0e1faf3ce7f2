#!/usr/bin/env bash
# helm.sh 3|4|unittest: prints the path of that tool's binary, building it into .cache/bin the first time.
# The versions are decided here. Like all tools they stay out of go.mod, see gotool.sh.
set -euo pipefail
shopt -s inherit_errexit
cd "$(dirname "${BASH_SOURCE[0]}")/.."

HELM3=v3.22.0
HELM4=v4.3.1
UNITTEST=v1.1.2

cache=$PWD/.cache/bin
go=$(go env GOVERSION)
export GOFLAGS='' CGO_ENABLED=0

# install NAME PACKAGE@VERSION LDFLAGS
install() {
  local dir=$cache/$1-${2##*@}-$go binary
  binary=$dir/$(basename "${2%@*}")
  if [ ! -x "$binary" ]; then
    echo "building $1 ${2##*@} (once)" >&2
    GOBIN=$dir go install -trimpath -ldflags "-s -w $3" "$2" >&2
  fi
  echo "$binary"
}

# The Kubernetes that Helm 3 takes for granted without a cluster is a linker flag, too; without it that is 1.20. Its own
# build takes it from the client library: v0.36.x is Kubernetes 1.36. Helm 4 finds out by itself.
helm3() {
  local mod minor
  mod=$(cd / && go mod download -json "helm.sh/helm/v3@$HELM3" | sed -n 's/.*"GoMod": "\(.*\)".*/\1/p')
  minor=$(sed -n 's/.*k8s.io\/client-go v0\.\([0-9]*\)\..*/\1/p' "$mod")
  local package=helm.sh/helm/v3 flags
  flags="-X $package/internal/version.version=$HELM3"
  for variable in pkg/chartutil pkg/lint/rules; do
    flags+=" -X $package/$variable.k8sVersionMajor=1 -X $package/$variable.k8sVersionMinor=$minor"
  done
  install helm3 "$package/cmd/helm@$HELM3" "$flags"
}

# helm-unittest's go.mod replaces modules, and go install refuses such a module: it is built from one of our own that
# replaces the same ones.
unittest() {
  local module=github.com/helm-unittest/helm-unittest dir=$cache/unittest-$UNITTEST-$go
  if [ ! -x "$dir/helm-unittest" ]; then
    echo "building helm-unittest $UNITTEST (once)" >&2
    local mod work
    mod=$(cd / && go mod download -json "$module@$UNITTEST" | sed -n 's/.*"GoMod": "\(.*\)".*/\1/p')
    work=$(mktemp -d)
    {
      echo "module tools"
      grep '^go ' "$mod"
      echo "require $module $UNITTEST"
      sed -n '/^replace/,$p' "$mod"
    } >"$work/go.mod"
    printf '//go:build tools\n\npackage tools\n\nimport _ "%s/cmd/helm-unittest"\n' "$module" >"$work/tools.go"
    (cd "$work" && go mod tidy && go build -trimpath -ldflags '-s -w' -o "$dir/helm-unittest" "$module/cmd/helm-unittest") >&2
    rm -rf "$work"
  fi
  echo "$dir/helm-unittest"
}

case ${1:-} in
  3) helm3 ;;
  4) install helm4 "helm.sh/helm/v4/cmd/helm@$HELM4" "-X helm.sh/helm/v4/internal/version.version=$HELM4" ;;
  unittest) unittest ;;
  *)
    sed -n '2,3s/^# \{0,1\}//p' "$0" >&2
    exit 64
    ;;
esac
