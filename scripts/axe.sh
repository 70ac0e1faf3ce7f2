#!/usr/bin/env bash
# axe.sh: prints the path of axe.min.js, the accessibility checker that the tests of the console put into the page. It is
# fetched once, by npm and from wherever npm is configured to look, and checked against the hash below. Nothing of it is
# part of the product or of this repository.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

version=4.14.1
# The integrity that the package's registry publishes for this version: `npm view axe-core@4.14.1 dist.integrity`
integrity=sha512-FHfa+lmNjQZfJz1q8wKqIDwC6DExcHt/pkjNQb09a3NPjCKg2rhu5qb2S4r76ASyFNNtuFooJpZe37OgudVGtQ==

dir=$PWD/.cache/axe-core-$version
if [ ! -e "$dir/axe.min.js" ]; then
  scripts/need.sh npm npm
  scripts/need.sh openssl openssl
  echo "fetching axe-core $version (once)" >&2
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  (cd "$work" && npm pack --silent --ignore-scripts "axe-core@$version" >/dev/null)
  archive=$work/axe-core-$version.tgz
  found=sha512-$(openssl dgst -sha512 -binary "$archive" | base64 -w 0)
  if [ "$found" != "$integrity" ]; then
    echo "axe.sh: axe-core $version is not what it was: $found" >&2
    exit 1
  fi
  tar -xzf "$archive" -C "$work" package/axe.min.js
  mkdir -p "$dir"
  # In one step: two test runs may do this at the same time.
  mv "$work/package/axe.min.js" "$dir/axe.min.js"
fi
echo "$dir/axe.min.js"
