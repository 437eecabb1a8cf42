"""Real MCP hosts and servers behind treaper: which processes survive when one is killed. Run it with setup.sh's Python:

    tests/mcp/setup.sh && .cache/mcp/venv/bin/python tests/mcp/run.py [--list] [--only NAME]... [--jobs N] [-v]

TREAPER names the binary (default target/debug/treaper). As root the scenes of the unprivileged user run too; RUN_AS
gives its uid (default 65534), and RUN_AS=none leaves them out. One line per check; exit status 1 when one failed.
"""

import argparse
import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor, as_completed

import procs
import scenes

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
CACHE = os.path.join(ROOT, ".cache", "mcp")
TRIES = 5
ARENA_LIMIT = 240  # seconds; an arena limits itself long before


def parse():
    options = argparse.ArgumentParser(description="Real MCP hosts and servers behind treaper")
    options.add_argument("--list", action="store_true", help="print the scenes and end")
    options.add_argument("--only", metavar="NAME", action="append", help="scenes whose name contains NAME (repeatable)")
    options.add_argument("--controls", action="store_true", help="only the controls; they need no treaper")
    options.add_argument("--jobs", type=int, default=3, help="scenes at a time (3)")
    options.add_argument("-v", "--verbose", action="store_true", help="also print each scene's log")
    return options.parse_args()


def as_user(uid, command):
    """Whether `uid` can run `command`."""
    def become():
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)

    try:
        return subprocess.run(command, preexec_fn=become, cwd="/", stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL).returncode == 0
    except OSError:
        return False


class Places:
    """The folders of the binary, the cache and the scripts. For a user who may not read them, copies."""

    def __init__(self, binary):
        self.own = (binary, CACHE, HERE)
        self.copy = None

    def for_user(self, uid):
        if uid is None:
            return self.own
        if self.copy is None:
            binary, cache, here = self.own
            python = os.path.join(cache, "venv/bin/python")
            reachable = f"import mcp; open({os.path.join(here, 'host.py')!r}); open({os.path.join(cache, 'node/package.json')!r})"
            if as_user(uid, [python, "-c", reachable]) and (not os.path.exists(binary) or as_user(uid, [binary, "--version"])):
                return self.own
            self.copy = tempfile.mkdtemp(prefix="treaper-mcp-copy-")
            os.chmod(self.copy, 0o755)
            shutil.copytree(cache, os.path.join(self.copy, "mcp"), symlinks=True)
            shutil.copytree(here, os.path.join(self.copy, "tests"))
            if os.path.exists(binary):
                shutil.copy(binary, os.path.join(self.copy, "treaper"))
            subprocess.run(["chmod", "-R", "a+rX", self.copy], check=True)
        return tuple(os.path.join(self.copy, name) for name in ("treaper", "mcp", "tests"))

    def remove(self):
        if self.copy:
            shutil.rmtree(self.copy, ignore_errors=True)


