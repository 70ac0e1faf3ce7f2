#!/usr/bin/env bash
# words.sh [FILE...]: no text that a person reads, and no name of a file, has a word of scripts/words.tsv; the error names a
# better one. Each line of that file is an extended regular expression of whole words, a tab, and what to say instead.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

if [ $# -gt 0 ]; then
  files=("$@")
else
  # Reports of storms, golden files and recorded cases are not written by hand.
  mapfile -t files < <(git ls-files -co --exclude-standard '*.go' '*.md' '*.yaml' '*.yml' '*.js' '*.json' '*.sh' '*.tpl' '*.html' \
    ':!docs/chaos' ':!**/testdata/**' ':!LICENSE')
  mapfile -t files < <(ls -d "${files[@]}" 2>/dev/null) # a deleted file may not be committed yet
fi

bad=0
while IFS=$'\t' read -r pattern better; do
  case $pattern in '' | '#'*) continue ;; esac
  if found=$(grep -nHIwE -e "$pattern" -- "${files[@]}"); then
    printf '%s\n' "$found" | sed "s|^|$better: |" >&2
    bad=1
  fi
  # The words of a file's name are separated by -, _, / and dots.
  if found=$(printf '%s\n' "${files[@]//[-_.\/]/ }" | grep -wE -e "$pattern"); then
    printf '%s\n' "$found" | sed "s|^|$better: the file name |" >&2
    bad=1
  fi
done <scripts/words.tsv
exit "$bad"
