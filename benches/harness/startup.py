"""Start-up: `X tiny`, posix_spawn until reaped; one start right after the other, and with pauses between them."""

import os
import subprocess

from contenders import Contender
from table import median, number, ratio, table, tenth

RUNS = 1000
PAUSED_RUNS = 60
# Long enough for the kernel to end what it defers (an RCU grace period takes 13 to 40 ms).
PAUSE = 150


def measure(contenders, work, quick):
    text = f"`X true` (a `true` of one system call), posix_spawn until reaped, {60 if quick else RUNS} runs of each in rounds.\n\n"
    return "Start-up", text + starts(contenders, work, 60 if quick else RUNS, 0)


def measure_with_pauses(contenders, work, quick):
    runs = 10 if quick else PAUSED_RUNS
    text = f"The same with {PAUSE} ms between starts, as in real life; {runs} runs of each in rounds.\n\n"
    return "Start-up with pauses", text + starts(contenders, work, runs, PAUSE)


def starts(contenders, work, runs, pause):
    tiny = os.path.join(work, "tiny")
    floor = os.path.join(work, "floor")
    everyone = [
        *contenders,
        Contender("floor: one process that forks, execs, waits", [floor, "1"]),
        Contender("floor: two such processes", [floor, "2"]),
        Contender("the command alone", []),
    ]
    commands = ["|".join([*contender.words, tiny]) for contender in everyone]
    lines = subprocess.run(
        [os.path.join(work, "startup"), str(runs), str(pause), *commands], check=True, stdout=subprocess.PIPE, text=True
    ).stdout.splitlines()
    rows, yardstick = [], None
    for at, contender in enumerate(everyone):
        wall = [int(word) / 1000 for word in lines[2 * at].split()]
        cpu = [int(word) / 1000 for word in lines[2 * at + 1].split()]
        # The account of a run is coarse where the kernel counts ticks; the mean is exact all the same.
        values = median(wall), tenth(wall), sum(cpu) / len(cpu)
        yardstick = yardstick or values
        rows.append([contender.name])
        for value, base in zip(values, yardstick):
            rows[-1] += [number(value), ratio(value, base)]
    head = ["µs", "median", "ratio", "10th percentile", "ratio", "processor time", "ratio"]
    return table(head, rows)
