# The checks with a real Docker engine, private to this run. Called by `run`.
set -u
W=$1/docker; mkdir -p "$W"
here=$(dirname "$0"); . "$here/lib.sh"
engine=
finish() {
  [ -n "$engine" ] && { kill "$engine" 2>/dev/null; wait "$engine" 2>/dev/null; }
  for r in /sys/fs/cgroup /sys/fs/cgroup/*; do
    [ -d "$r/docker" ] && find "$r/docker" -depth -type d -exec rmdir {} \; 2>/dev/null
  done
}
trap finish EXIT
trap 'exit 124' TERM INT
command -v dockerd >/dev/null || { skipped "no dockerd"; closing; exit; }

cp "$BIN" "$W/docker-init"
dockerd --data-root "$W/data" --exec-root "$W/exec" --pidfile "$W/pid" -H "unix://$W/sock" --storage-driver vfs \
  --iptables=false --ip6tables=false --bridge=none --init-path "$W/docker-init" >"$W/log" 2>&1 & engine=$!
export DOCKER_HOST=unix://$W/sock DOCKER_CONFIG=$W/config DOCKER_BUILDKIT=0
docker() { command /usr/bin/docker "$@" 2> >(grep -v -e 'legacy builder' -e buildx -e '^$' >&2); }
until_true docker version || { tail -5 "$W/log"; exit 1; }

context "$W/context" "$BIN"
image() { # image TAG ENTRYPOINT...
  local tag=$1 words; shift; words=$(printf ',"%s"' "$@")
  printf 'FROM scratch\nCOPY bin/busybox /bin/busybox\nRUN ["/bin/busybox","--install","-s","/bin"]\nCOPY . /\nENTRYPOINT [%s]\n' "${words#,}" >"$W/Dockerfile"
  docker build -q -t "$tag" -f "$W/Dockerfile" "$W/context" >/dev/null
}
image t /treaper --; ok "an image FROM scratch with treaper as its entrypoint" $? 0
image bare /bin/sh -c 'exec "$@"' sh
out() { rm -rf "$W/out"; mkdir -m 777 "$W/out"; }
run() { docker run --network none -v "$W/out:/out" "$@"; }
gone() { [ "$(docker inspect -f '{{.State.Running}}' "$1")" = false ]; }
code() { until_true gone "$1"; docker inspect -f '{{.State.ExitCode}}' "$1"; }
started() { # started NAME OPTIONS...: a container whose worker is up
  local name=$1; shift; out
  run -d --name "$name" "$@" >/dev/null; until_true has "$W/out/up"
}

out
run --rm t sh -c 'exit 7'; ok "the status of the command" $? 7
run --rm t sh -c 'kill -9 $$'; ok "the status for SIGKILL" $? 137
ok "treaper is PID 1" "$(run --rm t cat /proc/1/comm)" treaper
ok "stdin reaches the command, and its answer the client" "$(echo hello | run -i --rm t cat)" hello
ok "not a word on stderr" "$(run --rm t true 2>&1)" ""
run --rm t no-such-command 2>/dev/null; ok "a command that is not there" $? 127
ok "orphans are reaped" "$(run --rm t sh -c '(sleep 0.1 &); sleep 0.1; while pidof sleep >/dev/null; do :; done; grep -l "^State:.Z" /proc/[0-9]*/status | wc -l')" 0

# Stop and end: the rest of the tree finishes its work.
started stop t /server; s=$(milliseconds); docker stop -t 10 stop >/dev/null
took "docker stop" "$s" 5000
ok "docker stop: the server's status" "$(code stop)" 3
ok "docker stop: the worker could finish" "$(cat "$W/out/worker" 2>&1)" finished
started end t /server; touch "$W/out/leave"
ok "the server ends by itself: its status" "$(code end)" 6
ok "the server ends by itself: the worker could finish" "$(cat "$W/out/worker" 2>&1)" finished
started tini --entrypoint /tini t -- /server; docker stop -t 10 tini >/dev/null
ok "as tini: the server's status" "$(code tini)" 3
ok "as tini: the worker could finish" "$(cat "$W/out/worker" 2>&1)" finished
cp "$(command -v tini-static)" "$W/out-tini" && {
  started control -v "$W/out-tini:/real-tini" --entrypoint /real-tini t -- /server; docker stop -t 10 control >/dev/null
  ok "control, with the real tini: its work is lost" "$(cat "$W/out/worker" 2>/dev/null)" ""
}
started kill t /server; docker kill -s USR1 kill >/dev/null; ok "docker kill -s USR1 reaches the server" "$(code kill)" 5
started hup t /server; docker kill -s HUP hup >/dev/null; s=$(code hup)
ok "docker kill -s HUP reaches the server" "$s" 4
started huptini --entrypoint /tini t -- /server; docker kill -s HUP huptini >/dev/null
ok "docker kill -s HUP as tini reaches the server" "$(code huptini)" 4
started killed t /server
pid=$(docker inspect -f '{{.State.Pid}}' killed); kill -9 "$pid"; ok "SIGKILL of PID 1 from outside" "$(code killed)" 137
out; run -d --name deaf -e TREAPER_GRACE=300ms t sh -c 'trap "" TERM; echo >/out/up; while :; do sleep 0.05; done' >/dev/null
until_true has "$W/out/up"; s=$(milliseconds); docker stop -t 20 deaf >/dev/null; took "a deaf server is killed after TREAPER_GRACE" "$s" 8000
ok "and treaper tells of it" "$(docker logs deaf 2>&1 | grep -c 'had to SIGKILL')" 1

# --init: dockerd mounts its --init-path at /sbin/docker-init, and asks it for its version.
like "--init: how it is called" "$(run --rm --init --entrypoint /bin/sh t -c 'tr "\0" " " </proc/1/cmdline')" "/sbin/docker-init -- /bin/sh*"
run --rm --init --entrypoint /bin/sh t -c 'exit 9'; ok "--init: the status" $? 9
started init --init --entrypoint /server t; docker stop -t 10 init >/dev/null
ok "--init: docker stop, the server's status" "$(code init)" 3
ok "--init: the worker could finish" "$(cat "$W/out/worker" 2>&1)" finished
like "--init: dockerd understands its version" "$(docker version -f '{{range .Server.Components}}{{if eq .Name "docker-init"}}{{.Version}}{{end}}{{end}}')" "0.19.0*"

# Clients that go away. A terminal or pipe of `-i` is closed with its client. An end within the first second would be
# that of a complete input.
past_first_second() { [ -n "$(find "$1" ! -newermt '1500 milliseconds ago')" ]; }
hold() { exec 7<>"$W/hold"; }; mkfifo "$W/hold"; hold
out
/usr/bin/docker run -i --name client --network none -v "$W/out:/out" t /server <"$W/hold" >/dev/null 2>&1 & client=$!
until_true has "$W/out/up"; until_true past_first_second "$W/out/up"; kill -9 $client; wait $client 2>/dev/null
ok "the client of run -i is killed: the container ends" "$(code client >/dev/null; cat "$W/out/worker" 2>&1)" finished
out; run -d --name host t sh -c 'while :; do sleep 1; done' >/dev/null
/usr/bin/docker exec -i host /treaper -- /server <"$W/hold" >/dev/null 2>&1 & client=$!
until_true has "$W/out/up"; until_true past_first_second "$W/out/up"; kill -9 $client; wait $client 2>/dev/null
until_true has "$W/out/worker"; ok "the client of exec -i is killed: the tree ends" "$(cat "$W/out/worker")" finished
out; docker exec host /treaper sh -c 'exit 8' 2>"$W/words"; ok "exec: the status" $? 8
ok "exec, whose parent is outside: not a word" "$(cat "$W/words")" ""
ok "exec: nothing is left" "$(docker exec host sh -c 'ps | grep "[/]server" || echo none')" none

# Another container's PID namespace, as Kubernetes shares it in a pod: not PID 1, and its parent is outside.
out; ok "a shared PID namespace: not a word" "$(run --rm --pid container:host t sh -c 'exit 0' 2>&1)" ""
run --rm --pid container:host t sh -c 'exit 11'; ok "a shared PID namespace: the status" $? 11
started shared --pid container:host t /server; docker stop -t 10 shared >/dev/null
ok "a shared PID namespace: docker stop" "$(code shared) $(cat "$W/out/worker" 2>&1)" "3 finished"
ok "a shared PID namespace: the others live on" "$(docker inspect -f '{{.State.Running}}' host)" true

# Terminals: the client's are in raw mode, so that the keys are the container's.
typed() { # typed KEYS COMMAND...: in a container with a terminal, once it says it is up
  local keys=$1; shift; out
  { until_true has "$W/out/up" >&2; printf "$keys"; } |
    script -qec "/usr/bin/docker run --rm -it --network none -v $W/out:/out t sh -c '$*'" /dev/null >"$W/typed" 2>&1
}
typed '\003' 'trap "exit 12" INT; echo >/out/up; while :; do sleep 0.05; done'; ok "-it: Ctrl-C" $? 12
typed '\034' 'trap "exit 13" QUIT; echo >/out/up; while :; do sleep 0.05; done'; ok "-it: Ctrl-\\" $? 13
typed 'word\n' 'echo >/out/up; read x; test "$x" = word && exit 14'; ok "-it: the keyboard is the command's" $? 14

hardened=(--memory 32m --pids-limit 32 --read-only --user 65534:65534 --cap-drop ALL --security-opt no-new-privileges)
ok "a hardened container has the engine's filter of system calls" \
  "$(run --rm "${hardened[@]}" t sed -n 's/^Seccomp:\t//p' /proc/1/status)" 2
run --rm "${hardened[@]}" t sh -c 'exit 5'; ok "read-only, no user, no capability, no new privileges" $? 5
started hardened "${hardened[@]}" t /server; docker stop -t 10 hardened >/dev/null
ok "the same: docker stop" "$(code hardened) $(cat "$W/out/worker" 2>&1)" "3 finished"
docker rm -f $(docker ps -aq) >/dev/null 2>&1
closing
