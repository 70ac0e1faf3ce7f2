# Completion of sidecar for bash: source <(sidecar completion bash)
_sidecar() {
  local line=${COMP_LINE:0:COMP_POINT} word=${COMP_WORDS[COMP_CWORD]#=} name words
  read -ra words <<< "$line" # not COMP_WORDS, which are split at =
  if [[ $line == *[[:space:]] ]]; then words+=(''); fi
  COMPREPLY=()
  while IFS=$'\t' read -r name _; do
    case $name in
      :0)
        compopt -o filenames 2>/dev/null
        mapfile -t COMPREPLY < <(compgen -f -- "$word")
        ;;
      :*) ;;
      "$word"*) COMPREPLY+=("$name") ;;
    esac
  done < <("$1" __complete "${words[@]:1}" 2>/dev/null)
}
complete -F _sidecar sidecar
