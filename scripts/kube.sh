#!/usr/bin/env bash
# kube.sh: a real Kubernetes with one node that runs pods, for tests, without Docker and without an image registry.
#
#   kube.sh run CMD [ARG...]        boot, run CMD inside, remove everything; exits with CMD's status. Where KUBECONFIG is
#                                   set, that cluster is used instead: CMD is run and nothing else happens.
#   kube.sh up DIR [control-plane]  boot and leave running; prints the export lines to eval. control-plane: API server,
#                                   controllers and scheduler, but no node.
#   kube.sh in DIR CMD [ARG...]     runs CMD with those variables where the cluster can be reached
#   kube.sh load DIR IMAGE.tar...   makes images known to the node (docker or OCI archives)
#   kube.sh crds DIR                installs the resource definitions of the Prometheus operator and of KEDA
#   kube.sh down DIR                ends it and removes DIR
#   kube.sh build                   only builds the binaries
#
# A cluster lives in namespaces of its own (network, processes, mounts). Nothing of it listens on an interface of this
# machine, any number of them run side by side, and all of it ends with one process. There is no DNS and there are no
# Service addresses; pods reach each other and what listens inside, on KUBE_HOST, by address.
#
# CMD sees
#   KUBECONFIG  of an administrator; the API server is on 127.0.0.1:6443 inside
#   KUBE_DIR    DIR
#   KUBE_HOST   the address under which pods reach what listens inside
#   PATH        with kubectl
#
# The binaries come from Go modules (scripts/kube/build.sh), runc from the distribution. It takes Linux and root.
#   KUBE_CACHE  where they are kept, default ~/.cache/sidecar-kube; rm -rf is safe while no cluster runs
set -euo pipefail
shopt -s inherit_errexit

HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
CACHE=${KUBE_CACHE:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/sidecar-kube}
[[ $CACHE = /* ]] || CACHE=$PWD/$CACHE
BIN=$CACHE/bin
PROMETHEUS_OPERATOR=v0.85.0
KEDA=v2.21.0

say() { printf 'kube.sh: %s\n' "$*" >&2; }
die() { say "$@"; exit 1; }
usage() { sed -n '2,/^set -euo/{/^set -euo/d;s/^# \{0,1\}//;p;}' "$0"; }

build() {
  "$HERE/kube/build.sh" "$BIN"
  local source=$HERE/kube/pause/main.go
  if [[ ! -e $BIN/pause.tar || $source -nt $BIN/pause.tar ]]; then
    (cd "$HERE/.." && GOFLAGS='' CGO_ENABLED=0 go build -trimpath -ldflags '-s -w' -o "$BIN/pause" ./scripts/kube/pause)
    "$HERE/kube/image.sh" localhost/pause:1 "$BIN/pause" "$BIN/pause.tar"
  fi
}

# alive DIR: the recorded process is still there, and it is the one of that cluster; after a reboot the number may be
# another's.
alive() {
  local pid
  pid=$(cat "$1/pid" 2>/dev/null) || return 1
  [[ $({ tr '\0' ' ' <"/proc/$pid/cmdline"; } 2>/dev/null || true) == *kube/node.sh*"$1 "* ]]
}

inside() { # DIR CMD...
  local dir=$1
  shift
  alive "$dir" || die "no cluster runs in $dir"
  # shellcheck source=/dev/null
  . "$dir/env"
  nsenter --net="/proc/$(cat "$dir/pid")/ns/net" -- "$@"
}

# eventually DIR WHAT CMD...: waits until CMD succeeds. A node that is busy with other things takes its time.
eventually() {
  local dir=$1 what=$2 end=$((SECONDS + 180))
  shift 2
  until inside "$dir" "$@" >"$dir/log/wait" 2>&1; do
    if ((SECONDS > end)) || ! alive "$dir"; then
      cat "$dir/log/wait" >&2
      tail -n 5 "$dir"/log/*.log >&2 2>/dev/null || true
      die "there is no $what (all logs: $dir/log)"
    fi
    sleep 0.2
  done
}

up() { # DIR node|control-plane
  local dir mode=$2
  [[ $(id -u) = 0 ]] || die "a node needs root; with any other cluster set KUBECONFIG"
  [[ $mode = node || $mode = control-plane ]] || die "up DIR [control-plane]"
  mkdir -p "$1"
  dir=$(cd "$1" && pwd)
  # The node has directories of its own there.
  case $dir/ in /run/* | /var/run/* | /var/log/* | /var/lib/*) die "$dir: choose a directory elsewhere, e.g. in /tmp" ;; esac
  if alive "$dir"; then
    cat "$dir/env"
    return
  fi
  [[ -z $(ls -A "$dir") ]] || die "$dir is not empty: kube.sh down $dir removes what is left of a cluster"
  "$HERE/need.sh" openssl openssl
  "$HERE/need.sh" ip iproute2
  "$HERE/need.sh" nsenter util-linux
  [[ $mode = control-plane ]] || "$HERE/need.sh" runc runc
  build
  mkdir "$dir/log"
  cat >"$dir/env" <<END
export KUBECONFIG=$(printf %q "$dir/admin.conf")
export KUBE_DIR=$(printf %q "$dir")
export KUBE_HOST=10.99.0.1
export PATH=$(printf %q "$BIN"):\$PATH
END
  # The init of the process namespace goes when unshare goes, and everything in there goes with the init.
  set -m
  unshare --net --mount --propagation private --pid --fork --kill-child --mount-proc \
    "$HERE/kube/node.sh" "$dir" "$BIN" "$mode" >"$dir/log/node.log" 2>&1 </dev/null &
  set +m
  echo $! >"$dir/pid"
  disown
  local i
  for ((i = 0; i < 50; i++)); do if alive "$dir"; then break; fi; sleep 0.1; done
  eventually "$dir" "API server" kubectl get --raw /readyz
  eventually "$dir" "service account" kubectl get serviceaccount default
  if [[ $mode = node ]]; then
    eventually "$dir" "ready node" kubectl wait --for=condition=Ready node/node --timeout=1s
    load "$dir" "$BIN/pause.tar"
  fi
  cat "$dir/env"
}

load() { # DIR IMAGE.tar...
  local dir=$1 file pid
  shift
  alive "$dir" || die "no cluster runs in $dir"
  pid=$(cat "$dir/pid")
  for file in "$@"; do
    # It warns of what is deprecated in the machine's kernel, for every image.
    nsenter --net="/proc/$pid/ns/net" --mount="/proc/$pid/ns/mnt" -- \
      "$BIN/ctr" -n k8s.io images import --local - <"$file" >"$dir/log/import" 2>&1 || { cat "$dir/log/import" >&2; exit 1; }
  done
}

# module_dir MODULE@VERSION prints where its sources are.
module_dir() {
  (cd / && GOFLAGS='' GOTOOLCHAIN=auto go mod download -json "$1" | sed -n 's/^\t"Dir": "\(.*\)",*$/\1/p')
}

crds() { # DIR, or - for the cluster of KUBECONFIG
  local dir=$1 operator keda kubectl=(inside "$1" kubectl) f files=()
  if [[ $dir = - ]]; then kubectl=(kubectl); fi
  operator=$(module_dir "github.com/prometheus-operator/prometheus-operator@$PROMETHEUS_OPERATOR")
  keda=$(module_dir "github.com/kedacore/keda/v2@$KEDA")
  for f in servicemonitors podmonitors prometheusrules; do
    files+=(-f "$operator/example/prometheus-operator-crd/monitoring.coreos.com_$f.yaml")
  done
  for f in scaledobjects scaledjobs triggerauthentications; do files+=(-f "$keda/config/crd/bases/keda.sh_$f.yaml"); done
  # Client-side apply would keep a copy in an annotation, for which these are too large.
  "${kubectl[@]}" apply --server-side "${files[@]}" >/dev/null
  "${kubectl[@]}" wait --for=condition=Established "${files[@]}" --timeout=60s >/dev/null
}

down() { # DIR
  local dir=$1 pid init='' i c
  [[ -e $dir/env ]] || die "$dir holds no cluster of this script"
  dir=$(cd "$dir" && pwd)
  if alive "$dir"; then
    pid=$(cat "$dir/pid")
    init=$(cat "/proc/$pid/task/$pid/children")
    kill -KILL "$pid"
    # It goes last, when the kernel has ended all others.
    for ((i = 0; i < 300; i++)); do
      [[ -n $init && -d /proc/${init%% *} ]] || break
      sleep 0.1
    done
  fi
  if [[ -s $dir/cgroup ]]; then
    for c in /sys/fs/cgroup/"$(cat "$dir/cgroup")" /sys/fs/cgroup/*/"$(cat "$dir/cgroup")"; do
      for ((i = 0; i < 50; i++)); do
        [[ -d $c ]] || break
        find "$c" -depth -type d -exec rmdir {} \; 2>/dev/null || true
        [[ ! -d $c ]] || sleep 0.1
      done
    done
  fi
  rm -rf "$dir"
}

run() { # CMD...
  if [[ -n ${KUBECONFIG:-} ]]; then exec "$@"; fi
  DIR=$(mktemp -d "${TMPDIR:-/tmp}/sidecar-kube.XXXXXX")
  trap 'if [[ -e $DIR/env ]]; then down "$DIR"; else rm -rf "$DIR"; fi' EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM
  up "$DIR" node >/dev/null
  local rc=0
  inside "$DIR" "$@" || rc=$?
  exit "$rc"
}

case ${1:-}:$# in
  build:1) build ;;
  up:2) up "$2" node ;;
  up:3) up "$2" "$3" ;;
  down:2) down "$2" ;;
  crds:2) crds "$2" ;;
  in:[3-9] | in:[1-9][0-9]*) shift && inside "$@" ;;
  load:[3-9] | load:[1-9][0-9]*) shift && load "$@" ;;
  run:[2-9] | run:[1-9][0-9]*) shift && run "$@" ;;
  -h:1 | --help:1 | help:1) usage ;;
  *) usage >&2; exit 64 ;;
esac
