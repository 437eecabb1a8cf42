"""What the relay of --inject and --cancel costs: a message there and back, many bytes, and the memory of one more process."""

import os
import socket
import subprocess
import time

from contenders import named, path
from procs import children, command, memory, wait_for
from table import median, number, ratio, table, tenth

ROUNDS = 2000
LINE = b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n'
MEGABYTES = 64
SERVER = ["/bin/cat"]


class Echo:
    """A server that says everything again, behind `words`. All streams are pipes."""

    def __init__(self, name, words, between=None, inject=None):
        self.name = name
        self.between = between
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={"PATH": "/usr/bin:/bin"})
        self.input = self.process.stdin.fileno()
        self.output = self.process.stdout.fileno()
        self.writer = None
        if inject:
            self.writer = wait_for(lambda: connected(inject))
            self.input = self.writer.fileno()
        self.round_trip()

    def round_trip(self):
        start = time.monotonic_ns()
        os.write(self.input, LINE)
        left = len(LINE)
        while left > 0:
            left -= len(os.read(self.output, left))
        return (time.monotonic_ns() - start) / 1000

    def pass_on(self, file, size):
        """Seconds until all of `file` has come out again."""
        start = time.monotonic()
        feeder = subprocess.Popen(["/bin/cat", file], stdout=self.input)
        subprocess.run(["/usr/bin/head", "-c", str(size)], stdin=self.output, stdout=subprocess.DEVNULL, check=True)
        taken = time.monotonic() - start
        feeder.wait()
        return taken

    def resident(self):
        """Of one process between: Rss, private memory, Pss."""
        found = memory(self.between(self.process.pid))
        return found["Rss"], found["Private_Clean"] + found["Private_Dirty"], found["Pss"]

    def end(self):
        if self.writer:
            self.writer.close()
        self.process.stdin.close()
        self.process.wait(timeout=30)


def connected(name):
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.connect(name)
    except (FileNotFoundError, ConnectionRefusedError):
        connection.close()
        return None
    return connection


def relay(pid):
    """The process that the host started."""
    assert command(pid) == "tree-relay"
    return pid


def start(everyone, work):
    treaper = named(everyone, "treaper")[0].words[:-1]

    def source(name):
        return f"unix:{os.path.join(work, name)}"

    def shell(line):
        return ["/bin/sh", "-c", line]

    boundary = ["--turn", "type=user", "--cancel", "request.subtype=interrupt", "--boundary", "type=result"]
    return [
        Echo("the server alone", SERVER),
        Echo("treaper", [*treaper, "--", *SERVER]),
        Echo("`cat` before the server", shell("cat | cat"), lambda pid: children(pid)[0]),
        Echo("treaper --inject", [*treaper, "--inject", source("inject"), "--", *SERVER], relay),
        Echo("the same, by another writer", [*treaper, "--inject", source("other"), "--", *SERVER], relay, os.path.join(work, "other")),
        Echo("`cat` before and behind it", shell("cat | cat | cat"), lambda pid: children(pid)[0]),
        Echo("socat", [path("socat"), "-", "EXEC:/bin/cat,pipes"], lambda pid: pid),
        Echo("treaper --cancel", [*treaper, *boundary, "--", *SERVER], relay),
    ]


def lines(work):
    """A file of messages of 1,000 bytes."""
    name = os.path.join(work, "messages")
    head, tail = b'{"type":"assistant","text":"', b'"}\n'
    line = head + b"x" * (1000 - len(head) - len(tail)) + tail
    size = MEGABYTES << 20
    with open(name, "wb") as file:
        file.write((line * (size // len(line) + 1))[:size - 1] + b"\n")
    return name, size


def measure(everyone, work, quick):
    rounds, repeats = (200, 3) if quick else (ROUNDS, 9)
    file, size = lines(work)
    servers = start(everyone, work)
    times = [[] for _ in servers]
    for round_ in range(rounds + 20):
        for at, server in enumerate(servers):
            time.sleep(0.0002)
            taken = server.round_trip()
            if round_ >= 20:
                times[at].append(taken)
    rest = [server.resident() if server.between else None for server in servers]
    passed = [[] for _ in servers]
    for _ in range(repeats):
        for at, server in enumerate(servers):
            passed[at].append(server.pass_on(file, size))
    rows, kept, base = [], [], None
    for server, trips, seconds, before in zip(servers, times, passed, rest):
        values = median(trips), tenth(trips), median(seconds)
        base = base or values
        trip, quick_trip, second = values
        rows.append([
            server.name, number(trip), ratio(trip, base[0]), number(quick_trip), ratio(quick_trip, base[1]),
            number(size / second / (1 << 30)), ratio(second, base[2]),
        ])
        if before:
            kept.append([server.name, *before, *server.resident()])
        server.end()
    text = (
        f"A server that says everything again (`cat`). A message of {len(LINE)} bytes there and back, {rounds} of each in turn; "
        f"{MEGABYTES} MiB in messages of 1,000 bytes, {repeats} times in turn. With `--inject` the relay is in one "
        "direction, as `cat` before the server is. With `--cancel` it is in both, as socat is.\n\n"
    )
    head = ["", "there and back, µs", "ratio", "10th percentile", "ratio", f"{MEGABYTES} MiB, GiB/s", "time, ratio"]
    between = (
        "\n`smaps_rollup` of the process between: of `tree-relay`, of one `cat`, of socat; before and after those "
        f"{MEGABYTES} MiB.\n\n"
    )
    columns = ["Rss", "private", "Pss"]
    columns = ["KiB", *columns, *(f"{name} after" for name in columns)]
    return "Several writers", text + table(head, rows) + between + table(columns, kept)
