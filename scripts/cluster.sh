#!/usr/bin/env bash
# cluster.sh CMD [ARG...]: boots three RabbitMQ nodes that form a cluster, runs CMD, stops and removes them; exits with CMD's
# status. A node that cannot see the majority pauses. TEST_BROKER_VERSION and the like mean what they mean to broker.sh.
#
# CMD sees CLUSTER_DIRS (the nodes' directories, for broker.sh) and AMQP_URLS (separated by commas), and of the first node
# all that broker.sh run shows.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

dir=$(mktemp -d "${TMPDIR:-/tmp}/sidecar-cluster.XXXXXX")
nodes=()
clean_up() {
  local n
  trap '' INT TERM
  for n in "${nodes[@]}"; do [ ! -e "$n/source" ] || scripts/broker.sh rm "$n" || true; done
  rm -rf "$dir"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# One cookie and one port mapper for all; the rest is each node's own.
start_node() { # NUMBER
  local n=$dir/n$1
  mkdir -p "$n"
  if [ "$1" != 1 ]; then
    local epmd
    read -r _ epmd _ <"$dir/n1/ports"
    cp "$dir/n1/.erlang.cookie" "$n/.erlang.cookie"
    chmod 400 "$n/.erlang.cookie"
    echo "$(scripts/broker.sh port) $epmd $(scripts/broker.sh port)" >"$n/ports"
  fi
  nodes+=("$n")
  scripts/broker.sh start "$n" 0 >/dev/null
}

name_of() { echo "sidecar-$(cut -d' ' -f1 "$1/ports")@localhost"; }

start_node 1
if [ "$(cat "$dir/n1/source")" = docker ]; then
  echo "cluster.sh: the nodes have to run on this machine: set TEST_BROKER to installed, package or root" >&2
  exit 1
fi
first=$(name_of "$dir/n1")
for i in 2 3; do
  start_node "$i"
  "$dir/n$i/rabbitmqctl" -q stop_app
  "$dir/n$i/rabbitmqctl" -q join_cluster "$first" >/dev/null
  "$dir/n$i/rabbitmqctl" -q start_app
done
urls=()
for n in "${nodes[@]}"; do
  "$n/rabbitmqctl" -q eval 'application:set_env(rabbit, cluster_partition_handling, pause_minority).' >/dev/null
  urls+=("amqp://guest:guest@127.0.0.1:$(cat "$n/port")/")
done
# shellcheck source=/dev/null
. "$dir/n1/env"
CLUSTER_DIRS="${nodes[*]}" AMQP_URLS=$(IFS=,; echo "${urls[*]}")
export CLUSTER_DIRS AMQP_URLS
rc=0
"$@" || rc=$?
exit "$rc"
