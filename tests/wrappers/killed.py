"""Kills a host by SIGKILL, and looks at what is left: killed.py nothing|something HOST...

The host starts $SERVER, a command for the shell, and stays. With `something` the host has started it
without treaper: then something has to be left, and stay.
"""

import os
import signal
import subprocess
import sys
import tempfile
import time

sys.path.append(os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "mcp"))
import procs

# Its helper leads a session of its own, and ignores SIGTERM.
SERVER = "setsid sh -c 'trap \"\" TERM; echo up >$READY; exec sleep 1000' </dev/null & exec sleep 1000"
LIMIT = 60  # seconds
CONTROL_WINDOW = 1.5  # seconds for which what the control leaves has to stay


def main():
    expected, *command = sys.argv[1:]
    procs.become_subreaper()
    folder = tempfile.TemporaryDirectory()
    ready = os.path.join(folder.name, "ready")
    os.mkfifo(ready)
    host = subprocess.Popen(command, env={**os.environ, "SERVER": SERVER, "READY": ready, "TREAPER_GRACE": "1s"},
                            stdin=subprocess.DEVNULL)
    signal.alarm(LIMIT)
    try:
        with open(ready) as file:
            file.readline()
        signal.alarm(0)
        before = procs.descendants(os.getpid())
        host.kill()
        host.wait()
        deadline = time.monotonic() + (LIMIT if expected == "nothing" else CONTROL_WINDOW)
        left = True
        while left and time.monotonic() < deadline:
            procs.reap()
            left = [p for p in map(procs.describe, procs.descendants(os.getpid())) if p]
            time.sleep(0.02)
        print(f"{len(before)} processes before, {len(left)} after: {'; '.join(map(str, left))}")
        return 0 if bool(left) == (expected == "something") else 1
    finally:
        for process in filter(None, map(procs.describe, procs.descendants(os.getpid()))):
            procs.kill(process)
        procs.reap()


sys.exit(main())
