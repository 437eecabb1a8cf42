# What the checks of every engine share. Sourced with $BIN and $W (a directory of the run) set.
pass=0 fail=0 skip=0
ok() { # ok NAME GOT WANT
  if [ "$2" = "$3" ]; then pass=$((pass + 1)); echo "ok   $1"
  else fail=$((fail + 1)); echo "FAIL $1: got '$2', want '$3'"; fi
}
like() { # like NAME GOT PATTERN
  # shellcheck disable=SC2254
  case "$2" in $3) ok "$1" x x;; *) ok "$1" "$2" "$3";; esac
}
skipped() { skip=$((skip + 1)); echo "skip $1"; }
closing() { echo "$pass passed, $fail failed, $skip skipped"; [ $fail = 0 ]; }

# until_true COMMAND...: looks again and again, up to 20 s.
until_true() {
  local end=$((SECONDS + 20))
  until "$@" >/dev/null 2>&1; do
    [ $SECONDS -lt $end ] || { echo "waited too long for: $*"; return 1; }
    sleep 0.02
  done
}
has() { [ -e "$1" ]; }
milliseconds() { local now; now=$(date +%s%N); echo $((now / 1000000)); }
# took NAME START AT_MOST: what began at START has taken no longer than AT_MOST ms.
took() { local t=$(($(milliseconds) - $2)); [ $t -le "$3" ]; ok "$1 (within $3 ms)" $? 0; }

# The files of an image FROM scratch: busybox, the init, and the servers of the checks.
# Each server writes into /out what has happened to it.
context() { # context DIRECTORY INIT
  mkdir -p "$1/bin" "$1/out"
  cp "$(command -v busybox)" "$1/bin/busybox"
  cp "$2" "$1/treaper"
  for name in tini docker-init dumb-init catatonit; do cp "$2" "$1/$name"; done
  # On SIGTERM it needs a moment to finish its work. A SIGKILL before that loses the work.
  cat >"$1/worker" <<'X'
#!/bin/sh
trap 'sleep 0.3; echo finished >/out/worker; exit 0' TERM
echo up >/out/up
while :; do sleep 0.05; done
X
  # Starts a worker in a session of its own. On SIGTERM it exits with 3, and leaves the worker.
  cat >"$1/server" <<'X'
#!/bin/sh
setsid /worker &
trap 'exit 3' TERM
trap 'exit 4' HUP
trap 'exit 5' USR1
while [ ! -e /out/leave ]; do sleep 0.05; done
exit 6
X
  chmod 755 "$1/worker" "$1/server"
}
