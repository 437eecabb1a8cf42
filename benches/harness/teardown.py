"""Teardown: the host is SIGKILLed; how long until the whole tree is gone?"""

import os
import select
import subprocess
import tempfile
import time

from contenders import Contender, named
from procs import children, end
from table import median, number, ratio, table

# Programs without a namespace do nothing when only their host is killed, so there is one program to compare with.
SHAPES = [("flat", 10), ("daemon", 100), ("wide", 1000), ("deep", 300), ("daemon", 3000)]
SECONDS = 60


class Scene:
    """A host, its `words`, and under them a tree that holds a FIFO open."""

    def __init__(self, words, work, shape, count, ignore):
        self.directory = tempfile.mkdtemp(dir=work)
        fifo = os.path.join(self.directory, "fifo")
        os.mkfifo(fifo)
        self.fifo = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
        reader, writer = os.pipe()
        tree = [os.path.join(work, "tree"), fifo, shape, str(count), *(["ignore"] if ignore else [])]
        self.host = subprocess.Popen(
            [os.path.join(work, "host"), str(writer), *words, *tree], pass_fds=[writer], stderr=subprocess.DEVNULL
        )
        os.close(writer)
        self.shim = int(os.read(reader, 32))
        os.close(reader)
        self.wait_until_complete(count)

    def wait_until_complete(self, count):
        deadline = time.monotonic() + SECONDS
        while count > 0:
            if time.monotonic() > deadline:
                raise SystemExit("benches: the tree did not come up")
            select.select([self.fifo], [], [], 1)
            try:
                count -= len(os.read(self.fifo, count))
            except BlockingIOError:
                pass

    def kill_host(self):
        """Seconds from the kill until no process of the tree is left."""
        poll = select.poll()
        poll.register(self.fifo, 0)
        start = time.monotonic()
        self.host.kill()
        if not poll.poll(SECONDS * 1000):
            raise SystemExit("benches: the tree is not gone")
        taken = time.monotonic() - start
        self.host.wait()
        os.close(self.fifo)
        self.wait_for_shim()
        return taken

    def wait_for_shim(self):
        """The next scene must not run beside the rest of this one."""
        deadline = time.monotonic() + SECONDS
        while os.path.exists(f"/proc/{self.shim}") and time.monotonic() < deadline:
            try:
                with open(f"/proc/{self.shim}/stat", encoding="ascii", errors="replace") as file:
                    if file.read().rpartition(")")[2].split()[0] == "Z":
                        return
            except (FileNotFoundError, ProcessLookupError):
                return
            time.sleep(0.001)


def contenders_of(everyone):
    """Each with whether the tree ignores SIGTERM."""
    found = [(contender, False) for contender in named(everyone, "bubblewrap", "treaper", "treaper --no-guard")]
    # SIGKILL comes at once, so that the kill is timed, and not the grace period.
    for name in ("treaper", "treaper --contain cgroup", "treaper --contain pidns"):
        words = named(everyone, name)[0].words
        found.append((Contender(f"{name} --grace 0, SIGTERM ignored", [*words[:-1], "--grace", "0", "--"]), True))
    return found


def measure(everyone, work, quick):
    repeats = 3 if quick else 9
    chosen = contenders_of(everyone)
    text = "The host is SIGKILLed; ms until the last of the tree is gone, medians of "
    text += f"{repeats} in turn; in parentheses the ratio to bubblewrap's kill of the PID namespace.\n\n"
    head = ["tree", "other processes", *(contender.name for contender, _ in chosen)]
    rows = []
    for strangers in (0, 3000):
        crowd = subprocess.Popen([os.path.join(work, "strangers"), str(strangers)], stdout=subprocess.PIPE)
        crowd.stdout.readline()
        try:
            for shape, count in SHAPES:
                times = [[] for _ in chosen]
                for _ in range(repeats):
                    for at, (contender, ignore) in enumerate(chosen):
                        times[at].append(Scene(contender.words, work, shape, count, ignore).kill_host() * 1000)
                base = median(times[0])
                cells = [f"{number(median(each))} ({ratio(median(each), base)})" for each in times]
                rows.append([f"{shape} {count:,}", f"{strangers:,}", *cells])
        finally:
            end_crowd(crowd)
    return "Teardown", text + table(head, rows)


def end_crowd(crowd):
    for pid in children(crowd.pid):
        end(pid)
    end(crowd.pid)
    crowd.wait()
