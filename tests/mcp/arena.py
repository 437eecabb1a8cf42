"""One scene in an arena: a subreaper, with a cgroup if the machine has one, which no process can leave unseen.

argv[1] is the scene as a JSON object (see scenes.py), the result goes to stdout as another. stdin is the runner's:
when it hangs up, the arena clears up and ends. Whatever happens, every process that was seen is dead at the end.
"""

import json
import os
import pwd
import select
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time

import procs

HERE = os.path.dirname(os.path.abspath(__file__))
START_LIMIT = 60  # seconds that host and server may take to get ready on a loaded machine
FLOOD_SIZE = 200_000  # bytes of each call of the host
FLOOD_CALLS = 300  # of the second process
CANCEL_DRAIN = 1  # as scenes.CANCEL_DRAIN


class Failed(Exception):
    """The scene did not reach its kill, so it says nothing about survivors."""


class Arena:
    def __init__(self, scene):
        self.scene = scene
        self.seen = {}
        self.events = []
        self.host = None
        self.buffer = b""
        procs.become_subreaper()
        self.cgroup = procs.Cgroup.make(f"treaper-mcp-{os.getpid()}")
        self.folder = tempfile.mkdtemp(prefix="treaper-mcp-")
        self.log = os.path.join(self.folder, "log")
        open(self.log, "w").close()
        if scene["uid"] is not None:
            for path in (self.folder, self.log):
                os.chown(path, scene["uid"], scene["uid"])

    # ---- who is here

    def members(self):
        pids = procs.descendants(os.getpid())
        if self.cgroup:
            pids |= self.cgroup.pids()
        found = [p for p in map(procs.describe, pids) if p]
        self.seen.update(((p.pid, p.start), p) for p in found)
        return found

    def survivors(self, spared=()):
        procs.reap()
        return [p for p in self.members() if p.pid not in spared]

    def wait_empty(self, limit, spared=()):
        """The processes of the arena that still live after `limit` seconds. Returns early if none does."""
        deadline = time.monotonic() + limit
        empty = 0
        while True:
            alive = self.survivors(spared)
            # One look that finds no process proves nothing: a process may be changing its parent.
            empty = 0 if alive else empty + 1
            if empty == 3:
                return []
            if alive and time.monotonic() >= deadline:
                return alive
            if alive:
                procs.wait_any_exit(alive, deadline, also=[0])
                self.check_runner()

    @staticmethod
    def check_runner():
        poll = select.poll()
        poll.register(0, 0)
        if poll.poll(0):
            raise Failed("the runner is gone")

    # ---- the host

    def command(self):
        scene, python = self.scene, os.path.join(self.scene["cache"], "venv/bin/python")
        if scene["server"] == "everything":
            command = ["npx", "--no-install", "@modelcontextprotocol/server-everything"]
            cwd = os.path.join(scene["cache"], "node")
        elif scene["server"] == "acp":
            command, cwd = [python, os.path.join(HERE, "acp_agent.py")], self.folder
        else:
            command = [python, os.path.join(HERE, "server.py"), *scene["server_args"]]
            cwd = self.folder
        if scene["treaper"] is not None:
            options = [word.replace("{folder}", self.folder) for word in scene["treaper"]]
            command = [scene["binary"], "-v", *options, "--", *command]
        if scene["launcher"]:
            command = ["sh", "-c", '"$@"; exit $?', "sh", *command]
        calls = [[t, {k: v.replace("{folder}", self.folder) if isinstance(v, str) else v for k, v in a.items()}, how]
                 for t, a, how in scene["calls"]]
        # A fresh HOME would make npm ask for its own updates.
        env = {"npm_config_update_notifier": "false"}
        host = "acp_host.py" if scene["server"] == "acp" else "host.py"
        return [python, os.path.join(HERE, host), json.dumps({
            "command": command[0], "args": command[1:], "cwd": cwd, "env": env, "backend": scene["backend"],
            "calls": calls, "holder": scene["holder"], "log": self.log,
        })]

    def start_host(self):
        uid = self.scene["uid"]
        env = dict(os.environ)
        if uid is not None:
            env.update(HOME=self.folder, USER=name_of(uid), LOGNAME=name_of(uid), TMPDIR=self.folder)

        def enter():
            if self.cgroup:
                self.cgroup.enter()
            if uid is not None:
                os.setgroups([])
                os.setresgid(uid, uid, uid)
                os.setresuid(uid, uid, uid)

        with open(self.log, "a") as log:
            self.host = subprocess.Popen(self.command(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log,
                                         env=env, cwd=self.folder, preexec_fn=enter)

    def event(self, wanted, limit):
        """Reads what the host says until `wanted`."""
        deadline = time.monotonic() + limit
        poll = select.poll()
        poll.register(self.host.stdout, select.POLLIN)
        poll.register(0, 0)
        while True:
            while b"\n" in self.buffer:
                line, _, self.buffer = self.buffer.partition(b"\n")
                event = json.loads(line)
                self.events.append(event)
                if event["event"] == wanted:
                    return event
            left = deadline - time.monotonic()
            if left <= 0 or not poll.poll(left * 1000):
                raise Failed(f"the host did not say '{wanted}' within {limit} s")
            self.check_runner()
            data = os.read(self.host.stdout.fileno(), 65536)
            if not data:
                raise Failed(f"the host ended before it said '{wanted}'")
            self.buffer += data

    # ---- the scene

    def host_process(self):
        return procs.describe(self.host.pid) or self.fail("the host is gone before its time")

    @staticmethod
    def fail(text):
        raise Failed(text)

    def started_by_host(self, holder):
        """What the host started: the shim, or without treaper the server's own first process."""
        found = [p for p in procs.children_of(self.host.pid) if p.pid != holder]
        if len(found) != 1:
            raise Failed(f"the host has {len(found)} children: {', '.join(map(str, found))}")
        shim = os.path.basename(self.scene["binary"])[:15]
        if self.scene["treaper"] is not None and found[0].comm != ("sh" if self.scene["launcher"] else shim):
            raise Failed(f"the host's child is '{found[0].comm}', not {shim}")
        return found[0]

    def monitor_of(self, shim):
        found = [p for p in procs.children_of(shim.pid) if p.comm == "tree-monitor"]
        return found[0] if len(found) == 1 else self.fail(f"the shim has {len(found)} children named tree-monitor")

    # ---- a second writer of the server's stdin

    def tell(self, *words):
        self.host.stdin.write(json.dumps(words).encode() + b"\n")
        self.host.stdin.flush()

    def second(self, what, word):
        """Starts a second process, which writes to a socket of treaper, or without treaper to the server's stdin."""
        if self.scene["treaper"] is not None:
            to = f"unix:{self.folder}/{what}"
        else:
            to = f"pipe:/proc/{self.started_by_host(None).pid}/fd/0"
        # It is of the arena, not of the tree of treaper, which refuses its own.
        with open(self.log, "a") as log:
            return subprocess.Popen([sys.executable, os.path.join(HERE, "second.py"), what, to, str(word)],
                                    stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def ended(self, process):
        try:
            if process.wait(START_LIMIT) != 0:
                raise Failed(f"the second process has failed: {process.returncode}")
        except subprocess.TimeoutExpired:
            raise Failed("the second process does not end") from None

    def flood(self, result):
        """Two processes write at the same time: how many of their calls are not answered?"""
        self.tell("flood", FLOOD_SIZE, FLOOD_CALLS)
        self.event("flooding", START_LIMIT)
        self.ended(self.second("inject", FLOOD_CALLS))
        self.tell("enough")
        event = self.event("flooded", START_LIMIT * 2)
        strays = set(event["strays"])
        if len(strays) != len(event["strays"]):
            raise Failed("an answer has come twice")
        result["calls"] = [event["made"], FLOOD_CALLS]
        result["torn"] = event["made"] - event["answered"] + FLOOD_CALLS - len(strays)

    def cancel(self, result):
        """A second process cancels the call that is open."""
        which = next(e["text"] for e in self.events if e["event"] == "progress")
        jobs = [p for p in self.members() if p.comm == "sh" and "busy-job" in p.cmdline]
        if len(jobs) != 1:
            raise Failed(f"there are {len(jobs)} jobs")
        if self.scene["server"] == "acp" and self.scene["treaper"] is None:
            # Its stdin is a socket, which no other process can open.
            self.tell("cancel")
        else:
            self.ended(self.second("cancel", which))
        if self.scene["end"] == "cancel":
            return
        # The server obeys. It lives on after the time of the cancel is over, and answers.
        shim = self.started_by_host(None)
        procs.wait_any_exit(jobs, time.monotonic() + START_LIMIT, also=[0])
        if is_same(jobs[0]):
            raise Failed("the call was not cancelled")
        procs.wait_any_exit([shim], time.monotonic() + CANCEL_DRAIN * 2, also=[0])
        if not is_same(shim):
            raise Failed("the server was stopped though it has obeyed")
        self.events.clear()
        self.tell("echo", {"message": "after"}, "answer")
        result["after"] = self.event("answer", START_LIMIT)["text"]

    def report(self):
        """What treaper reports of its run."""
        with open(os.path.join(self.folder, "report")) as file:
            report = json.load(file)
        return {name: report[name] for name in ("trigger", "exit_status")}

    def act(self, holder):
        end = self.scene["end"]
        if end == "cancel":
            return
        if end == "close":
            self.host.stdin.write(b"close\n")
            self.host.stdin.flush()
            return
        if end == "kill-host":
            victim = self.host_process()
        else:
            victim = self.started_by_host(holder)
            if end == "kill-monitor":
                victim = self.monitor_of(victim)
        procs.kill(victim)

    def run(self):
        scene, result = self.scene, {}
        self.start_host()
        self.event("connected", START_LIMIT)
        holder = self.event("ready", START_LIMIT)["holder"]
        before = self.members()
        self.started_by_host(holder)
        result["before"] = len(before) - 1 - (holder is not None)
        spared = {pid for pid in (holder, self.host.pid if scene["end"] in ("kill-shim", "kill-monitor", "cancel") else None) if pid}
        if scene["flood"]:
            self.flood(result)
        began = watched = time.monotonic()
        if scene["cancel"]:
            self.cancel(result)
        self.act(holder)
        if scene["database"]:
            result["locked"] = self.try_lock(scene["limit"])
            result["lock_seconds"] = round(time.monotonic() - began, 2)
        elif scene["end"] == "close":
            result["close_seconds"] = self.event("closed", scene["limit"] + 10)["seconds"]
            # A host that ends slowly is not a survivor. The watch begins when it is gone.
            host = procs.describe(self.host.pid)
            if host:
                procs.wait_any_exit([host], time.monotonic() + START_LIMIT, also=[0])
            watched = time.monotonic()
        alive = self.wait_empty(max(0.0, watched + scene["limit"] - time.monotonic()), spared)
        result["seconds"] = round(time.monotonic() - began, 2)
        result["survivors"] = [str(p) for p in alive]
        if scene["cancel"] and scene["treaper"] is not None and not alive:
            result["report"] = self.report()
        if spared and holder is not None and not procs.describe(holder):
            raise Failed("the holder of stdin is gone: the scene is not what it says")
        return result

    def try_lock(self, limit):
        """Whether another connection cannot begin to write; SQLite itself does the waiting."""
        connection = sqlite3.connect(os.path.join(self.folder, "db"), timeout=limit, isolation_level=None)
        try:
            connection.execute("BEGIN IMMEDIATE")
            return None
        except sqlite3.OperationalError as error:
            return str(error)
        finally:
            connection.close()

    # ---- the end

    def clear(self):
        """Ends all processes that were ever seen here, each by its pid, until none is left."""
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            alive = self.survivors() + [p for p in self.seen.values() if is_same(p)]
            if not alive and procs.reap():
                break
            for proc in alive:
                procs.kill(proc)
            procs.wait_any_exit(alive[:1], time.monotonic() + 1)
        if self.cgroup:
            self.cgroup.remove()

    def tail(self):
        with open(self.log, errors="replace") as log:
            return log.read()[-20000:]


def is_same(proc):
    now = procs.describe(proc.pid)
    return now is not None and now.start == proc.start


def name_of(uid):
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    arena = Arena(json.loads(sys.argv[1]))
    result = {}
    try:
        result = arena.run()
    except (Failed, OSError) as error:
        result["error"] = f"{error}"
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        arena.clear()
        result.update(log=arena.tail(), events=arena.events, cgroup=arena.cgroup is not None)
        shutil.rmtree(arena.folder, ignore_errors=True)
    json.dump(result, sys.stdout)


main()
