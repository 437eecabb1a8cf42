"""Processes as /proc shows them: which descend from which, which still live, and how to end exactly those."""

import ctypes
import os
import select
import signal
import time
from dataclasses import dataclass

PR_SET_CHILD_SUBREAPER = 36
WALL = 0x40000000  # __WALL: children of every kind


@dataclass(frozen=True)
class Proc:
    pid: int
    start: int  # clock ticks since boot: with the pid it identifies one process
    comm: str
    cmdline: str

    def __str__(self):
        words = [os.path.basename(word) if word.startswith("/") else word for word in self.cmdline.split()]
        return f"{self.pid} {' '.join(words)[:50] or self.comm}"


def become_subreaper():
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "PR_SET_CHILD_SUBREAPER")


def _read(path):
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:  # gone, or not ours to read
        return b""


def _stat(pid):
    """(ppid, start time, alive, comm) of a process, or None."""
    raw = _read(f"/proc/{pid}/stat")
    if b")" not in raw:
        return None
    head, _, tail = raw.rpartition(b")")
    fields = tail.split()
    state, ppid, threads, start = fields[0], int(fields[1]), int(fields[17]), int(fields[19])
    # A zombie leader whose other threads run on is alive.
    alive = state not in (b"Z", b"X") or threads > 1
    return ppid, start, alive, head.partition(b"(")[2].decode(errors="replace")


def describe(pid):
    found = _stat(pid)
    if found is None or not found[2]:
        return None
    cmdline = _read(f"/proc/{pid}/cmdline").replace(b"\0", b" ").decode(errors="replace").strip()
    return Proc(pid, found[1], found[3], " ".join(cmdline.split()))


def descendants(root):
    """The pids of all descendants of `root`, by a scan of every process (a walk of `children` may miss some)."""
    parents = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            found = _stat(int(name))
            if found is not None:
                parents[int(name)] = found[0]
    children = {}
    for pid, parent in parents.items():
        children.setdefault(parent, []).append(pid)
    result, queue = set(), [root]
    while queue:
        for pid in children.get(queue.pop(), ()):
            if pid not in result:
                result.add(pid)
                queue.append(pid)
    return result


def children_of(pid):
    return [d for d in map(describe, descendants(pid)) if d and (_stat(d.pid) or (0,))[0] == pid]


def reap():
    """Reaps every dead child. Returns True if no child is left."""
    while True:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG | WALL)
        except ChildProcessError:
            return True
        if pid == 0:
            return False


def open_pidfd(proc):
    """A pidfd of exactly this process, or None if it is gone (its pid may belong to another process by now)."""
    if proc.pid <= 1:
        raise ValueError(f"refusing pid {proc.pid}")
    try:
        fd = os.pidfd_open(proc.pid)
    except OSError:
        return None
    now = _stat(proc.pid)
    if now is None or now[1] != proc.start:
        os.close(fd)
        return None
    return fd


def kill(proc, number=signal.SIGKILL):
    """Signals exactly this process, never another one that got its pid."""
    fd = open_pidfd(proc)
    if fd is None:
        return
    try:
        signal.pidfd_send_signal(fd, number)
    except OSError:
        pass
    finally:
        os.close(fd)


def wait_any_exit(procs, deadline, also=()):
    """Sleeps until one of `procs` is gone, one of the descriptors `also` hangs up, or `deadline` (monotonic) is over."""
    poll = select.poll()
    fds = []
    for proc in procs:
        fd = open_pidfd(proc)
        if fd is None:
            break
        fds.append(fd)
        poll.register(fd, select.POLLIN)
    else:
        for fd in also:
            poll.register(fd, 0)
        poll.poll(max(0.0, deadline - time.monotonic()) * 1000)
    for fd in fds:
        os.close(fd)


class Cgroup:
    """A cgroup v2 group of the arena's own, if the machine has one. Its members are all that ever entered."""

    def __init__(self, path):
        self.path = path

    @classmethod
    def make(cls, name):
        mount = next((m for m in map(_cgroup2_mount, _lines("/proc/self/mountinfo")) if m), None)
        own = next((line[3:] for line in _lines("/proc/self/cgroup") if line.startswith("0::")), None)
        if mount is None or own is None:
            return None
        root, point = mount
        # The mount shows only what is below its root. Outside of that there is no group for the arena.
        inside = os.path.relpath(own, root) if own.startswith(root.rstrip("/") + "/") or own == root else None
        if inside is None:
            return None
        path = os.path.normpath(os.path.join(point, inside, name))
        try:
            os.mkdir(path)
        except OSError:
            return None
        group = cls(path)
        try:
            open(os.path.join(path, "cgroup.procs"), "w").close()
        except OSError:
            group.remove()
            return None
        return group

    def enter(self):
        with open(os.path.join(self.path, "cgroup.procs"), "w") as file:
            file.write("0")

    def pids(self):
        found = set()
        for folder, _, _ in os.walk(self.path):
            found.update(map(int, _read(os.path.join(folder, "cgroup.procs")).split()))
        return {pid for pid in found if pid > 1}

    def remove(self):
        for folder, _, _ in os.walk(self.path, topdown=False):
            try:
                os.rmdir(folder)
            except OSError:
                pass


def _lines(path):
    return _read(path).decode(errors="replace").splitlines()


def _cgroup2_mount(line):
    before, _, after = line.partition(" - ")
    if after.split()[:1] != ["cgroup2"]:
        return None
    fields = before.split()
    return fields[3], fields[4]
