#!/usr/bin/env bash
# need.sh COMMAND PACKAGE...: makes sure COMMAND exists, installing the Debian packages when it does not. A package that
# brings a service (prometheus) does not start it. COMMAND may be python3:MODULE, a module that Debian's Python can import,
# php:EXTENSION, ruby:LIBRARY or the path of a file.
# Exit 1 with one line of advice when it cannot: no apt, no root and no password-less sudo, or the install failed.
set -euo pipefail

cmd=$1
shift
is_there() {
  case $cmd in
    python3:*) /usr/bin/python3 -c "import ${cmd#*:}" 2>/dev/null ;;
    /*) [ -e "$cmd" ] ;;
    php:*) php -m 2>/dev/null | grep -x "${cmd#*:}" >/dev/null ;;
    ruby:*) ruby -r"${cmd#*:}" -e 1 2>/dev/null ;;
    *) command -v "$cmd" >/dev/null ;;
  esac
}
is_there && exit 0

as_root=()
if [ "$(id -u)" != 0 ]; then
  as_root=(sudo -n)
  sudo -n true 2>/dev/null || { echo "$cmd is missing and installing it needs root: apt-get install $*" >&2; exit 1; }
fi
command -v apt-get >/dev/null || { echo "$cmd is missing and there is no apt-get: install $* by hand" >&2; exit 1; }

log=$(mktemp)
trap 'rm -f "$log"' EXIT
echo "installing $* (for $cmd)" >&2
# The package lists of a fresh image are empty, those of an old machine name files that are gone: refresh, then install.
# invoke-rc.d asks policy-rc.d whether a service may start; where there is one already it decides. One installation at a time,
# also with broker.sh, which does the same: none may take the policy away from another.
# shellcheck disable=SC2016 # the inner script expands its own variables
if ! "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive flock /tmp/.sidecar-broker-apt.lock bash -euc '
  policy=/usr/sbin/policy-rc.d
  if ! [ -e "$policy" ]; then
    trap "rm -f $policy" EXIT
    printf "#!/bin/sh\nexit 101\n" >"$policy"
    chmod +x "$policy"
  fi
  apt-get -q -y -o DPkg::Lock::Timeout=300 update
  apt-get -q -y -o DPkg::Lock::Timeout=300 install --no-install-recommends "$@"
' install "$@" >"$log" 2>&1 </dev/null; then
  tail -n 20 "$log" >&2
  echo "$cmd is missing and installing $* failed" >&2
  exit 1
fi
is_there || { echo "$cmd is still missing after installing $*" >&2; exit 1; }
