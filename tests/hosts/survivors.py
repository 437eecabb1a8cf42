"""Plays docs/survivors.md: each command starts the same server, each event ends something, and what is left is counted.

    tests/hosts/survivors             plays all, and writes docs/survivors.md and its table in README.md
    tests/hosts/survivors --check     plays what is installed, and compares it with docs/survivors.md
    tests/hosts/survivors --json [NAME...]     plays these commands, and prints the cells
"""

import itertools
import json
import multiprocessing
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path += [HERE, os.path.join(os.path.dirname(HERE), "mcp")]
import procs  # noqa: E402

PAGE = os.path.join(ROOT, "docs/survivors.md")
README = os.path.join(ROOT, "README.md")
PATIENCE = 25  # seconds after which what is there is left: more than drain, grace and kill of treaper together
READY_LIMIT = 120
AT_A_TIME = 60  # cells; most of their time they only wait
ROLES = ["server", "child", "deaf", "session", "daemon"]

# How each row of the table is started. The strictest form of each program is used.
COMMANDS = {
    "treaper": ["treaper"],
    "nothing": [],
    "timeout": ["timeout", "--kill-after=10", "1d"],
    "setpriv": ["setpriv", "--pdeathsig=TERM"],
    "tini": ["tini", "-s", "-g", "-p", "SIGTERM", "--"],
    "dumb-init": ["dumb-init"],
    "catatonit": ["catatonit", "-g", "--"],
    "bubblewrap": ["bwrap", "--dev-bind", "/", "/", "--proc", "/proc", "--unshare-pid", "--die-with-parent", "--"],
    "systemd-run --scope": ["systemd-run", "--quiet", "--scope"],
    "systemd-run --pipe": ["systemd-run", "--quiet", "--pipe", "--wait", "--property=TimeoutStopSec=10s"],
}
SHOWN = {
    "nothing": "nothing in front",
    "timeout": "`timeout --kill-after=10 1d`",
    "setpriv": "`setpriv --pdeathsig=TERM`",
    "tini": "`tini -s -g -p SIGTERM`",
    "catatonit": "`catatonit -g`",
    "bubblewrap": "`bwrap --unshare-pid --die-with-parent`",
    "systemd-run --scope": "`systemd-run --scope`",
    "systemd-run --pipe": "`systemd-run --pipe --wait`",
}
# These need a booted systemd. tests/hosts/systemd.sh boots one.
OF_SYSTEMD = ["systemd-run --scope", "systemd-run --pipe"]
EVENTS = {
    "host-killed": "host gets SIGKILL",
    "host-ends": "host exits, stdin stays open",
    "stdin": "stdin closes, host keeps running",
    "term": "it gets SIGTERM",
    "kill": "it gets SIGKILL",
    "server": "server exits",
}
KILLED = " [k]"

# The server does not read its stdin. It and its child exit when they get SIGTERM, and write that they could finish their work.
SERVER = """
mark=${1%-server}
role() { exec -a "$mark-$1" sleep 1000; }
trap 'echo told >told-server; exit 0' TERM
trap 'exit 0' USR1
mkfifo silence
bash -c 'trap "echo told >told-child; exit 0" TERM; while :; do read -r; done' "$mark-child" <>silence &
(trap '' TERM HUP INT; role deaf) &
setsid bash -c 'exec -a "$0-session" sleep 1000' "$mark" &
bash -c '(exec setsid bash -c "exec -a \\"\\$0-daemon\\" sleep 1000" "$0") &' "$mark"
while :; do wait; done
"""
# The host: SIGUSR1 closes the stdin of what it has started, SIGUSR2 ends it.
HOST = """
import os, signal, subprocess, sys
child = subprocess.Popen(sys.argv[2:], stdin=0 if sys.argv[1] == "given" else subprocess.PIPE)
signal.signal(signal.SIGUSR1, lambda *_: child.stdin.close())
signal.signal(signal.SIGUSR2, lambda *_: os._exit(0))
with open("child.new", "w") as file:
    file.write(str(child.pid))
os.rename("child.new", "child")
while True:
    signal.pause()
"""


def found(mark):
    """The processes of the server that live, by role."""
    by_role = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            process = procs.describe(int(name))
            role = re.search(rf"{mark}-(\w+)(?: 1000)?$", process.cmdline) if process else None
            # The server's own process has its mark as an argument. So have those that are about to become others.
            if role and (role[1] != "server" or process.cmdline.startswith("bash server")):
                by_role[role[1]] = process
    return by_role


