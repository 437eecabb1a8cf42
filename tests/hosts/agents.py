"""The scenes with agents in a terminal: real ones in tmux, and a stand-in for those that need an account."""

import glob
import json
import os
import re
import shlex
import shutil
import socket

from scene import scene
from scenes import CLIENTS, lives_on
from stage import READY_LIMIT, ROOT, Failed, Skip

# A stand-in for an agent: it starts a helper, and then works until it is told to end.
AGENT = """#!/bin/sh
some-server </dev/null >/dev/null 2>&1 &
echo ready
exec sleep 1000
"""
SIZES = [(110, 35), (80, 24)]


class Terminal:
    """A shell with the aliases of the page, in a window of tmux."""

    def __init__(self, stage, aliases="agent-alias"):
        stage.need("tmux")
        self.stage = stage
        self.tmux = ["tmux", "-S", stage.path("tmux"), "-f", "/dev/null"]
        stage.env.update(TERM="xterm-256color", LANG="C.UTF-8")
        columns, lines = map(str, SIZES[0])
        start = f". {shlex.quote(stage.snippet(aliases, 'aliases.sh'))}; PS1='prompt> '\n"
        shell = f"exec bash --rcfile {shlex.quote(stage.write('bashrc', start))} -i"
        # The first window keeps tmux running when the second one is closed.
        stage.run([*self.tmux, "new-session", "-d", "-x", columns, "-y", lines, "exec sleep 1000"])
        stage.run([*self.tmux, "set-option", "-g", "status", "off"])
        stage.run([*self.tmux, "new-window", "-c", stage.folder, shell])
        self.shell = int(stage.run([*self.tmux, "display-message", "-p", "#{pane_pid}"]))
        stage.spare(int(stage.run([*self.tmux, "display-message", "-p", "#{pid}"])))
        stage.endings.append(lambda: stage.run([*self.tmux, "kill-server"]))
        self.shows("prompt>")

    def types(self, *keys):
        self.stage.run([*self.tmux, "send-keys", *keys])

    def screen(self):
        return self.stage.run([*self.tmux, "capture-pane", "-p"])

    def shows(self, words):
        self.stage.until(words, lambda: words in self.screen())

    def closes(self):
        self.stage.run([*self.tmux, "kill-pane"])

    def resizes(self, columns, lines):
        self.stage.run([*self.tmux, "resize-window", "-x", str(columns), "-y", str(lines)])

    def at_prompt(self):
        """The shell is in the foreground, and shows that."""
        lines = self.screen().split()
        return bool(lines) and lines[-1] == "prompt>"


def stand_in(stage):
    stage.write("bin/claude", AGENT, 0o755)
    terminal = Terminal(stage)
    terminal.types("claude", "Enter")
    terminal.shows("ready")
    stage.ready()
    return terminal


def agent(stage):
    """The process of the agent itself."""
    return stage.until("the agent", lambda: [p for p in stage.find("sleep 1000") if p.pid not in stage.pids().values()])[0]


@scene("agent, window closed", "agent-alias", quick=True)
def _(stage):
    stand_in(stage).closes()


@scene("agent, Ctrl-C", "agent-alias", quick=True)
def _(stage):
    terminal = stand_in(stage)
    terminal.types("C-c")
    stage.until("the prompt", terminal.at_prompt)


@scene("agent, SIGKILL", "agent-alias", quick=True)
def _(stage):
    stand_in(stage)
    stage.kill(agent(stage).pid)


@scene("agent, the shell is killed", "agent-alias", quick=True)
def _(stage):
    terminal = stand_in(stage)
    stage.kill(terminal.shell)


@scene("agent, suspended", "agent-alias", quick=True)
def _(stage):
    terminal = stand_in(stage)
    terminal.types("C-z")
    stage.until("the prompt", terminal.at_prompt)
    if "Stopped" not in terminal.screen():
        raise Failed("the shell does not show a suspended job: " + terminal.screen())
    terminal.types("fg", "Enter")
    stage.until("the foreground", lambda: not terminal.at_prompt())
    terminal.types("C-c")
    stage.until("the prompt", terminal.at_prompt)


@scene("agent, updated", "agent-alias", quick=True)
def _(stage):
    terminal = stand_in(stage)
    first = stage.pids()
    stage.write("new", AGENT.replace("ready", "newer"), 0o755)
    os.rename(stage.path("new"), stage.path("bin/claude"))
    lives_on(stage, *first.values())
    terminal.types("C-c")
    stage.until("the prompt", terminal.at_prompt)
    terminal.types("claude", "Enter")
    terminal.shows("newer")
    stage.ready(2)
    terminal.types("C-c")
    stage.until("the prompt", terminal.at_prompt)


