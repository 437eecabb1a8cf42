"""The server of the guard: `idle`, `forward N` (signals itself through treaper) or `reap N` (leaves N orphans)."""

import os
import signal
import sys


def parent_of(pid):
    with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
        return int(file.read().rpartition(")")[2].split()[1])


def outermost(generations):
    pid = os.getpid()
    for _ in range(generations):
        pid = parent_of(pid)
    return pid


def forward(count, generations):
    shim = outermost(generations)
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    for _ in range(count):
        os.kill(shim, signal.SIGUSR1)
        # The next one is sent only after this one has arrived. Otherwise the kernel would merge the two.
        signal.sigwait([signal.SIGUSR1])


def reap(count):
    for _ in range(count):
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            orphan = os.fork()
            if orphan != 0:
                os.write(writer, str(orphan).encode())
            os._exit(0)
        orphan = int(os.read(reader, 32))
        os.close(reader)
        os.close(writer)
        os.waitpid(child, 0)
        # One at a time, so that each SIGCHLD is for one orphan.
        while os.path.exists(f"/proc/{orphan}"):
            pass


if __name__ == "__main__":
    signal.alarm(300)
    what, count, depth = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    if what == "forward":
        forward(count, depth)
    elif what == "reap":
        reap(count)
