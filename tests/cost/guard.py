"""Counts instructions (steps.c), system calls (strace) and private memory of treaper's own processes.

guard.py BINARY LIMITS STEPS
"""

import glob
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time

SERVER = [sys.executable, "-SsE", os.path.join(os.path.dirname(os.path.abspath(__file__)), "server.py")]
# The cost of one event is the difference between many and few, over the number of the rest.
FEW, MANY = 5, 55
GROUP = "/sys/fs/cgroup/memory/cgroup.procs"
MODES = {"pair": ([], 2), "alone": (["--no-guard"], 1)}
ENVIRONMENT = {"PATH": "/usr/bin:/bin"}
STEPS = sys.argv[3]


def run(command):
    done = subprocess.run(command, env=ENVIRONMENT, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    if done.returncode != 0:
        raise SystemExit(f"guard: {' '.join(command)}: status {done.returncode}\n{done.stderr.decode(errors='replace')}")


def instructions(command, _own):
    """Of all processes of treaper. The server is not followed."""
    with tempfile.NamedTemporaryFile("r", encoding="utf-8") as file:
        run([STEPS, file.name, "120", *command])
        return sum(int(line.split()[1]) for line in file)


def calls(command, own):
    """Of the first `own` processes of treaper: each makes the next one as its first child."""
    with tempfile.TemporaryDirectory() as directory:
        run(["strace", "-qq", "-ff", "-o", f"{directory}/t", *command])
        texts = {}
        for name in glob.glob(f"{directory}/t.*"):
            with open(name, encoding="utf-8", errors="replace") as file:
                texts[int(name.rpartition(".")[2])] = file.read()
        made = re.compile(r"^(?:fork|vfork|clone3?)\(.*= (\d+)$", re.M)
        text = next(text for text in texts.values() if text.startswith(f'execve("{command[0]}"'))
        total = 0
        for left in range(own, 0, -1):
            total += len(re.findall(r"^\w+\(", text, re.M))
            if left > 1:
                text = texts[int(made.search(text)[1])]
        return total


def wait_until_locked(pid):
    """treaper locks its code some milliseconds after the start, and then sleeps. A low `ulimit -l` forbids it."""
    end = time.monotonic() + 2
    while time.monotonic() < end:
        with open(f"/proc/{pid}/status", encoding="utf-8") as file:
            text = file.read()
        if re.search(r"^State:\s+S", text, re.M) and re.search(r"^VmLck:\s+[1-9]", text, re.M):
            return
        time.sleep(0.005)


def is_grouped():
    """Whether this process is in a memory group of cgroup v1, where treaper touches what a stop will need."""
    with open("/proc/self/cgroup", encoding="utf-8") as file:
        return re.search(r":memory:/.", file.read()) is not None


def leave_group():
    """An error where this file is that of the own group, as in a container."""
    with open(GROUP, "w", encoding="utf-8") as file:
        file.write("0")
    if is_grouped():
        raise OSError


def memory(command, own, before):
    """The private dirty memory of the first `own` processes while the server sleeps, in KiB."""
    server = ["/bin/sh", "-c", "echo; exec sleep 100"]
    with subprocess.Popen([*command, *server], env=ENVIRONMENT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, preexec_fn=before) as treaper:
        treaper.stdout.readline()
        total, pid = 0, treaper.pid
        pids = []
        for _ in range(own):
            pids.append(pid)
            wait_until_locked(pid)
            with open(f"/proc/{pid}/task/{pid}/children", encoding="utf-8") as file:
                pid = file.read().split()[0]
        for pid in pids:
            with open(f"/proc/{pid}/smaps_rollup", encoding="utf-8") as file:
                total += int(re.search(r"^Private_Dirty:\s+(\d+)", file.read(), re.M)[1])
        treaper.terminate()
        return total


def memories(mode, command, own):
    """The median, since the place of the stack is random; outside of a memory group, and in one if there is one."""
    ways = {"grouped": None, "private": leave_group} if is_grouped() else {"private": None}
    found = {}
    for kind, before in ways.items():
        try:
            found[f"{mode} {kind} memory"] = statistics.median(memory(command, own, before) for _ in range(5))
        except (OSError, subprocess.SubprocessError):
            if before is None:
                raise
            print(f"skipped: {mode} {kind} memory: this process cannot leave its memory group")
    return found


def measure(binary):
    found = {}
    for mode, (options, processes) in MODES.items():
        found |= memories(mode, [binary, *options, "--"], processes)
        for unit, count in (("instructions", instructions), ("calls", calls)):
            treaper = [binary, *options, "--"]
            found[f"{mode} start {unit}"] = count([*treaper, "/bin/true"], processes)
            for event in ("forward", "reap"):
                few, many = (
                    count([*treaper, *SERVER, event, str(times), str(processes)], processes) for times in (FEW, MANY)
                )
                found[f"{mode} {event} {unit}"] = round((many - few) / (MANY - FEW), 1)
    return found


def main():
    binary, limits = sys.argv[1:3]
    with open(limits, encoding="utf-8") as file:
        lines = [line.split() for line in file if line.strip() and not line.startswith("#")]
    allowed = {" ".join(words[:3]): float(words[3]) for words in lines}
    found = measure(binary)
    failed = 0
    for what, count in found.items():
        limit = allowed.get(what)
        # Nothing is free: a zero means that nothing was counted.
        good = limit is not None and 0 < count <= limit
        failed += not good
        print(f"{'ok  ' if good else 'FAIL'} {what}: {count:g}, at most {limit if limit is None else f'{limit:g}'}")
    print(f"{len(found) - failed} passed, {failed} failed")
    raise SystemExit(1 if failed else 0)


if __name__ == "__main__":
    main()
