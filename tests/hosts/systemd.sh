#!/bin/bash
# Plays the snippets for systemd in a booted one. Called by the scenes: systemd.sh FOLDER SCENE, with BIN set. FOLDER has the
# snippets. Writes `left: N` for the processes of the server that are left at the end.
set -u
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../systemd/boot.sh"
. "$here/../containers/lib.sh"
folder=$1 scene=$2

inside sh -c 'cat >/usr/bin/treaper; chmod 755 /usr/bin/treaper' <"$BIN"
inside sh -c 'cat >/usr/bin/some-server; chmod 755 /usr/bin/some-server' <<'X'
#!/bin/sh
setsid sh -c 'trap "" TERM HUP INT; exec sleep 1000' some-worker &
echo up >/run/test/up
exec sleep 1000
X
# As the main process of a unit treaper sets no deadline, so a worker that ignores SIGTERM would have all of TimeoutStopSec.
[ "$scene" != unit ] || inside sed -i 's/"" TERM HUP/"" HUP/' /usr/bin/some-server
up_in_there() { inside test -e /run/test/up; }
left() { inside sh -c 'pgrep -c "^sleep$"'; }
none_left() { [ "$(left)" = 0 ]; }
manager() { # a manager for the user, in a unit of its own
    inside mkdir -p -m 700 /run/user/0
    inside systemd-run -q --unit=manager -p Delegate=yes -E XDG_RUNTIME_DIR=/run/user/0 -E HOME=/root /lib/systemd/systemd --user
    until_true user systemctl --user list-units
}
user() { inside env XDG_RUNTIME_DIR=/run/user/0 "$@"; }

case $scene in
unit)
    inside sh -c 'cat >/run/systemd/system/some.service' <"$folder/systemd-unit"
    inside systemctl daemon-reload
    inside systemctl start some.service && until_true up_in_there
    inside systemctl stop some.service
    echo "result: $(inside systemctl show -P Result some.service)"
    ;;
user)
    manager
    inside sh -c 'mkdir -p /root/.config/systemd/user; cat >/root/.config/systemd/user/some.service' <"$folder/systemd-user"
    user systemctl --user daemon-reload
    user systemctl --user start some.service && until_true up_in_there
    # What stops the services of a user is the end of the manager.
    inside systemctl stop manager
    ;;
scope)
    manager
    # The host: a shell that starts the snippet and has more to do.
    { cat "$folder/systemd-scope"; echo 'echo over'; } | inside sh -c 'cat >/run/test/host'
    user env TREAPER_GRACE=1s sh /run/test/host </dev/null & host=$!
    until_true up_in_there
    inside sh -c 'kill -9 $(pgrep -f "^sh /run/test/host")'
    wait $host 2>/dev/null
    ;;
quadlet)
    # `image.tar` has the files of the image, and `generator` is the one of podman.
    inside sh -c 'mkdir -p /etc/containers/systemd; cat >/etc/containers/systemd/some-server.container' <"$folder/quadlet"
    generator=/usr/lib/systemd/system-generators/podman-system-generator
    inside sh -c "cat >$generator; chmod 755 $generator" <"$folder/generator"
    # Explicit limits: podman asks for more open files than a root without CAP_SYS_RESOURCE may have.
    inside sh -c 'cat >/etc/containers/containers.conf' <<'X'
[containers]
netns = "none"
default_ulimits = ["nofile=4096:4096", "nproc=8192:8192"]
pids_limit = 0
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "none"
X
    printf '[storage]\ndriver = "vfs"\nrunroot = "/run/containers/run"\ngraphroot = "/run/containers/root"\n' |
        inside sh -c 'cat >/etc/containers/storage.conf'
    inside podman import -q --change 'ENTRYPOINT ["/usr/bin/treaper", "--"]' - some-image <"$folder/image.tar"
    journal() { inside journalctl --no-pager -o cat -u some-server.service; }
    server_up() { journal | grep -qx up; }
    inside systemctl daemon-reload
    inside systemctl start some-server.service && until_true server_up
    inside systemctl stop some-server.service
    echo "result: $(inside systemctl show -P Result some-server.service)"
    journal
    ;;
survivors)
    for file in survivors.py procs.py; do inside sh -c 'cat >"/run/test/$1"' x "$file" <"$folder/$file"; done
    inside python3 /run/test/survivors.py --json 'systemd-run --scope' 'systemd-run --pipe'
    exit
    ;;
esac
[ "$CONTROL" = 1 ] || until_true none_left
[ "$CONTROL" = 0 ] || sleep 1.5
echo "left: $(left)"
