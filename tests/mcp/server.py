"""A small MCP server made with the official SDK, whose tools do what real ones do: run jobs, take locks."""

import argparse
import signal
import sqlite3

from mcp.server.mcpserver import Context, MCPServer

from job import start_job

server = MCPServer("treaper-tests")
locks = []


@server.tool()
async def echo(message: str) -> str:
    """Says it again."""
    return f"Echo: {message}"


@server.tool()
async def leave_job() -> str:
    """Starts a job and does not wait for it."""
    return f"pid {start_job().pid}"


@server.tool()
async def run_job(ctx: Context) -> str:
    """Starts a job, reports its pid as progress, and answers when the job is done: never."""
    import anyio

    job = start_job()
    await ctx.report_progress(1, 2, f"pid {job.pid}")
    await anyio.sleep_forever()
    return "unreachable"


@server.tool()
async def obedient(ctx: Context) -> str:
    """Starts a job, and ends it when the call is cancelled."""
    import anyio

    job = start_job()
    await ctx.report_progress(1, 2, ctx.request_id)
    try:
        await anyio.sleep_forever()
    finally:
        job.kill()
        job.wait()
    return "unreachable"


@server.tool()
async def deaf(ctx: Context) -> str:
    """Starts a job, waits for it, and lets nothing else run meanwhile: a blocking call in an event loop."""
    job = start_job()
    await ctx.report_progress(1, 2, ctx.request_id)
    await ctx.session.send_ping()  # its answer proves that the progress was written
    job.wait()
    return "unreachable"


@server.tool()
async def lock(path: str) -> str:
    """Takes the write lock of an SQLite database and keeps it."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("CREATE TABLE IF NOT EXISTS t (x)")
    connection.execute("BEGIN IMMEDIATE")
    locks.append(connection)
    return "locked"


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--ignore-eof", action="store_true", help="live on when stdin ends")
    options.add_argument("--ignore-term", action="store_true")
    args = options.parse_args()
    if args.ignore_term:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        server.run()
    finally:
        while args.ignore_eof:
            signal.pause()


main()
