#compdef sidecar
# Completion of sidecar for zsh: source <(sidecar completion zsh), or this file as _sidecar in a directory of $fpath.
_sidecar() {
  local line
  local -a found
  for line in "${(@f)$("$words[1]" completion candidates -- "${(@)words[2,CURRENT]}" 2>/dev/null)}"; do
    if [[ $line == :files ]]; then
      _files
    elif [[ -n $line ]]; then
      found+=("${${line//:/\\:}/$'\t'/:}")
    fi
  done
  (( $#found )) && _describe sidecar found
}
if [[ $funcstack[1] == _sidecar ]]; then
  _sidecar
else
  compdef _sidecar sidecar
fi
