#!/usr/bin/env bash
# broker.sh: a private RabbitMQ on the loopback interface, for tests and benchmarks.
#
#   broker.sh run PORT CMD [ARG...]   boot, run CMD, stop, remove all data; exits with CMD's status
#   broker.sh start DIR PORT          boot and leave running; prints the export lines to eval
#   broker.sh stop DIR                stop, keep the data (start DIR PORT boots the same node again)
#   broker.sh kill DIR                the same without warning (SIGKILL)
#   broker.sh rm DIR                  stop and remove DIR
#   broker.sh ctl DIR ARG...          rabbitmqctl for that node
#
# PORT 0 chooses a free port. CMD, and whoever evals the lines of start, sees
#   AMQP_URL        amqp://guest:guest@127.0.0.1:PORT/
#   BROKER_CTL      path of an executable rabbitmqctl for this node
#   BROKER_VERSION  what the node itself says, e.g. 4.0.5
#   BROKER_DIR      DIR
#
# Where RabbitMQ comes from, the first that works: a docker engine, an installed rabbitmq-server, the
# distribution's package (apt-get, as root or through sudo -n).
#   SIDECAR_BROKER=docker|installed|package   force one of them
#   SIDECAR_BROKER_IMAGE                      docker image, default rabbitmq:4
#   BROKER_EXTRA_CONF                         more lines for rabbitmq.conf
#   BROKER_START_TIMEOUT                      seconds to wait for the node, default 120
set -euo pipefail

IMAGE=${SIDECAR_BROKER_IMAGE:-rabbitmq:4}
RESERVED=${TMPDIR:-/tmp}/sidecar-broker-ports.$(id -u)

say() { printf 'broker.sh: %s\n' "$*" >&2; }
die() { say "$@"; exit 1; }
usage() { sed -n '2,/^set -euo/{/^set -euo/d;s/^# \{0,1\}//;p;}' "$0"; }

# greeting PORT: speaks first, as AMQP wants it, and prints the version in the broker's answer. Reading up to each NUL
# keeps this in bash: the value follows "version" "S" and a four byte length.
greeting() (
  export LC_ALL=C
  { exec 3<>"/dev/tcp/127.0.0.1/$1"; } 2>/dev/null || exit 1
  printf 'AMQP\0\0\11\1' >&3
  seen=
  while IFS= read -r -t 2 -d '' part <&3; do
    if [[ $part == *versionS ]]; then
      seen=1
    elif [[ -n $seen && -n $part ]]; then
      printf '%s\n' "${part:1}"
      exit 0
    fi
  done
  exit 1
)

listening() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

# reserve PORT: two starts at the same time must not agree on a port that neither listens on yet. A reservation whose
# owner is gone is void.
reserve() {
  local file=$RESERVED/$1 owner
  mkdir -p "$RESERVED"
  if ! (set -o noclobber && echo $$ >"$file") 2>/dev/null; then
    owner=$(cat "$file" 2>/dev/null || true)
    if [[ $owner =~ ^[0-9]+$ ]] && kill -0 "$owner" 2>/dev/null; then return 1; fi
    rm -f "$file"
    (set -o noclobber && echo $$ >"$file") 2>/dev/null || return 1
  fi
  ! listening "$1"
}

# free_port prints a reserved port below the ephemeral range, where an outgoing connection could take it away.
free_port() {
  local port i
  for ((i = 0; i < 200; i++)); do
    port=$((10000 + (RANDOM * 32768 + RANDOM) % 20000))
    if reserve "$port"; then
      echo "$port"
      return
    fi
  done
  die "no free port between 10000 and 29999"
}

# bin_dir prints where the server's own scripts are. Debian's wrappers in /usr/sbin switch users, so they come last.
bin_dir() {
  local dir found
  for dir in /usr/lib/rabbitmq/bin /usr/lib/rabbitmq/lib/rabbitmq_server-*/sbin /opt/rabbitmq/sbin; do
    if [[ -x $dir/rabbitmq-server && -x $dir/rabbitmqctl ]]; then
      echo "$dir"
      return
    fi
  done
  found=$(PATH=$PATH:/usr/local/sbin:/opt/homebrew/sbin:/usr/sbin command -v rabbitmq-server) || return 1
  dirname "$found"
}

docker_works() { command -v docker >/dev/null && docker info >/dev/null 2>&1; }

