# Made from the options by `UPDATE=1 cargo test --test docs`: change src/cli.rs instead.
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
            case -s -d -g -k --signal --drain --grace --stage --kill-timeout --kill-mode --until --stdin --stdout --hup --term --watch-pid --watch-ancestor --forward-to --rewrite --success --contain
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
complete -c treaper -n 'not __treaper_options' -x -a '(__fish_complete_subcommand -s -d -g -k --signal --drain --grace --stage --kill-timeout --kill-mode --until --stdin --stdout --hup --term --watch-pid --watch-ancestor --forward-to --rewrite --success --contain)'
complete -c treaper -n __treaper_options -s s -l signal -x -a "(kill -l | string split -n ' ')" -d 'Stop signal [TERM]'
complete -c treaper -n __treaper_options -s d -l drain -x -d 'After end of input, time to leave unsignalled [5s]'
complete -c treaper -n __treaper_options -s g -l grace -x -d 'From the stop signal to SIGKILL [10s]'
complete -c treaper -n __treaper_options -l stage -x -d 'Before SIGKILL, time for the rest of the tree [2s]'
complete -c treaper -n __treaper_options -l kill-timeout -x -d 'From SIGKILL until survivors are named and left [5s]'
complete -c treaper -n __treaper_options -s k -l kill-mode -x -a "staged tree mixed" -d 'Stop signal to: staged, tree, mixed [staged]'
complete -c treaper -n __treaper_options -l until -x -a "server tree" -d 'Run until the end of: server, tree [server]'
complete -c treaper -n __treaper_options -l stdin -x -a "auto watch ignore" -d 'Hang-up of stdin stops: auto, watch, ignore [auto]'
complete -c treaper -n __treaper_options -l stdout -x -a "watch ignore" -d 'Loss of stdout\'s reader stops: watch, ignore [ignore]'
complete -c treaper -n __treaper_options -l hup -x -a "auto stop forward" -d 'SIGHUP is to: auto, stop, forward [auto]'
complete -c treaper -n __treaper_options -l term -x -a "stop forward" -d 'SIGTERM is to: stop, forward [stop]'
complete -c treaper -n __treaper_options -l no-parent -d 'Do not stop when the parent process is gone'
complete -c treaper -n __treaper_options -l watch-pid -x -a "(__fish_complete_pids)" -d 'Stop when process PID is gone'
complete -c treaper -n __treaper_options -l watch-ancestor -x -d 'Stop when the nearest ancestor NAME is gone'
complete -c treaper -n __treaper_options -l forward-to -x -a "server group tree" -d 'Other signals go to: server, group, tree [server]'
complete -c treaper -n __treaper_options -l rewrite -x -d 'Take signal FROM as TO; TO 0 drops it'
complete -c treaper -n __treaper_options -l success -x -d 'Exit with 0 instead of STATUS (or signal name)'
complete -c treaper -n __treaper_options -l contain -x -a "auto group cgroup pidns" -d 'Hold it by: auto, group, cgroup, pidns [auto]'
complete -c treaper -n __treaper_options -l no-guard -d 'One process instead of two; leaks if SIGKILLed'
complete -c treaper -n __treaper_options -l no-new-privs -d 'Deny setuid programs to the whole tree'
complete -c treaper -n __treaper_options -s v -l verbose -d 'Tell each step; -vv: each process'
complete -c treaper -n __treaper_options -l doctor -a "json" -d 'Tell what this machine offers, and exit; =json'
complete -c treaper -n __treaper_options -s h -l help -d 'Print help'
complete -c treaper -n __treaper_options -s V -l version -d 'Print version'
