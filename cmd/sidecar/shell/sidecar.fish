# Completion of sidecar for fish: sidecar completion fish | source
function __sidecar_candidates
    set -l words (commandline -opc)
    set -l word (commandline -ct)
    for line in ($words[1] completion candidates -- $words[2..-1] "$word" 2>/dev/null)
        if test "$line" = :files
            __fish_complete_path "$word"
        else
            echo $line
        end
    end
end
complete -c sidecar -f -a '(__sidecar_candidates)'
