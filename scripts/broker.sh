#!/usr/bin/env bash
# broker.sh: a private RabbitMQ on the loopback interface, for tests and benchmarks.
#
#   broker.sh run PORT CMD [ARG...]   boot, run CMD, stop, remove all data; exits with CMD's status
#   broker.sh start DIR PORT          boot and leave running; prints the export lines to eval
#   broker.sh stop DIR                stop, keep the data (start DIR PORT boots the same node again)
#   broker.sh kill DIR                the same without warning (SIGKILL)
#   broker.sh freeze DIR, thaw DIR    suspend (SIGSTOP) and resume
#   broker.sh rm DIR                  stop and remove DIR
#   broker.sh ctl DIR ARG...          rabbitmqctl for that node
#   broker.sh get                     only fetches what a start would fetch, for a place without a network
#   broker.sh port                    prints a port that is free and that the system does not hand out
#
# PORT 0 chooses a free port. CMD, and a shell that evals the lines of start, sees
#   AMQP_URL        amqp://guest:guest@127.0.0.1:PORT/
#   BROKER_CTL      path of an executable rabbitmqctl for this node
#   BROKER_VERSION  what the node itself says, e.g. 4.0.5
#   BROKER_DIR      DIR
#   BROKER_SCRIPT   this script
#
# The shovel plugin is enabled wherever the server ships it. A test enables the management plugin when it needs it (brokertest.Management); its HTTP API then listens on the loopback port in DIR/management.
#
# Where RabbitMQ comes from, the first that works: a docker engine, an installed rabbitmq-server, the
# distribution's package (apt-get, as root or through sudo -n). Another version than the machine's own, without docker:
# the package of the Debian release that carries it, in a root directory of its own (debootstrap and chroot, as root).
#   TEST_BROKER_VERSION=3.10|4.0|4.3            that version and no other; unset: whatever there is
#   TEST_BROKER=docker|installed|package|root   force one of them
#   TEST_BROKER_IMAGE                           docker image, default rabbitmq:VERSION, without a version rabbitmq:4
#   TEST_BROKER_CACHE                           where the roots are kept, default ~/.cache/sidecar-brokers; 250 MB
#                                               each, rm -rf is safe while no broker runs
#   TEST_BROKER_MIRROR                          Debian mirror for the roots, default the one of the apt sources
#   BROKER_LISTEN                               address that AMQP clients reach it on, default 127.0.0.1; 0.0.0.0 is
#                                               any. guest can log in from this machine only, but for docker
#   BROKER_EXTRA_CONF                           more lines for rabbitmq.conf
#   BROKER_MQTT, BROKER_STOMP                   ports on 127.0.0.1 for these protocols; unset: their plugins are not enabled
#   BROKER_ERL_ARGS                 more arguments of the Erlang machine, without quotes
#   BROKER_DATA=memory                          run keeps the data in /dev/shm, if 2 GiB are free there: writes are synced
#                                               for nothing, which halves what the node computes
#   BROKER_START_TIMEOUT                        seconds to wait for the node, default 120
set -euo pipefail
shopt -s inherit_errexit

HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
WANTED=${TEST_BROKER_VERSION:-}
IMAGE=${TEST_BROKER_IMAGE:-rabbitmq:${WANTED:-4}}
CACHE=${TEST_BROKER_CACHE:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/sidecar-brokers}
[[ $CACHE = /* ]] || CACHE=$PWD/$CACHE
LISTEN=${BROKER_LISTEN:-127.0.0.1}
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

# is_wanted VERSION: 4.0.5 and 4.0.5-6 are the wanted 4.0, 4.01 is not. Nothing wanted, everything is.
is_wanted() { [[ -z $WANTED || $1 = "$WANTED" || $1 == "$WANTED"[.~+-]* ]]; }

# installed_wanted: there is a server, and it is the wanted one. The place of its files says the version in milliseconds,
# rabbitmqctl takes a second.
installed_wanted() {
  local dir path
  dir=$(bin_dir) || return 1
  [[ -n $WANTED ]] || return 0
  path=$(readlink -f "$dir/rabbitmq-server")
  if [[ $path == */rabbitmq_server-*/* ]]; then
    path=${path#*/rabbitmq_server-}
    is_wanted "${path%%/*}"
  else
    is_wanted "$("$dir/rabbitmqctl" version 2>/dev/null | tail -n 1)"
  fi
}