def until(what, ask):
    deadline = time.monotonic() + READY_LIMIT
    while not (answer := ask()):
        if time.monotonic() > deadline:
            raise RuntimeError(f"waited too long for {what}")
        time.sleep(0.2)
    return answer


def play(cell):
    """The roles that are left, and whether the server, or its child if the server had exited, was asked to stop."""
    name, event = cell
    procs.become_subreaper()
    folder = tempfile.mkdtemp(prefix="treaper-survivors-")
    mark = "survivor" + os.path.basename(folder)[len("treaper-survivors-"):].replace("_", "x")
    try:
        return cell, outcome(name, event, folder, mark)
    except Exception as error:  # noqa: BLE001  (the others have to end by themselves, and clear up)
        return cell, error
    finally:
        for process in [p for p in map(procs.describe, procs.descendants(os.getpid())) if p] + list(found(mark).values()):
            procs.kill(process)
        while not procs.reap() and procs.descendants(os.getpid()):
            time.sleep(0.02)
        shutil.rmtree(folder, ignore_errors=True)


def outcome(name, event, folder, mark):
    with open(os.path.join(folder, "server"), "w") as file:
        file.write(SERVER)
    # systemd-run starts the server in another directory, so the path is absolute.
    command = [*COMMANDS[name], "bash", "-c", f'cd {folder} && exec bash server "$0"', f"{mark}-server"]
    reader, writer = os.pipe()
    stdin = "given" if event == "host-ends" else "own"
    with open(os.path.join(folder, "log"), "w") as log:
        host = subprocess.Popen(["/usr/bin/python3", "-c", HOST, stdin, *command], cwd=folder, stdin=reader, stdout=log, stderr=log,
                                start_new_session=True)
    os.close(reader)
    path = os.path.join(folder, "child")
    until("the command", lambda: os.path.exists(path))
    roles = until("the server", lambda: (lambda now: now if len(now) == len(ROLES) else None)(found(mark)))
    with open(path) as file:
        child = procs.describe(int(file.read()))
    # A hang-up within the first second is a complete input to treaper.
    time.sleep(1.5)
    act = {
        "host-killed": lambda: host.kill(),
        "host-ends": lambda: host.send_signal(signal.SIGUSR2),
        "stdin": lambda: host.send_signal(signal.SIGUSR1),
        "term": lambda: procs.kill(child, signal.SIGTERM),
        "kill": lambda: procs.kill(child),
        "server": lambda: procs.kill(roles["server"], signal.SIGUSR1),
    }
    act[event]()
    deadline, empty = time.monotonic() + PATIENCE, 0
    left = roles
    while empty < 3 and time.monotonic() < deadline:
        procs.reap()
        host.poll()
        left = [role for role, process in roles.items() if (now := procs.describe(process.pid)) and now.start == process.start]
        empty = 0 if left else empty + 1
        time.sleep(0.2)
    os.close(writer)
    asked = "child" if event == "server" else "server"
    told = os.path.exists(os.path.join(folder, f"told-{asked}"))
    return {"left": sorted(left, key=ROLES.index), "told": told}


def spoken(result):
    """A cell of the table."""
    count = len(result["left"])
    return f"{count} of {len(ROLES)}" if count else "**none**" + ("" if result["told"] else KILLED)


