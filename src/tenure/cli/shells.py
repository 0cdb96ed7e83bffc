"""The scripts that teach shells to ask for completions (``completing.py``): short, since the program knows the rest."""

from __future__ import annotations

from typing import Final

BASH: Final = """\
# Completions of {program} for bash. In ~/.bashrc:  source <({call} completion bash)
{function}() {{
    local line kind=
    COMPREPLY=()
    while IFS= read -r line; do
        if [ -z "${{kind:+x}}" ]; then kind=":$line"; else COMPREPLY+=("$line"); fi
    done < <(_TENURE_COMPLETE=bash COMP_LINE="$COMP_LINE" COMP_POINT="$COMP_POINT" COMP_WORDBREAKS="$COMP_WORDBREAKS" \\
        "$1" 2>/dev/null)
    case "$kind" in
        :file) compopt -o default 2>/dev/null ;;
        :dir) compopt -o dirnames 2>/dev/null ;;
        *) case "${{COMPREPLY[0]-}}" in *=) compopt -o nospace 2>/dev/null ;; esac ;;
    esac
}}
complete -F {function} {program}
"""
ZSH: Final = """\
#compdef {program}
# Completions of {program} for zsh. In ~/.zshrc, after compinit:  source <({call} completion zsh)
{function}() {{
    local -a rows values shown
    local row kind
    rows=("${{(@f)$(_TENURE_COMPLETE=zsh "${{words[1]}}" "${{(@Q)words[2,CURRENT]}}" 2>/dev/null)}}")
    kind=$rows[1]
    for row in "${{(@)rows[2,-1]}}"; do
        [[ -n $row ]] || continue
        values+=("${{row%%$'\\t'*}}")
        shown+=("${{row%%$'\\t'*}}${{${{row#*$'\\t'}}:+  -- ${{row#*$'\\t'}}}}")
    done
    case $kind in
        file) _files ;;
        dir) _files -/ ;;
        *) (( $#values )) && compadd -l -d shown -a -- values ;;
    esac
}}
if [[ $zsh_eval_context[-1] == loadautofunc ]]; then
    {function} "$@"
else
    compdef {function} {program}
fi
"""
FISH: Final = """\
# Completions of {program} for fish:  {call} completion fish > ~/.config/fish/completions/{program}.fish
function {function}
    set -l words (commandline -opc) (commandline -ct)
    set -l rows (_TENURE_COMPLETE=fish $words[1] $words[2..-1] 2>/dev/null)
    switch "$rows[1]"
        case file
            __fish_complete_path (commandline -ct)
        case dir
            __fish_complete_directories (commandline -ct)
        case '*'
            if set -q rows[2]
                printf '%s\\n' $rows[2..-1]
            end
    end
end
complete --no-files --command {program} --arguments '({function})'
"""
SCRIPTS: Final = {"bash": BASH, "zsh": ZSH, "fish": FISH}


def script(shell: str, program: str, *, call: str) -> str:
    """What to source; ``call`` is how the program is called in the comment that says so."""
    return SCRIPTS[shell].format(program=program, call=call, function="_" + program.replace("-", "_") + "_complete")