# packaged_wanted: what apt-get would install is the wanted version.
packaged_wanted() {
  local candidate
  command -v apt-cache >/dev/null || return 1
  [[ -n $WANTED ]] || return 0
  package_lists
  candidate=$(LC_ALL=C apt-cache policy rabbitmq-server | sed -n 's/^ *Candidate: *\([0-9]*:\)\{0,1\}//p')
  is_wanted "$candidate"
}

# package_lists fetches apt's lists where there are none, as in a fresh image.
package_lists() {
  if [[ $(id -u) = 0 && -z $(apt-get indextargets 2>/dev/null) ]]; then
    apt-get -o DPkg::Lock::Timeout=300 update -qq >/dev/null 2>&1 || say "apt-get update fails"
  fi
}

docker_works() { command -v docker >/dev/null && docker info >/dev/null 2>&1; }

have_image() { docker image inspect "$IMAGE" >/dev/null 2>&1 || docker pull -q "$IMAGE" >/dev/null 2>&1; }

# source_of prints docker, installed or root, after getting what that needs.
source_of() {
  local forced=${TEST_BROKER:-}
  case $forced in
    docker)
      docker_works || die "TEST_BROKER=docker, but docker info fails"
      have_image || die "docker cannot get the image $IMAGE"
      echo docker
      return ;;
    installed)
      bin_dir >/dev/null || die "TEST_BROKER=installed, but there is no rabbitmq-server"
      installed_wanted || die "TEST_BROKER=installed, but the installed rabbitmq-server is not $WANTED"
      echo installed
      return ;;
    root)
      [[ -n $WANTED ]] || die "TEST_BROKER=root: say which version in TEST_BROKER_VERSION"
      build_root
      echo root
      return ;;
    package | '') ;;
    *) die "TEST_BROKER=$forced: use docker, installed, package or root" ;;
  esac
  if [[ -z $forced ]] && docker_works; then
    if have_image; then
      echo docker
      return
    fi
    say "docker cannot get the image $IMAGE; looking for an installed rabbitmq-server"
  fi
  # An installed server of another version stays what it is: upgrading the machine is not this script's business.
  if installed_wanted; then
    echo installed
  elif [[ -z $WANTED ]] || { ! bin_dir >/dev/null && packaged_wanted; }; then
    install_package
    echo installed
  else
    [[ -z $forced ]] || die "TEST_BROKER=package, but this machine's package is not RabbitMQ $WANTED"
    build_root
    echo root
  fi
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

# more_plugins prints ,PLUGIN for each protocol that has a port.
more_plugins() { printf '%s' "${BROKER_MQTT:+,rabbitmq_mqtt}${BROKER_STOMP:+,rabbitmq_stomp}"; }

write_conf() { # ADDRESS: of the ports of MQTT and STOMP, LINE of the source, then what is common, then the caller's
  echo "$2"
  if [[ -n ${BROKER_MQTT:-} ]]; then echo "mqtt.listeners.tcp.default = $1$BROKER_MQTT"; fi
  if [[ -n ${BROKER_STOMP:-} ]]; then echo "stomp.listeners.tcp.default = $1$BROKER_STOMP"; fi
  echo "disk_free_limit.absolute = 50MB"
  echo "handshake_timeout = 60000" # ms; the default of 10 s is too short on a busy machine: the client reports a wrong password
  printf '%s\n' "${BROKER_EXTRA_CONF:-}"
}

# --- a docker engine ------------------------------------------------------------------------------------------------

