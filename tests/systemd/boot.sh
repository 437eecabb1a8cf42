# Boots a real systemd (the machine's own) as PID 1 of private namespaces, on an overlay of the
# machine's root whose upper layer is in memory. Sourced by `run`; defines `inside COMMAND...`.
#
# Runs `run` again twice: in a cgroup of its own (outer), and as the process that becomes systemd (inner).
case "${TREAPER_TEST_BOOT:-}" in
'')
  tree=$(findmnt -nrt cgroup2 -o TARGET | head -1)
  group=$tree/treaper-systemd.$$
  mkdir "$group" 2>/dev/null || { echo "skipped: no writable cgroup2 tree"; echo "0 passed, 0 failed, 1 skipped"; exit 0; }
  export TREAPER_TEST_BOOT=outer GROUP=$group
  timeout -k 10 "${LIMIT:-200}" bash -c 'echo 0 >"$GROUP/cgroup.procs"; exec bash "$@"' x "$0" "$@"
  status=$?
  echo 1 >"$group/cgroup.kill" 2>/dev/null
  for _ in $(seq 200); do
    find "$group" -depth -type d -exec rmdir {} \; 2>/dev/null
    [ -d "$group" ] || break
    sleep 0.02
  done
  exit $status
  ;;
inner)
  W=$1 R=$1/root
  mount -t tmpfs tmpfs "$W" && mkdir "$W/up" "$W/wk" "$R" &&
    mount -t overlay overlay -o "lowerdir=${ROOT:-/},upperdir=$W/up,workdir=$W/wk" "$R" || exit 1
  mount -t proc proc "$R/proc"; mount --bind "$R/proc/sys" "$R/proc/sys"; mount -o remount,bind,ro "$R/proc/sys"
  mount -t sysfs -o ro sysfs "$R/sys"; mount -t cgroup2 cgroup2 "$R/sys/fs/cgroup" || exit 1
  mount -t tmpfs -o mode=755 tmpfs "$R/dev"; mount -t tmpfs -o mode=755 tmpfs "$R/run"
  while read -r name major minor; do mknod -m 666 "$R/dev/$name" c "$major" "$minor"
  done <<<$'null 1 3\nzero 1 5\nfull 1 7\nrandom 1 8\nurandom 1 9\ntty 5 0'
  mkdir "$R/dev/pts" "$R/dev/shm"; mount -t devpts -o newinstance,ptmxmode=666 devpts "$R/dev/pts"
  ln -s pts/ptmx "$R/dev/ptmx"; ln -s /proc/self/fd "$R/dev/fd"; mount -t tmpfs tmpfs "$R/dev/shm"
  mkdir -p "$R/run/systemd/system" "$R/run/test" "$R/etc/systemd/system.conf.d" "$R/etc/systemd/journald.conf.d"
  : >"$R/etc/machine-id"; ip link set lo up 2>/dev/null; hostname sd
  printf '[Manager]\nLogTarget=journal\nDefaultTimeoutStopSec=20s\n' >"$R/etc/systemd/system.conf.d/t.conf"
  printf '[Journal]\nStorage=volatile\nAudit=no\n' >"$R/etc/systemd/journald.conf.d/t.conf"
  printf '[Unit]\nDefaultDependencies=no\nWants=systemd-journald.service dbus.socket\n' >"$R/run/systemd/system/t.target"
  # Nothing of the machine's own boot (sysctl, mounts, enabled services); /proc/sys is read-only too.
  ln -s /dev/null "$R/run/systemd/system/systemd-journald-audit.socket"
  rm -rf "$R"/etc/systemd/system/*.wants "$R"/etc/systemd/system/*.requires "$R"/lib/systemd/system/*.wants
  printf '[Unit]\nDefaultDependencies=no\n' >"$R/lib/systemd/system/sysinit.target"
  cd "$R" && mkdir -p run/old && pivot_root . run/old && exec env -i container=test PATH=/usr/sbin:/usr/bin:/sbin:/bin setsid \
    /bin/sh -c 'umount -l /run/old; exec /lib/systemd/systemd --system --unit=t.target --show-status=no </dev/null >/dev/null 2>&1'
  exit 1
  ;;
esac

W=$(mktemp -d)
finish() { [ -n "${P1:-}" ] && kill -9 "$P1" 2>/dev/null; wait 2>/dev/null; rmdir "$W"; }
trap finish EXIT
trap 'exit 124' TERM INT
mkdir "$GROUP/init" "$GROUP/payload"
( echo 0 >"$GROUP/payload/cgroup.procs"; TREAPER_TEST_BOOT=inner exec unshare -mCpiunf --propagation private bash "$0" "$W" ) & U=$!
echo 0 >"$GROUP/init/cgroup.procs"   # this shell: not inside of systemd's tree
inside() {
  nsenter -t "$P1" -m -p -i -u -n -C --root="/proc/$P1/root" --wd="/proc/$P1/root" \
    env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin TERM=dumb container=test "$@"
}
up() {
  P1=$(tr -d ' ' <"/proc/$U/task/$U/children") && [ -n "$P1" ] &&
    [ "$(inside systemctl is-active t.target 2>/dev/null)" = active ]
}
for _ in $(seq 500); do up && break; sleep 0.02; done
up || { echo "systemd did not come up"; echo "0 passed, 1 failed"; exit 1; }
