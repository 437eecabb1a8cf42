"""Looks at processes, and ends those that the harness has started."""

import os
import re
import signal
import subprocess
import time


def read(pid, name):
    with open(f"/proc/{pid}/{name}", encoding="ascii", errors="replace") as file:
        return file.read()


def children(pid):
    return [int(word) for word in read(pid, f"task/{pid}/children").split()]


def command(pid):
    return read(pid, "comm").strip()


def descend(pid, name):
    """The processes from `pid` down to the first one whose command is `name`, that one last."""
    chain = [pid]
    while command(chain[-1]) != name:
        below = children(chain[-1])
        if not below:
            return None
        chain.append(below[0])
    return chain


def wait_for(look, seconds=10.0):
    """What `look` returns, as soon as it returns something."""
    end = time.monotonic() + seconds
    while True:
        try:
            found = look()
        except (FileNotFoundError, ProcessLookupError):
            found = None
        if found:
            return found
        if time.monotonic() > end:
            raise SystemExit("benches: a process did not come up")
        time.sleep(0.005)


def memory(pid):
    """KiB by name, of `smaps_rollup`."""
    return {m[1]: int(m[2]) for m in re.finditer(r"^(\w+):\s+(\d+) kB", read(pid, "smaps_rollup"), re.M)}


def switches(pid):
    """Its context switches and its processor time. If both are 0 it did nothing."""
    words = read(pid, "schedstat").split()
    counts = re.findall(r"ctxt_switches:\s+(\d+)", read(pid, "status"))
    return sum(map(int, counts)), int(words[0])


class Sleeping:
    """`words sleep`, and its processes."""

    def __init__(self, words):
        self.process = subprocess.Popen(
            [*words, "/bin/sleep", "300"], stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={"PATH": "/usr/bin:/bin"}
        )
        chain = wait_for(lambda: descend(self.process.pid, "sleep"))
        self.own, self.server = chain[:-1], chain[-1]

    def end(self):
        end(self.server)
        self.process.wait(timeout=30)


def end(pid):
    if pid > 1:
        os.kill(pid, signal.SIGKILL)