have_image() { docker image inspect "$IMAGE" >/dev/null 2>&1 || docker pull -q "$IMAGE" >/dev/null 2>&1; }

# source_of prints docker or installed, installing the package when there is nothing else.
source_of() {
  case ${SIDECAR_BROKER:-} in
    docker)
      docker_works || die "SIDECAR_BROKER=docker, but docker info fails"
      have_image || die "docker cannot get the image $IMAGE"
      echo docker
      return ;;
    installed)
      bin_dir >/dev/null || die "SIDECAR_BROKER=installed, but there is no rabbitmq-server"
      echo installed
      return ;;
    package | '') ;;
    *) die "SIDECAR_BROKER=$SIDECAR_BROKER: use docker, installed or package" ;;
  esac
  if [[ -z ${SIDECAR_BROKER:-} ]] && docker_works; then
    if have_image; then
      echo docker
      return
    fi
    say "docker cannot get the image $IMAGE; looking for an installed rabbitmq-server"
  fi
  bin_dir >/dev/null || install_package
  echo installed
}

# install_package never lets the package start a broker of its own: a policy that forbids it is put in place for the
# duration, and one that is already there must forbid it.
install_package() {
  local policy=/usr/sbin/policy-rc.d log as_root=()
  command -v apt-get >/dev/null ||
    die "no docker engine, no rabbitmq-server and no apt-get: install rabbitmq-server or start docker"
  if [[ $(id -u) != 0 ]]; then
    sudo -n true 2>/dev/null || die "no docker engine, no rabbitmq-server and no root: apt-get install rabbitmq-server"
    as_root=(sudo -n)
  fi
  log=$(mktemp "${TMPDIR:-/tmp}/sidecar-broker-apt.XXXXXX")
  say "installing the package rabbitmq-server (log: $log)"
  # shellcheck disable=SC2016 # the inner script expands its own variables
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive POLICY="$policy" flock /tmp/.sidecar-broker-apt.lock bash -euc '
    if [[ -x $POLICY ]]; then
      rc=0; "$POLICY" rabbitmq-server start || rc=$?
      [[ $rc = 101 ]] || { echo "$POLICY would let the package start a system broker"; exit 1; }
    else
      trap "rm -f $POLICY" EXIT
      printf "#!/bin/sh\nexit 101\n" >"$POLICY"
      chmod +x "$POLICY"
    fi
    get() { apt-get -o DPkg::Lock::Timeout=300 install -y -qq --no-install-recommends rabbitmq-server; }
    get || { apt-get -o DPkg::Lock::Timeout=300 update -qq && get; }
  ' >"$log" 2>&1 || {
    tail -n 20 "$log" >&2
    die "apt-get could not install rabbitmq-server; install it, or start docker"
  }
  rm -f "$log"
  bin_dir >/dev/null || die "the package rabbitmq-server holds no rabbitmq-server"
}

write_conf() { # LINE of the source, then what is common, then the caller's
  echo "$1"
  echo "disk_free_limit.absolute = 50MB"
  printf '%s\n' "${BROKER_EXTRA_CONF:-}"
}

# --- a docker engine ------------------------------------------------------------------------------------------------

docker_start() { # DIR PORT
  local dir=$1 port=$2 name
  if [[ -s $dir/container ]]; then
    name=$(cat "$dir/container")
    docker start "$name" >/dev/null
    return
  fi
  name=sidecar-broker-$port-$$
  # The image listens on all interfaces of the container; only the published port decides who can reach it.
  write_conf "listeners.tcp.default = 5672" >"$dir/90-extra.conf"
  docker create --name "$name" -p "127.0.0.1:$port:5672" "$IMAGE" >/dev/null
  echo "$name" >"$dir/container"
  docker cp "$dir/90-extra.conf" "$name:/etc/rabbitmq/conf.d/90-extra.conf" >/dev/null 2>&1
  docker start "$name" >/dev/null
  printf '#!/usr/bin/env bash\nexec docker exec -i %q rabbitmqctl "$@"\n' "$name" >"$dir/rabbitmqctl"
  chmod +x "$dir/rabbitmqctl"
}

# --- an installed server --------------------------------------------------------------------------------------------

