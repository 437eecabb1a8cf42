#!/bin/sh
# The main scenes, inside of the guest: busybox as the shell, treaper as its static binary. Each prints a line; the last
# one is the sum. The tree ignores SIGTERM. Its processes are in sessions of their own, double-forked, and suspended.
export PATH=/bin
passed=0 failed=0
ok() {
    passed=$((passed + 1))
    echo "ok   $1"
}
bad() {
    failed=$((failed + 1))
    echo "FAIL $1"
    cat /tmp/stderr 2>/dev/null
}
is() { if [ "$2" = "$3" ]; then ok "$1"; else bad "$1: '$2' instead of '$3'"; fi; }

# The clock begins at a date of its own. The busybox of a 32-bit processor cannot read its files then: this scene is all.
year=$(cat 2>/dev/null </year)
if [ -n "$year" ]; then
    mount -o remount,noatime /
    /bin/treaper --report /report -- /bin/busybox true
    is "an exit status in that year" $? 0
    is "the report has the year of the clock" "$(sed -n 's/.*"start_time":"\(....\).*/\1/p' </report)" "$year"
    echo "SCENES $passed $failed"
    exit
fi

cat >/tmp/tree <<'X'
trap "" TERM HUP
stubborn() { trap "" TERM HUP; : >/tmp/ready.$1; while :; do sleep 77; done; }
setsid sh -c '. /tmp/stubborn; stubborn a' &
(setsid sh -c '. /tmp/stubborn; stubborn b' &)
(sh -c '. /tmp/stubborn; echo >/tmp/ready.c; kill -STOP $$; stubborn c' &)
. /tmp/stubborn
stubborn server
X
sed -n '/^stubborn()/p' /tmp/tree >/tmp/stubborn
chmod 755 /tmp/tree /tmp/stubborn
# In a file, so that the search for them does not find itself.
printf '%s\n' stubborn /tmp/tree >/tmp/patterns
chmod 1777 /tmp

# The processes of a tree that are left, in any namespace. A zombie has no command line.
left() { grep -l -f /tmp/patterns /proc/[0-9]*/cmdline 2>/dev/null | sed 's/[^0-9]//g'; }
# until COMMAND...: waits for it to succeed, for a minute at most.
until_so() {
    tries=0
    until "$@"; do
        tries=$((tries + 1))
        [ $tries -lt 600 ] || return 1
        usleep 100000
    done
}
ready() { [ -e /tmp/ready.server ] && [ -e /tmp/ready.a ] && [ -e /tmp/ready.b ] && [ -e /tmp/ready.c ]; }
ready_or_gone() { ready || gone "$shim"; }
nobody() { [ -z "$(left)" ]; }
gone() { ! kill -0 "$1" 2>/dev/null; }
child_of() { cut -d' ' -f1 "/proc/$1/task/$1/children"; }
clean() {
    for pid in $(left); do kill -9 "$pid" 2>/dev/null; done
    until_so nobody
    rm -f /tmp/ready.* /tmp/stderr
}
# Becomes COMMAND, in the same process.
as_nobody() { exec su -s /bin/sh -c 'exec "$@"' nobody -- x "$@"; }
# Set to have treaper and its tree under a filter: `actor faults RULE... --`.
under=
# start WHO OPTIONS...: in the background; sets $shim.
start() {
    who=$1
    shift
    rm -f /tmp/ready.*
    if [ "$who" = root ]; then
        $under treaper --grace 300ms "$@" -- sh /tmp/tree </dev/null 2>/tmp/stderr &
    else
        as_nobody $under treaper --grace 300ms "$@" -- sh /tmp/tree </dev/null 2>/tmp/stderr &
    fi
    shim=$!
    until_so ready_or_gone
    ready || bad "a tree that starts ($who $*)"
}
is_stopped() { # is_stopped NAME: neither the tree nor treaper is left
    if until_so nobody && until_so gone "$shim"; then ok "$1"; else bad "$1: left $(left)"; fi
    clean
}

