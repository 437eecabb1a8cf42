"""A client of an agent, as editors are: the official ACP SDK in a process of its own. Its arena gives it the commands.

As host.py, with prompts in place of calls. `how` is "answer" (wait for the end of the turn) or "progress" (wait for the
first words of the agent, the turn goes on). `["cancel"]` cancels the turn.
"""

import asyncio
import json
import os
import sys
import time

import acp


def say(event, **more):
    sys.stdout.write(json.dumps({"event": event, **more}) + "\n")
    sys.stdout.flush()


class Client(acp.Client):
    def on_connect(self, conn):
        self.words = asyncio.Queue()

    async def session_update(self, session_id, update, **_):
        await self.words.put(update.content.text)

    async def ext_method(self, method, params):
        return {}


async def turn(client, conn, session, text):
    try:
        done = await conn.prompt(session_id=session, prompt=[acp.text_block(text)])
        say("turn-ended", reason=done.stop_reason)
    except (ConnectionError, acp.RequestError) as error:
        say("call-failed", text=f"{error}")


async def call(client, conn, session, tasks, name, arguments, how):
    task = asyncio.create_task(turn(client, conn, session, f"{name} {arguments.get('message', '')}"))
    tasks.append(task)
    words = await client.words.get()
    if how == "answer":
        await task
    say(how, tool=name, text=words)


async def main(spec):
    client, tasks = Client(), []
    env = {**os.environ, **spec["env"]}
    async with acp.spawn_agent_process(client, spec["command"], *spec["args"], env=env, cwd=spec["cwd"]) as (conn, _):
        await conn.initialize(protocol_version=acp.PROTOCOL_VERSION)
        session = (await conn.new_session(cwd=spec["cwd"], mcp_servers=[])).session_id
        say("connected")
        for name, arguments, how in spec["calls"]:
            await call(client, conn, session, tasks, name, arguments, how)
        say("ready", holder=None)
        while (line := await asyncio.to_thread(sys.stdin.readline)).startswith("["):
            name, *words = json.loads(line)
            if name == "cancel":
                await conn.cancel(session_id=session)
            else:
                await call(client, conn, session, tasks, name, *words)
        began = time.monotonic()
    say("closed", seconds=round(time.monotonic() - began, 2))


asyncio.run(main(json.loads(sys.argv[1])))