# native_env fills ENVIRONMENT: nothing of the caller's and nothing of /etc may leak into the node. The node's name, and
# with it its data, hangs on a port that stays the same when the node is started again on another AMQP port.
native_env() { # DIR PORT
  local dir=$1 port=$2 dist epmd ctl
  [[ -s $dir/ports ]] || echo "$(free_port) $(free_port) $(free_port)" >"$dir/ports"
  read -r dist epmd ctl <"$dir/ports"
  ENVIRONMENT=(env -i "PATH=$PATH:/usr/sbin:/usr/bin:/sbin:/bin:/usr/lib/erlang/bin" LANG=C.UTF-8 "HOME=$dir"
    "RABBITMQ_NODENAME=sidecar-$dist@localhost" "RABBITMQ_NODE_PORT=$port" RABBITMQ_NODE_IP_ADDRESS=127.0.0.1
    "RABBITMQ_DIST_PORT=$dist" "ERL_EPMD_PORT=$epmd" ERL_EPMD_ADDRESS=127.0.0.1
    "RABBITMQ_CTL_DIST_PORT_MIN=$ctl" "RABBITMQ_CTL_DIST_PORT_MAX=$((ctl + 50))"
    "RABBITMQ_BASE=$dir" "RABBITMQ_MNESIA_BASE=$dir/data" "RABBITMQ_LOG_BASE=$dir/log"
    "RABBITMQ_ENABLED_PLUGINS_FILE=$dir/enabled_plugins" "RABBITMQ_CONFIG_FILE=$dir/rabbitmq"
    "RABBITMQ_CONF_ENV_FILE=$dir/none" "RABBITMQ_GENERATED_CONFIG_DIR=$dir/generated"
    "ERL_CRASH_DUMP=$dir/erl_crash.dump"
    "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS=-kernel inet_dist_use_interface {127,0,0,1}")
}

native_start() { # DIR PORT
  local dir=$1 port=$2 bin
  bin=$(bin_dir)
  mkdir -p "$dir/data" "$dir/log" "$dir/generated"
  native_env "$dir" "$port"
  [[ -e $dir/enabled_plugins ]] || echo "[]." >"$dir/enabled_plugins"
  if ! [[ -e $dir/.erlang.cookie ]]; then
    (umask 077 && od -An -N16 -tx1 /dev/urandom | tr -d ' \n' >"$dir/.erlang.cookie")
    chmod 400 "$dir/.erlang.cookie"
  fi
  write_conf "loopback_users.guest = true" >"$dir/rabbitmq.conf"
  printf '#!/usr/bin/env bash\nexec %s %q "$@"\n' "$(printf '%q ' "${ENVIRONMENT[@]}")" "$bin/rabbitmqctl" >"$dir/rabbitmqctl"
  chmod +x "$dir/rabbitmqctl"
  # Its own process group, so that stop and kill reach the shell script and the Erlang machine below it.
  set -m
  "${ENVIRONMENT[@]}" "$bin/rabbitmq-server" >"$dir/out" 2>&1 </dev/null &
  set +m
  echo $! >"$dir/pid"
  disown
  local p
  for p in "$port" $(cat "$dir/ports"); do echo $! >"$RESERVED/$p"; done
}

# native_alive DIR: the recorded group is still there and still a RabbitMQ; after a reboot the number may be another's.
native_alive() {
  local pid args
  pid=$(cat "$1/pid" 2>/dev/null) || return 1
  kill -0 -- "-$pid" 2>/dev/null || return 1
  if [[ -r /proc/$pid/cmdline ]]; then args=$(tr '\0' ' ' <"/proc/$pid/cmdline"); else args=$(ps -o args= -p "$pid"); fi
  [[ $args == *rabbit* ]]
}

native_stop() { # DIR SIGNAL
  local dir=$1 signal=$2 pid i epmd
  if native_alive "$dir"; then
    pid=$(cat "$dir/pid")
    kill "-$signal" -- "-$pid" 2>/dev/null || true
    for ((i = 0; i < 300; i++)); do
      kill -0 -- "-$pid" 2>/dev/null || break
      sleep 0.1
    done
    kill -KILL -- "-$pid" 2>/dev/null || true
  fi
  rm -f "$dir/pid"
  # A killed node keeps its epmd: it is the one that will be started again. epmd refuses to end while it still knows a
  # node, which it forgets a moment after the node's end.
  if [[ $signal = TERM && -s $dir/ports ]]; then
    read -r _ epmd _ <"$dir/ports"
    for ((i = 0; i < 50; i++)); do
      listening "$epmd" || break
      PATH=$PATH:/usr/lib/erlang/bin ERL_EPMD_PORT=$epmd epmd -kill >/dev/null 2>&1 || sleep 0.1
    done
  fi
}

