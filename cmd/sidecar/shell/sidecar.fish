# Completion of sidecar for fish: sidecar completion fish | source
function __sidecar_candidates
    set -l words (commandline -opc)
    set -l word (commandline -ct)
    set -l flag (string match -r -- '^--.*=' "$word")
    for line in ($words[1] __complete $words[2..-1] "$word" 2>/dev/null)
        switch "$line"
            case ':0'
                __fish_complete_path "$word"
            case ':*'
            case '*'
                string replace -a '`' '' -- "$flag$line"
        end
    end
end
complete -c sidecar -f -a '(__sidecar_candidates)'
