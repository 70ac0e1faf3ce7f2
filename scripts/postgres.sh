#!/usr/bin/env bash
# postgres.sh: a private PostgreSQL on the loopback interface, for tests and benchmarks.
#
#   postgres.sh run PORT CMD [ARG...]   boot, run CMD, stop, remove all data; exits with CMD's status
#   postgres.sh start DIR PORT          boot and leave running; prints the export lines to eval
#   postgres.sh stop DIR                end its sessions and stop, keep the data (start DIR PORT boots the same server again)
#   postgres.sh immediate DIR           stop without a checkpoint (SIGQUIT): the next start recovers
#   postgres.sh kill DIR                every process at once without warning (SIGKILL)
#   postgres.sh freeze DIR, thaw DIR    suspend (SIGSTOP) and resume every process of it
#   postgres.sh rm DIR                  stop and remove DIR
#   postgres.sh psql DIR ARG...         psql for that server, as its superuser
#   postgres.sh get                     only installs what a start would install, for a place without a network
#
# PORT 0 chooses a free port. CMD, and a shell that evals the lines of start, sees
#   POSTGRES_DSN      postgres://postgres@127.0.0.1:PORT/postgres?sslmode=disable
#   POSTGRES_VERSION  what the server itself says, e.g. 15.14
#   POSTGRES_DIR      DIR
#   POSTGRES_SCRIPT   this script
#
# The newest installed server is taken; where there is none, the distribution's package postgresql (apt-get, as root or
# through sudo -n). The cluster that Debian's package makes for itself on port 5432 is not started and not touched.
# PostgreSQL refuses to run as root: then it runs as the user postgres, to whom DIR is given. He has to be able to reach it.
#   POSTGRES_FSYNC=off      do not wait for the disk: faster, and safe for whatever kills processes. Only a machine that
#                           crashes loses data then
#   POSTGRES_EXTRA_CONF     more lines for postgresql.conf, read at every start
#   POSTGRES_START_TIMEOUT  seconds to wait for the server, recovery included, default 120
#   TEST_POSTGRES_BIN       directory of postgres, initdb and psql, to force one
set -euo pipefail
shopt -s inherit_errexit

HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

say() { printf 'postgres.sh: %s\n' "$*" >&2; }
die() { say "$@"; exit 1; }
usage() { sed -n '2,/^set -euo/{/^set -euo/d;s/^# \{0,1\}//;p;}' "$0"; }

listening() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

# bin_dir prints where the programs of the newest server are. Those in /usr/bin are Debian's wrappers around its own clusters.
bin_dir() {
  local dir found=
  if [[ -n ${TEST_POSTGRES_BIN:-} ]]; then
    [[ -x $TEST_POSTGRES_BIN/initdb ]] || die "TEST_POSTGRES_BIN=$TEST_POSTGRES_BIN holds no initdb"
    echo "$TEST_POSTGRES_BIN"
    return
  fi
  while IFS= read -r dir; do
    if [[ -x $dir/postgres && -x $dir/initdb && -x $dir/psql ]]; then found=$dir; fi
  done < <(compgen -G '/usr/lib/postgresql/*/bin' | sort -V)
  if [[ -z $found ]] && found=$(command -v initdb); then found=$(dirname "$(readlink -f "$found")"); fi
  [[ -n $found ]] && echo "$found"
}

# get installs the package where there is no server. need.sh keeps it from starting one.
get() {
  bin_dir >/dev/null && return
  "$HERE/need.sh" pg_ctlcluster postgresql
  bin_dir >/dev/null || die "no PostgreSQL server is installed: apt-get install postgresql"
}

# as_server runs a command as the user that the server runs as, in a clean environment. It keeps the process's number.
as_server() {
  local become=()
  if [[ $(id -u) = 0 ]]; then become=(setpriv --reuid=postgres --regid=postgres --clear-groups --); fi
  exec env -i PATH=/usr/local/bin:/usr/bin:/bin LANG=C.UTF-8 "${become[@]}" "$@"
}

# make_data makes DIR/data, under its name only when it is complete.
make_data() { # DIR BIN
  local dir=$1 bin=$2
  if [[ $(id -u) = 0 ]]; then
    id postgres >/dev/null 2>&1 || die "there is no user postgres, and PostgreSQL refuses to run as root: useradd -r postgres"
    chown postgres: "$dir"
    (as_server test -w "$dir") || die "the user postgres cannot reach $dir: choose a place that all users may enter"
  fi
  rm -rf "$dir/data.tmp"
  (as_server "$bin/initdb" --no-sync --auth=trust --username=postgres --encoding=UTF8 --locale=C.UTF-8 "$dir/data.tmp") \
    >"$dir/out" 2>&1 </dev/null || {
    tail -n 20 "$dir/out" >&2
    die "initdb failed in $dir"
  }
  echo "include_if_exists = '../extra.conf'" >>"$dir/data.tmp/postgresql.conf"
  mv -T "$dir/data.tmp" "$dir/data"
}