def prefix(stage):
    """The variable of the page, and the script that it names, as a script of the shell. It finds the treaper of the stage."""
    script = stage.path("libexec/treaper/shell")
    os.makedirs(os.path.dirname(script))
    shutil.copy(os.path.join(ROOT, "packaging/shell"), script)
    return stage.snippet("agent-calls", "prefix.sh", replace=[("/usr/libexec/treaper/shell", script)])


@scene("agent-calls", quick=True)
def _(stage):
    """A call is one word behind the prefix, as Claude Code has it. It ends, and leaves a server."""
    line = f"some-server >/dev/null 2>&1 & until grep -q server {stage.path('up')}; do sleep 0.02; done; echo called"
    script = f". {prefix(stage)}; exec $CLAUDE_CODE_SHELL_PREFIX {shlex.quote(line)}"
    # It also names the daemon of the server.
    if "called" not in stage.run(["sh", "-c", script]).splitlines():
        raise Failed("the call has no output")


# A server that MCP clients accept. It leaves a process in a session of its own.
MCP = """#!/usr/bin/env python3
import json, subprocess, sys
subprocess.Popen(["sleep", "1000"], start_new_session=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
for line in sys.stdin:
    message = json.loads(line)
    if "id" in message:
        version = message.get("params", {}).get("protocolVersion")
        started = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": {"name": "some", "version": "1"}}
        result = started if message["method"] == "initialize" else {"tools": []}
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"""


@scene("claude mcp list", "agent-calls")
def _(stage):
    native(stage)
    server = stage.write("server", MCP, 0o755)
    stage.run(["claude", "mcp", "add", "some", "--", server])
    if "Connected" not in stage.run(["sh", "-c", f". {prefix(stage)}; exec claude mcp list"]):
        raise Failed("Claude Code has no connection with the server")


@scene("claude, a hook", "agent-calls")
def _(stage):
    """The hook of the start of a session, which needs no account. It exits, and leaves a server."""
    native(stage)
    line = f"some-server >/dev/null 2>&1 & until grep -q server {stage.path('up')}; do sleep 0.02; done"
    hook = {"type": "command", "command": line}
    stage.write(".claude/settings.json", json.dumps({"hooks": {"SessionStart": [{"hooks": [hook]}]}}))
    stage.run(["sh", "-c", f". {prefix(stage)}; exec claude -p hello"], check=False)
    stage.ready()


@scene("agent-hook", without="--watch-pid=$PPID ", trigger="watched-exit")
def _(stage):
    """Claude Code waits for an answer of its service, which never comes. Its hook is over, and the server is not."""
    native(stage)
    stage.snippet("agent-hook", ".claude/settings.json",
                  replace=[("/tmp/some-server.", stage.path("server."))])
    stage.said("server.log")
    with socket.create_server(("127.0.0.1", 0)) as service:
        stage.env.update(ANTHROPIC_API_KEY="none", ANTHROPIC_BASE_URL=f"http://127.0.0.1:{service.getsockname()[1]}")
        agent = stage.start(["claude", "-p", "hello"])
        server = stage.ready()["server"]
        service.settimeout(READY_LIMIT)
        service.accept()  # It sends the prompt, so the hooks are over.
        lives_on(stage, server, agent.pid)
        stage.kill(agent)


# ---- real ones. They have one server, which they start without an account.

def native(stage):
    """Claude Code as its installer leaves it: the file of the program is named after the version, and a link calls it `claude`."""
    file = claude(stage, f".local/share/claude/versions/{version()}")
    os.makedirs(stage.path(".local/bin"))
    os.symlink(file, stage.path(".local/bin/claude"))
    stage.env["PATH"] = f"{stage.path('.local/bin')}:{stage.env['PATH']}"


def npm(stage):
    """Claude Code as npm leaves it: the program is `claude.exe`."""
    os.symlink(claude(stage, "lib/node_modules/@anthropic-ai/claude-code/bin/claude.exe"), stage.path("bin/claude"))


def version():
    try:
        with open(f"{CLIENTS}/@anthropic-ai/claude-code-linux-x64/package.json") as file:
            return json.load(file)["version"]
    except OSError:
        raise Skip("Claude Code is not installed") from None


