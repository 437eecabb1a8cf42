"""The examples of docs/troubleshooting.md: each line that begins with `$ ` is typed, and what follows has to be the output.
And the picture of README.md, and the table of docs/survivors.md."""

import os
import re
import subprocess

from scene import scene
from stage import HERE, ROOT, Failed


def plain(text):
    """Pids differ each time. So does the order of processes that end at nearly the same time, and how long they have lived."""
    text = re.sub(r"alive \S+ after", "alive T after", re.sub(r"\[\d+\]", "[N]", text))
    return re.sub(r"\((\S+\[N\](?:, \S+\[N\])+)\)", lambda found: f"({', '.join(sorted(found[1].split(', ')))})", text)


def transcript(name, **more):
    @scene(name, control=False, **more)
    def _(stage):
        played = ""
        # A file that is shown is the one that is played.
        for file, text in re.findall(r"^\$ cat (\S+)\n((?:(?!\$ ).*\n)*)", stage.text(name), re.MULTILINE):
            stage.write(file, text)
            stage.need("node")
        for line in stage.text(name).splitlines():
            if not line.startswith("$ "):
                continue
            done = subprocess.run(["sh", "-c", line[2:]], cwd=stage.folder, env=stage.env, stdin=subprocess.DEVNULL,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60)
            played += f"{line}\n{plain(done.stdout)}"
        if played != plain(stage.text(name)):
            raise Failed(f"the output is\n{played}")


for example in ("parent-exit", "stdin-eof", "sigkill", "doctor", "not-started", "no-ancestor"):
    transcript(example, quick=True)


@scene("picture", in_document=False, control=False, quick=True)
def _(stage):
    """The picture shows what a run shows. Pids and times differ."""
    drawn = subprocess.run([os.path.join(ROOT, "docs/picture")], env={**os.environ, "TREAPER": stage.path("bin/treaper")},
                           stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, check=True, timeout=120).stdout
    with open(os.path.join(ROOT, "docs/demo.svg")) as file:
        if re.sub(r"\d+", "N", drawn) != re.sub(r"\d+", "N", file.read()):
            raise Failed("docs/demo.svg is out of date: docs/picture >docs/demo.svg")


@scene("survivors", in_document=False, control=False, quick=True, alone=True)
def _(stage):
    """The table shows what is left. The rows of programs that are not installed are not played, nor those of systemd-run."""
    env = {**os.environ, "TREAPER": stage.path("bin/treaper")}
    done = subprocess.run([os.path.join(HERE, "survivors"), "--check"], env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        raise Failed(done.stdout)
    return lambda: done.stdout.strip()


@scene("orphans", "orphans", "end-orphan", control=False, quick=True)
def _(stage):
    """What an agent without treaper has left is listed, and ended by hand. The scene is in the place of process 1."""
    host = stage.start(["sh", "-c", "some-server & wait"])
    pids = stage.ready()
    stage.kill(host)
    script = stage.snippet("orphans", "orphans.sh", replace=[("$2 == 1 ", f"$2 == {os.getpid()} ")])
    for pid in [pids["server"], pids["worker"]]:
        listed = [line.split()[0] for line in stage.run(["sh", script]).splitlines()]
        if str(pid) not in listed:
            raise Failed(f"{pid} is not listed: {listed}")
        stage.run(["sh", stage.snippet("end-orphan", "end.sh")], env={**stage.env, "PIDS": str(pid)}, check=False)
        stage.until("its end", lambda pid=pid: not stage.is_alive(pid))
