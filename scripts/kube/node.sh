#!/usr/bin/env bash
# node.sh DIR BIN node|control-plane: the first process of a cluster's namespaces (kube.sh up). Everything it starts ends
# with it. The logs are in DIR/log.
set -euo pipefail

DIR=$1 BIN=$2 MODE=$3
IP=10.99.0.1
PKI=$DIR/pki

# What Kubernetes and containerd keep at fixed places is this cluster's own: other clusters, and a kubelet of the machine,
# have theirs.
own_places() {
  mkdir -p "$DIR"/var/{log,lib}
  mount --bind "$DIR/var/log" /var/log
  mount --bind "$DIR/var/lib" /var/lib
  mount -t tmpfs tmpfs /run
  mount --make-rshared /
}

network() {
  ip link set lo up
  # An address that pods can reach, on a bridge because not every kernel has dummy interfaces. Nothing but the pods is
  # reachable from here.
  ip link add node0 type bridge
  ip addr add "$IP/32" dev node0
  ip link set node0 up
  # Service addresses have no backend: refuse connections at once.
  ip route add unreachable 10.96.0.0/16
  echo 1 >/proc/sys/net/ipv4/ip_forward
}

# --- certificates ---------------------------------------------------------------------------------------------------

cert() { # NAME COMMON-NAME ORGANISATION [SUBJECT-ALT-NAMES]
  openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout "$PKI/$1.key" -out "$PKI/$1.csr" -subj "/O=$3/CN=$2"
  openssl x509 -req -in "$PKI/$1.csr" -CA "$PKI/ca.crt" -CAkey "$PKI/ca.key" -CAcreateserial -days 30 -out "$PKI/$1.crt" \
    -extfile <(printf 'subjectAltName=%s\nextendedKeyUsage=serverAuth,clientAuth\n' "${4:-DNS:$1}")
  cat >"$DIR/$1.conf" <<Y
apiVersion: v1
kind: Config
clusters: [{name: sidecar, cluster: {server: "https://127.0.0.1:6443", certificate-authority: "$PKI/ca.crt"}}]
users: [{name: $1, user: {client-certificate: "$PKI/$1.crt", client-key: "$PKI/$1.key"}}]
contexts: [{name: sidecar, context: {cluster: sidecar, user: $1}}]
current-context: sidecar
Y
}

certificates() {
  mkdir -p "$PKI"
  openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout "$PKI/ca.key" -out "$PKI/ca.crt" -days 30 -subj /CN=ca
  openssl genrsa -out "$PKI/sa.key" 2048
  cert apiserver kube-apiserver kubernetes "DNS:localhost,DNS:kubernetes.default.svc,IP:127.0.0.1,IP:$IP,IP:10.96.0.1"
  cert admin admin system:masters
  cert controllers system:kube-controller-manager kubernetes
  cert scheduler system:kube-scheduler kubernetes
  cert kubelet system:node:node system:nodes "DNS:node,IP:$IP"
}

# --- processes ------------------------------------------------------------------------------------------------------

start() { # NAME ARG...
  "$BIN/$1" "${@:2}" >"$DIR/log/$1.log" 2>&1 &
}

control_plane() {
  # A cluster that does not survive its process needs no fsync.
  start etcd --data-dir "$DIR/etcd" --unsafe-no-fsync --listen-client-urls http://127.0.0.1:2379 \
    --advertise-client-urls http://127.0.0.1:2379 --listen-peer-urls http://127.0.0.1:2380 \
    --initial-advertise-peer-urls http://127.0.0.1:2380 --initial-cluster default=http://127.0.0.1:2380
  start kube-apiserver --bind-address=0.0.0.0 --advertise-address=$IP --secure-port=6443 \
    --etcd-servers=http://127.0.0.1:2379 --service-cluster-ip-range=10.96.0.0/16 --authorization-mode=Node,RBAC \
    --client-ca-file="$PKI/ca.crt" --tls-cert-file="$PKI/apiserver.crt" --tls-private-key-file="$PKI/apiserver.key" \
    --kubelet-client-certificate="$PKI/admin.crt" --kubelet-client-key="$PKI/admin.key" \
    --kubelet-certificate-authority="$PKI/ca.crt" --kubelet-preferred-address-types=InternalIP \
    --service-account-issuer=https://kubernetes.default.svc --service-account-key-file="$PKI/sa.key" \
    --service-account-signing-key-file="$PKI/sa.key"
  start kube-controller-manager --bind-address=127.0.0.1 --kubeconfig="$DIR/controllers.conf" --leader-elect=false \
    --service-account-private-key-file="$PKI/sa.key" --root-ca-file="$PKI/ca.crt" --use-service-account-credentials \
    --cluster-signing-cert-file="$PKI/ca.crt" --cluster-signing-key-file="$PKI/ca.key"
  start kube-scheduler --bind-address=127.0.0.1 --kubeconfig="$DIR/scheduler.conf" --leader-elect=false
}

