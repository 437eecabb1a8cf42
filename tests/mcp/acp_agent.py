"""A small agent made with the official ACP SDK. The first word of a prompt says what the turn does."""

import asyncio

import acp

from job import start_job


class Agent(acp.Agent):
    def on_connect(self, conn):
        self.conn = conn
        self.cancelled = asyncio.Event()

    async def initialize(self, protocol_version, **_):
        return acp.InitializeResponse(protocol_version=protocol_version)

    async def new_session(self, cwd, **_):
        return acp.NewSessionResponse(session_id="some-session")

    async def cancel(self, session_id, **_):
        self.cancelled.set()

    async def prompt(self, prompt, session_id, **_):
        what, _, text = prompt[0].text.partition(" ")
        self.cancelled.clear()
        if what == "echo":
            await self.conn.session_update(session_id, acp.update_agent_message_text(f"Echo: {text}"))
            return acp.PromptResponse(stop_reason="end_turn")
        job = start_job()
        await self.conn.session_update(session_id, acp.update_agent_message_text(session_id))
        if what == "deaf":
            await self.conn.ext_method("written", {})  # its answer proves that the update was written
            job.wait()  # lets nothing else run meanwhile: a blocking call in an event loop
        await self.cancelled.wait()
        job.kill()
        job.wait()
        return acp.PromptResponse(stop_reason="cancelled")


asyncio.run(acp.run_agent(Agent()))
