"""An MCP host made with the official SDK, in a process of its own. Its arena gives it the commands.

argv[1] is a JSON object: command, args, cwd, env, backend (asyncio or trio), calls (list of [tool, arguments, how]), holder, log.
`how` is "answer" (wait for the answer), "progress" (wait for the first progress report, the call stays open) or
"open" (the call stays open). stdout gets one JSON object per event. Then stdin is read line by line: a JSON list is one
more call, or `["flood", SIZE, STRAYS]`. The line "close" leaves the SDK's contexts, which is how a host says
good-bye.
"""

import json
import logging
import os
import signal
import sys
import time

import anyio
from mcp import ClientSession, MCPError
from mcp.client.stdio import StdioServerParameters, stdio_client

FLOOD_CALLS = 4  # at a time
FLOOD_PATIENCE = 5  # seconds for one answer while two processes write


def say(event, **more):
    sys.stdout.write(json.dumps({"event": event, **more}) + "\n")
    sys.stdout.flush()


def fork_holder():
    """A third process that has everything the host has open: above all the write end of the server's stdin."""
    pid = os.fork()
    if pid:
        return pid
    try:
        os.close(0)  # the arena's, not part of the scene
        os.close(1)
        while True:
            signal.pause()
    finally:
        os._exit(0)


async def call(group, session, tool, arguments, how):
    if how == "answer":
        result = await session.call_tool(tool, arguments)
        text = result.content[0].text
        if result.is_error:
            raise RuntimeError(f"{tool}: {text}")
        say("answer", tool=tool, text=text)
        return

    reported = anyio.Event()

    async def progress(done, total, message):
        say("progress", tool=tool, text=message or "")
        reported.set()

    async def keep_open():
        try:
            await session.call_tool(tool, arguments, progress_callback=progress if how == "progress" else None)
            say("unexpected-answer", tool=tool)
        except MCPError as error:
            say("call-failed", tool=tool, text=f"{error}")

    group.start_soon(keep_open)
    if how == "progress":
        await reported.wait()
    else:
        # Requests are read in order: the answer to a later one proves that this one was read.
        await anyio.lowlevel.checkpoint()
        await session.send_ping()


class Strays(logging.Handler):
    """Counts the answers to requests of other processes. The SDK drops and logs an answer whose id it does not know."""

    def __init__(self):
        super().__init__(logging.DEBUG)
        self.ids = []
        logger = logging.getLogger("mcp.shared.jsonrpc_dispatcher")
        logger.setLevel(logging.DEBUG)
        logger.addHandler(self)
        logger.propagate = False

    def emit(self, record):
        if record.msg.startswith("dropping response for unknown"):
            self.ids.append(record.args[0])


async def flood(session, strays, size, expected):
    """Large calls, several at a time, while another process writes as well, until a line comes on stdin. Then waits for
    the answers to the other process."""
    made = answered = 0
    is_over = False
    text = "x" * size

    async def calls():
        nonlocal made, answered
        while not is_over:
            made += 1
            with anyio.move_on_after(FLOOD_PATIENCE):
                result = await session.call_tool("echo", {"message": text})
                if result.content[0].text != f"Echo: {text}":
                    break
                answered += 1
                if answered == 1:
                    say("flooding")
                continue
            break

    async with anyio.create_task_group() as group:
        for _ in range(FLOOD_CALLS):
            group.start_soon(calls)
        await anyio.to_thread.run_sync(sys.stdin.readline)
        is_over = True
    before = -1
    while len(strays.ids) < expected and len(strays.ids) > before:
        before = len(strays.ids)
        with anyio.move_on_after(FLOOD_PATIENCE):
            while len(strays.ids) == before:
                await anyio.sleep(0.02)
    say("flooded", made=made, answered=answered, strays=strays.ids)


async def obey(group, session, strays):
    """Does what the lines on stdin say, until one of them is no call."""
    while True:
        line = await anyio.to_thread.run_sync(sys.stdin.readline)
        if not line.startswith("["):
            return
        name, *words = json.loads(line)
        if name == "flood":
            await flood(session, strays, *words)
        else:
            await call(group, session, name, *words)


async def main(spec):
    strays = Strays()
    with open(spec["log"], "a") as log:
        server = StdioServerParameters(command=spec["command"], args=spec["args"], cwd=spec["cwd"], env=spec["env"])
        async with stdio_client(server, errlog=log) as (read, write):
            async with ClientSession(read, write) as session, anyio.create_task_group() as group:
                await session.initialize()
                tools = await session.list_tools()
                say("connected", tools=[tool.name for tool in tools.tools])
                for tool, arguments, how in spec["calls"]:
                    await call(group, session, tool, arguments, how)
                say("ready", holder=fork_holder() if spec["holder"] else None)
                await obey(group, session, strays)
                group.cancel_scope.cancel()
            began = time.monotonic()
        say("closed", seconds=round(time.monotonic() - began, 2))


spec = json.loads(sys.argv[1])
anyio.run(main, spec, backend=spec["backend"])
