"""The scenes: how each snippet is played, and how its host is killed."""

import os
import signal
import subprocess
import time

from scene import scene
from stage import Failed

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