# cgroup makes a control group for this cluster's pods in every hierarchy, and says which.
cgroup() {
  local name h
  name=sidecar-kube-$(stat -c %i "$DIR")
  echo "$name" >"$DIR/cgroup"
  if [[ -e /sys/fs/cgroup/cgroup.controllers ]]; then
    mkdir -p "/sys/fs/cgroup/$name"
  else
    for h in /sys/fs/cgroup/*/; do
      [[ ! -e $h/cgroup.procs ]] || mkdir -p "$h/$name"
    done
  fi
}

# The network plugin gives addresses of 10.244.0.0/24 and routes through the bridge; no NAT, no port mappings.
container_runtime() {
  mkdir -p "$DIR/cni" "$DIR/containerd"
  cat >"$DIR/cni/10-bridge.conflist" <<Y
{"cniVersion": "1.0.0", "name": "pods", "plugins": [{
  "type": "bridge", "bridge": "cni0", "isDefaultGateway": true, "hairpinMode": true,
  "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.244.0.0/24"}]]}}]}
Y
  # restrict_oom_score_adj: where root lacks CAP_SYS_RESOURCE, a container with a lower score than containerd cannot start.
  cat >"$DIR/containerd.toml" <<Y
version = 3
root = "$DIR/containerd"
[plugins.'io.containerd.cri.v1.images'.pinned_images]
  sandbox = "localhost/pause:1"
[plugins.'io.containerd.cri.v1.runtime']
  restrict_oom_score_adj = true
[plugins.'io.containerd.cri.v1.runtime'.cni]
  bin_dirs = ["$BIN"]
  conf_dir = "$DIR/cni"
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
  [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
    BinaryName = "$(command -v runc)"
    SystemdCgroup = false
Y
  # containerd searches for its shim in PATH.
  PATH=$BIN:$PATH start containerd --config "$DIR/containerd.toml"
  until [[ -S /run/containerd/containerd.sock ]]; do sleep 0.1; done
}

kubelet() {
  mkdir -p "$DIR/kubelet"
  echo "nameserver 127.0.0.1" >"$DIR/resolv.conf"
  # The disk of a developer is often fuller than an eviction threshold. syncFrequency is how late a changed Secret arrives.
  cat >"$DIR/kubelet.yaml" <<Y
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
failCgroupV1: false
failSwapOn: false
cgroupDriver: cgroupfs
cgroupRoot: /$(cat "$DIR/cgroup")
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
authentication: {anonymous: {enabled: false}, webhook: {enabled: true}, x509: {clientCAFile: "$PKI/ca.crt"}}
authorization: {mode: Webhook}
tlsCertFile: $PKI/kubelet.crt
tlsPrivateKeyFile: $PKI/kubelet.key
address: $IP
clusterDNS: [10.96.0.10]
clusterDomain: cluster.local
resolvConf: $DIR/resolv.conf
syncFrequency: 10s
evictionHard: {memory.available: 100Mi, nodefs.available: 1%, imagefs.available: 1%}
imageGCHighThresholdPercent: 100
Y
  start kubelet --config="$DIR/kubelet.yaml" --kubeconfig="$DIR/kubelet.conf" --hostname-override=node --node-ip=$IP \
    --root-dir="$DIR/kubelet" --v=2
}

own_places
network
certificates
control_plane
if [[ $MODE = node ]]; then
  cgroup
  container_runtime
  kubelet
fi
# As the first process it also reaps what others leave behind.
wait
