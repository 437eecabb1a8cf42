# Made from the options by `UPDATE=1 cargo test --features fixtures --test docs`: change src/settings/options.rs instead.
# fish completion for treaper

# What stands behind the options: the command, as far as it is typed.
function __treaper_command
    set -l words (commandline -opc) (commandline -ct)
    set -e words[1]
    while set -q words[1]
        switch $words[1]
            case --
                set -e words[1]
                break
            case -s -k -d -g --watch-pid --watch-ancestor --stdin --idle --stdout --until --signal --kill-mode --drain --grace --stage --kill-timeout --finally --hup --term --forward-to --rewrite --contain --spare --inject --turn --cancel --boundary --cancel-drain --stderr --report --success --log
                set -e words[1..2]
            case '-*'
                set -e words[1]
            case '*'
                break
        end
    end
    string join \n -- $words
end

function __treaper_options
    set -l words (__treaper_command)
    test (count $words) -eq 0; and not contains -- -- (commandline -opc)
end

complete -c treaper -f
complete -c treaper -n 'not __treaper_options' -x -a '(__fish_complete_subcommand -s -k -d -g --watch-pid --watch-ancestor --stdin --idle --stdout --until --signal --kill-mode --drain --grace --stage --kill-timeout --finally --hup --term --forward-to --rewrite --contain --spare --inject --turn --cancel --boundary --cancel-drain --stderr --report --success --log)'
complete -c treaper -n __treaper_options -l no-parent -d 'Do not stop when the parent process is gone'
complete -c treaper -n __treaper_options -l watch-pid -x -a "(__fish_complete_pids)" -d 'Stop when process PID is gone'
complete -c treaper -n __treaper_options -l watch-ancestor -x -d 'Stop when the nearest ancestor NAME is gone'
complete -c treaper -n __treaper_options -l stdin -x -a "auto watch ignore" -d 'Stop when stdin closes: auto, watch, ignore [auto]'
complete -c treaper -n __treaper_options -l idle -x -d 'Stop when the host writes nothing to stdin for TIME'
complete -c treaper -n __treaper_options -l stdout -x -a "watch ignore" -d 'Stop when stdout has no reader: watch, ignore [ignore]'
complete -c treaper -n __treaper_options -l until -x -a "server tree" -d 'Run until the end of: server, tree [server]'
complete -c treaper -n __treaper_options -s s -l signal -x -a "(kill -l | string split -n ' ')" -d 'Stop signal [TERM]'
complete -c treaper -n __treaper_options -s k -l kill-mode -x -a "staged tree mixed" -d 'Order of the stop signals: staged, tree, mixed [staged]'
complete -c treaper -n __treaper_options -s d -l drain -x -d 'Time to exit by itself after the end of input [5s]'
complete -c treaper -n __treaper_options -s g -l grace -x -d 'Time from the stop signal to SIGKILL [10s]'
complete -c treaper -n __treaper_options -l stage -x -d 'Signal the rest of the tree this long before SIGKILL [2s]'
complete -c treaper -n __treaper_options -l kill-timeout -x -d 'Give up on survivors this long after SIGKILL [5s]'
complete -c treaper -n __treaper_options -l finally -x -d 'Run COMMAND with /bin/sh when the tree is gone'
complete -c treaper -n __treaper_options -l hup -x -a "auto stop forward" -d 'What SIGHUP does: auto, stop, forward [auto]'
complete -c treaper -n __treaper_options -l term -x -a "stop forward" -d 'What SIGTERM does: stop, forward [stop]'
complete -c treaper -n __treaper_options -l forward-to -x -a "server group tree" -d 'Forward other signals to: server, group, tree [server]'
complete -c treaper -n __treaper_options -l rewrite -x -d 'Treat signal FROM as TO; TO 0 drops it'
complete -c treaper -n __treaper_options -l contain -x -a "group cgroup pidns" -d 'Hold the tree by: group, cgroup, pidns [group]'
complete -c treaper -n __treaper_options -l spare -x -d 'Keep the daemon NAME of the tree running'
complete -c treaper -n __treaper_options -l no-guard -d 'One process instead of two; leaks if SIGKILLed'
complete -c treaper -n __treaper_options -l no-new-privs -d 'Deny setuid programs to the whole tree'
complete -c treaper -n __treaper_options -l inject -x -d 'Other processes write messages to the server through a socket'
complete -c treaper -n __treaper_options -l turn -x -d 'The messages to the server that begin a turn'
complete -c treaper -n __treaper_options -l cancel -x -d 'The messages to the server that cancel the turn that runs'
complete -c treaper -n __treaper_options -l boundary -x -d 'The messages from the server that end a turn'
complete -c treaper -n __treaper_options -l cancel-drain -x -d 'Time in which a cancelled turn must end [5s]'
complete -c treaper -n __treaper_options -l stderr -r -F -d 'Append stderr of the server and of treaper to FILE'
complete -c treaper -n __treaper_options -l report -r -F -d 'Append a JSON object about the run to FILE or fd:N'
complete -c treaper -n __treaper_options -l report-arguments -d 'Name the arguments of COMMAND in the report'
complete -c treaper -n __treaper_options -l success -x -d 'Exit with 0 instead of STATUS (or signal name)'
complete -c treaper -n __treaper_options -l log -x -d 'Log levels and modules instead of -v, such as debug'
complete -c treaper -n __treaper_options -s v -l verbose -d 'Log each step; -vv: each process'
complete -c treaper -n __treaper_options -l doctor -a "table json" -d 'Show what this machine offers, and exit; =json'
complete -c treaper -n __treaper_options -s h -l help -d 'Print help'
complete -c treaper -n __treaper_options -s V -l version -d 'Print version'
