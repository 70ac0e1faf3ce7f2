# Completion of sidecar for bash: source <(sidecar completion bash)
_sidecar() {
  local word=${COMP_WORDS[COMP_CWORD]} name
  COMPREPLY=()
  while IFS=$'\t' read -r name _; do
    if [ "$name" = :files ]; then
      compopt -o filenames 2>/dev/null
      mapfile -t COMPREPLY < <(compgen -f -- "$word")
    else
      COMPREPLY+=("$name")
    fi
  done < <("$1" completion candidates -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
}
complete -F _sidecar sidecar