class Arenas:
    """The arenas that run now. An arena whose stdin hangs up ends its scene and clears up."""

    def __init__(self):
        self.lock = threading.Lock()
        self.running = set()
        self.closed = False

    def play(self, scene, place):
        """Plays a scene. Two kinds get more than one try: one about the SDK's patience, which a busy machine may use up,
        and a control in which two writers of one pipe have to meet."""
        for left in reversed(range(TRIES)):
            result = self.play_once(scene, place)
            impatient = scene.patience is not None and result.get("close_seconds", 0) >= scene.patience
            whole = scene.expect == "torn" and result.get("torn") == 0
            if left == 0 or not (impatient or whole):
                return result

    def play_once(self, scene, place):
        binary, cache, here = place
        spec = {**scene.json(), "binary": binary, "cache": cache}
        with self.lock:
            if self.closed:
                return {"error": "interrupted", "log": ""}
            arena = subprocess.Popen([sys.executable, os.path.join(here, "arena.py"), json.dumps(spec)],
                                     stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
            self.running.add(arena)
        try:
            return json.loads(self.output(arena))
        except ValueError as error:
            return {"error": f"the arena failed: {error}", "log": ""}
        finally:
            with self.lock:
                self.running.discard(arena)
                arena.stdin.close()
            arena.stdout.close()
            arena.wait()

    @staticmethod
    def output(arena):
        """All that it writes. If it takes too long, it gets SIGTERM."""
        poll = select.poll()
        poll.register(arena.stdout, select.POLLIN)
        deadline, chunks = time.monotonic() + ARENA_LIMIT, []
        while True:
            if not poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
                arena.terminate()
            chunk = os.read(arena.stdout.fileno(), 65536)
            if not chunk:
                return b"".join(chunks)
            chunks.append(chunk)

    def close(self):
        with self.lock:
            self.closed = True
            for arena in self.running:
                arena.stdin.close()


def judge(scene, result):
    """(passed, what was seen)."""
    if "error" in result:
        return False, result["error"]
    left = result["survivors"]
    names = "; ".join(left)
    seen = f"{len(left)} of {result['before']} survive"
    if scene.database:
        state = result["locked"] or "free"
        seen = f"lock {state} after {result['lock_seconds']} s, {seen}"
    if "close_seconds" in result:
        seen += f", close took {result['close_seconds']} s"
    if scene.flood:
        host, second = result["calls"]
        seen = f"{host} calls of the SDK and {second} of the second process, {result['torn']} without an answer, {seen}"
        if scene.expect == "torn":
            return result["torn"] > 0, seen if result["torn"] else f"{seen}: the control must tear messages"
        if result["torn"]:
            return False, seen
    if scene.cancel and scene.treaper is not None and not left:
        told = result["report"]
        seen = f"{told['trigger']}, status {told['exit_status']}, {seen}"
        if scene.end == "cancel" and (told["trigger"], told["exit_status"]) != ("cancel-timeout", 124):
            return False, f"{seen}: it should have been cancel-timeout and 124"
        if scene.end != "cancel" and (result["after"] != "Echo: after"):
            return False, f"{seen}: {told}, {result['after']}"
    if scene.expect == "survivors":
        if scene.database and not result["locked"]:
            return False, f"{seen}: the control must find it locked"
        return bool(left), f"{seen} after {result['seconds']} s: {names}" if left else f"{seen}: the control must leak"
    if scene.expect == "nothing-either":
        return not left, f"{seen}; this control does not leak: {scene.note}" if not left else f"{seen}: {names}"
    if left or result.get("locked"):
        return False, f"{seen} after {result['seconds']} s: {names}"
    if scene.trigger and scene.trigger not in result["log"]:
        return False, f"{seen}, but its messages do not name the trigger '{scene.trigger}'"
    if scene.patience is not None and result["close_seconds"] >= scene.patience:
        return False, f"{seen}: the SDK had to signal it"
    return True, f"{seen} after {result['seconds']} s"


def main():
    args = parse()
    run_as = os.environ.get("RUN_AS", str(scenes.NOBODY))
    may_switch = os.geteuid() == 0 and run_as != "none"
    if may_switch:
        scenes.NOBODY = int(run_as)
    chosen = [s for s in scenes.all_scenes(may_switch)
              if (not args.only or any(name in s.name for name in args.only)) and not (args.controls and s.treaper is not None)]
    if args.list:
        for scene in chosen:
            print(f"{scene.name}: {scene.text}")
        return 0
    binary = os.path.abspath(os.environ.get("TREAPER") or os.path.join(ROOT, "target/debug/treaper"))
    if not os.access(binary, os.X_OK) and any(s.treaper is not None for s in chosen):
        print(f"no treaper at {binary}: build it first, or name it in TREAPER", file=sys.stderr)
        return 2
    if not chosen:
        print("no such scene", file=sys.stderr)
        return 2

    # If an arena dies, this process adopts its processes.
    procs.become_subreaper()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    places, arenas = Places(binary), Arenas()
    passed = failed = 0
    began = time.monotonic()
    cgroups = set()
    try:
        for uid in {s.uid for s in chosen}:
            places.for_user(uid)
        with ThreadPoolExecutor(args.jobs) as pool, contextlib.ExitStack() as stack:
            stack.callback(arenas.close)  # before the pool waits for its threads
            running = {pool.submit(arenas.play, s, places.for_user(s.uid)): s for s in chosen}
            for future in as_completed(running):
                scene, result = running[future], future.result()
                ok, seen = judge(scene, result)
                passed, failed = passed + ok, failed + (not ok)
                cgroups.add(result.get("cgroup", False))
                print(f"{'ok  ' if ok else 'FAIL'} {scene.name}: {scene.text}: {seen}", flush=True)
                if args.verbose or not ok:
                    print("".join(f"     | {line}\n" for line in result.get("log", "").splitlines()[-40:]), end="", flush=True)
    finally:
        sweep()
        places.remove()
    print(f"arena: {'subreaper and cgroup v2' if cgroups == {True} else 'subreaper'}; {time.monotonic() - began:.0f} s")
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


def sweep():
    """Ends what an arena that died has left. Otherwise nothing is left here."""
    left = [p for p in map(procs.describe, procs.descendants(os.getpid())) if p]
    while left:
        for proc in left:
            print(f"left by an arena, ended: {proc}", file=sys.stderr)
            procs.kill(proc)
        procs.wait_any_exit(left[:1], time.monotonic() + 2)
        procs.reap()
        left = [p for p in map(procs.describe, procs.descendants(os.getpid())) if p]


if __name__ == "__main__":
    sys.exit(main())