uname -r
treaper --doctor | grep -E '^  (pidfd|group|cgroup|pidns)'
for who in root nobody; do
    for level in group cgroup pidns; do
        [ "$who $level" != "nobody cgroup" ] || continue
        here="$who, $level"
        if [ $who = root ]; then as=; else as=as_nobody; fi
        ($as treaper --contain=$level -- sh -c 'exit 7' 2>/tmp/stderr </dev/null)
        is "$here: an exit status" $? 7
        ($as treaper --contain=$level -- sh -c 'kill -USR1 $$' 2>/tmp/stderr </dev/null)
        is "$here: a death by a signal" $? 138
        start $who --contain=$level
        kill -TERM $shim
        wait $shim
        is "$here: the status after a stop" $? 137
        is_stopped "$here: a stubborn tree is stopped"
        start $who --contain=$level
        kill -KILL $shim
        is_stopped "$here: the shim killed"
        start $who --contain=$level
        kill -KILL "$(child_of $shim)"
        is_stopped "$here: the monitor killed"
    done
    start $who --contain=pidns
    kill -KILL $shim "$(child_of $shim)"
    is_stopped "$who, pidns: both killed"
done

# A filter without clone3, as in older container engines: then clone makes the processes, whose arguments have another order
# on s390x. And a kernel without pidfds.
if [ -x /bin/actor ]; then
    for rules in clone3=EPERM "clone3=ENOSYS pidfd_open=ENOSYS pidfd_send_signal=ENOSYS"; do
        under="actor faults $rules --"
        case $rules in *pidfd_open*) expected=no ;; *) expected=yes ;; esac
        is "$rules: the doctor" "$($under treaper --doctor 2>/tmp/stderr | sed -n 's/^  pidfd_open *\([a-z]*\).*/\1/p')" $expected
        for who in root nobody; do
            for level in group cgroup pidns; do
                [ "$who $level" != "nobody cgroup" ] || continue
                start $who --contain=$level
                kill -TERM $shim
                wait $shim
                is "$rules, $who, $level: the status after a stop" $? 137
                is_stopped "$rules, $who, $level: a stubborn tree is stopped"
                start $who --contain=$level
                kill -KILL $shim
                is_stopped "$rules, $who, $level: the shim killed"
            done
        done
    done
    under=
fi
is "no group is left" "$(find /sys/fs/cgroup -name 'treaper-*')" ''

sh -c 'treaper --grace 300ms -- sh /tmp/tree </dev/null 2>/tmp/stderr & echo $! >/tmp/shim; while :; do sleep 99; done' &
host=$!
until_so ready
shim=$(cat /tmp/shim)
kill -KILL $host
is_stopped "the host killed"

# A host that reads nothing: requests arrive all the same, and a cancelled turn has its clock. Before Linux 6.4 a pipe that
# another process opened has no write without waiting of its own.
cat >/tmp/flood <<'X'
yes &
echo $! >/tmp/yes
while read -r line; do echo "$line" >>/tmp/got; done
X
mkfifo /tmp/requests /tmp/full
: >/tmp/got
# It never reads, but it keeps the FIFO open.
# shellcheck disable=SC2217
sleep 1000 </tmp/full &
reader=$!
treaper --turn t=1 --cancel c=1 --cancel-drain 200ms --grace 300ms -- sh /tmp/flood </tmp/requests >/tmp/full 2>/tmp/stderr &
shim=$!
exec 9>/tmp/requests
until_so [ -s /tmp/yes ]
# Its output is full once it takes no more time.
flood=$(cat /tmp/yes)
time_of() { cut -d' ' -f14,15 "/proc/$flood/stat"; }
rests() { before=$(time_of) && usleep 300000 && [ "$before" = "$(time_of)" ]; }
until_so rests
for number in $(seq 50); do echo "$number" >&9; done
got_all() { [ "$(wc -l </tmp/got)" = 50 ]; }
if until_so got_all; then ok "the output is full: 50 requests arrive"; else bad "the output is full: 50 requests arrive"; fi
printf '{"t":1,"id":1}\n{"c":1}\n' >&9
until_so gone $shim
wait $shim
is "the output is full: a cancelled turn times out" $? 124
exec 9>&-
kill $reader

