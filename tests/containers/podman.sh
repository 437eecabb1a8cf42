# The checks with podman, with a store private to this run. Called by `run`.
set -u
W=$1/podman; mkdir -p "$W/bin"; export TMPDIR=$W
here=$(dirname "$0"); . "$here/lib.sh"
idle() { ! grep -lz -- "^$W" /proc/[0-9]*/cmdline; }
finish() {
  podman rm -fa -t 0 >/dev/null 2>&1
  until_true idle   # conmon, and the clean-up that it starts
  umount -l $(awk -v w="$W/" 'index($2,w)==1{print $2}' /proc/mounts) 2>/dev/null
  find /sys/fs/cgroup -depth -type d -path '*/libpod_parent*' -exec rmdir {} \; 2>/dev/null
}
trap finish EXIT
trap 'exit 124' TERM INT
command -v /usr/bin/podman >/dev/null || { skipped "no podman"; closing; exit; }
# Explicit limits: podman asks for more open files than a root without CAP_SYS_RESOURCE may have.
podman() {
  local flags="--root $W/root --runroot $W/run --tmpdir $W/tmp --storage-driver vfs --cgroup-manager cgroupfs --events-backend none --runtime runc --log-level error"
  local verb=$1; shift
  case "$verb" in
    run) /usr/bin/podman $flags run --network none --ulimit nofile=4096:4096 --ulimit nproc=8192:8192 "$@";;
    build) /usr/bin/podman $flags build --isolation chroot "$@";;
    *) /usr/bin/podman $flags "$verb" "$@";;
  esac
}
context "$W/context" "$BIN"
cp "$BIN" "$W/catatonit"
printf 'FROM scratch\nCOPY bin/busybox /bin/busybox\nRUN ["/bin/busybox","--install","-s","/bin"]\nCOPY . /\nENTRYPOINT ["/treaper","--"]\n' >"$W/Dockerfile"
podman build -q -t localhost/t -f "$W/Dockerfile" "$W/context" >/dev/null; ok "an image FROM scratch with treaper as its entrypoint" $? 0
T=localhost/t
out() { rm -rf "$W/out"; mkdir "$W/out"; }
run() { podman run -v "$W/out:/out" "$@"; }
init() { run --init --init-path "$W/catatonit" "$@"; }
code() { timeout 20 /usr/bin/env true; podman wait "$1"; }
out
run --rm $T sh -c 'exit 7'; ok "the status of the command" $? 7
run --rm $T sh -c 'kill -9 $$'; ok "the status for SIGKILL" $? 137
ok "stdin reaches the command" "$(echo hello | run -i --rm $T cat)" hello
run -d --name stop $T /server >/dev/null; until_true has "$W/out/up"; podman stop -t 10 stop >/dev/null
ok "podman stop" "$(code stop) $(cat "$W/out/worker" 2>&1)" "3 finished"
out; run -d --name kill $T /server >/dev/null; until_true has "$W/out/up"; podman kill -s USR1 kill >/dev/null
ok "podman kill -s USR1" "$(code kill) $(cat "$W/out/worker" 2>&1)" "5 finished"
like "--init: how it is called" "$(init --rm --entrypoint '["/bin/sh","-c"]' $T 'tr "\0" " " </proc/1/cmdline')" "*init -- /bin/sh*"
init --rm --entrypoint '["/bin/sh","-c"]' $T 'exit 9'; ok "--init: the status" $? 9
ok "--init: not a word" "$(init --rm --entrypoint '["/bin/true"]' $T 2>&1)" ""
out; init -d --name init --entrypoint '["/server"]' $T >/dev/null; until_true has "$W/out/up"; podman stop -t 10 init >/dev/null
ok "--init: podman stop" "$(code init) $(cat "$W/out/worker" 2>&1)" "3 finished"
out; init -d --name leave --entrypoint '["/server"]' $T >/dev/null; until_true has "$W/out/up"; touch "$W/out/leave"
ok "--init: the server ends by itself" "$(code leave) $(cat "$W/out/worker" 2>&1)" "6 finished"
out; run -d --name host $T sh -c 'while :; do sleep 1; done' >/dev/null
podman exec host /treaper sh -c 'exit 8'; ok "exec: the status" $? 8
run --rm --pid container:host $T sh -c 'exit 11'; ok "a shared PID namespace: the status" $? 11
# A pause: the process that holds the namespaces of a pod.
run -d --name pause --entrypoint '["/catatonit","-P"]' $T >/dev/null
ok "a pause is PID 1" "$(podman exec pause cat /proc/1/comm)" catatonit
podman exec pause sh -c '(sleep 0.05 &)'; podman stop -t 10 pause >/dev/null; ok "a pause ends with 0" "$(code pause)" 0
closing