docker_start() { # DIR PORT
  local dir=$1 port=$2 name plugins p more=()
  if [[ -s $dir/container ]]; then
    name=$(cat "$dir/container")
    docker start "$name" >/dev/null
    return
  fi
  name=sidecar-broker-$port-$$
  # The image listens on all interfaces of the container; only the published port decides who can reach it.
  write_conf "" "listeners.tcp.default = 5672" >"$dir/90-extra.conf"
  for p in ${BROKER_MQTT:-} ${BROKER_STOMP:-}; do more+=(-p "127.0.0.1:$p:$p"); done
  docker create --name "$name" -e "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS=${BROKER_ERL_ARGS:-}" -p "$LISTEN:$port:5672" "${more[@]}" \
    -p "127.0.0.1:$(cat "$dir/management"):15672" "$IMAGE" >/dev/null
  echo "$name" >"$dir/container"
  docker cp "$dir/90-extra.conf" "$name:/etc/rabbitmq/conf.d/90-extra.conf" >/dev/null 2>&1
  docker cp "$name:/etc/rabbitmq/enabled_plugins" "$dir/image_plugins" >/dev/null 2>&1 || echo "[]." >"$dir/image_plugins"
  plugins=$(tr -d '[]. \n' <"$dir/image_plugins")
  echo "[${plugins:+$plugins,}rabbitmq_shovel$(more_plugins)]." >"$dir/enabled_plugins"
  chmod 666 "$dir/enabled_plugins" # the server's user enables more
  docker cp "$dir/enabled_plugins" "$name:/etc/rabbitmq/enabled_plugins" >/dev/null 2>&1
  docker start "$name" >/dev/null
  printf '#!/usr/bin/env bash\nexec docker exec -i %q rabbitmqctl "$@"\n' "$name" >"$dir/rabbitmqctl"
  chmod +x "$dir/rabbitmqctl"
}

# --- a root of its own ----------------------------------------------------------------------------------------------

# suite_of prints the Debian release that carries the wanted version.
suite_of() {
  case $WANTED in
    3.10) echo bookworm ;;
    4.0) echo trixie ;;
    4.3) echo sid ;;
    *) die "no Debian release is known to carry RabbitMQ $WANTED, only 3.10, 4.0 and 4.3: use one of them, or docker" ;;
  esac
}

# mirror prints the Debian mirror that the machine's own apt sources use.
mirror() {
  if [[ -n ${TEST_BROKER_MIRROR:-} ]]; then
    echo "$TEST_BROKER_MIRROR"
    return
  fi
  package_lists
  # shellcheck disable=SC2016 # the fields are apt's
  apt-get indextargets --format '$(ORIGIN) $(LABEL) $(REPO_URI)' |
    awk '$1 == "Debian" && $2 == "Debian" && $3 ~ /^https?:/ && !found++ { print $3 }'
}

