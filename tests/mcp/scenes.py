"""The scenes: a host, a server and a kill, and what must be left. Each has a control without treaper.

Servers: `everything` is npm's server-everything through npx (npx, sh, node), `python` is server.py, one process. `acp` is
acp_agent.py, an agent, whose host is acp_host.py.
The SDK runs on trio with the one, so that stdin is a pipe, and on asyncio with the other (before Python 3.12 a socket pair).
"""

from dataclasses import asdict, dataclass

NOBODY = 65534
DRAIN, GRACE = 1, 2
SHORT = ("--drain", f"{DRAIN}s", "--grace", f"{GRACE}s")
WINDOW = DRAIN + GRACE  # how long a control is watched: as long as treaper may take with the options above
SLACK = 12  # seconds that a loaded machine may take beyond that

# A call that stays open; without a progress token the server says nothing more until it is over.
LONG_CALL = ("trigger-long-running-operation", {"duration": 900, "steps": 1}, "open")


def echo(server):
    return ("echo", {"message": "hello"}, "answer")


LEFT_JOB = ("leave_job", {}, "answer")
OPEN_JOB = ("run_job", {}, "progress")

# For a second writer of stdin. In ACP the answer to the prompt ends a turn; MCP has no answer to a cancelled request.
INJECT = (*SHORT, "--inject", "unix:{folder}/inject")
CANCEL_DRAIN = 1
CANCEL = (*SHORT, "--inject", "unix:{folder}/cancel", "--turn", "method=session/prompt", "--cancel", "method=session/cancel",
          "--cancel-drain", f"{CANCEL_DRAIN}s",
          "--report", "{folder}/report", "--stderr", "{folder}/log")


@dataclass
class Scene:
    name: str
    text: str
    server: str
    end: str  # close, kill-host, kill-shim, kill-monitor, cancel
    calls: list
    expect: str  # nothing, survivors, torn, or nothing-either: a control that does not leak, and says so
    treaper: tuple | None = None
    trigger: str = ""  # name that treaper must give in its messages
    holder: bool = False
    launcher: bool = False  # a shell that waits stands between the host and treaper, as with `sh -c` or `uv run`
    backend: str = ""
    uid: int | None = None
    server_args: tuple = ()
    database: bool = False
    limit: float = WINDOW
    patience: float | None = None  # seconds in which the SDK's close must be over
    note: str = ""
    flood: bool = False  # a second process makes calls as well
    cancel: bool = False  # a second process cancels the call

    def __post_init__(self):
        self.backend = self.backend or ("trio" if self.server == "everything" else "asyncio")

    def json(self):
        return asdict(self)


def pair(name, text, server, end, calls, trigger="", control="survivors", note="", options=SHORT, limit=None, **more):
    """A scene with treaper and its control."""
    limit = limit if limit is not None else WINDOW + SLACK
    yield Scene(name, text, server, end, calls, "nothing", tuple(options), trigger, limit=limit, **more)
    if control is None:
        return
    # Without treaper there is no shim or monitor. Killing the launcher, which the host has started, comes nearest.
    bare_end = "kill-shim" if end == "kill-monitor" else end
    bare_limit = SLACK if control == "nothing-either" else WINDOW
    yield Scene(f"{name}-control", text, server, bare_end, calls, control, None, "", limit=bare_limit, note=note, **more)


def both_servers(uid, prefix):
    nobody = {"uid": uid}
    yield from pair(f"{prefix}everything-kill-host", "call in flight, host SIGKILLed", "everything", "kill-host",
                    [echo("everything"), LONG_CALL], **nobody)
    yield from pair(f"{prefix}everything-held-stdin", "host SIGKILLed, a third process holds stdin's write end", "everything",
                    "kill-host", [echo("everything")], "parent-exit", holder=True, **nobody)
    yield from pair(f"{prefix}python-kill-host", "a job left by a tool call, host SIGKILLed", "python", "kill-host",
                    [echo("python"), LEFT_JOB], **nobody)
    yield from pair(f"{prefix}python-held-stdin", "host SIGKILLed, a third process holds stdin's write end", "python",
                    "kill-host", [echo("python")], "parent-exit", holder=True, **nobody)
    # Only here: no tool of server-everything starts a process.
    yield from pair(f"{prefix}python-disconnect", "client disconnects during a call that runs a deaf busy job in its own session",
                    "python", "close", [OPEN_JOB], **nobody)