# --- commands -------------------------------------------------------------------------------------------------------

alive() {
  if [[ -s $1/container ]]; then
    [[ $(docker inspect -f '{{.State.Running}}' "$(cat "$1/container")" 2>/dev/null) = true ]]
  else
    native_alive "$1"
  fi
}

wait_ready() { # DIR PORT; prints the version
  local dir=$1 port=$2 end=$((SECONDS + ${BROKER_START_TIMEOUT:-120}))
  while ((SECONDS < end)); do
    greeting "$port" && return
    alive "$dir" || break
    sleep 0.2
  done
  if [[ -s $dir/container ]]; then docker logs --tail 30 "$(cat "$dir/container")" >&2 || true; fi
  tail -n 30 "$dir/out" >&2 2>/dev/null || true
  stop "$dir" KILL
  die "the broker in $dir did not become ready on port $port"
}

start() { # DIR PORT
  local dir port source version
  mkdir -p "$1"
  dir=$(cd "$1" && pwd)
  port=$2
  if [[ $port = 0 && -s $dir/port ]]; then port=$(cat "$dir/port"); fi
  if [[ -s $dir/env ]] && alive "$dir" && greeting "$(cat "$dir/port")" >/dev/null; then
    cat "$dir/env"
    return
  fi
  if [[ $port = 0 ]]; then
    port=$(free_port)
  elif listening "$port"; then
    die "port $port is taken"
  fi
  if [[ -s $dir/source ]]; then source=$(cat "$dir/source"); else source=$(source_of); fi
  echo "$source" >"$dir/source"
  echo "$port" >"$dir/port"
  mkdir -p "$RESERVED"
  if [[ $source = docker ]]; then docker_start "$dir" "$port"; else native_start "$dir" "$port"; fi
  version=$(wait_ready "$dir" "$port")
  cat >"$dir/env" <<END
export AMQP_URL=amqp://guest:guest@127.0.0.1:$port/
export BROKER_CTL=$(printf %q "$dir/rabbitmqctl")
export BROKER_VERSION=$version
export BROKER_DIR=$(printf %q "$dir")
END
  cat "$dir/env"
}

stop() { # DIR TERM|KILL
  local dir=$1 signal=$2
  if [[ -s $dir/container ]]; then
    docker kill -s "$signal" "$(cat "$dir/container")" >/dev/null 2>&1 || true
    docker wait "$(cat "$dir/container")" >/dev/null 2>&1 || true
  else
    native_stop "$dir" "$signal"
  fi
}

remove() { # DIR
  local dir=$1 p
  [[ -e $dir/source ]] || die "$dir holds no broker of this script"
  stop "$dir" TERM
  if [[ -s $dir/container ]]; then docker rm -f -v "$(cat "$dir/container")" >/dev/null 2>&1 || true; fi
  cat "$dir/port" "$dir/ports" 2>/dev/null | tr " " "\n" | while read -r p; do rm -f "$RESERVED/$p"; done || true
  rm -rf "$dir"
}

run() { # PORT CMD...
  local port=$1
  shift
  DATA=$(mktemp -d "${TMPDIR:-/tmp}/sidecar-broker.XXXXXX")
  trap 'if [[ -e $DATA/source ]]; then remove "$DATA"; else rm -rf "$DATA"; fi' EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM
  start "$DATA" "$port" >/dev/null
  # shellcheck source=/dev/null
  . "$DATA/env"
  local rc=0
  "$@" || rc=$?
  exit "$rc"
}

case ${1:-}:$# in
  start:3) start "$2" "$3" ;;
  stop:2) stop "$2" TERM ;;
  kill:2) stop "$2" KILL ;;
  rm:2) remove "$2" ;;
  ctl:[3-9] | ctl:[1-9][0-9]*) dir=$2 && shift 2 && exec "$dir/rabbitmqctl" "$@" ;;
  run:[3-9] | run:[1-9][0-9]*) shift && run "$@" ;;
  -h:1 | --help:1 | help:1) usage ;;
  *) usage >&2; exit 64 ;;
esac