# build_root makes the wanted version's root unless it is there. It appears under its name only when it is complete; of
# two that want it the second waits. All mounts are in namespaces that end with their processes, so that neither a killed
# build nor a killed broker leaves one behind.
build_root() (
  suite=$(suite_of)
  root=$CACHE/$WANTED
  hint="use docker, or set TEST_BROKER_VERSION to the version of an installed rabbitmq-server"
  [[ $(id -u) = 0 ]] || die "RabbitMQ $WANTED without docker is set up and run in a chroot, which needs root: $hint"
  command -v apt-get >/dev/null || die "RabbitMQ $WANTED without docker needs a Debian-like machine: $hint"
  unshare --mount true 2>/dev/null || die "RabbitMQ $WANTED without docker needs a root that may mount: $hint"
  [[ ! -e $root ]] || exit 0

  mkdir -p "$CACHE"
  # debootstrap and all it runs inherit the lock: it is free when the last of them has ended.
  exec 9>"$root.lock"
  flock -n 9 || { say "waiting for the root of RabbitMQ $WANTED that another process builds"; flock 9; }
  [[ ! -e $root ]] || exit 0
  "$HERE/need.sh" debootstrap debootstrap || die "$hint"
  from=$(mirror)
  [[ -n $from ]] || die "the apt sources name no Debian mirror: set TEST_BROKER_MIRROR, or use docker"
  if [[ -z ${http_proxy:-} ]]; then
    eval "$(apt-config shell http_proxy Acquire::http::Proxy)"
    if [[ -n ${http_proxy:-} ]]; then export http_proxy; fi
  fi
  tmp=$root.tmp
  log=$root.log
  rm -rf "$tmp"
  say "setting up RabbitMQ $WANTED from Debian $suite in $root, once (some minutes; log: $log)"
  unshare --mount --propagation private env DEBIAN_FRONTEND=noninteractive debootstrap --force-check-gpg \
    --variant=minbase --include=rabbitmq-server "$suite" "$tmp" "$from" >"$log" 2>&1 </dev/null || {
    tail -n 20 "$log" >&2
    rm -rf "$tmp"
    die "debootstrap could not set up Debian $suite (log: $log)"
  }
  version=$(dpkg-query --admindir="$tmp/var/lib/dpkg" -W -f '${Version}' rabbitmq-server)
  is_wanted "${version#*:}" || {
    rm -rf "$tmp"
    die "Debian $suite carries RabbitMQ ${version#*:} by now, not $WANTED: use docker"
  }
  # What the namespace of a broker mounts something on.
  mkdir -p "$tmp/proc" "$tmp/srv/broker"
  for f in dev/null dev/zero dev/random dev/urandom etc/hosts; do [[ -e $tmp/$f ]] || : >"$tmp/$f"; done
  rm -rf "$tmp"/var/cache/apt/archives/*.deb "$tmp"/var/lib/apt/lists/*
  mv -T "$tmp" "$root"
)

# --- an installed server, or one in a root --------------------------------------------------------------------------

# write_inside makes DIR/inside, which becomes the command that it is given, where the server lives: nothing of the caller's
# and nothing of /etc may leak into the node. The node's name, and with it its data, hangs on a port that stays the same
# when the node is started again on another AMQP port.
write_inside() { # DIR PORT
  local dir=$1 port=$2 dist epmd ctl home=$1 path=$PATH environment
  [[ -s $dir/ports ]] || echo "$(free_port) $(free_port) $(free_port)" >"$dir/ports"
  read -r dist epmd ctl <"$dir/ports"
  [[ -s $dir/console ]] || free_port >"$dir/console"
  if [[ -s $dir/root ]]; then home=/srv/broker path=/usr/local/bin; fi
  environment=("PATH=$path:/usr/sbin:/usr/bin:/sbin:/bin:/usr/lib/erlang/bin" LANG=C.UTF-8 "HOME=$home"
    "RABBITMQ_NODENAME=sidecar-$dist@localhost" "RABBITMQ_NODE_PORT=$port" "RABBITMQ_NODE_IP_ADDRESS=$LISTEN"
    "RABBITMQ_DIST_PORT=$dist" "ERL_EPMD_PORT=$epmd" ERL_EPMD_ADDRESS=127.0.0.1
    "RABBITMQ_CTL_DIST_PORT_MIN=$ctl" "RABBITMQ_CTL_DIST_PORT_MAX=$((ctl + 50))"
    "RABBITMQ_BASE=$home" "RABBITMQ_MNESIA_BASE=$home/data" "RABBITMQ_LOG_BASE=$home/log"
    "RABBITMQ_ENABLED_PLUGINS_FILE=$home/enabled_plugins" "RABBITMQ_CONFIG_FILE=$home/rabbitmq"
    "RABBITMQ_CONF_ENV_FILE=$home/none" "RABBITMQ_GENERATED_CONFIG_DIR=$home/generated"
    "ERL_CRASH_DUMP=$home/erl_crash.dump"
    "SIDECAR_CONSOLE_PORT=$(cat "$dir/console")"
    # The server's own script splits this at spaces and ignores quotes.
    "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS=-kernel inet_dist_use_interface {127,0,0,1} -eval file:eval(\"$home/console.erl\"). -rabbitmq_management tcp_config [{port,$(cat "$dir/management")},{ip,\"127.0.0.1\"}] ${BROKER_ERL_ARGS:-}")
  {
    echo '#!/usr/bin/env bash'
    # shellcheck disable=SC2016 # of the script that is written
    echo 'PATH=$PATH:/usr/sbin:/usr/bin:/sbin:/bin'
    printf 'environment=(%s)\n' "$(printf '%q ' "${environment[@]}")"
    if [[ -s $dir/root ]]; then
      printf 'export dir=%q root=%q\n' "$dir" "$(cat "$dir/root")"
      # The process keeps its number and its group through all of this.
      cat <<'END'
exec unshare --mount --propagation private bash -euc '
  mount -t proc proc "$root/proc"
  for d in null zero random urandom; do mount --bind "/dev/$d" "$root/dev/$d"; done
  mount --bind /etc/hosts "$root/etc/hosts"
  mount --bind "$dir" "$root/srv/broker"
  exec chroot "$root" env -i "$@"
' inside "${environment[@]}" "$@"
END
    else
      # shellcheck disable=SC2016 # of the script that is written
      echo 'exec env -i "${environment[@]}" "$@"'
    fi
  } >"$dir/inside"
  chmod +x "$dir/inside"
}

# native_plugins BIN: what goes into enabled_plugins, for a server whose scripts are in BIN.
native_plugins() {
  local home shovel=''
  home=$(dirname "$(dirname "$(readlink -f "$1/rabbitmq-server")")")
  if compgen -G "$home/plugins/rabbitmq_shovel-*" >/dev/null; then shovel=rabbitmq_shovel; fi
  echo "[$shovel$(more_plugins)]."
}

native_start() { # DIR PORT
  local dir=$1 port=$2 root='' bin
  if [[ -s $dir/root ]]; then root=$(cat "$dir/root"); fi
  if [[ -n $root ]]; then bin=/usr/lib/rabbitmq/bin; else bin=$(bin_dir); fi
  mkdir -p "$dir/data" "$dir/log" "$dir/generated"
  write_inside "$dir" "$port"
  cp "$HERE/broker-console.erl" "$dir/console.erl"
  [[ -e $dir/enabled_plugins ]] || native_plugins "$root$bin" >"$dir/enabled_plugins"
  if ! [[ -e $dir/.erlang.cookie ]]; then
    (umask 077 && od -An -N16 -tx1 /dev/urandom | tr -d ' \n' >"$dir/.erlang.cookie")
    chmod 400 "$dir/.erlang.cookie"
  fi
  write_conf 127.0.0.1: "loopback_users.guest = true" >"$dir/rabbitmq.conf"
  printf '#!/usr/bin/env bash\nexec %q %q "$@"\n' "$dir/inside" "$bin/rabbitmqctl" >"$dir/rabbitmqctl"
  chmod +x "$dir/rabbitmqctl"
  # Its own process group, so that stop and kill reach the shell script and the Erlang machine below it.
  set -m
  "$dir/inside" "$bin/rabbitmq-server" >"$dir/out" 2>&1 </dev/null &
  set +m
  echo $! >"$dir/pid"
  [[ ! -f ${CPU_SERVERS:-} ]] || echo "broker $!" >>"$CPU_SERVERS" # scripts/cpu.sh
  disown
  local p
  for p in "$port" $(cat "$dir/ports" "$dir/console" "$dir/management"); do echo $! >"$RESERVED/$p"; done
}

# native_alive DIR: the recorded group is still there and still a RabbitMQ; after a reboot the number may be another's.
# For a moment after its start it is a copy of this script, and while one program replaces another it has no arguments.
native_alive() {
  local pid args i
  pid=$(cat "$1/pid" 2>/dev/null) || return 1
  for ((i = 0; i < 5; i++)); do
    kill -0 -- "-$pid" 2>/dev/null || return 1
    if [[ -r /proc/$pid/cmdline ]]; then args=$(tr '\0' ' ' <"/proc/$pid/cmdline"); else args=$(ps -o args= -p "$pid"); fi
    [[ -z $args ]] || break
    sleep 0.02
  done
  [[ $args == *rabbit* || $args == *broker.sh* ]]
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
  # A killed node keeps its epmd: it is the one that will be started again. epmd refuses to end while it still lists a
  # node, which it drops a moment after the node's end.
  if [[ $signal = TERM && -s $dir/ports ]]; then
    read -r _ epmd _ <"$dir/ports"
    for ((i = 0; i < 50; i++)); do
      listening "$epmd" || break
      "$dir/inside" epmd -kill >/dev/null 2>&1 || sleep 0.1
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
  # A first boot that was interrupted leaves tables that no later boot can load.
  if [[ ! -s $dir/env ]]; then rm -rf "$dir/data"; fi
  die "the broker in $dir did not become ready on port $port"
}

start() { # DIR PORT
  local dir port source version
  mkdir -p "$1"
  dir=$(cd "$1" && pwd)
  port=$2
  if [[ $port = 0 && -s $dir/port ]]; then port=$(cat "$dir/port"); fi
  if [[ -s $dir/env ]] && alive "$dir" && greeting "$(cat "$dir/port")" >/dev/null; then
    version=$(sed -n 's/^export BROKER_VERSION=//p' "$dir/env")
    is_wanted "$version" || die "the broker in $dir runs and is RabbitMQ $version, not $WANTED"
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
  if [[ $source = root && ! -s $dir/root ]]; then echo "$CACHE/$WANTED" >"$dir/root"; fi
  echo "$port" >"$dir/port"
  mkdir -p "$RESERVED"
  [[ -s $dir/management ]] || free_port >"$dir/management"
  if [[ $source = docker ]]; then docker_start "$dir" "$port"; else native_start "$dir" "$port"; fi
  version=$(wait_ready "$dir" "$port")
  is_wanted "$version" || {
    stop "$dir" TERM
    die "the broker says that it is RabbitMQ $version, not the wanted $WANTED (from: $source)"
  }
  cat >"$dir/env" <<END
export AMQP_URL=amqp://guest:guest@127.0.0.1:$port/
export BROKER_CTL=$(printf %q "$dir/rabbitmqctl")
export BROKER_VERSION=$version
export BROKER_DIR=$(printf %q "$dir")
export BROKER_SCRIPT=$(printf %q "$HERE/broker.sh")
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

freeze() { # DIR STOP|CONT
  local dir=$1 signal=$2 verb=pause
  if [[ -s $dir/container ]]; then
    if [[ $signal = CONT ]]; then verb=unpause; fi
    docker "$verb" "$(cat "$dir/container")" >/dev/null
  else
    native_alive "$dir" || die "no broker runs in $dir"
    kill "-$signal" -- "-$(cat "$dir/pid")"
  fi
}

# remove also removes the nodes that tests have started beside this one (internal/brokertest).
remove() ( # DIR
  dir=$1
  [[ -e $dir/source ]] || die "$dir holds no broker of this script"
  for beside in own 4.3; do
    if [[ -e $dir/$beside/source ]]; then remove "$dir/$beside"; fi
  done
  stop "$dir" TERM
  if [[ -s $dir/container ]]; then docker rm -f -v "$(cat "$dir/container")" >/dev/null 2>&1 || true; fi
  cat "$dir/port" "$dir/ports" "$dir/console" "$dir/management" 2>/dev/null | tr " " "\n" | while read -r p; do rm -f "$RESERVED/$p"; done || true
  rm -rf "$dir"
)

# in_memory: whether /dev/shm has room for a node and may hold its programs.
in_memory() {
  local free
  free=$(df --output=avail -k /dev/shm 2>/dev/null | tail -n 1) || return 1
  ((free > 2 << 20)) && ! grep -q '^[^ ]* /dev/shm [^ ]* [^ ]*noexec' /proc/mounts
}

run() { # PORT CMD...
  local port=$1 parent=${TMPDIR:-/tmp}
  shift
  if [[ ${BROKER_DATA:-} = memory ]] && in_memory; then parent=/dev/shm; fi
  DATA=$(mktemp -d "$parent/sidecar-broker.XXXXXX")
  # A second Ctrl-C must not end this.
  trap 'trap "" INT TERM; if [[ -e $DATA/source ]]; then remove "$DATA"; else rm -rf "$DATA"; fi' EXIT
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
  freeze:2) freeze "$2" STOP ;;
  thaw:2) freeze "$2" CONT ;;
  rm:2) remove "$2" ;;
  ctl:[3-9] | ctl:[1-9][0-9]*) dir=$2 && shift 2 && exec "$dir/rabbitmqctl" "$@" ;;
  run:[3-9] | run:[1-9][0-9]*) shift && run "$@" ;;
  get:1) source_of >/dev/null ;;
  port:1) mkdir -p "$RESERVED" && free_port ;;
  -h:1 | --help:1 | help:1) usage ;;
  *) usage >&2; exit 64 ;;
esac