def versions(names):
    """What was played, by the first line of what each program says of itself."""
    said = {}
    for name in names:
        if COMMANDS[name]:
            program = COMMANDS[name][0]
            asked = subprocess.run([program, "--version"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True).stdout
            number = re.search(r"\d+(?:\.\d+)+|\b\d{3}\b", asked)
            said[program] = number[0] if number else "?"
    return said


def installed():
    return [name for name, command in COMMANDS.items() if name not in OF_SYSTEMD and (not command or shutil.which(command[0]))]


def play_all(names):
    cells = list(itertools.product(names, EVENTS))
    with multiprocessing.Pool(AT_A_TIME, maxtasksperchild=1) as pool:
        results = dict(pool.imap_unordered(play, cells))
    failed = [f"{name}, {EVENTS[event]}: {error}" for (name, event), error in results.items() if isinstance(error, Exception)]
    if failed:
        raise SystemExit("\n".join(failed))
    return {name: {event: results[name, event] for event in EVENTS} for name in names}


def play_with_systemd(names):
    """The same inside of a booted systemd, or None."""
    folder = tempfile.mkdtemp(prefix="treaper-survivors-")
    try:
        for file in (os.path.abspath(__file__), os.path.join(os.path.dirname(HERE), "mcp/procs.py")):
            shutil.copy(file, folder)
        env = {**os.environ, "BIN": os.environ["TREAPER"], "CONTROL": "1", "LIMIT": "400"}
        said = subprocess.run([os.path.join(HERE, "systemd.sh"), folder, "survivors"], env=env, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, text=True).stdout
    finally:
        shutil.rmtree(folder)
    played = re.search(r"^\{.*\}$", said, re.MULTILINE)
    if played is None:
        print(said, file=sys.stderr)
        return None
    return {name: json.loads(played[0])[name] for name in names}


def table(results):
    lines = ["| in front of the server | " + " | ".join(EVENTS.values()) + " |", "| --- |" + " --- |" * len(EVENTS)]
    for name in COMMANDS:
        cells = " | ".join(spoken(results[name][event]) for event in EVENTS)
        lines.append(f"| {SHOWN.get(name, f'`{name}`')} | {cells} |")
    return "\n".join(lines) + "\n"


def details(results):
    lines = ["| in front of the server | event | still running |", "| --- | --- | --- |"]
    for name, events in results.items():
        by_left = {}
        for event, result in events.items():
            if result["left"]:
                by_left.setdefault(", ".join(result["left"]), []).append(EVENTS[event])
        lines += [f"| {SHOWN.get(name, f'`{name}`')} | {'; '.join(events)} | {left} |" for left, events in by_left.items()]
    return "\n".join(lines) + "\n"


def written(path, name, text):
    """`path` with this text between its marks."""
    with open(path) as file:
        whole = file.read()
    begin, end = f"<!-- Written by tests/hosts/survivors: {name}. -->\n", "<!-- The end. -->\n"
    head, rest = whole.split(begin)
    _, tail = rest.split(end, 1)
    return f"{head}{begin}\n{text}\n{end}{tail}"


def write(results, said):
    names = ", ".join(f"{program} {number}" for program, number in said.items())
    for path, name, text in [(PAGE, "the table", table(results)), (PAGE, "what is left", details(results)),
                             (PAGE, "the versions", f"Run with {names}.\n"), (README, "the table", table(results))]:
        whole = written(path, name, text)
        with open(path, "w") as file:
            file.write(whole)


def rows():
    """The rows of the page, by the command of each."""
    of_row = {SHOWN.get(name, f"`{name}`"): name for name in COMMANDS}
    lines = {}
    with open(PAGE) as file:
        for line in file:
            cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
            if len(cells) == 1 + len(EVENTS) and cells[0] in of_row:
                lines[of_row[cells[0]]] = cells[1:]
    return lines


def differences(results):
    page, wrong = rows(), []
    for name, events in results.items():
        for (event, result), expected in zip(events.items(), page.get(name, [])):
            if spoken(result) != expected:
                wrong.append(f"{name}, {EVENTS[event]}: {spoken(result)} ({', '.join(result['left'])}), the page says {expected}")
        if name not in page:
            wrong.append(f"the page has no row for {name}")
    return wrong


def main():
    os.environ["PATH"] = os.path.dirname(os.environ["TREAPER"]) + ":" + os.environ["PATH"] if "TREAPER" in os.environ else os.environ["PATH"]
    for variable in [name for name in os.environ if name.startswith("TREAPER_")]:
        del os.environ[variable]
    if "--json" in sys.argv:
        print(json.dumps(play_all([name for name in COMMANDS if name in sys.argv[2:]])))
        return 0
    results = play_all(installed())
    if "--check" in sys.argv:
        wrong = differences(results)
        print("\n".join([*wrong, f"played: {', '.join(results)}"]))
        return bool(wrong)
    of_systemd = play_with_systemd(OF_SYSTEMD)
    missing = [name for name in COMMANDS if name not in results and name not in (of_systemd or {})]
    if missing:
        print(f"survivors: cannot play {', '.join(missing)}, so nothing was written", file=sys.stderr)
        return 1
    results.update(of_systemd)
    results = {name: results[name] for name in COMMANDS}
    write(results, versions(COMMANDS))
    print(table(results), end="")
    return 0


if __name__ == "__main__":
    # A cell that is ended early leaves its processes to this one.
    procs.become_subreaper()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        sys.exit(main())
    finally:
        while left := [p for p in map(procs.describe, procs.descendants(os.getpid())) if p]:
            for process in left:
                procs.kill(process)
            procs.reap()
            time.sleep(0.02)
