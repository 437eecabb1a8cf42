"""The table of docs/programs.md: each program is started bare, under tini and under treaper, and stopped in two ways.

A cell is `clean` (nothing is left, and nothing had to be killed), `killed` (treaper had to use SIGKILL), `lost` (the work in
progress was not finished) or `orphans`.
"""

import os
import signal
import subprocess
import time

import procs
from scene import scene
from stage import CACHE, ROOT, Failed, Skip

DOCUMENT = os.path.join(ROOT, "docs/programs.md")
PATIENCE = 13  # seconds after which what is there is left
MANNERS = {"bare": [], "tini": ["tini", "-s", "-g", "-p", "SIGTERM", "--"], "treaper": ["treaper"]}
NODE = os.path.join(CACHE, "node/node_modules/.bin")
VENV = os.path.join(CACHE, "venv/bin")
POSTGRES = "/usr/lib/postgresql/15/bin"

# As a host of the programs, a process that only waits; a shell would change signals.
HOST = """
import subprocess, sys
child = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL)
with open("child", "w") as file:
    file.write(str(child.pid))
child.wait()
"""
# Its worker has a session of its own, and obeys SIGTERM.
POLITE = """#!/bin/sh
setsid sleep 1000 &
echo "server $$" >>{here}/up
exec sleep 1000
"""
CLUSTER = """
const cluster = require("cluster");
if (cluster.isPrimary) { for (let i = 0; i < 2; i++) cluster.fork(); console.log("up"); }
else setInterval(() => {}, 1000);
"""
JVM = """
public class Server {
    public static void main(String[] words) throws Exception {
        new ProcessBuilder("sleep", "1000").start();
        System.out.println("up");
        Thread.sleep(1000000);
    }
}
"""
WSGI = """
def app(environ, start):
    start("200 OK", [])
    return [b""]


async def asgi(scope, receive, send):
    while (await receive())["type"] != "lifespan.shutdown":
        await send({"type": "lifespan.startup.complete"})
    await send({"type": "lifespan.shutdown.complete"})
"""
CELERY = """
import time
from celery import Celery
app = Celery("tasks", broker="filesystem://", broker_transport_options={
    "data_folder_in": "broker", "data_folder_out": "broker", "control_folder": "control"})


@app.task
def work():
    open("working", "w").close()
    time.sleep(4)
    open("worked", "w").close()
"""


def grown(stage, count):
    """The program has so many processes."""
    stage.until("its processes", lambda: len(stage.descendants()) >= stage.base + count)


def gunicorn(stage):
    stage.write("app.py", WSGI)
    yield [f"{VENV}/gunicorn", "-w", "2", "-b", f"unix:{stage.path('sock')}", "app:app"]
    stage.until("gunicorn", lambda: stage.read("log").count("Booting worker") == 2)


def uvicorn(stage):
    stage.write("app.py", WSGI)
    yield [f"{VENV}/uvicorn", "--workers", "2", "--uds", stage.path("sock"), "app:asgi"]
    stage.until("uvicorn", lambda: stage.read("log").count("startup complete") == 2)


def celery(stage):
    stage.write("tasks.py", CELERY)
    os.mkdir(stage.path("broker"))
    yield [f"{VENV}/celery", "-A", "tasks", "worker", "-c", "2", "--loglevel=INFO"]
    stage.until("celery", lambda: "ready." in stage.read("log"))
    stage.run([f"{VENV}/celery", "-A", "tasks", "call", "tasks.work"])
    stage.until("the task", lambda: os.path.exists(stage.path("working")))
    stage.work = "worked"


def node_cluster(stage):
    stage.write("cluster.js", CLUSTER)
    yield ["node", stage.path("cluster.js")]
    grown(stage, 3)


def npm(stage):
    stage.write("package.json", '{"scripts": {"dev": "some-server --port 8080"}}')
    yield ["npm", "run", "dev"]
    stage.ready()


def nodemon(stage):
    yield [f"{NODE}/nodemon", "--exec", "some-server"]
    stage.ready()


def pm2(stage):
    stage.env["PM2_HOME"] = stage.path("pm2")
    yield [f"{NODE}/pm2-runtime", "start", stage.path("bin/some-server"), "--interpreter", "none"]
    stage.ready()


def supervisord(stage):
    stage.write("supervisord.conf", f"[supervisord]\nnodaemon=true\nlogfile=/dev/null\nlogfile_maxbytes=0\npidfile={stage.path('pid')}\n"
                "[program:s]\ncommand=some-server\nstopwaitsecs=1\n")
    yield [f"{VENV}/supervisord", "-c", stage.path("supervisord.conf")]
    stage.ready()


def cron(stage):
    stage.need("cron")
    yield ["unshare", "-m", "sh", "-c", "mount -t tmpfs none /run && mount -t tmpfs none /var/spool/cron && mkdir /var/spool/cron/crontabs && "
           f"mount -t tmpfs none /etc/cron.d && echo '* * * * * root {stage.path('bin/some-server')}' >/run/tab && mount --bind /run/tab /etc/crontab && exec cron -f"]
    stage.until("the job", lambda: "server" in stage.read("up"), limit=90)


