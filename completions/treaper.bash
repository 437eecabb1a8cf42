# Made from the options by `UPDATE=1 cargo test --features fixtures --test docs`: change src/settings/options.rs instead.
# bash completion for treaper

_treaper() {
    local cur prev word words='' at=1
    cur=${COMP_WORDS[COMP_CWORD]}
    prev=${COMP_WORDS[COMP_CWORD - 1]}
    # `--option=value` comes as three words, and so does `HUP:TERM`.
    if [[ $cur == [=:] ]]; then
        cur=''
    elif [[ $prev == [=:] ]]; then
        prev=${COMP_WORDS[COMP_CWORD - 2]}
    fi
    # The first word that is no option, and no option's value, is the command.
    while ((at < COMP_CWORD)); do
        word=${COMP_WORDS[at]}
        case $word in
        --)
            at=$((at + 1))
            break ;;
        --watch-pid|--watch-ancestor|--stdin|--idle|--stdout|--until|-s|--signal|-k|--kill-mode|-d|--drain|-g|--grace|--stage|--kill-timeout|--finally|--hup|--term|--forward-to|--rewrite|--contain|--spare|--inject|--turn|--cancel|--boundary|--cancel-drain|--stderr|--report|--success|--log)
            at=$((at + 2))
            if [[ ${COMP_WORDS[at - 1]} == '=' ]]; then at=$((at + 1)); fi ;;
        [=:])
            at=$((at + 2)) ;;
        -*)
            at=$((at + 1)) ;;
        *)
            break ;;
        esac
    done
    if ((at < COMP_CWORD)) ||
        [[ $at -eq $COMP_CWORD && ${COMP_WORDS[COMP_CWORD]} != [=:] && ($cur != -* || $prev == --) ]]; then
        if declare -F _comp_command_offset >/dev/null; then
            _comp_command_offset "$at"
        elif declare -F _command_offset >/dev/null; then
            _command_offset "$at"
        else
            mapfile -t COMPREPLY < <(compgen -A command -- "$cur")
        fi
        return
    fi
    case $prev in
        --watch-pid)
            words="$(cd /proc && compgen -G '[0-9]*')" ;;
        --watch-ancestor)
            words="$(ps -eo comm= 2>/dev/null | grep -x '[[:alnum:]._+-]*')" ;;
        --stdin)
            words="auto watch ignore" ;;
        --stdout)
            words="watch ignore" ;;
        --until)
            words="server tree" ;;
        -s|--signal)
            words="$(compgen -A signal | sed 's/^SIG//')" ;;
        -k|--kill-mode)
            words="staged tree mixed" ;;
        --hup)
            words="auto stop forward" ;;
        --term)
            words="stop forward" ;;
        --forward-to)
            words="server group tree" ;;
        --contain)
            words="group cgroup pidns" ;;
        --spare)
            words="$(ps -eo comm= 2>/dev/null | grep -x '[[:alnum:]._+-]*')" ;;
        --stderr)
            compopt -o filenames 2>/dev/null
            mapfile -t COMPREPLY < <(compgen -f -- "$cur")
            return ;;
        --report)
            compopt -o filenames 2>/dev/null
            mapfile -t COMPREPLY < <(compgen -f -- "$cur")
            return ;;
        --doctor)
            words="table json" ;;
        unix)
            compopt -o filenames 2>/dev/null
            mapfile -t COMPREPLY < <(compgen -f -- "$cur")
            return ;;
        *)
            if [[ $cur == -* ]]; then words='--no-parent --watch-pid --watch-ancestor --stdin --idle --stdout --until --signal --kill-mode --drain --grace --stage --kill-timeout --finally --hup --term --forward-to --rewrite --contain --spare --no-guard --no-new-privs --inject --turn --cancel --boundary --cancel-drain --stderr --report --report-arguments --success --log --verbose --doctor --help --version'; fi ;;
    esac
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur")
}

complete -F _treaper treaper
