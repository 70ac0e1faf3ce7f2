#compdef sidecar
# Completion of sidecar for zsh: source <(sidecar completion zsh), or this file as _sidecar in a directory of $fpath.
_sidecar() {
  local line
  local -a found
  compset -P '--*='
  for line in "${(@f)$("$words[1]" __complete "${(@)words[2,CURRENT]}" 2>/dev/null)}"; do
    case $line in
      :0) _files ;;
      :* | '') ;;
      *) found+=("${${${line//:/\\:}//\`/}/$'\t'/:}") ;;
    esac
  done
  (( $#found )) && _describe sidecar found
}
if [[ $funcstack[1] == _sidecar ]]; then
  _sidecar
else
  compdef _sidecar sidecar
fi
