"""An MCP host made with the official SDK, in a process of its own. Its arena gives it the commands.

argv[1] is a JSON object: command, args, cwd, env, backend (asyncio or trio), calls (list of [tool, arguments, how]), holder, log.
`how` is "answer" (wait for the answer), "progress" (wait for the first progress report, the call stays open) or
"open" (the call stays open). stdout gets one JSON object per event; the line "close" on stdin leaves the SDK's
contexts, which is how a host says good-bye.
"""

import json
import os
import signal
import sys
import time

import anyio
from mcp import ClientSession
from mcp.client.stdio import StdioServerParameters, stdio_client


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
        await session.call_tool(tool, arguments, progress_callback=progress if how == "progress" else None)
        say("unexpected-answer", tool=tool)

    group.start_soon(keep_open)
    if how == "progress":
        await reported.wait()
    else:
        # Requests are read in order: the answer to a later one proves that this one was read.
        await anyio.lowlevel.checkpoint()
        await session.send_ping()


async def main(spec):
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
                await anyio.to_thread.run_sync(sys.stdin.readline)
                group.cancel_scope.cancel()
            began = time.monotonic()
        say("closed", seconds=round(time.monotonic() - began, 2))


spec = json.loads(sys.argv[1])
anyio.run(main, spec, backend=spec["backend"])
