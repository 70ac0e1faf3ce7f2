#!/usr/bin/env bash
# workflows.sh: the GitHub workflows are valid (actionlint), and as closed as they should be: every action is pinned by commit
# and says its version, nothing has a permission that it is not given in its job, no job runs for ever, no step after the
# checkout finds a token in the clone, no pipe hides a failure, nothing that is released was built from a cache.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

"$(scripts/gotool.sh github.com/rhysd/actionlint/cmd/actionlint@v1.7.12)"

failed=0
wrong() { printf 'workflows: %s\n' "$*" >&2; failed=1; }
count() { grep -cE -- "$1" "$2" || true; }

for file in .github/workflows/*.yml .github/actions/*/action.yml; do
  # ./… is this repository itself.
  while read -r line; do
    wrong "$file: not pinned by commit and version: $line"
  done < <(grep -E '^ *(- )?uses:' "$file" | grep -vE 'uses: (\./|[^ @]+@[0-9a-f]{40} # v[0-9]+\.[0-9]+\.[0-9]+$)' || true)
  [ "$(count 'actions/checkout@' "$file")" = "$(count 'persist-credentials: false' "$file")" ] ||
    wrong "$file: a checkout leaves its token in the clone: persist-credentials: false"
done
for file in .github/workflows/*.yml; do
  grep -qxF 'permissions: {}' "$file" || wrong "$file: permissions: {} is missing at the top"
  [ "$(count '^    (runs-on|uses):' "$file")" = "$(count '^    permissions:' "$file")" ] || wrong "$file: a job does not say its permissions"
  [ "$(count '^    runs-on:' "$file")" = "$(count '^    timeout-minutes:' "$file")" ] || wrong "$file: a job without timeout-minutes"
  # It runs what strangers send with the rights of the repository.
  if grep -q 'pull_request_target' "$file"; then wrong "$file: pull_request_target"; fi
  grep -q '^concurrency:' "$file" || wrong "$file: no concurrency"
  # The default shell runs without pipefail.
  if grep -qE '^ .* \| ' "$file" && ! grep -qxF 'defaults: {run: {shell: bash}}' "$file"; then
    wrong "$file: defaults: {run: {shell: bash}} is missing, pipes hide failures"
  fi
done
release=.github/workflows/release.yml
[ "$(count 'actions/go$' "$release")" = "$(count 'cache: false' "$release")" ] || wrong "$release: what is signed is built from a cache"

# Releases are made by the compiler that the image is made with. One that is older than go.mod asks for builds nothing.
want=$(sed -n 's/^go //p' go.mod)
have=$(sed -n 's/^FROM .*golang:\([0-9.]*\).*/\1/p' Dockerfile)
[ "$(printf '%s\n' "$want" "$have" | sort -V | head -n 1)" = "$want" ] || wrong "the Dockerfile has Go $have, go.mod asks for $want"
# A tag of a base can be moved to another image; Dependabot moves digests.
grep '^FROM ' Dockerfile | grep -qvE '@sha256:[0-9a-f]{64}( |$)' && wrong "Dockerfile: a base without a digest"
exit "$failed"
