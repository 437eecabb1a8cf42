# The checks with runc alone: no engine, no image. Called by `run`.
set -u
W=$1/runc; mkdir -p "$W"
here=$(dirname "$0"); . "$here/lib.sh"
runc() { command runc --root "$W/state" "$@"; }
finish() {
  for c in $(runc list -q 2>/dev/null); do runc delete -f "$c"; done
  find /sys/fs/cgroup -depth -type d -path "*/treaper-runc-$$*" -exec rmdir {} \; 2>/dev/null
}
trap finish EXIT
trap 'exit 124' TERM INT
command -v runc >/dev/null || { skipped "no runc"; closing; exit; }
context "$W/rootfs" "$BIN"
mkdir -p "$W"/rootfs/{proc,sys,dev,tmp}
for applet in $(busybox --list); do [ -e "$W/rootfs/bin/$applet" ] || ln -s busybox "$W/rootfs/bin/$applet"; done
(cd "$W" && command runc spec)
bundle() { # bundle NAME WORD...: the container NAME with these words as its process
  mkdir -p "$W/$1"
  python3 - "$W" "$$" "$@" <<'X'
import json, sys
w, me, name, *words = sys.argv[1:]
c = json.load(open(f"{w}/config.json"))
c["process"].update(terminal=False, args=words)
c["process"].pop("rlimits", None)
c["root"] = {"path": f"{w}/rootfs", "readonly": False}
c["linux"]["cgroupsPath"] = f"/treaper-runc-{me}/{name}"
json.dump(c, open(f"{w}/{name}/config.json", "w"))
X
}
run() { bundle "$@"; runc run --bundle "$W/$1" "$1"; }
fresh() { rm -f "$W"/rootfs/out/*; }
exec </dev/null
run a /treaper -- sh -c 'exit 7'; ok "the status of the command" $? 7
run a /treaper -- sh -c 'kill -9 $$'; ok "the status for SIGKILL" $? 137
ok "treaper is PID 1" "$(run a /treaper -- cat /proc/1/comm)" treaper
ok "stdin reaches the command" "$(echo hello | run a /treaper -- cat)" hello
for name in treaper tini dumb-init catatonit; do
  fresh; run b "/$name" -- /server & client=$!
  until_true has "$W/rootfs/out/up"
  ok "$name: exec" "$(runc exec b cat /proc/1/comm)" "$name"
  runc kill b TERM; wait $client; ok "$name: SIGTERM, the server's status" $? 3
  ok "$name: the worker could finish" "$(cat "$W/rootfs/out/worker" 2>&1)" finished
done
fresh; run c /treaper -- /server & client=$!
until_true has "$W/rootfs/out/up"; runc kill c KILL; wait $client; ok "SIGKILL of PID 1" $? 137
closing