def claude(stage, file):
    """The program under that name, which trusts the folder of the stage, and its folder `work`."""
    version()
    path, to = f"{CLIENTS}/@anthropic-ai/claude-code-linux-x64/claude", stage.path(file)
    os.makedirs(os.path.dirname(to))
    try:
        os.link(path, to)
    except OSError:
        shutil.copy(path, to)
    os.mkdir(stage.path("work"))
    folders = {folder: {"hasTrustDialogAccepted": True} for folder in (stage.folder, stage.path("work"))}
    stage.write(".claude.json", json.dumps({"hasCompletedOnboarding": True, "projects": folders}))
    return to


def gemini(stage):
    """What starts it, and what its first screen says."""
    path = f"{CLIENTS}/.bin/gemini"
    if not os.path.exists(path):
        raise Skip("gemini is not installed")
    os.symlink(path, stage.path("bin/gemini"))
    os.mkdir(stage.path("work"))
    stage.write(".gemini/settings.json", '{"security": {"folderTrust": {"enabled": false}}, "mcpServers": {"some": {"command": "some-server"}}}')
    return "gemini", "Use Enter to select"


def opencode(stage):
    path = f"{CLIENTS}/opencode-linux-x64-baseline/bin/opencode"
    if not os.path.exists(path):
        raise Skip("opencode is not installed")
    os.symlink(path, stage.path("bin/opencode"))
    os.mkdir(stage.path("work"))
    stage.write(".config/opencode/opencode.json", '{"mcp": {"some": {"type": "local", "command": ["some-server"], "enabled": true}}}')
    return "opencode", "commands"


def codex(stage):
    """It starts a daemon that all of its sessions share."""
    found = glob.glob(f"{CLIENTS}/@openai/codex-linux-*/vendor/*/bin/codex")
    if not found:
        raise Skip("codex is not installed")
    os.symlink(found[0], stage.path("bin/codex"))
    os.mkdir(stage.path("work"))
    return "codex", "Press enter to continue"


def daemon(stage):
    """The daemon of codex is there."""
    return stage.until("the daemon", lambda: stage.find("app-server"))


def started(stage, program, aliases="agent-alias"):
    name, first = program(stage)
    terminal = Terminal(stage, aliases)
    terminal.types("cd work", "Enter")
    terminal.types(name, "Enter")
    terminal.shows(first)
    return terminal, name, first


def plain(screen):
    """What two starts have in common: not the random tip and example, nor the line that was typed, nor empty lines."""
    lines = [re.sub(r'Ask anything….*', "Ask anything", line.rstrip()) for line in screen.splitlines()]
    return [line for line in lines if line and "Tip" not in line and "prompt>" not in line]


def leaves(stage, terminal, name):
    """Ctrl-C, as often as the program wants it."""
    for _ in range(20):
        if stage.comes_within(3, terminal.at_prompt):
            return
        terminal.types("C-c")
    raise Failed(f"{name} does not end: " + terminal.screen())


def draws(stage, program):
    terminal, name, first = started(stage, program)
    screens = {}
    for typed in (name, "\\" + name):
        if typed != name:
            terminal.types(f"clear; {typed}", "Enter")
            terminal.shows(first)
        for size in SIZES:
            terminal.resizes(*size)
            stage.until("the first screen", lambda: first in drawn(stage, terminal))
            screens[typed, size] = plain(drawn(stage, terminal))
        terminal.resizes(*SIZES[0])
        leaves(stage, terminal, name)
    for size in SIZES:
        if screens[name, size] != screens["\\" + name, size]:
            raise Failed("treaper:\n" + "\n".join(screens[name, size]) + "\nbare:\n" + "\n".join(screens["\\" + name, size]))
    return lambda: f"the same screens as without treaper, of {len(screens[name, SIZES[0]])} lines"


def drawn(stage, terminal):
    """The screen, when it was the same for a second."""
    before = None
    while (now := terminal.screen()) != before:
        before = now
        stage.passes(1)
    return now


@scene("gemini draws", "agent-alias", control=False)
def _(stage):
    return draws(stage, gemini)


@scene("opencode draws", "agent-alias", control=False)
def _(stage):
    return draws(stage, opencode)


@scene("codex draws", "agent-alias", control=False)
def _(stage):
    return draws(stage, codex)


def only_daemons_live(stage, find):
    """All else ends, and these processes, which several sessions share, do not. Without the option they do: see tests/spare.rs."""
    spared = stage.until("the daemon", find)
    stage.until("the end of the rest", lambda: {p.pid for p in stage.descendants()} <= {p.pid for p in find()})
    lives_on(stage, *(process.pid for process in spared))
    for process in find():
        stage.kill(process.pid)


