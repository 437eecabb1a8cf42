"""Scale: one host with many servers, SIGKILLed; how long until all are up, how much memory, how long until all are gone?"""

import os
import re
import select
import subprocess
import tempfile
import time

from contenders import named
from procs import children, command, read
from table import median, number, ratio, table

SERVERS, EACH = 1000, 5
SECONDS = 120


def below(pid):
    """Every process below `pid`."""
    found = []
    for child in children(pid):
        found += [child, *below(child)]
    return found


def shims_memory(host):
    """MiB (Pss) of the processes between the host and its servers."""
    total = 0
    for pid in below(host):
        if command(pid) != "tree":
            match = re.search(r"^Pss:\s+(\d+) kB", read(pid, "smaps_rollup"), re.M)
            total += int(match[1]) if match else 0
    return total / 1024


def play(words, work):
    """Seconds until all are up, MiB, seconds from the kill of the host until the last one is gone."""
    with tempfile.TemporaryDirectory(dir=work) as directory:
        path = os.path.join(directory, "fifo")
        os.mkfifo(path)
        fifo = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        reader, writer = os.pipe()
        tree = [os.path.join(work, "tree"), path, "flat", str(EACH)]
        start = time.monotonic()
        many = [os.path.join(work, "many"), str(writer), str(SERVERS), *words, *tree]
        host = subprocess.Popen(many, pass_fds=[writer], stderr=subprocess.DEVNULL)
        os.close(writer)
        if os.read(reader, 1) != b"\n":
            raise SystemExit("benches: the host did not come up")
        os.close(reader)
        left, deadline = SERVERS * EACH, start + SECONDS
        while left > 0:
            if time.monotonic() > deadline:
                raise SystemExit("benches: the servers did not come up")
            select.select([fifo], [], [], 1)
            try:
                left -= len(os.read(fifo, left))
            except BlockingIOError:
                pass
        up = time.monotonic() - start
        memory = shims_memory(host.pid)
        poll = select.poll()
        poll.register(fifo, 0)
        start = time.monotonic()
        host.kill()
        if not poll.poll(SECONDS * 1000):
            raise SystemExit("benches: the trees are not gone")
        gone = time.monotonic() - start
        host.wait()
        os.close(fifo)
        # The ends of the shims must not run beside the next scene.
        time.sleep(1)
    return up, memory, gone


def measure(everyone, work, quick):
    chosen = named(
        everyone, "bubblewrap", "treaper", "treaper --no-guard", "treaper --contain cgroup", "treaper --contain pidns"
    )
    repeats = 1 if quick else 5
    found = [[] for _ in chosen]
    for _ in range(repeats):
        for at, contender in enumerate(chosen):
            found[at].append(play(contender.words, work))
    rows, yardstick = [], None
    for contender, plays in zip(chosen, found):
        up, memory, gone = (median(each) for each in zip(*plays))
        values = up * 1000, memory, gone * 1000
        yardstick = yardstick or values
        rows.append([contender.name])
        for value, base in zip(values, yardstick):
            rows[-1] += [number(value), ratio(value, base)]
    head = ["", "all up after, ms", "ratio", "memory between (Pss), MiB", "ratio", "all gone after, ms", "ratio"]
    text = f"One host with {SERVERS:,} servers of {EACH} processes each, which is SIGKILLed; medians of {repeats} in turn.\n\n"
    return "Scale", text + table(head, rows)
