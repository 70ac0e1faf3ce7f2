#!/usr/bin/env bash
# need.sh COMMAND PACKAGE...: makes sure COMMAND exists, installing the Debian packages when it does not.
# Exit 1 with one line of advice when it cannot: no apt, no root and no password-less sudo, or the install failed.
set -euo pipefail

cmd=$1
shift
command -v "$cmd" >/dev/null && exit 0

as_root=()
if [ "$(id -u)" != 0 ]; then
  as_root=(sudo -n)
  sudo -n true 2>/dev/null || { echo "$cmd is missing and installing it needs root: apt-get install $*" >&2; exit 1; }
fi
command -v apt-get >/dev/null || { echo "$cmd is missing and there is no apt-get: install $* by hand" >&2; exit 1; }

log=$(mktemp)
trap 'rm -f "$log"' EXIT
echo "installing $* (for $cmd)" >&2
apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=300)
# The package lists of a fresh image are empty, those of an old machine name files that are gone: refresh, then install.
if ! { "${apt[@]}" update && "${apt[@]}" install --no-install-recommends "$@"; } >"$log" 2>&1 </dev/null; then
  tail -n 20 "$log" >&2
  echo "$cmd is missing and installing $* failed" >&2
  exit 1
fi
command -v "$cmd" >/dev/null || { echo "$cmd is still missing after installing $*" >&2; exit 1; }