@scene("codex, window closed", "agent-alias", control=False)
def _(stage):
    terminal, _, _ = started(stage, codex)
    daemon(stage)
    terminal.closes()
    only_daemons_live(stage, lambda: daemon(stage))


@scene("codex, SIGKILL", "agent-alias", control=False)
def _(stage):
    started(stage, codex)
    daemon(stage)
    stage.kill(next(p.pid for p in stage.find("codex") if p.cmdline == "codex"))
    only_daemons_live(stage, lambda: daemon(stage))


class Background:
    """Claude Code in a terminal, and the daemon that keeps its background sessions."""

    def __init__(self, stage, layout):
        layout(stage)
        self.stage, self.terminal = stage, Terminal(stage)
        self.terminal.types("cd work", "Enter")

    def find(self):
        return [p for p in self.stage.find("claude") if "daemon run" in p.cmdline]

    def says(self, line, words):
        self.terminal.types(f"clear; {line}", "Enter")
        self.terminal.shows(words)

    def daemon(self):
        return self.stage.until("the daemon", self.find)[0]

    def ends(self, line="claude daemon stop --any"):
        self.says(line, "will start a new one")
        self.stage.until("the end of the daemon", lambda: not self.find())

    def agents(self, line):
        """The list of the sessions, which ends at two Ctrl-C that come together."""
        self.says(line, "describe a task for a new session")
        daemon = self.daemon()
        for _ in range(20):
            self.terminal.types("C-c", "C-c")
            if self.stage.comes_within(3, self.terminal.at_prompt):
                return daemon
        raise Failed("claude agents does not end: " + self.terminal.screen())


def background(stage, layout):
    """Its session is in a daemon. Bare it lives on, so with the alias it must as well."""
    claude = Background(stage, layout)
    for bare in ("\\claude --bg hello", "\\claude agents"):
        daemon = claude.agents(bare) if "agents" in bare else (claude.says(bare, "backgrounded"), claude.daemon())[1]
        lives_on(stage, daemon.pid)
        claude.says("\\claude daemon status", f"pid:     {daemon.pid}")
        claude.ends("\\claude daemon stop --any")
    claude.says("treaper claude --bg hello", "keeps a daemon running")
    stage.until("the end of the daemon", lambda: not claude.find())
    claude.says("claude --bg hello", "left running: 1 process (claude")
    lives_on(stage, claude.daemon().pid)
    claude.says("claude daemon status", f"pid:     {claude.daemon().pid}")
    claude.ends()
    daemon = claude.agents("claude agents")
    claude.terminal.shows("left running: 1 process (claude")
    lives_on(stage, daemon.pid)
    claude.ends()
    for process in stage.find("bg-"):
        stage.kill(process.pid)
    return lambda: f"its daemon, {daemon.comm}, lives on as without treaper"


@scene("claude --bg", "agent-alias", control=False)
def _(stage):
    return background(stage, native)


@scene("claude --bg, from npm", "agent-alias", control=False)
def _(stage):
    return background(stage, npm)


@scene("gemini, Ctrl-C", "agent-alias")
def _(stage):
    terminal, name, _ = started(stage, gemini)
    stage.ready()
    leaves(stage, terminal, name)


@scene("gemini, window closed", "agent-alias")
def _(stage):
    terminal, _, _ = started(stage, gemini)
    stage.ready()
    terminal.closes()


@scene("gemini, SIGKILL", "agent-alias")
def _(stage):
    started(stage, gemini)
    stage.ready()
    # gemini starts itself again, and waits for its child.
    stage.kill(min(p.pid for p in stage.find("bin/gemini") if p.cmdline.startswith("node")))


@scene("opencode, suspended", "agent-alias")
def _(stage):
    terminal, name, first = started(stage, opencode)
    stage.ready()
    terminal.types("C-z")
    terminal.shows("Stopped")
    terminal.types("fg", "Enter")
    stage.until("the first screen", lambda: first in terminal.screen() and "Stopped" not in terminal.screen())
    leaves(stage, terminal, name)


@scene("opencode, window closed", "agent-alias")
def _(stage):
    terminal, _, _ = started(stage, opencode)
    stage.ready()
    terminal.closes()


@scene("opencode, SIGKILL", "agent-alias")
def _(stage):
    started(stage, opencode)
    stage.ready()
    for process in stage.find("opencode"):
        if process.comm == "opencode":
            stage.kill(process.pid)
