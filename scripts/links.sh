#!/usr/bin/env bash
# links.sh: every relative link in the Markdown files leads to a file of this repository. Those under scripts/gendoc are
# pieces that generated pages are made of, with links as seen from there.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

broken=0
while IFS=: read -r file line link; do
  target=${link#*](}
  target=${target%%)*}
  target=${target%%#*}
  case $target in '' | *://* | mailto:*) continue ;; esac
  if ! [ -e "$(dirname "$file")/$target" ]; then
    echo "$file:$line: no such file: $target" >&2
    broken=1
  fi
done < <(git ls-files -co --exclude-standard '*.md' ':!scripts/gendoc' | xargs grep -noE '\]\([^)]+\)' -H -- || true)
exit "$broken"
