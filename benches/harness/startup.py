"""Start-up: `X tiny`, posix_spawn until reaped."""

import os
import subprocess

from contenders import Contender
from table import median, number, ratio, table, tenth

RUNS = 1000


def measure(contenders, work, quick):
    tiny = os.path.join(work, "tiny")
    everyone = [*contenders, Contender("the command alone", [])]
    runs = 60 if quick else RUNS
    commands = ["|".join([*contender.words, tiny]) for contender in everyone]
    lines = subprocess.run(
        [os.path.join(work, "startup"), str(runs), *commands], check=True, stdout=subprocess.PIPE, text=True
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
    text = f"`X true` (a `true` of one system call), posix_spawn until reaped, {runs} runs of each in rounds.\n\n"
    return "Start-up", text + table(head, rows)