mkfifo /tmp/stdin
sleep 1000 >/tmp/stdin &
writer=$!
treaper --stdin watch --drain 100ms --grace 300ms -- sh /tmp/tree </tmp/stdin 2>/tmp/stderr &
shim=$!
until_so ready
kill -KILL $writer
is_stopped "stdin closed"

sh /tmp/tree </dev/null &
server=$!
until_so ready
kill -KILL $server
until_so gone $server
if nobody; then bad "control: without treaper the tree survives"; else ok "control: without treaper the tree survives"; fi
clean

# Test programs. Here they have busybox only, and its unshare is another one than that test needs.
for program in /programs/*; do
    [ -x "$program" ] || continue
    "$program" --test-threads 1 --skip without_dev_tty_a_descriptor_shows_the_terminal >/tmp/tests 2>&1
    status=$?
    is "the tests of ${program##*/}: $(sed -n 's/^test result: [^ ]* \(.*\) measured.*/\1/p' </tmp/tests)" $status 0
    [ $status -eq 0 ] || sed -n -e '/FAILED/p' -e '/in a child/p' -e '/^failures:/,$p' /tmp/tests
done

# What the report says of the memory of the tree. The kernel counts it in the groups of a parent that has the controller on.
# On a machine that is not emulated the groups are its own: no controller is switched on there.
if [ -e /here ]; then
    echo "left out: limits of memory"
    echo "SCENES $passed $failed"
    exit
fi
echo +memory >/sys/fs/cgroup/cgroup.subtree_control
report() { sed -n "s/.*\"$1\":\"\{0,1\}\([^\",]*\).*/\1/p" /tmp/report; }
uses_40_mb() {
    rm -f /tmp/report
    treaper --contain="$1" --report /tmp/report -- dd if=/dev/zero of=/dev/null bs=40M count=1 </dev/null 2>/tmp/stderr
}
limited=/sys/fs/cgroup/limited
mkdir $limited
uses_40_mb group
is "group: no memory_peak" "$(report memory_peak)" null
uses_40_mb cgroup
peak=$(report memory_peak)
if [ -e $limited/memory.peak ]; then
    if [ "$peak" -ge 41943040 ] && [ "$peak" -lt 62914560 ]; then
        ok "cgroup: memory_peak of 40 MiB: $peak"
    else
        bad "cgroup: memory_peak of 40 MiB: '$peak'"
    fi
else
    is "cgroup: no memory_peak before Linux 5.19" "$peak" null
fi

# A limit as of `systemd-run --scope -p MemoryMax=64M treaper ...`: the kernel kills the server, and treaper stops the rest.
echo 64M >$limited/memory.max
cat >/tmp/hog <<'X'
setsid sh -c '. /tmp/stubborn; stubborn a' &
while [ ! -e /tmp/ready.a ]; do usleep 10000; done
exec dd if=/dev/zero of=/dev/null bs=200M count=1
X
in_the_limit() { sh -c 'echo 0 >"$0/cgroup.procs" && exec "$@"' $limited "$@" </dev/null 2>/tmp/stderr; }
killed_for_memory() { sed -n 's/^oom_kill //p' $limited/memory.events; }
rm -f /tmp/report
in_the_limit treaper --grace 300ms --report /tmp/report -- sh /tmp/hog
is "a memory limit: the status" $? 137
is "a memory limit: the kernel has killed one process" "$(killed_for_memory)" 1
is "a memory limit: the report" "$(report trigger) $(report server_signal)" "server-exit KILL"
if nobody; then ok "a memory limit: the rest is stopped"; else bad "a memory limit: left $(left)"; fi
clean
in_the_limit sh /tmp/hog
if [ "$(killed_for_memory)" = 2 ] && ! nobody; then
    ok "control: a memory limit leaves the rest without treaper"
else
    bad "control: a memory limit leaves the rest without treaper: $(killed_for_memory) killed"
fi
clean
echo "SCENES $passed $failed"
