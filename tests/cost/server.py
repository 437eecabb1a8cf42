"""The server of the guard: `forward N` (a child signals it through treaper) or `reap N` (leaves N orphans)."""

import os
import signal
import sys
import time


def stat(pid):
    """The state and the parent."""
    with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
        state, parent = file.read().rpartition(")")[2].split()[:2]
    return state, int(parent)


def outermost(generations):
    pid = os.getpid()
    for _ in range(generations):
        pid = stat(pid)[1]
    return pid


def forward(count, generations):
    shim = outermost(generations)
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    reader, writer = os.pipe()
    # Another process sends them, because treaper returns no signal to the server that sent it.
    sender = os.fork()
    if sender == 0:
        os.close(writer)
        while os.read(reader, 1):
            os.kill(shim, signal.SIGUSR1)
        os._exit(0)
    os.close(reader)
    for _ in range(count):
        os.write(writer, b".")
        # The next one is sent only after this one has arrived. Otherwise the kernel would merge the two.
        signal.sigwait([signal.SIGUSR1])
    os.close(writer)
    os.waitpid(sender, 0)


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
        # One at a time, so that each SIGCHLD is for one orphan: the next one comes when treaper sleeps again.
        while os.path.exists(f"/proc/{orphan}") or stat(os.getppid())[0] != "S":
            time.sleep(0.001)


if __name__ == "__main__":
    signal.alarm(300)
    what, count, depth = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    if what == "forward":
        forward(count, depth)
    elif what == "reap":
        reap(count)
