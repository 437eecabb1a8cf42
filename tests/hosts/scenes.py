"""The scenes: how each snippet is played, and how its host is killed."""

import glob
import json
import os
import signal
import socket
import subprocess
import time

from scene import scene
from stage import CACHE, ROOT, Failed, Skip

# A job that ends, and leaves a worker.
JOB = """#!/bin/sh
some-server </dev/null >/dev/null 2>&1 &
until grep -q server {here}/up 2>/dev/null; do sleep 0.02; done
kill -9 $!
exit 0
"""


def job(stage):
    stage.write("bin/some-job", JOB.format(here=stage.folder), 0o755)


def npm_run(stage, name):
    stage.need("npm")
    stage.snippet(name, "package.json")
    npm = stage.start(["npm", "run", "dev"])
    return npm


# ---- MCP hosts

MCP = os.path.join(ROOT, ".cache/mcp")
CLIENTS = os.path.join(CACHE, "clients/node_modules")


def server_with_a_helper(stage):
    """The server of the snippets: server-everything, after a helper has been started."""
    server = f"{MCP}/node/node_modules/.bin/mcp-server-everything"
    if not os.path.exists(server):
        raise Skip("tests/mcp/setup.sh has not been run")
    stage.write("bin/npx", f"#!/bin/sh\nsome-server </dev/null >/dev/null 2>&1 &\nexec {server}\n", 0o755)


def list_servers(stage, command):
    """The client connects to the server, lists its tools and ends."""
    if not os.path.exists(command[0]):
        raise Skip(f"{os.path.basename(command[0])} is not installed")
    said = stage.run(command)
    stage.ready()
    return said


@scene("inspector", "mcp-json")
def _(stage):
    stage.need("mcp-inspector")
    server_with_a_helper(stage)
    stage.snippet("mcp-json", "mcp.json")
    call = ["--method", "tools/call", "--tool-name", "trigger-long-running-operation", "--tool-arg", "duration=900", "steps=1"]
    stage.start(["mcp-inspector", "--cli", "--config", "mcp.json", "--server", "everything", *call])
    stage.ready()
    client = stage.until("the client", lambda: [p for p in stage.find("inspector") if "cli/build/index.js" in p.cmdline])
    for process in client:
        stage.kill(process.pid)


@scene("gemini", "mcp-json")
def _(stage):
    server_with_a_helper(stage)
    settings = {"security": {"folderTrust": {"enabled": False}}, **json.loads(stage.text("mcp-json"))}
    stage.write(".gemini/settings.json", json.dumps(settings))
    if "Connected" not in list_servers(stage, [f"{CLIENTS}/.bin/gemini", "mcp", "list"]):
        raise Failed("gemini is not connected")


@scene("opencode")
def _(stage):
    server_with_a_helper(stage)
    stage.snippet("opencode", "opencode.json")
    if "connected" not in list_servers(stage, [f"{CLIENTS}/opencode-linux-x64-baseline/bin/opencode", "mcp", "list"]):
        raise Failed("opencode is not connected")


def sdk_host(stage, command):
    if not os.path.exists(command[0]):
        raise Skip(f"{command[0]} is not there")
    stage.write("bin/some-mcp-server", f"#!/bin/sh\nexec {MCP}/venv/bin/python {ROOT}/tests/mcp/server.py\n", 0o755)
    host = stage.start(command)
    stage.until("the job", lambda: stage.find("busy-job"))
    stage.kill(host)


@scene("python-sdk", limit=40)
def _(stage):
    stage.snippet("python-sdk", "host.py")
    sdk_host(stage, [f"{MCP}/venv/bin/python", "host.py"])


@scene("typescript-sdk", limit=40)
def _(stage):
    stage.snippet("typescript-sdk", "host.mjs")
    os.symlink(os.path.join(CACHE, "node/node_modules"), stage.path("node_modules"))
    sdk_host(stage, ["/usr/bin/node", "host.mjs"])


# ---- several writers

AGENT = """#!/bin/sh
# some-agent: a server that keeps each line that it is given.
some-server </dev/null >/dev/null 2>&1 &
exec cat >{here}/got
"""
# A host that stops in the middle of a message until `go on` is there.
HALF = """
import os, subprocess, sys, time
server = subprocess.Popen(["sh", sys.argv[1]], stdin=subprocess.PIPE)
server.stdin.write(b'{"type":"user","text":"half of')
server.stdin.flush()
open("half", "w").close()
while not os.path.exists("go-on"):
    time.sleep(0.02)
server.stdin.write(b' a message"}\\n')
server.stdin.flush()
server.wait()
"""


def fails(stage, program, snippet, replaced, expected):
    """The snippet, changed, ends with status 1 and says why."""
    script = stage.snippet(snippet, "failing", replace=[replaced])
    said = stage.run(["sh", "-c", f"{program} {script}; echo status $?"])
    if expected not in said or not said.endswith("status 1\n"):
        raise Failed(f"{snippet}: {said}")


def failing_webhooks(stage):
    """The error paths of the webhooks: a message that is too long, and no agent."""
    python, node = ("/usr/bin/python3", "webhook-python", "no agent"), ("node", "webhook-node", "none.sock")
    note = "the build has failed"
    too_long = {"node": "' + 'x'.repeat(17 << 20) + '", "/usr/bin/python3": "' + b'x' * (17 << 20) + b'"}
    for program, snippet, no_agent in (python, node):
        fails(stage, program, snippet, (note, too_long[program]), "error: the message is longer than 16 MiB")
        fails(stage, program, snippet, ("agent.sock", "none.sock"), no_agent)


