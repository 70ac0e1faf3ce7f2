#!/usr/bin/env bash
# links.sh: every relative link in the Markdown files leads to a file of this repository, and to a heading in it if it names one.
# Those under scripts/gendoc are pieces that generated pages are made of, with links as seen from there.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# anchors FILE: the anchors of its headings, as code hosts derive them.
anchors() {
  LC_ALL=C.UTF-8 sed -E '/^```/,/^```/d; /^#+ /!d; s/^#+ //; s/\[([^]]*)\]\([^)]*\)/\1/g; s/[^[:alnum:] _-]//g; s/ /-/g' "$1" |
    tr '[:upper:]' '[:lower:]'
}

broken=0
while IFS=: read -r file line link; do
  target=${link#*](}
  target=${target%%)*}
  anchor=
  case $target in
    *://* | mailto:*) continue ;;
    *'#'*) anchor=${target#*#} ;;
  esac
  target=${target%%#*}
  path=$(dirname "$file")/$target
  [ -n "$target" ] || path=$file
  if ! [ -e "$path" ]; then
    echo "$file:$line: no such file: $target" >&2
    broken=1
  elif [ -n "$anchor" ] && [[ $path == *.md ]] && ! anchors "$path" | grep -xF -e "$anchor" >/dev/null; then
    echo "$file:$line: no such heading: $target#$anchor" >&2
    broken=1
  fi
done < <(git ls-files -co --exclude-standard '*.md' ':!scripts/gendoc' | xargs grep -noE '\]\([^)]+\)' -H -- || true)
exit "$broken"