def postgres(stage):
    if not os.path.exists(POSTGRES):
        raise Skip("postgres is not installed")
    data = stage.path("data")
    os.mkdir(data)
    subprocess.run(["chown", "postgres", data], check=True)
    become = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]
    stage.run([*become, f"{POSTGRES}/initdb", "-D", data, "-A", "trust", "-N"], cwd="/")
    yield [*become, f"{POSTGRES}/postgres", "-D", data, "-k", data, "-c", "listen_addresses=", "-c", "fsync=off"]
    stage.until("postgres", lambda: "ready to accept" in stage.read("log"))


def postgres_busy(stage):
    yield from postgres(stage)
    client = stage.start(["psql", "-h", stage.path("data"), "-U", "postgres", "postgres"], stdin=subprocess.PIPE)
    stage.spare(client.pid)
    stage.until("the client", lambda: stage.find("postgres: postgres postgres"))


def nginx(stage):
    stage.need("nginx")
    stage.write("nginx.conf", f"daemon off; user root; pid {stage.path('pid')}; error_log {stage.path('error')}; worker_processes 2; events {{}} http {{ access_log off; server {{ listen unix:{stage.path('sock')}; }} }}")
    yield ["nginx", "-c", stage.path("nginx.conf"), "-e", stage.path("error")]
    grown(stage, 3)


def chromium(stage):
    stage.need("chromium")
    yield ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update",
           "--disable-sync", "--no-first-run", f"--user-data-dir={stage.path('profile')}", "--remote-debugging-port=0", "about:blank"]
    stage.until("chromium", lambda: "DevTools listening" in stage.read("log"))


def jvm(stage):
    stage.need("java")
    stage.write("Server.java", JVM)
    yield ["java", stage.path("Server.java")]
    stage.until("the JVM", lambda: "up\n" in stage.read("log"))


# What the first cell of a row says, and how it is played.
PROGRAMS = {
    "gunicorn": gunicorn, "uvicorn --workers": uvicorn, "celery, with a task of 4 s": celery,
    "node's cluster": node_cluster, "npm run": npm, "nodemon": nodemon, "pm2-runtime": pm2, "supervisord": supervisord, "cron": cron,
    "postgres": postgres, "postgres, with a client": postgres_busy, "nginx": nginx, "chromium": chromium, "a JVM with a child": jvm,
}


def rows():
    """The cells of each program, and the option of the last one."""
    found = {}
    with open(DOCUMENT) as file:
        for line in file:
            cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
            if cells[0] in PROGRAMS:
                found[cells[0]] = cells[1:]
    return found


def ended(stage, manner, host):
    """What is there once nothing is left, or the patience is over."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        procs.reap()
        host.poll()
        stage.left = stage.descendants()
        if not stage.left:
            if "had to SIGKILL" in stage.messages():
                return "killed"
            return "lost" if stage.work and not os.path.exists(stage.path(stage.work)) else "clean"
        time.sleep(0.05)
    return "orphans"


def play(stage, name, manner, way, option=None):
    stage.need(*MANNERS[manner][:1])
    stage.env.pop("TREAPER_GRACE")
    stage.work = None
    stage.write("bin/some-server", POLITE.format(here=stage.folder), 0o755)
    program = PROGRAMS[name](stage)
    command = next(program)
    if not os.path.exists(command[0]) and command[0].startswith("/"):
        raise Skip(f"{os.path.basename(command[0])} is not installed")
    words = [*MANNERS[manner], *([option] if option else []), *command]
    # The host is a process of its own, so that it can be killed.
    host = stage.start(["/usr/bin/python3", "-c", HOST, *words])
    stage.base = 1 + len(MANNERS[manner][:1]) + (manner == "treaper")
    next(program, None)
    if way == "TERM":
        os.kill(int(stage.read("child")), signal.SIGTERM)
    else:
        host.kill()
    return ended(stage, manner, host)


def column(name, number, manner, way):
    @scene(f"program {name}: {manner}, {way}" + (", with the option" if number == 7 else ""), control=False, in_document=False)
    def _(stage):
        cells = rows().get(name)
        if cells is None:
            raise Failed(f"{DOCUMENT} has no row {name}")
        option = cells[6] if number == 7 else None
        if number == 7:
            if not option.startswith("`"):
                return lambda: "no option is needed"
            option = option.strip("`")
        seen = play(stage, name, manner, way, option)
        want = cells[number] if number < 6 else "clean"

        def judge():
            if seen not in want.split(" or "):
                raise Failed(f"it is {seen}, the page says {want}: " + "; ".join(map(str, stage.left)))
            return seen
        return judge


for program in PROGRAMS:
    for at, (how, way_of) in enumerate([("bare", "TERM"), ("tini", "TERM"), ("treaper", "TERM"), ("bare", "KILL"), ("tini", "KILL"), ("treaper", "KILL")]):
        column(program, at, how, way_of)
    column(program, 7, "treaper", "TERM")
