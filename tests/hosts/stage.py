"""One scene on its stage: a process that adopts all that the scene leaves, a folder, and a PATH with treaper on it.

A scene is played twice. In the control, `treaper` on the PATH is a script that drops the options and executes the rest,
so that nothing else differs. Where a snippet has an option for its host, it is played once more without that option.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))

import procs_path  # noqa: F401
import procs

CACHE = os.path.join(ROOT, ".cache", "hosts")
QUADLET = os.path.join(CACHE, "quadlet/quadlet")  # the generator of podman
READY_LIMIT = 120  # seconds that a host may take on a loaded machine until its server is there
CONTROL_WINDOW = 1.5  # seconds for which what a control leaves has to stay

BARE = """#!/bin/sh
# treaper in a control: no treaper.
while :; do
    case $1 in
        --) shift; break ;;
        -*) shift ;;
        *) break ;;
    esac
done
exec "$@"
"""

# A server like many others: it does not read stdin. Its worker is in a session of its own, and ignores SIGTERM, SIGHUP
# and SIGINT.
SERVER = """#!/bin/sh
# some-server: the server of the snippets.
here={here}
setsid sh -c 'trap "" TERM HUP INT; echo "worker $$" >>{here}/up; exec sleep 1000' some-worker </dev/null >/dev/null 2>&1 &
until grep -q worker "$here/up" 2>/dev/null; do sleep 0.02; done
echo "server $$" >>"$here/up"
exec sleep 1000
"""


class Skip(Exception):
    """What the scene needs is not here."""


class Failed(Exception):
    """The scene did not reach its kill, or something is not as it has to be."""


class Stage:
    def __init__(self, snippets, binary, control, without=""):
        self.snippets, self.control, self.without = snippets, control, without
        self.binary = binary
        self.folder = tempfile.mkdtemp(prefix="treaper-hosts-")
        os.chmod(self.folder, 0o755)
        self.bin = self.path("bin")
        os.mkdir(self.bin)
        if control:
            self.write("bin/treaper", BARE, 0o755)
        else:
            shutil.copy(binary, self.path("bin/treaper"))
        self.write("bin/some-server", SERVER.format(here=self.folder), 0o755)
        tools = [os.path.join(CACHE, "node/node_modules/.bin"), os.path.join(CACHE, "venv/bin")]
        keep = {name: os.environ[name] for name in ("LANG", "TERM", "USER", "LOGNAME") if name in os.environ}
        system = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        self.env = {**keep, "PATH": ":".join([self.bin, *tools, system]), "HOME": self.folder,
                    "TREAPER_GRACE": "1s", "TREAPER_DRAIN": "300ms", "npm_config_update_notifier": "false"}
        self.log = self.path("log")
        self.spared = set()  # processes that are no part of what is judged
        self.left = []
        self.endings = []
        self.logs = []

    # ---- files

    def path(self, name):
        return os.path.join(self.folder, name)

    def write(self, name, text, mode=0o644):
        path = self.path(name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as file:
            file.write(text)
        os.chmod(path, mode)
        return path

    def text(self, name):
        text = self.snippets[name].text
        if self.without:
            if self.without not in text:
                raise Failed(f"{name}: there is no {self.without}")
            text = text.replace(self.without, "")
        return text

    def snippet(self, name, file, mode=0o644, replace=()):
        """Writes a snippet into a file. `replace`: pairs of a placeholder and what it stands for here."""
        text = self.text(name)
        for old, new in replace:
            if old not in text:
                raise Failed(f"{name}: there is no {old}")
            text = text.replace(old, new)
        return self.write(file, text, mode)

    def read(self, name):
        try:
            with open(self.path(name), errors="replace") as file:
                return file.read()
        except OSError:
            return ""

    # ---- processes

    def need(self, *programs):
        for program in programs:
            if not shutil.which(program, path=self.env["PATH"]):
                raise Skip(f"{program} is not installed")

    def start(self, command, stdin=subprocess.DEVNULL, **more):
        """Starts a host, in a session of its own unless asked otherwise. Its output goes to the log."""
        more.setdefault("start_new_session", True)
        more.setdefault("cwd", self.folder)
        more.setdefault("env", self.env)
        with open(self.log, "a") as log:
            more.setdefault("stdout", log)
            more.setdefault("stderr", log)
            return subprocess.Popen(command, stdin=stdin, **more)

    def shell(self, name, **more):
        """A script that is a snippet."""
        return self.start(["sh", self.snippet(name, f"{name}.sh")], **more)

    def run(self, command, timeout=READY_LIMIT, check=True, **more):
        more.setdefault("cwd", self.folder)
        more.setdefault("env", self.env)
        done = subprocess.run(command, stdin=more.pop("stdin", subprocess.DEVNULL), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=timeout, **more)
        with open(self.log, "a") as log:
            log.write(done.stdout)
        if check and done.returncode != 0:
            raise Failed(f"{command[0]}: exit status {done.returncode}: {done.stdout[-500:]}")
        return done.stdout

    def until(self, what, ask, limit=READY_LIMIT):
        deadline = time.monotonic() + limit
        while True:
            answer = ask()
            if answer:
                return answer
            if time.monotonic() > deadline:
                raise Failed(f"waited too long for {what}")
            time.sleep(0.02)

    @staticmethod
    def passes(seconds):
        """Time in which nothing is waited for: what has to stay, stays for so long."""
        time.sleep(seconds)

    def comes_within(self, limit, ask):
        """Whether `ask` says yes in time."""
        try:
            return self.until("", ask, limit)
        except Failed:
            return False

    def pids(self):
        """The pids that some-server has written, by role."""
        lines = [line.split() for line in self.read("up").splitlines()]
        return {role: int(pid) for role, pid in lines}

    def ready(self, count=1):
        self.until("the server", lambda: self.read("up").count("server ") >= count)
        return self.pids()

    def descendants(self):
        found = [p for p in map(procs.describe, procs.descendants(os.getpid())) if p]
        return [p for p in found if p.pid not in self.spared]

    def spare(self, pid):
        """This process and what it starts now is a part of the stage."""
        self.spared |= {pid} | procs.descendants(pid)

    def kill(self, process, number=signal.SIGKILL):
        """Ends a host, and waits until it has gone."""
        if isinstance(process, int):
            os.kill(process, number)
            self.until(f"the end of {process}", lambda: procs.describe(process) is None)
        else:
            process.send_signal(number)
            process.wait(READY_LIMIT)

    @staticmethod
    def is_alive(pid):
        return procs.describe(pid) is not None

    def said(self, name):
        """What the snippet has put into a file of its own is part of the log, too."""
        self.logs.append(name)

    def messages(self):
        return self.read("log") + "".join(self.read(name) for name in self.logs)

    def find(self, name):
        """The processes of the scene whose command line contains `name`."""
        return [p for p in self.descendants() if name in p.cmdline]

    # ---- the judgement

    def judge_control(self, expect):
        """Something must be left, and stay."""
        deadline = time.monotonic() + CONTROL_WINDOW
        while time.monotonic() < deadline:
            procs.reap()
            self.left = self.descendants()
            if not self.left:
                break
            time.sleep(0.05)
        if expect and not self.left:
            raise Failed("the control leaves nothing, so the scene shows nothing")
        if not expect and self.left:
            raise Failed("the control was said to leave nothing, and left: " + names(self.left))

    def judge(self, limit):
        """Nothing may be left after `limit` seconds; one look that finds nothing is not enough."""
        deadline, empty = time.monotonic() + limit, 0
        while empty < 3:
            procs.reap()
            self.left = self.descendants()
            empty = 0 if self.left else empty + 1
            if time.monotonic() > deadline:
                raise Failed("left: " + names(self.left))
            time.sleep(0.02)

    def clear(self):
        for ending in reversed(self.endings):
            try:
                ending()
            except (OSError, subprocess.SubprocessError, Failed) as error:
                print(f"clearing: {error}", file=sys.stderr)
        self.spared = set()
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            alive = self.descendants()
            if not alive and procs.reap():
                break
            for process in alive:
                procs.kill(process)
            procs.reap()
            time.sleep(0.02)
        shutil.rmtree(self.folder, ignore_errors=True)


def names(left):
    return "; ".join(map(str, left))

