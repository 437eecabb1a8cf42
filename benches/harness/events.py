"""What each event costs: an orphan, a signal, a byte."""

import os
import signal
import struct
import subprocess
import time

from contenders import Contender, named
from table import median, number, ratio, table, tenth

ROUNDS = 2000


def orphans(words, work, count, burst):
    result = subprocess.run(
        [*words, os.path.join(work, "orphans"), str(count), str(burst)], check=True, stdout=subprocess.PIPE, text=True
    )
    wall, cpu, taken = map(int, result.stdout.split())
    if not taken:
        raise SystemExit(f"{words[0]} did not reap all")
    return wall / count / 1000, cpu / count / 1000


def measure_reaping(contenders, work, quick):
    names = ["tini-static", "tini", "dumb-init", "catatonit", "treaper", "treaper --no-guard", "treaper (cargo build)"]
    chosen = named(contenders, *names)
    everyone = {}
    for contender in chosen:
        # If it adopts orphans only as PID 1, it is PID 1.
        namespace = [] if contender.reaps else ["unshare", "--pid", "--fork", "--mount-proc"]
        everyone[contender.name] = [*namespace, *contender.words]
    few, repeats = (10_000, 1) if quick else (20_000, 5)
    results = {name: ([], [], []) for name in everyone}
    for _ in range(repeats):
        for name, words in everyone.items():
            wall, cpu = orphans(words, work, few, 500)
            results[name][0].append(wall)
            results[name][1].append(cpu)
            results[name][2].append(orphans(words, work, 10_000, 10_000)[0] * 10)
    rows = []
    base = [median(values) for values in results["tini-static"]]
    for name, values in results.items():
        medians = [median(each) for each in values]
        rows.append([name])
        for value, yardstick in zip(medians, base):
            rows[-1] += [number(value), ratio(value, yardstick)]
    head = ["", "µs each, bursts of 500", "ratio", "its processor time, µs", "ratio", "10,000 zombies at once, ms", "ratio"]
    text = (
        f"{few * repeats:,} orphans in bursts, and {repeats} times 10,000 zombies handed over at once: from the hand-over"
        " until the reaper has taken all, as the server sees it. dumb-init is no subreaper: it ran as PID 1 of a namespace.\n\n"
    )
    return "Reaping", text + table(head, rows)


class Stamping:
    """`words stamp`: a server that reports when it got the signal."""

    def __init__(self, words, work):
        reader, writer = os.pipe()
        self.reader = reader
        self.process = subprocess.Popen(
            [*words, os.path.join(work, "stamp"), str(writer)], pass_fds=[writer], stdin=subprocess.DEVNULL
        )
        os.close(writer)
        self.stamp()

    def stamp(self):
        return struct.unpack("q", os.read(self.reader, 8))[0]

    def send(self):
        start = time.monotonic_ns()
        os.kill(self.process.pid, signal.SIGUSR1)
        return (self.stamp() - start) / 1000

    def end(self):
        # Its next stamp finds no reader.
        os.close(self.reader)
        os.kill(self.process.pid, signal.SIGUSR1)
        self.process.wait(timeout=30)


def measure_forwarding(contenders, work, quick):
    names = ["tini-static", "tini", "dumb-init", "catatonit", "treaper", "treaper --no-guard", "treaper (cargo build)"]
    everyone = [Contender("the server alone", []), *named(contenders, *names)]
    servers = [Stamping(contender.words, work) for contender in everyone]
    rounds = 200 if quick else ROUNDS
    times = [[] for _ in everyone]
    for round_ in range(rounds + 20):
        for at, server in enumerate(servers):
            time.sleep(0.0002)
            taken = server.send()
            if round_ >= 20:
                times[at].append(taken)
    rows, yardstick = [], None
    for contender, server, values in zip(everyone, servers, times):
        server.end()
        both = median(values), tenth(values)
        yardstick = yardstick or both
        rows.append([contender.name])
        for value, base in zip(both, yardstick):
            rows[-1] += [number(value), ratio(value, base)]
    head = ["µs", "median", "ratio", "10th percentile", "ratio"]
    text = f"SIGUSR1 to the process that the host knows, until the server has it; {rounds} of each in turn.\n\n"
    return "Forwarding", text + table(head, rows)


def measure_throughput(contenders, work, quick):
    del work
    names = ["tini-static", "treaper", "treaper --no-guard", "treaper (cargo build)"]
    everyone = [Contender("the server alone", []), *named(contenders, *names)]
    megabytes, repeats = (200, 3) if quick else (1000, 9)
    times = [[] for _ in everyone]
    for _ in range(repeats):
        for at, contender in enumerate(everyone):
            line = f'head -c {megabytes}M /dev/zero | "$@" cat | cat >/dev/null'
            start = time.monotonic()
            subprocess.run(["sh", "-c", line, "sh", *(contender.words or ["env"])], check=True)
            times[at].append(time.monotonic() - start)
    rows = []
    base = median(times[0])
    for contender, values in zip(everyone, times):
        value = median(values)
        rows.append([contender.name, number(megabytes / 1024 / value), ratio(value, base)])
    head = ["", "GiB/s", "time, ratio"]
    text = f"`head -c {megabytes}M /dev/zero | X cat | cat`: {repeats} runs of each in turn.\n\n"
    return "Pass-through", text + table(head, rows)