# boot starts the server without waiting for it.
boot() { # DIR PORT BIN
  local dir=$1 port=$2 bin=$3 former
  # A first process that was killed and that its parent has not waited for yet passes for a running server.
  if read -r former 2>/dev/null <"$dir/data/postmaster.pid" && dead "$former"; then rm -f "$dir/data/postmaster.pid"; fi
  {
    echo "listen_addresses = '127.0.0.1'"
    # A socket in the usual directory could be taken for that of the machine's own server.
    echo "unix_socket_directories = ''"
    echo "max_connections = 400" # tests that run side by side on a busy machine have more than the usual 100
    if [[ ${POSTGRES_FSYNC:-on} = off ]]; then printf '%s = off\n' fsync full_page_writes; fi
    printf '%s\n' "${POSTGRES_EXTRA_CONF:-}"
  } >"$dir/extra.conf"
  : >"$dir/out" # or what the last one said would be taken for what this one says
  (as_server "$bin/postgres" -D "$dir/data" -p "$port") >>"$dir/out" 2>&1 </dev/null &
  echo $! >"$dir/pid"
  [[ ! -f ${CPU_SERVERS:-} ]] || echo "database $!" >>"$CPU_SERVERS" # scripts/cpu.sh
  disown
}

# dead PID: there is no such process, or only what its parent has not asked for yet.
dead() {
  local stat
  stat=$(cat "/proc/$1/stat" 2>/dev/null) || return 0
  [[ $stat == *') Z '* ]]
}

# gone PID...: all of them are dead.
gone() {
  local pid
  for pid in "$@"; do dead "$pid" || return 1; done
}

# alive DIR: the recorded process is still there and still that server; after a reboot the number may be another's. Before
# it becomes the server it is a copy of this script, then env and setpriv.
alive() {
  local pid args
  pid=$(cat "$1/pid" 2>/dev/null) || return 1
  dead "$pid" && return 1
  args=$(tr '\0' ' ' 2>/dev/null <"/proc/$pid/cmdline") || return 1
  [[ -z $args || $args == *"$1/data"* || $args == *postgres.sh* ]]
}

