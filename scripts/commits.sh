#!/usr/bin/env bash
# commits.sh [RANGE]: each commit says what it does in an imperative subject of at most 72 characters, "package: do this", and
# why in its body. Without a RANGE it checks the commits since this script was added: those before it had other rules.
set -euo pipefail

range=${1:-}
if [ -z "$range" ]; then
  cd "$(dirname "${BASH_SOURCE[0]}")/.."
  first=$(git log --diff-filter=A --format=%H -- scripts/commits.sh | tail -n 1)
  [ -n "$first" ] || exit 0 # not committed yet
  range=$first..HEAD
fi

bad=0
refuse() {
  echo "commit ${1:0:12}: $2: $3" >&2
  bad=1
}
while read -r hash; do
  subject=$(git show -s --format=%s "$hash")
  body=$(git show -s --format=%b "$hash" | grep -vE '^(Signed-off-by|Co-authored-by):' || true)
  verb=${subject#*: }
  verb=${verb%% *}
  [ ${#subject} -le 72 ] || refuse "$hash" "the subject has ${#subject} characters, at most 72" "$subject"
  [[ $subject =~ ^[a-z0-9][a-z0-9_./,\ -]*:\ [a-z] ]] || refuse "$hash" 'the subject is not "package: do this"' "$subject"
  [[ $subject != *. ]] || refuse "$hash" "the subject ends with a full stop" "$subject"
  case $verb in
    pass | process | address | bring | embed | need | feed | seed | ping | string) ;;
    *ed | *ing | *[!s]s) refuse "$hash" "\"$verb\" is not imperative" "$subject" ;;
  esac
  [[ $body =~ [^[:space:]] ]] || refuse "$hash" "no body says why" "$subject"
done < <(git rev-list --no-merges "$range")
exit "$bad"
