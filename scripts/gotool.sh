#!/usr/bin/env bash
# gotool.sh PACKAGE@VERSION: prints the path of the tool's binary, building it into .cache/bin the first time.
# Tools stay out of go.mod so that their dependencies never decide the versions the product is built with.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

package=${1%@*} version=${1##*@}
# The program of …/tool/v2 is called tool.
if [[ ${package##*/} =~ ^v[0-9]+$ ]]; then package=${package%/*}; fi
dir=$PWD/.cache/bin/$version-$(go env GOVERSION)
binary=$dir/${package##*/}
if [ ! -x "$binary" ]; then
  echo "building ${package##*/} $version (once)" >&2
  # GOFLAGS of the caller (-mod, -race, …) are meant for the product, not for the tool.
  GOFLAGS='' GOBIN=$dir go install "$1" >&2
fi
echo "$binary"