@scene("second-writer", "second-writer", "webhook", "webhook-python", "webhook-node", "bridge", quick=True)
def _(stage):
    stage.need("socat", "node")
    stage.env["XDG_RUNTIME_DIR"] = stage.folder
    stage.write("bin/some-agent", AGENT.format(here=stage.folder), 0o755)
    host = stage.start(["/usr/bin/python3", "-c", HALF, stage.snippet("second-writer", "agent.sh")])
    stage.ready()
    stage.until("half of a message", lambda: os.path.exists(stage.path("half")))
    if not stage.control:
        stage.until("the socket", lambda: os.path.exists(stage.path("agent.sock")))
        stage.until("that half", lambda: stage.read("got").endswith("half of"))
        bridge = stage.snippet("bridge", "bridge.sh", replace=[("socat -t", "exec socat -t"), ("/run/agent", stage.folder), (",group=hooks", "")])
        stage.spare(stage.start(["sh", bridge]).pid)
        stage.until("the bridge", lambda: os.path.exists(stage.path("hooks.sock")))
        second = [
            stage.shell("webhook"),
            stage.start(["/usr/bin/python3", stage.snippet("webhook-python", "webhook.py")]),
            stage.start(["node", stage.snippet("webhook-node", "webhook.js")]),
            stage.start(["/usr/bin/python3", stage.snippet("webhook-python", "bridged.py", replace=[("agent.sock", "hooks.sock")])]),
        ]
        for process in second:
            stage.spare(process.pid)
        stage.passes(0.5)
        if stage.read("got").count("note"):
            raise Failed("a message of the host was torn")
    stage.write("go-on", "")
    if not stage.control:
        for process in second:
            if process.wait(60) != 0:
                raise Failed("a webhook has failed")
        note = '{"type":"note","text":"the build has failed"}\n'
        if stage.read("got") != '{"type":"user","text":"half of a message"}\n' + 4 * note:
            raise Failed("the agent got: " + stage.read("got"))
        failing_webhooks(stage)
    stage.kill(host)