# members DIR prints the processes of the server below its first: each is a session and a process group of its own.
members() {
  local first file line parent pid
  first=$(cat "$1/pid")
  for file in /proc/[0-9]*/stat; do
    { read -r line <"$file"; } 2>/dev/null || continue
    # PID (NAME) STATE PARENT …
    read -r _ parent _ <<<"${line##*) }"
    if [[ $parent = "$first" ]]; then
      pid=${file#/proc/}
      echo "${pid%/stat}"
    fi
  done
}

# signal_all sends a signal to each process of the server. The first is stopped meanwhile, so that it neither starts another
# nor answers the death of one.
signal_all() { # DIR SIGNAL
  local pid member
  pid=$(cat "$1/pid")
  kill -STOP "$pid" 2>/dev/null || true
  MEMBERS=$(members "$1")
  for member in $MEMBERS; do kill "-$2" "$member" 2>/dev/null || true; done
  kill "-$2" "$pid" 2>/dev/null || true
}

stop() { # DIR INT|QUIT|KILL
  local dir=$1 signal=$2 pid i
  if alive "$dir"; then
    pid=$(cat "$dir/pid")
    if [[ $signal = KILL ]]; then
      signal_all "$dir" KILL
    else
      signal_all "$dir" CONT
      kill "-$signal" "$pid" 2>/dev/null || true
    fi
    # What was killed may live on for a moment, and holds the memory that all of them share: no other could start.
    for ((i = 0; i < 1500; i++)); do
      gone "$pid" $MEMBERS && break
      sleep 0.02
    done
    dead "$pid" || signal_all "$dir" KILL
  fi
  rm -f "$dir/pid"
}

freeze() { # DIR STOP|CONT
  alive "$1" || die "no server runs in $1"
  signal_all "$1" "$2"
}

ask() { # PORT ARG...; psql as the superuser, untouched by the caller's environment and files
  local port=$1 bin
  shift
  bin=$(bin_dir)
  env -i "PATH=$PATH" LANG=C.UTF-8 PGCONNECT_TIMEOUT=10 "$bin/psql" -X "postgres://postgres@127.0.0.1:$port/postgres?sslmode=disable" "$@"
}

# wait_ready prints the version. It returns 2 when the port was taken by another process.
wait_ready() { # DIR PORT
  local dir=$1 port=$2 end=$((SECONDS + ${POSTGRES_START_TIMEOUT:-120}))
  while ((SECONDS < end)); do
    # Only its own word for it: another server may answer on the port.
    if grep -q 'database system is ready to accept connections' "$dir/out" 2>/dev/null && alive "$dir"; then
      ask "$port" -Atc "SELECT split_part(current_setting('server_version'), ' ', 1)" && return
    fi
    alive "$dir" || break
    sleep 0.05
  done
  if grep -q 'Address already in use' "$dir/out"; then return 2; fi
  tail -n 30 "$dir/out" >&2
  stop "$dir" KILL
  return 1
}

start() { # DIR PORT
  local dir port bin version i rc wanted=$2
  mkdir -p "$1"
  dir=$(cd "$1" && pwd)
  if [[ -s $dir/env ]] && alive "$dir"; then
    cat "$dir/env"
    return
  fi
  get
  # What initdb and the server are started in must exist for their user.
  cd /
  if [[ -s $dir/bin ]]; then bin=$(cat "$dir/bin"); else bin=$(bin_dir); fi
  # Data of one major version cannot be read by another.
  echo "$bin" >"$dir/bin"
  [[ -e $dir/data ]] || make_data "$dir" "$bin"
  if [[ $wanted = 0 && -s $dir/port ]]; then wanted=$(cat "$dir/port"); fi
  for ((i = 0; i < 5; i++)); do
    port=$wanted
    if [[ $port = 0 ]]; then port=$("$HERE/broker.sh" port); fi
    listening "$port" && die "port $port is taken"
    boot "$dir" "$port" "$bin"
    rc=0
    version=$(wait_ready "$dir" "$port") || rc=$?
    # Between the choice of a free port and its use another process may have taken it.
    [[ $rc = 2 && $wanted = 0 ]] || break
  done
  [[ $rc = 0 ]] || die "the server in $dir did not become ready on port $port"
  echo "$port" >"$dir/port"
  cat >"$dir/env" <<END
export POSTGRES_DSN='postgres://postgres@127.0.0.1:$port/postgres?sslmode=disable'
export POSTGRES_VERSION=$version
export POSTGRES_DIR=$(printf %q "$dir")
export POSTGRES_SCRIPT=$(printf %q "$HERE/postgres.sh")
END
  cat "$dir/env"
}

# of prints the absolute path of a directory of this script.
of() { # DIR
  [[ -e $1/bin ]] || die "$1 holds no server of this script"
  (cd "$1" && pwd)
}

remove() { # DIR
  stop "$1" QUIT
  rm -rf "$1"
}

run() { # PORT CMD...
  local port=$1
  shift
  DATA=$(mktemp -d "${TMPDIR:-/tmp}/sidecar-postgres.XXXXXX")
  # A second Ctrl-C must not end this.
  trap 'trap "" INT TERM; if [[ -e $DATA/bin ]]; then remove "$DATA"; else rm -rf "$DATA"; fi' EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM
  # In a shell of its own, which does not change the directory of this one.
  (start "$DATA" "$port") >/dev/null
  # shellcheck source=/dev/null
  . "$DATA/env"
  local rc=0
  "$@" || rc=$?
  exit "$rc"
}

case ${1:-}:$# in
  start:3) start "$2" "$3" ;;
  stop:2) dir=$(of "$2") && stop "$dir" INT ;;
  immediate:2) dir=$(of "$2") && stop "$dir" QUIT ;;
  kill:2) dir=$(of "$2") && stop "$dir" KILL ;;
  freeze:2) dir=$(of "$2") && freeze "$dir" STOP ;;
  thaw:2) dir=$(of "$2") && freeze "$dir" CONT ;;
  rm:2) dir=$(of "$2") && remove "$dir" ;;
  psql:[2-9] | psql:[1-9][0-9]*) dir=$(of "$2") && shift 2 && ask "$(cat "$dir/port")" "$@" ;;
  run:[3-9] | run:[1-9][0-9]*) shift && run "$@" ;;
  get:1) get ;;
  -h:1 | --help:1 | help:1) usage ;;
  *) usage >&2; exit 64 ;;
esac
