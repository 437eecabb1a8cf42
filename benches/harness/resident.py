"""The cost while nothing happens: memory, and a check that it really does nothing."""

import time

from procs import Sleeping, memory, switches
from table import number, ratio, table

FLEET = 50
REST_SECONDS = 30


def sums(sleeping, key):
    return sum(memory(pid).get(key, 0) for pid in sleeping.own)


def measure_memory(contenders, _work, quick):
    rows, yardstick = [], {}
    fleet = 10 if quick else FLEET
    for contender in contenders:
        one = Sleeping(contender.words)
        time.sleep(0.5)
        resident = [memory(pid)["Rss"] for pid in one.own]
        dirty = sums(one, "Private_Dirty")
        one.end()
        many = [Sleeping(contender.words) for _ in range(fleet)]
        time.sleep(1)
        proportional = sum(sums(each, "Pss") for each in many) / fleet
        for each in many:
            each.end()
        yardstick.setdefault("rss", max(resident))
        yardstick.setdefault("dirty", dirty)
        yardstick.setdefault("pss", proportional)
        rows.append([
            contender.name, len(resident), max(resident), ratio(max(resident), yardstick["rss"]),
            dirty, ratio(dirty, yardstick["dirty"]), number(proportional), ratio(proportional, yardstick["pss"]),
        ])
    head = ["KiB", "processes", "Rss of the largest", "ratio", "private dirty, all", "ratio", f"Pss, one of {fleet}", "ratio"]
    text = "`smaps_rollup` of all processes between host and server (`sleep`); alone, and one of many at once.\n\n"
    return "Memory at rest", text + table(head, rows)


def measure_rest(contenders, _work, quick):
    seconds = 3 if quick else REST_SECONDS
    all_ = [Sleeping(contender.words) for contender in contenders]
    time.sleep(2)
    before = [[switches(pid) for pid in each.own] for each in all_]
    time.sleep(seconds)
    rows = []
    for contender, each, was in zip(contenders, all_, before):
        now = [switches(pid) for pid in each.own]
        count = sum(n[0] - w[0] for n, w in zip(now, was))
        used = sum(n[1] - w[1] for n, w in zip(now, was))
        rows.append([contender.name, count, number(used / 1000) if used else 0])
        each.end()
    head = ["", f"context switches in {seconds} s", "processor time, µs"]
    text = "A process that was on no processor made no system call.\n\n"
    return "At rest", text + table(head, rows)