@scene("no-answer", "webhook-python", "webhook-node", "stop-python", "stop-node", quick=True, trigger="relay-killed")
def _(stage):
    """The answer does not come in time, as the host is in the middle of a message. Or it never comes: the relay is killed."""
    stage.need("node")
    stage.env.update(XDG_RUNTIME_DIR=stage.folder, THREAD="some-thread", TURN="some-turn")
    stage.write("bin/some-agent", AGENT.format(here=stage.folder), 0o755)
    host = stage.start(["/usr/bin/python3", "-c", HALF, stage.snippet("second-writer", "agent.sh")])
    stage.ready()
    if not stage.control:
        stage.until("that half", lambda: stage.read("got").endswith("half of"))
        python, node = ("/usr/bin/python3", "settimeout(60)", "settimeout(1)"), ("node", "60_000", "1_000")
        writers = (
            ("webhook-python", *python, "the agent is busy"),
            ("webhook-node", *node, "the agent is busy"),
            ("stop-python", *python, "the cancel waits for the agent"),
            ("stop-node", *node, "the cancel waits for the agent"),
        )
        for snippet, program, limit, short, busy in writers:
            fails(stage, program, snippet, (limit, short), busy)
        relay = stage.find("tree-relay")[0].pid
        before, waiting = len(os.listdir(f"/proc/{relay}/fd")), []
        for snippet, program, *_ in writers:
            out = dict(stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            waiting.append((snippet, stage.start([program, stage.snippet(snippet, snippet)], **out)))
            stage.spare(waiting[-1][1].pid)
        stage.until("four connections", lambda: len(os.listdir(f"/proc/{relay}/fd")) >= before + len(writers))
        # Each writes at once when it has connected.
        stage.passes(2)
        os.kill(relay, signal.SIGKILL)
        for snippet, process in waiting:
            said, _ = process.communicate(timeout=30)
            if process.returncode != 1 or "the agent ended, and may not have got it" not in said:
                raise Failed(f"{snippet}: {process.returncode}, {said}")
    stage.kill(host)


# A host that begins a turn, and says how the agent has ended.
TURN = """
import subprocess, sys, time
server = subprocess.Popen(["sh", sys.argv[1]], stdin=subprocess.PIPE)
server.stdin.write(b'{"id":1,"method":"turn/start"}\\n')
server.stdin.flush()
status = server.wait()
with open("status", "w") as file:
    file.write(str(status))
time.sleep(1000)
"""


@scene("stop-button", "cancelled-turn", "stop-python", "stop-node", quick=True, trigger="cancel-timeout")
def _(stage):
    """An agent that gets the cancel from each of the buttons, and does not obey."""
    stage.need("node")
    stage.env.update(XDG_RUNTIME_DIR=stage.folder, THREAD="some-thread", TURN="some-turn")
    stage.write("bin/some-agent", AGENT.format(here=stage.folder), 0o755)
    agent = stage.snippet("cancelled-turn", "agent.sh", replace=[("--turn", "--cancel-drain=15s --turn"), ("codex app-server", "some-agent")])
    host = stage.start(["/usr/bin/python3", "-c", TURN, agent])
    stage.ready()
    if not stage.control:
        stage.until("a turn", lambda: "turn/start" in stage.read("got"))
        buttons = (
            ("/usr/bin/python3", "stop-python", '"stop-button"', '"x" * (17 << 20)', "no agent"),
            ("node", "stop-node", '"stop-button"', '"x".repeat(17 << 20)', "ENOENT"),
        )
        # Before the first cancel: from then on the time runs.
        for program, snippet, name, too_long, _ in buttons:
            fails(stage, program, snippet, (name, too_long), "error: the message is longer than 16 MiB")
        for program, snippet, *_ in buttons:
            stage.run([program, stage.snippet(snippet, "stop")])
        stage.until("both cancels", lambda: stage.read("got").count("\n") == 3)
        cancels = [json.loads(line) for line in stage.read("got").splitlines()[1:]]
        params = {"threadId": "some-thread", "turnId": "some-turn"}
        if cancels != 2 * [{"id": "stop-button", "method": "turn/interrupt", "params": params}]:
            raise Failed("the agent got: " + stage.read("got"))
        stage.until("the exit status", lambda: stage.read("status"))
        if stage.read("status") != "124":
            raise Failed("the exit status is " + stage.read("status"))
        for program, snippet, name, _, no_agent in buttons:
            fails(stage, program, snippet, (name, name), no_agent)
    stage.kill(host)


# A model that begins an answer, and never ends it.
MODEL = """
import http.server, sys, time


class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        self.wfile.write(b'event: response.created\\ndata: {"type":"response.created","response":{"id":"r"}}\\n\\n')
        self.wfile.flush()
        open("asked", "w").close()
        time.sleep(1000)


http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""
CODEX_CONFIG = """model = "some-model"
model_provider = "some"
[model_providers.some]
name = "some"
base_url = "http://127.0.0.1:{port}/v1"
wire_api = "responses"
request_max_retries = 0
stream_max_retries = 0
"""
# A client of Codex: it begins a turn. When the turn has ended, it asks once more.
CLIENT = """
import json, subprocess, sys
server = subprocess.Popen(["sh", sys.argv[1]], stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def send(**message):
    server.stdin.write(json.dumps(message).encode() + b"\\n")
    server.stdin.flush()


def until(**wanted):
    for line in server.stdout:
        message = json.loads(line)
        if all(message.get(name) == value for name, value in wanted.items()):
            return message
    with open("status", "w") as file:
        file.write(str(server.wait()))
    sys.exit()


send(id=0, method="initialize", params={"clientInfo": {"name": "some-client", "title": "", "version": "1"}})
until(id=0)
send(method="initialized")
send(id=1, method="thread/start", params={"cwd": "."})
thread = until(id=1)["result"]["thread"]["id"]
send(id=2, method="turn/start", params={"threadId": thread, "input": [{"type": "text", "text": "a question"}]})
turn = until(method="turn/started")["params"]["turn"]["id"]
with open("turn", "w") as file:
    file.write(thread + " " + turn + "\\n")
until(method="turn/completed")
open("completed", "w").close()
sys.stdin.readline()
send(id=3, method="thread/list", params={})
until(id=3)
open("answered", "w").close()
until(id=4)
"""


def codex(stage):
    """A host whose Codex is in a turn that does not end by itself."""
    stage.need("socat")
    found = glob.glob(f"{CLIENTS}/@openai/codex-linux-*/vendor/*/bin/codex")
    if not found:
        raise Skip("codex is not installed")
    os.symlink(found[0], stage.path("bin/codex"))
    port, = free_ports(1)
    stage.write(".codex/config.toml", CODEX_CONFIG.format(port=port))
    stage.spare(stage.start(["/usr/bin/python3", "-c", MODEL, str(port)]).pid)
    stage.env.update(XDG_RUNTIME_DIR=stage.folder, CODEX_HOME=stage.path(".codex"), TREAPER_CANCEL_DRAIN="2s")
    script = stage.snippet("cancelled-turn", "codex.sh")
    host = stage.start(["/usr/bin/python3", "-c", CLIENT, script], stdin=subprocess.PIPE)
    stage.until("a turn", lambda: stage.read("turn").endswith("\n") and os.path.exists(stage.path("asked")))
    stage.env["THREAD"], stage.env["TURN"] = stage.read("turn").split()
    return host


@scene("codex obeys", "cancelled-turn", "cancel", leaks=False, note="codex exits at the end of its stdin")
def _(stage):
    host = codex(stage)
    if not stage.control:
        stage.run(["sh", stage.snippet("cancel", "cancel.sh")])
        stage.until("the end of the turn", lambda: os.path.exists(stage.path("completed")))
        # The time of the cancel is over, and the same server answers.
        stage.passes(4)
        host.stdin.write(b"\n")
        host.stdin.flush()
        stage.until("an answer", lambda: os.path.exists(stage.path("answered")))
    stage.kill(host)


@scene("codex hangs", "cancelled-turn", "cancel", trigger="cancel-timeout")
def _(stage):
    host = codex(stage)
    for process in stage.find("codex app-server"):
        if process.comm == "codex":
            os.kill(process.pid, signal.SIGSTOP)
    if not stage.control:
        stage.run(["sh", stage.snippet("cancel", "cancel.sh")])
        stage.until("the exit status", lambda: stage.read("status"))
        if stage.read("status") != "124":
            raise Failed("the exit status is " + stage.read("status"))
    stage.kill(host)


# ---- editors

def language_server(stage):
    """pylsp, after it has started a helper, as many language servers do."""
    if not os.path.exists("/usr/bin/pylsp"):
        raise Skip("pylsp is not installed")
    stage.write("bin/pylsp", "#!/bin/sh\nsome-server </dev/null >/dev/null 2>&1 &\nexec /usr/bin/pylsp -v --log-file pylsp.log\n", 0o755)
    stage.write("file.py", "import os\n")


def answers(stage, count=1):
    """The editor and the server have talked to each other."""
    stage.ready(count)
    stage.until("the first answer", lambda: stage.read("pylsp.log").count("Server capabilities") >= count)


def neovim(stage):
    stage.need("nvim")
    language_server(stage)
    stage.snippet("neovim", "init.lua")
    return stage.start(["nvim", "--headless", "--listen", stage.path("nvim"), "-u", "init.lua", "file.py"])


@scene("neovim is killed", "neovim")
def _(stage):
    editor = neovim(stage)
    answers(stage)
    stage.kill(editor)


@scene("neovim quits", "neovim")
def _(stage):
    editor = neovim(stage)
    answers(stage)
    stage.run(["nvim", "--server", stage.path("nvim"), "--remote-send", "<Esc>:qa!<CR>"])
    editor.wait(60)


def first_helper_ended(stage, first):
    """After a restart of the server. In the control it lives on."""
    if not stage.control:
        stage.until("the end of the first helper", lambda: not stage.is_alive(first["worker"]))
    elif not stage.is_alive(first["worker"]):
        raise Failed("the control has stopped the first helper")


@scene("neovim restarts the server", "neovim")
def _(stage):
    editor = neovim(stage)
    answers(stage)
    first = stage.pids()
    restart = "<Esc>:lua vim.lsp.stop_client(vim.lsp.get_active_clients())<CR>:edit!<CR>"
    stage.run(["nvim", "--server", stage.path("nvim"), "--remote-send", restart])
    answers(stage, 2)
    first_helper_ended(stage, first)
    stage.kill(editor)


@scene("neovim-typescript")
def _(stage):
    stage.need("nvim", "typescript-language-server")
    server = f"{CACHE}/node/node_modules/.bin/typescript-language-server"
    stage.write("bin/typescript-language-server", f'#!/bin/sh\nsome-server </dev/null >/dev/null 2>&1 &\nexec {server} "$@"\n', 0o755)
    os.symlink(f"{CACHE}/node/node_modules", stage.path("node_modules"))
    stage.write("file.ts", "const word: number = 'text';\n")
    stage.snippet("neovim-typescript", "init.lua")
    editor = stage.start(["nvim", "--headless", "--listen", stage.path("nvim"), "-u", "init.lua", "file.ts"])
    stage.ready()
    # The server has started the compiler, and found the mistake.
    count = ["nvim", "--server", stage.path("nvim"), "--remote-expr", 'luaeval("#vim.diagnostic.get()")']
    stage.until("a diagnostic", lambda: stage.run(count, check=False).strip().isdigit() and int(stage.run(count).strip()) > 0)
    stage.kill(editor)


def emacs(stage, name, settings, connect):
    stage.need("emacs")
    language_server(stage)
    init = f'(package-initialize)\n{stage.text(name)}\n{settings}\n(find-file "file.py")\n{connect}\n'
    stage.write("init.el", init)
    editor = stage.start(["emacs", "-q", f"--fg-daemon={stage.path('emacs')}", "-l", "init.el"])
    answers(stage)
    stage.kill(editor)


@scene("eglot")
def _(stage):
    emacs(stage, "eglot", "(require 'eglot)", "(call-interactively 'eglot)")


@scene("lsp-mode")
def _(stage):
    settings = f"(require 'lsp-mode)\n(setq lsp-auto-guess-root t)\n(lsp-workspace-folders-add \"{stage.folder}\")"
    emacs(stage, "lsp-mode", settings, "(lsp)")


def terminal(stage, command):
    """Runs this in a terminal of its own. What is written to stdin is typed. The end of the process closes the terminal."""
    stage.need("script")
    return stage.start(["script", "-qefc", f"exec {command}", "/dev/null"], stdin=subprocess.PIPE)


def types(process, text):
    process.stdin.write(text.encode())
    process.stdin.flush()


def vim(stage):
    """Vim with ALE, and its pid."""
    stage.need("vim")
    if not os.path.exists("/usr/share/vim/vimfiles/pack/dist-bundle/opt/ale"):
        raise Skip("vim-ale is not installed")
    language_server(stage)
    stage.write("vimrc", f"set nocompatible\nfiletype plugin on\npackadd! ale\n{stage.text('vim-ale')}")
    screen = terminal(stage, "vim -u vimrc file.py")
    answers(stage)
    editor, = stage.find("vim -u vimrc")[-1:]
    return screen, editor.pid


@scene("vim is killed", "vim-ale")
def _(stage):
    screen, editor = vim(stage)
    stage.kill(editor)
    screen.wait(60)


@scene("vim quits", "vim-ale")
def _(stage):
    screen, _ = vim(stage)
    types(screen, "\x1b:qa!\r")
    screen.wait(60)


@scene("vim restarts the server", "vim-ale")
def _(stage):
    screen, editor = vim(stage)
    first = stage.pids()
    # A busy machine may read the file before ALE has ended the old server. Then no new one is started.
    types(screen, "\x1b:ALEStopAllLSPs\r")
    for _ in range(10):
        types(screen, "\x1b:edit!\r")
        if stage.comes_within(5, lambda: stage.read("up").count("server ") >= 2):
            break
    answers(stage, 2)
    first_helper_ended(stage, first)
    stage.kill(editor)
    screen.wait(60)


# ---- dev servers and scripts

@scene("package.json", quick=True, trigger="parent-exit")
def _(stage):
    npm = npm_run(stage, "package.json")
    stage.ready()
    stage.kill(npm)


@scene("make", quick=True, trigger="parent-exit")
def _(stage):
    stage.need("make")
    stage.snippet("make", "Makefile")
    make = stage.start(["make", "dev"])
    stage.ready()
    stage.kill(make)


@scene("just", trigger="parent-exit")
def _(stage):
    stage.need("just")
    stage.snippet("just", "justfile")
    just = stage.start(["just", "dev"])
    stage.ready()
    stage.kill(just)


@scene("concurrently")
def _(stage):
    stage.need("concurrently")
    npm_run(stage, "concurrently")
    stage.ready(count=2)
    stage.kill(stage.find("bin/concurrently")[0].pid)


@scene("nodemon", trigger="parent-exit")
def _(stage):
    stage.need("nodemon")
    stage.write("src/file.js", "1")
    npm_run(stage, "nodemon")
    stage.ready()
    stage.kill(stage.find("bin/nodemon")[0].pid)


@scene("nodemon restarts", "nodemon")
def _(stage):
    stage.need("nodemon")
    stage.write("src/file.js", "1")
    npm = npm_run(stage, "nodemon")
    first = stage.ready()
    # nodemon does not say when it watches, so the file may have to change more than once.
    for _ in range(10):
        stage.write("src/file.js", str(time.monotonic()))
        if stage.comes_within(5, lambda: stage.read("up").count("server ") >= 2):
            break
    # What is judged is what was left of the first server.
    second = stage.pids()
    if not stage.control:
        stage.until("the end of the first worker", lambda: not stage.is_alive(first["worker"]))
    elif not stage.is_alive(first["worker"]):
        raise Failed("the control has stopped the worker of the first server")
    if not stage.is_alive(second["server"]):
        raise Failed("the second server does not run")
    stage.kill(stage.find("bin/nodemon")[0].pid)
    npm.wait()


def procfile(stage, name):
    stage.need(name)
    stage.snippet(name, "Procfile")
    host = stage.start([name, "start"])
    stage.ready()
    stage.kill(host)


@scene("honcho", without="--watch-ancestor=honcho")
def _(stage):
    procfile(stage, "honcho")


@scene("foreman")
def _(stage):
    procfile(stage, "foreman")


# ---- a sandbox

@scene("bubblewrap", quick=True)
def _(stage):
    stage.need("bwrap")
    host = stage.shell("bubblewrap")
    stage.ready()
    stage.kill(host)


# ---- the background of a shell

def lives_on(stage, *pids):
    """For a while, what was to outlive the shell is there."""
    end = time.monotonic() + 0.7
    while time.monotonic() < end:
        for pid in pids:
            if not stage.is_alive(pid):
                raise Failed("it has not outlived its shell: " + stage.read("server.log"))
        time.sleep(0.05)


@scene("nohup", quick=True)
def _(stage):
    shell = stage.shell("nohup")
    pids = stage.ready()
    shell.wait()
    lives_on(stage, *pids.values())
    os.kill(int(stage.read("server.pid")), signal.SIGTERM)
    stage.until("the end of the server", lambda: not stage.is_alive(pids["server"]))


@scene("setsid", quick=True)
def _(stage):
    shell = stage.shell("setsid")
    pids = stage.ready()
    shell.wait()
    lives_on(stage, *pids.values())
    os.kill(pids["server"] if stage.control else stage.find("treaper --no-parent")[0].pid, signal.SIGTERM)
    stage.until("the end of the server", lambda: not stage.is_alive(pids["server"]))


def interactive_shell(stage, command):
    """A shell at a terminal, in which this is typed."""
    screen = terminal(stage, "bash --norc -i")
    types(screen, command + "\n")
    return screen, stage.ready()


@scene("nohup, terminal closed", "nohup", quick=True)
def _(stage):
    stage.snippet("nohup", "nohup.sh")
    screen, pids = interactive_shell(stage, ". ./nohup.sh")
    stage.until("the pid", lambda: stage.read("server.pid"))
    stage.kill(screen)
    lives_on(stage, *pids.values())
    os.kill(int(stage.read("server.pid")), signal.SIGTERM)
    stage.until("the end of the server", lambda: not stage.is_alive(pids["server"]))


@scene("disown, terminal closed", in_document=False, quick=True)
def _(stage):
    screen, _ = interactive_shell(stage, "treaper some-server >server.log 2>&1 & disown")
    stage.kill(screen)
    stage.said("server.log")


@scene("disown, shell ends", in_document=False, quick=True, trigger="parent-exit")
def _(stage):
    screen, _ = interactive_shell(stage, "treaper some-server >server.log 2>&1 & disown")
    types(screen, "exit\n")
    screen.wait(60)
    stage.said("server.log")


@scene("a shell as the server", in_document=False, quick=True)
def _(stage):
    """What the shell has put into the background in every way that a shell has."""
    stage.write("bin/nohup-server", f"#!/bin/sh\necho $$ >>{stage.path('background')}\nexec sleep 1000\n", 0o755)
    typed = "nohup nohup-server >/dev/null 2>&1 & setsid -f nohup-server >/dev/null 2>&1; nohup-server & disown; some-server"
    screen = terminal(stage, "treaper bash --norc -i")
    types(screen, typed + "\n")
    stage.ready()
    stage.until("the background", lambda: len(stage.read("background").split()) == 3)
    stage.kill(screen)


@scene("a shell as the server ends", in_document=False, quick=True)
def _(stage):
    screen = terminal(stage, "treaper bash --norc -i")
    types(screen, "nohup some-server >/dev/null 2>&1 &\n")
    stage.ready()
    types(screen, "exit\n")
    screen.wait(60)


@scene("tmux", quick=True)
def _(stage):
    stage.need("tmux")
    stage.env["TMUX_TMPDIR"] = stage.folder
    stage.shell("tmux").wait()
    stage.ready()
    stage.kill(stage.find("tmux new-session")[0].pid)


# ---- jobs

@scene("xargs", quick=True, trigger="parent-exit")
def _(stage):
    stage.write("jobs.txt", "8080\n8081\n")
    stage.snippet("xargs", "xargs.sh")
    xargs = stage.start(["sh", "-c", ". ./xargs.sh"])
    stage.ready(count=2)
    stage.kill(stage.find("xargs -P")[0].pid)
    xargs.wait()


@scene("parallel")
def _(stage):
    stage.need("parallel")
    parallel = stage.shell("parallel")
    stage.ready(count=2)
    stage.kill(stage.find("bin/parallel")[0].pid)
    parallel.wait()


@scene("cron", quick=False)
def _(stage):
    stage.need("cron", "unshare")
    job(stage)
    table = stage.snippet("cron", "crontab", replace=[("/var/log/some-job.log", stage.log)])
    with open(table, "r+") as file:
        text = file.read()
        file.seek(0)
        file.write(f"PATH={stage.env['PATH']}\n{text}")
    # A mount namespace of its own: this cron has just this table.
    places = "mount -t tmpfs none /var/spool/cron && mkdir /var/spool/cron/crontabs && mount -t tmpfs none /etc/cron.d && mount --bind {0} /etc/crontab && mount -t tmpfs none /run && exec cron -f"
    cron = stage.start(["unshare", "-m", "sh", "-c", places.format(table)])
    stage.until("the job", lambda: "server" in stage.read("up"), limit=90)
    stage.until("the end of the job", lambda: not stage.find("some-job"))
    stage.kill(cron)


@scene("at")
def _(stage):
    stage.need("at", "atd", "unshare")
    job(stage)
    places = "mount -t tmpfs -o mode=755 none /var/spool/cron && mkdir -m 1770 /var/spool/cron/atjobs /var/spool/cron/atspool && touch /var/spool/cron/atjobs/.SEQ && chmod 600 /var/spool/cron/atjobs/.SEQ && chown daemon:daemon /var/spool/cron/at* /var/spool/cron/atjobs/.SEQ && mount -t tmpfs none /run && "
    script = stage.snippet("at", "at.sh")
    atd = stage.start(["unshare", "-m", "sh", "-c", f"{places} {{ sh {script}; exec atd -f -l 1000; }}"])
    stage.until("the job", lambda: "server" in stage.read("up"), limit=90)
    stage.until("the end of the job", lambda: not stage.find("some-job"))
    stage.kill(atd)


SLURM = """ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
SlurmUser=root
AuthInfo=socket={folder}/munge.socket
ProctrackType=proctrack/{track}
TaskPlugin=task/none
SelectType=select/cons_tres
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
MpiDefault=none
NodeName={host} NodeAddr=127.0.0.1 CPUs=2 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


# A job that counts the signals that it gets, and ends at SIGTERM without its worker.
COUNTING = """#!/usr/bin/python3
import signal, subprocess
signals = {signal.SIGTERM, signal.SIGUSR1}
for each in signals:
    signal.signal(each, signal.SIG_IGN)
null = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
worker = subprocess.Popen(["sleep", "1000"], start_new_session=True, **null)
signal.pthread_sigmask(signal.SIG_BLOCK, signals)
for each in signals:
    signal.signal(each, signal.SIG_DFL)
with open("up", "a") as up:
    up.write(f"worker {worker.pid}\\nserver 0\\n")
limit = 120
while got := signal.sigtimedwait(signals, limit):
    with open("got", "a") as file:
        file.write(signal.Signals(got.si_signo).name + "\\n")
    if got.si_signo == signal.SIGTERM:
        limit = 0.5
"""
FREEZER = "/sys/fs/cgroup/freezer"


def slurm(stage, track="linuxproc"):
    """The daemons of a cluster of one node."""
    stage.need("srun", "slurmctld", "slurmd", "munged")
    ports, host = free_ports(2), socket.gethostname().split(".")[0]
    stage.write("slurm.conf", SLURM.format(host=host, ports=ports, folder=stage.folder, track=track))
    if track == "cgroup":
        from containers import remove_groups
        if not os.access(FREEZER, os.W_OK):
            raise Skip("there is no freezer for the control groups of Slurm")
        stage.write("cgroup.conf", "CgroupPlugin=cgroup/v1\n")
        stage.endings.append(lambda: remove_groups(f"slurm_{host}"))
    stage.env["SLURM_CONF"] = stage.path("slurm.conf")
    for name in ("state", "spool"):
        os.mkdir(stage.path(name))
    with open(stage.path("key"), "wb") as file:
        file.write(os.urandom(1024))
    os.chmod(stage.path("key"), 0o400)
    places = [f"--{name}={stage.path('munge.' + name)}" for name in ("socket", "pid-file", "log-file", "seed-file")]
    daemons = [["munged", "-F", "-f", f"--key-file={stage.path('key')}", *places], ["slurmctld", "-D"], ["slurmd", "-D"]]
    running = []
    for daemon in daemons:
        process = stage.start(daemon)
        stage.spare(process.pid)
        running.append(process)
        stage.endings.append(lambda process=process: stage.kill(process))
        if daemon[0] == "munged":
            stage.until("munged", lambda: os.path.exists(stage.path("munge.socket")))
    stage.until("an idle node", lambda: "idle" in stage.run(["sinfo"], check=False))
    # slurmctld has a child, too.
    for process in running:
        stage.spare(process.pid)


def step_ends(stage, srun):
    srun.wait(60)
    # A daemon of Slurm stays for the step until the step has ended.
    stage.until("the end of the step", lambda: not stage.find("slurmstepd"))


@scene("slurm")
def _(stage):
    job(stage)
    slurm(stage)
    srun = stage.shell("slurm")
    stage.until("the job", lambda: "server" in stage.read("up"))
    step_ends(stage, srun)


def slurm_signals(stage, track, options):
    """The job gets each signal once, as it does without treaper."""
    stage.write("bin/some-job", COUNTING, 0o755)
    slurm(stage, track)
    command = stage.snippet("slurm", "slurm.sh", replace=[("--grace=25s ", options)])
    srun = stage.start(["sh", command])
    stage.ready()
    step = stage.run(["squeue", "-h", "-s", "-o", "%i"]).strip()
    for count in range(1, 6):
        stage.run(["scancel", "--signal=USR1", step])
        stage.until("the signal", lambda count=count: stage.read("got").count("SIGUSR1") >= count)
    stage.passes(0.5)
    stage.run(["scancel", "--signal=TERM", step])
    step_ends(stage, srun)
    if stage.read("got").split() != 5 * ["SIGUSR1"] + ["SIGTERM"]:
        raise Failed("the job got " + stage.read("got"))


@scene("slurm, signals", "slurm")
def _(stage):
    slurm_signals(stage, "linuxproc", "--rewrite=USR1:0 --rewrite=TERM:0 ")


@scene("slurm, signals with control groups", "slurm", leaks=False, note="Slurm itself ends a control group", alone=True)
def _(stage):
    slurm_signals(stage, "cgroup", "")


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


# ---- other machines

def ssh(stage, options):
    """Kills the client, after the server was started on the other machine, which is this one."""
    stage.need("ssh", "ssh-keygen")
    daemon = "/usr/sbin/sshd"
    if not os.path.exists(daemon):
        raise Skip("sshd is not installed")
    for name in ("host", "user"):
        stage.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", name])
    port, = free_ports(1)
    stage.write("sshd_config", f"""Port {port}
ListenAddress 127.0.0.1
HostKey {stage.path('host')}
PidFile none
UsePAM no
StrictModes no
AuthorizedKeysFile {stage.path('user.pub')}
SetEnv PATH={stage.env['PATH']} TREAPER_GRACE=1s TREAPER_DRAIN=300ms
""")
    stage.write("ssh_config", f"""Host some-host
    HostName 127.0.0.1
    Port {port}
    IdentityFile {stage.path('user')}
    IdentitiesOnly yes
    StrictHostKeyChecking no
    UserKnownHostsFile /dev/null
""")
    os.chmod(stage.path("user"), 0o600)
    os.makedirs("/run/sshd", exist_ok=True)
    sshd = stage.start([daemon, "-D", "-e", "-f", stage.path("sshd_config")])
    stage.spare(sshd.pid)
    stage.endings.append(lambda: stage.kill(sshd))
    stage.until("sshd", lambda: "listening" in stage.read("log"))
    command = stage.text("ssh").replace("ssh ", f"exec ssh -F ssh_config {options} ", 1)
    client = stage.start(["sh", "-c", command], stdin=subprocess.PIPE)
    stage.ready()
    stage.kill(client)


@scene("ssh")
def _(stage):
    ssh(stage, "")


@scene("ssh -t", "ssh")
def _(stage):
    """There is a terminal on the other machine, also without one here."""
    ssh(stage, "-tt")


# ---- service managers

@scene("supervisor")
def _(stage):
    stage.need("supervisord")
    head = f"[supervisord]\nnodaemon=true\nlogfile={stage.path('supervisord.log')}\npidfile={stage.path('pid')}\nchildlogdir={stage.folder}\n"
    more = f"redirect_stderr=true\nstdout_logfile={stage.path('server.log')}\n"
    stage.write("supervisord.conf", head + stage.text("supervisor") + more)
    host = stage.start(["supervisord", "-c", "supervisord.conf"])
    stage.ready()
    stage.kill(host)


def run_file(stage, *command):
    stage.need(command[0])
    stage.snippet("runit", "service/run", 0o755)
    host = stage.start([*command, stage.path("service")])
    stage.ready()
    stage.kill(host)


@scene("runit", trigger="parent-exit")
def _(stage):
    run_file(stage, "runsv")


@scene("s6", "runit", trigger="parent-exit")
def _(stage):
    run_file(stage, "s6-supervise")


@scene("pm2")
def _(stage):
    stage.need("pm2")
    stage.env["PM2_HOME"] = stage.path("pm2")
    stage.snippet("pm2", "ecosystem.config.js")
    stage.run(["pm2", "start", "ecosystem.config.js"])
    stage.ready()
    stage.kill(int(stage.read("pm2/pm2.pid")))


# A server that counts its signals, and takes a moment to end.
CAREFUL = """#!/bin/sh
setsid sh -c 'trap "" TERM HUP INT; exec sleep 1000' some-worker </dev/null >/dev/null 2>&1 &
echo "worker $!" >>{here}/up
for name in INT TERM; do trap "echo $name >>{here}/got; ending=1" $name; done
echo "server $$" >>{here}/up
until [ "$ending" ]; do sleep 0.05; done
sleep 0.3
"""


@scene("pm2 stop", "pm2")
def _(stage):
    stage.need("pm2")
    stage.env["PM2_HOME"] = stage.path("pm2")
    stage.write("bin/some-server", CAREFUL.format(here=stage.folder), 0o755)
    stage.snippet("pm2", "ecosystem.config.js")
    stage.run(["pm2", "start", "ecosystem.config.js"])
    pids = stage.ready()
    stage.run(["pm2", "stop", "some-server"])
    if stage.is_alive(pids["server"]) or not stage.control and stage.is_alive(pids["worker"]):
        raise Failed("pm2 does not wait for the end")
    if stage.read("got").split() != ["INT" if stage.control else "TERM"]:
        raise Failed("the server got " + stage.read("got"))
    # Its daemon goes on, and is no part of what is judged.
    stage.spared.add(int(stage.read("pm2/pm2.pid")))


# ---- CI

def steps(stage, name, *path):
    """What the YAML has at this path."""
    import yaml
    part = yaml.safe_load(stage.text(name))
    for key in path:
        part = part[key]
    return part


def some_test(stage):
    """A test that waits until the server is there."""
    test = f"#!/bin/sh\nuntil grep -qs server {stage.folder}/up; do sleep 0.1; done\necho ok >{stage.folder}/tested\n"
    stage.write("bin/some-test", test, 0o755)


@scene("github", trigger="watched-exit", without="--watch-pid=$PPID")
def _(stage):
    some_test(stage)
    found = enumerate(steps(stage, "github", "jobs", "test", "steps"))
    scripts = [stage.write(f"step{number}.sh", step["run"] + "\n") for number, step in found]
    # The runner: `bash -e FILE` for each step; then it goes on to its other work.
    worker = "#!/bin/sh\n" + "".join(f"bash -e {script}\n" for script in scripts) + "while sleep 0.1; do :; done\n"
    runner = stage.start([stage.write("bin/Runner.Worker", worker, 0o755)])
    pids = stage.ready()
    stage.until("the second step", lambda: stage.read("tested"))
    lives_on(stage, *pids.values())
    stage.kill(runner)
    stage.said("server.log")


@scene("github, one step", in_document=False, quick=True, trigger="watched-exit", without="--watch-ancestor=Runner.Worker ")
def _(stage):
    """The shell of the step keeps running when the runner is killed."""
    command = "treaper --watch-ancestor=Runner.Worker some-server"
    step = stage.write("step.sh", command.replace(stage.without, "") if stage.without else command)
    worker = f"#!/bin/sh\nbash -e {step}\nwhile sleep 0.1; do :; done\n"
    runner = stage.start([stage.write("bin/Runner.Worker", worker, 0o755)])
    stage.ready()
    stage.kill(runner)


@scene("gitlab", trigger="parent-exit")
def _(stage):
    some_test(stage)
    script = "set -eo pipefail\n" + "\n".join(steps(stage, "gitlab", "test", "script")) + "\n"
    # The runner gives the script to the stdin of a shell.
    shell = stage.start(["bash"], stdin=subprocess.PIPE)
    shell.stdin.write(script.encode())
    shell.stdin.close()
    stage.ready()
    shell.wait()
    if stage.read("tested") != "ok\n":
        raise Failed("the test did not run")
    stage.said("server.log")


@scene("gitlab, one step", in_document=False, quick=True)
def _(stage):
    """The runner ends the process group of the script."""
    shell = stage.start(["bash"], stdin=subprocess.PIPE)
    shell.stdin.write(b"eval $'treaper some-server\\n'\nexit 0\n")
    shell.stdin.close()
    stage.ready()
    os.killpg(shell.pid, signal.SIGTERM)
    shell.wait()


@scene("gitlab, one step as another user", in_document=False, quick=True)
def _(stage):
    """SIGTERM reaches su, the shell and treaper in any order: the shell can be gone first."""
    script = b"eval $'treaper some-server\\n'\nexit 0\n"
    su = stage.start(["su", "-s", "/bin/bash", "root", "-c", "bash"], stdin=subprocess.PIPE, start_new_session=False, process_group=0)
    su.stdin.write(script)
    su.stdin.close()
    stage.ready()
    os.killpg(su.pid, signal.SIGTERM)
    su.wait()


@scene("jenkins", trigger="watched-exit", without="--watch-ancestor=java")
def _(stage):
    import re
    command = re.fullmatch(r"sh '''\n(.*)'''\n", stage.text("jenkins"), re.DOTALL)[1]
    some_test(stage)
    step = stage.write("script.sh", f"#!/bin/sh -xe\n{command}\n", 0o755)
    agent = f"#!/bin/sh\nJENKINS_NODE_COOKIE=the-build nohup sh -xe {step}\necho over >{stage.folder}/over\nwhile sleep 0.1; do :; done\n"
    java = stage.start([stage.write("bin/java", agent, 0o755)])
    pids = stage.ready()
    stage.until("the end of the step", lambda: stage.read("over"))
    # As the tree killer of Jenkins: each process whose environment has the cookie of the build.
    for process in stage.descendants():
        with open(f"/proc/{process.pid}/environ", "rb") as file:
            if b"JENKINS_NODE_COOKIE=the-build" in file.read().split(b"\0"):
                os.kill(process.pid, signal.SIGKILL)
    lives_on(stage, *pids.values())
    stage.kill(java)
    stage.said("server.log")


@scene("desktop")
def _(stage):
    """The launcher exits at once, and the application keeps running until it exits."""
    stage.need("gio")
    stage.start(["gio", "launch", stage.snippet("desktop", "some-app.desktop")]).wait()
    pids = stage.ready()
    lives_on(stage, *pids.values())
    stage.kill(pids["server"])


@scene("jenkins, one step", in_document=False, trigger="parent-exit")
def _(stage):
    """The shell of the step is gone, and all of the step ignores SIGHUP."""
    step = stage.start(["nohup", "sh", "-xe", stage.write("script.sh", "treaper some-server\n")])
    stage.ready()
    stage.kill(step)
