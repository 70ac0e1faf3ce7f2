#!/usr/bin/env bash
# build.sh BIN: puts what a Kubernetes node is made of into the directory BIN, built from the projects' own Go modules at
# the versions below; what is there already stays. A part appears under its name only when it is complete, and of two
# builds the second waits. The first time takes about twelve minutes on two cores, 4 GB in Go's caches and 0.5 GB in BIN.
set -euo pipefail

KUBERNETES=v1.36.3
CONTAINERD=v2.2.9
ETCD=v3.6.16
CNI=v1.9.1

bin=$1
mkdir -p "$bin"
exec 9>"$bin/.lock"
flock -n 9 || { echo "kube.sh: waiting for another build" >&2; flock 9; }
export CGO_ENABLED=0 GOFLAGS='-buildvcs=false -mod=mod' GOWORK=off GOTOOLCHAIN=auto

field() { sed -n "s/^\t\"$1\": \"\(.*\)\",*$/\1/p"; }

# module NAME MODULE VERSION STAGING PACKAGE...: a module that requires that one, so that its packages can be built. `go
# install` refuses modules with replacements; STAGING is the version that what they replace is published under.
module() {
  local name=$1 module=$2 version=$3 staging=$4 gomod m
  shift 4
  work=$bin/.work/$name
  mkdir -p "$work"
  gomod=$(cd / && go mod download -json "$module@$version" | field GoMod)
  {
    echo "module kube/$name"
    awk '$1 == "go" { print; exit }' "$gomod"
    echo "require $module $version"
    if [ -n "$staging" ]; then
      sed -n 's#^[[:space:]]*\(k8s.io/[a-z0-9.-]*\) => ./staging/.*#\1#p' "$gomod" | while read -r m; do
        echo "replace $m => $m $staging"
      done
    fi
  } >"$work/go.mod"
  {
    printf '//go:build tools\n\npackage tools\n\nimport (\n'
    printf '\t_ "%s"\n' "$@"
    echo ')'
  } >"$work/tools.go"
  # It says every line of what it downloads.
  (cd "$work" && go mod tidy) >"$work/log" 2>&1 || { tail -n 20 "$work/log" >&2; exit 1; }
}

# parts NAME MODULE VERSION STAGING TAGS PACKAGE...: builds those packages whose binary is missing. The version is part of
# what is looked for, so that a newer one is built again.
parts() {
  local name=$1 module=$2 version=$3 staging=$4 tags=$5 package file
  local missing=()
  shift 5
  for package in "$@"; do
    file=$bin/.done/$version/$(binary "$package")
    [ -e "$file" ] && [ -x "$bin/$(binary "$package")" ] || missing+=("$package")
  done
  ((${#missing[@]})) || return 0
  mkdir -p "$bin/.done/$version"
  echo "kube.sh: building $name $version: ${missing[*]##*/} (once)" >&2
  module "$name" "$module" "$version" "$staging" "$@"
  for package in "${missing[@]}"; do
    (cd "$work" && go build -trimpath -tags "$tags" -ldflags "-s -w ${ldflags:-}" -o "$work/out" "$package")
    mv "$work/out" "$bin/$(binary "$package")"
    touch "$bin/.done/$version/$(binary "$package")"
  done
  rm -rf "$work"
}

# The main package of etcd's server is at the root of its module.
binary() { case $1 in go.etcd.io/*) echo etcd ;; *) echo "${1##*/}" ;; esac; }

# A binary without a version is v0.0.0 to charts, which ask for the version of the API server.
minor=${KUBERNETES#v1.} minor=${minor%%.*} ldflags=
for p in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
  ldflags+=" -X $p.gitVersion=$KUBERNETES -X $p.gitMajor=1 -X $p.gitMinor=$minor -X $p.gitTreeState=clean"
  ldflags+=" -X $p.buildDate=1970-01-01T00:00:00Z"
done
parts kubernetes k8s.io/kubernetes "$KUBERNETES" "v0.${KUBERNETES#v1.}" '' \
  k8s.io/kubernetes/cmd/{kube-apiserver,kube-controller-manager,kube-scheduler,kubelet,kubectl}
ldflags=
parts containerd github.com/containerd/containerd/v2 "$CONTAINERD" '' 'no_btrfs,no_devmapper,no_zfs' \
  github.com/containerd/containerd/v2/cmd/{containerd,containerd-shim-runc-v2,ctr}
parts etcd go.etcd.io/etcd/server/v3 "$ETCD" '' '' go.etcd.io/etcd/server/v3
parts cni github.com/containernetworking/plugins "$CNI" '' '' \
  github.com/containernetworking/plugins/plugins/{main/bridge,main/loopback,ipam/host-local}