def all_scenes(may_switch_user):
    yield from pair("everything-close", "handshake, list, call, the SDK's own close", "everything", "close",
                    [echo("everything"), LONG_CALL], control="nothing-either",
                    note="the SDK's SIGTERM to the group ends npx, sh and node")
    yield from pair("python-close", "handshake, list, call that leaves a job, the SDK's own close", "python", "close",
                    [echo("python"), LEFT_JOB])
    yield from both_servers(None, "")
    for server, calls in (("everything", [echo("everything"), LONG_CALL]), ("python", [echo("python"), LEFT_JOB])):
        yield from pair(f"{server}-kill-shim", "host lives, shim SIGKILLed", server, "kill-shim", calls, "shim-killed")
        # Its control is the one of the shim: without treaper both are the launcher that the host started.
        yield from pair(f"{server}-kill-monitor", "host lives, monitor SIGKILLed", server, "kill-monitor", calls,
                        "monitor-killed", control=None)
    # A server that exits when its stdin ends is not delayed: the SDK does not come to its SIGTERM. (There is no control.)
    for server in ("everything", "python"):
        yield from pair(f"{server}-close-clean", "a server that behaves, the SDK's own close, all defaults", server, "close",
                        [echo(server)], options=(), control=None, patience=2)
    # All defaults: drain 5 s, grace 10 s. The SDK waits 2 s and 2 s, so before that it sends SIGKILL to the shim.
    yield from pair("python-disconnect-defaults", "client disconnects during such a call, all defaults: the SDK SIGKILLs the shim", "python",
                    "close", [OPEN_JOB], options=(), limit=15 + SLACK, control=None, backend="trio")
    yield from pair("everything-held-stdin-defaults", "host SIGKILLed, held stdin, all defaults", "everything", "kill-host",
                    [echo("everything")], "parent-exit", options=(), limit=15 + SLACK, control=None, holder=True,
                    backend="asyncio")
    # No process of treaper is the host's child here, and no EOF comes: only a watch further up sees that the host is gone.
    for server in ("everything", "python"):
        yield from pair(f"{server}-launched-held-stdin", "host SIGKILLed, held stdin, a shell that lives on in between", server, "kill-host",
                        [echo(server)], "parent-exit", holder=True, launcher=True)
    lock = ("lock", {"path": "{folder}/db"}, "answer")
    yield from pair("sqlite-lock", "a server that ignores EOF holds a write lock, host SIGKILLed", "python", "kill-host",
                    [lock], server_args=("--ignore-eof",), database=True)
    yield from pair("sqlite-lock-deaf", "the same server, deaf to SIGTERM too", "python", "kill-host", [lock],
                    server_args=("--ignore-eof", "--ignore-term"), database=True)
    yield from second_writer()
    if may_switch_user:
        yield from both_servers(NOBODY, "nobody-")


def second_writer():
    """A second process writes to the server's stdin, beside the SDK. Without treaper, to the same pipe: that of the shell
    in front of the server."""
    same = {"backend": "trio", "launcher": True}
    for server in ("everything", "python"):
        text = "a second process makes calls as well, then the host SIGKILLed"
        yield Scene(f"{server}-inject", text, server, "kill-host", [], "nothing", INJECT, limit=WINDOW + SLACK, flood=True, **same)
        yield Scene(f"{server}-inject-control", text, server, "kill-host", [], "torn", limit=SLACK, flood=True, **same)
    text = "a second process cancels, the server obeys: it lives on"
    yield Scene("acp-cancel-obeyed", text, "acp", "close", [("obedient", {}, "progress")], "nothing", CANCEL,
                limit=WINDOW + SLACK, cancel=True, **same)
    text = "a second process cancels, the server does not listen"
    deaf = [("deaf", {}, "progress")]
    yield Scene("acp-cancel-deaf", text, "acp", "cancel", deaf, "nothing", CANCEL, "cancel-timeout",
                limit=CANCEL_DRAIN + WINDOW + SLACK, cancel=True, **same)
    yield Scene("acp-cancel-deaf-control", text, "acp", "cancel", deaf, "survivors", limit=CANCEL_DRAIN + WINDOW,
                cancel=True, **same)
