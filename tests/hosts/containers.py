"""The scenes with container engines and systemd, each with one of its own."""

import ctypes
import json
import os
import shlex
import shutil
import subprocess

import procs_path  # noqa: F401
import procs
from scene import scene
from stage import CACHE, HERE, QUADLET, ROOT, Failed, Skip

CLONE_NEWNS = 0x00020000

# In a container the server writes nothing; it ignores the polite signals itself, and so does its worker.
SERVER = """#!/bin/sh
trap '' TERM HUP INT
setsid sh -c 'trap "" TERM HUP INT; exec sleep 1000' some-worker &
echo up
while :; do sleep 0.1; done
"""
# It exits at once, and its worker needs a moment to finish its work.
LEAVING = """#!/bin/sh
setsid sh -c 'trap "sleep 0.3; echo finished; exit" TERM; echo up; while :; do sleep 0.1; done' some-worker &
trap 'exit 143' TERM
while :; do sleep 0.1; done
"""
# An end of the input within the first second is that of a complete input, so the hosts here live a little longer.
FIRST_SECOND = 1.5


def image(stage):
    """The context of an image: busybox, treaper with what it is linked to, the server."""
    context = stage.path("context")
    os.makedirs(os.path.join(context, "bin"))
    busybox = shutil.which("busybox")
    if not busybox:
        raise Skip("busybox is not installed")
    shutil.copy(busybox, os.path.join(context, "bin/busybox"))
    shutil.copy(stage.path("bin/treaper"), os.path.join(context, "treaper"))
    linked = subprocess.run(["ldd", stage.binary], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout
    for word in linked.split():
        if word.startswith("/"):
            os.makedirs(context + os.path.dirname(word), exist_ok=True)
            shutil.copy(word, context + word)
    stage.write("context/some-server", SERVER, 0o755)
    base = 'FROM scratch\nCOPY bin/busybox /bin/busybox\nRUN ["/bin/busybox","--install","-s","/bin"]\nCOPY . /\nRUN ["/bin/sh","-c","mkdir -p /usr/bin; cp /some-server /treaper /usr/bin"]\n'
    stage.write("base/Dockerfile", base)
    return context


def own_mounts():
    if os.geteuid() != 0:
        raise Skip("needs root")
    if ctypes.CDLL(None).unshare(CLONE_NEWNS) != 0:
        raise Skip("no mount namespace")
    subprocess.run(["mount", "--make-rprivate", "/"], check=True)


def remove_groups(name):
    for root, _, _ in os.walk("/sys/fs/cgroup", topdown=False):
        if f"/{name}/" in root + "/":
            try:
                os.rmdir(root)
            except OSError:
                pass


class Docker:
    def __init__(self, stage, init=None):
        stage.need("dockerd", "docker", *([init] if init else []))
        own_mounts()
        self.stage = stage
        os.symlink("/usr/bin/docker", stage.path("bin/docker"))
        shutil.copy(shutil.which(init) if init else stage.path("bin/treaper"), stage.path("docker-init"))
        stage.env.update(DOCKER_HOST=f"unix://{stage.path('sock')}", DOCKER_CONFIG=stage.path("config"), DOCKER_BUILDKIT="0")
        with open(stage.path("engine"), "w") as log:
            self.engine = stage.start(
                ["dockerd", "--data-root", stage.path("data"), "--exec-root", stage.path("exec"), "--pidfile", stage.path("pid"),
                 "-H", stage.env["DOCKER_HOST"], "--storage-driver", "vfs", "--iptables=false", "--ip6tables=false",
                 "--bridge=none", "--init-path", stage.path("docker-init")], stdout=log, stderr=log)
        stage.endings.append(self.end)
        stage.until("dockerd", lambda: subprocess.run(["docker", "version"], env=stage.env, stdout=subprocess.DEVNULL,
                                                      stderr=subprocess.DEVNULL).returncode == 0)
        context = image(stage)
        stage.run(["docker", "build", "-q", "-t", "debian:stable-slim", "-f", stage.path("base/Dockerfile"), context])
        self.context = context

    def build(self, tag, text):
        self.stage.write("Dockerfile", text)
        self.stage.run(["docker", "build", "-q", "-t", tag, "-f", self.stage.path("Dockerfile"), self.context])

    def containers(self):
        return self.stage.run(["docker", "ps", "--format", "{{.Image}} {{.Command}}"]).splitlines()

    def client(self, command, host=()):
        """Runs `docker ...` with a pipe as its stdin, until the server is up and the first second is over. `host`: the program
        that starts it."""
        words = shlex.split(command)
        at = words.index("run") + 1 if words[:2] == ["docker", "run"] else None
        if at:
            words[at:at] = ["--network", "none", "-e", "TREAPER_GRACE=1s", "-e", "TREAPER_DRAIN=300ms"]
        started = self.stage.start([*host, *words], stdin=subprocess.PIPE)
        self.stage.until("the server", lambda: "up\n" in self.stage.read("log"))
        self.stage.passes(FIRST_SECOND)
        return started

    def end(self):
        subprocess.run("docker ps -aq | xargs -r docker rm -f", shell=True, env=self.stage.env, stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL)
        self.engine.terminate()
        self.engine.wait(30)
        remove_groups("docker")


def judged(stage, left):
    """What is judged is what `left` lists: all else is the engine's."""
    def judge():
        if not (stage.control or stage.without):
            stage.until("the end of " + "; ".join(left()), lambda: not left(), limit=30)
            return "nothing left in a container"
        stage.passes(3)
        found = left()
        if not found:
            raise Failed("the control leaves nothing, so the scene shows nothing")
        return f"left: {'; '.join(found)}"
    return judge


@scene("docker run", "dockerfile", "docker-mcp")
def _(stage):
    docker = Docker(stage)
    docker.build("some-image", stage.text("dockerfile"))
    server = json.loads(stage.text("docker-mcp"))["mcpServers"]["some-server"]
    stage.kill(docker.client(shlex.join([server["command"], *server["args"]])))
    return judged(stage, docker.containers)


# Starts its arguments with a pipe as their stdin, as MCP hosts do.
HOST = ["/usr/bin/python3", "-c", "import subprocess, sys; subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE).wait()"]


@scene("docker run, its host is killed", "dockerfile", "docker-mcp")
def _(stage):
    docker = Docker(stage)
    docker.build("some-image", stage.text("dockerfile"))
    server = json.loads(stage.text("docker-mcp"))["mcpServers"]["some-server"]
    stage.kill(docker.client(shlex.join([server["command"], *server["args"]]), HOST))
    return judged(stage, docker.containers)


@scene("docker run, treaper from an image of its own", "docker-image", "dockerfile")
def _(stage):
    docker = Docker(stage)
    for folder in ("dist", "packaging"):
        os.mkdir(stage.path(folder))
    shutil.copytree(os.path.join(ROOT, "packaging/image"), stage.path("packaging/image"))
    shutil.copy(stage.path("bin/treaper"), stage.path("dist/treaper-x86_64-linux-musl"))
    # The first line builds that binary.
    build, *lines = stage.text("docker-image").splitlines()
    stage.run(["sh", "-ec", "\n".join(lines)])
    copy = "COPY --from=treaper /treaper /usr/bin/treaper"
    with open(os.path.join(ROOT, "docs/hosts.md")) as page:
        if build != "packaging/static/build" or f"`{copy}`" not in page.read():
            raise Failed("docs/hosts.md says something else")
    docker.build("some-image", stage.text("dockerfile").replace("COPY treaper /usr/bin/treaper", copy))
    stage.kill(docker.client("docker run -i --rm some-image"))
    return judged(stage, docker.containers)


@scene("docker run --init", "dockerfile")
def _(stage):
    docker = Docker(stage, init="tini-static")
    docker.build("some-image", stage.text("dockerfile"))
    stage.kill(docker.client("docker run -i --rm --init some-image"))
    return judged(stage, docker.containers)


@scene("docker-finally")
def _(stage):
    docker = Docker(stage)
    docker.build("some-image", 'FROM debian:stable-slim\nENTRYPOINT ["some-server"]\n')
    server = json.loads(stage.text("docker-finally"))["mcpServers"]["some-server"]
    words = [word.replace("docker run", "docker run --network none") for word in [server["command"], *server["args"]]]
    stage.kill(docker.client(shlex.join(words), HOST))
    return judged(stage, docker.containers)


@scene("docker-client", without="--init ")
def _(stage):
    """A server that SIGTERM ends, unless it is PID 1."""
    docker = Docker(stage, init="tini-static")
    stage.write("context/some-server", "#!/bin/sh\necho up\nexec sleep 1000\n", 0o755)
    docker.build("some-image", 'FROM debian:stable-slim\nCOPY some-server /some-server\nENTRYPOINT ["/some-server"]\n')
    stage.kill(docker.client(stage.text("docker-client").replace("docker run", "docker run --network none"), HOST))
    return judged(stage, docker.containers)


@scene("podman, the container is removed", "docker-finally")
def _(stage):
    podman = Podman(stage)
    podman.build("some-image", 'FROM debian:stable-slim\nENTRYPOINT ["some-server"]\n')
    server = json.loads(stage.text("docker-finally"))["mcpServers"]["some-server"]
    words = [word.replace("docker", "podman") for word in [server["command"], *server["args"]]]
    client = stage.start([*HOST, *words], stdin=subprocess.PIPE)
    stage.until("the server", lambda: "up\n" in stage.read("log"))
    stage.passes(FIRST_SECOND)
    stage.kill(client)
    return judged(stage, podman.containers)


@scene("docker-mount")
def _(stage):
    docker = Docker(stage)
    docker.build("some-image", 'FROM debian:stable-slim\nENTRYPOINT ["some-server"]\n')
    command = stage.text("docker-mount").replace("/usr/bin/treaper:", stage.path("bin/treaper") + ":")
    stage.kill(docker.client(command))
    return judged(stage, docker.containers)


@scene("docker-init", without="-e TREAPER_STDIN=watch ")
def _(stage):
    docker = Docker(stage)
    docker.build("some-image", 'FROM debian:stable-slim\nENTRYPOINT ["some-server"]\n')
    stage.kill(docker.client(stage.text("docker-init")))
    return judged(stage, docker.containers)


@scene("ctr", "dockerfile", "ctr", alone=True)
def _(stage):
    stage.need("ctr")
    docker = Docker(stage)
    docker.build("some-image", stage.text("dockerfile"))
    ctr = f"ctr -a {stage.path('exec/containerd/containerd.sock')}"
    stage.run(["sh", "-c", f"docker save some-image | {ctr} images import --snapshotter native -"])
    run = stage.text("ctr").strip().replace("ctr run --rm", f"{ctr} run --rm --snapshotter native --env TREAPER_GRACE=1s")
    stage.env["TREAPER_GRACE"] = "8s"
    # The host is a shell, which has more to do.
    host = stage.start(["sh", "-c", f"{run}; true"], stdin=subprocess.PIPE)
    stage.until("the server", lambda: "up\n" in stage.read("log"))
    # ctr passes signals on from a moment after the start of the container.
    stage.passes(FIRST_SECOND)
    stage.kill(host)

    def left():
        tasks = stage.run(["sh", "-c", f"{ctr} tasks ls"]).splitlines()
        return [" ".join(line.split()) for line in tasks if "RUNNING" in line]

    def clear():
        subprocess.run(["sh", "-c", f"{ctr} tasks kill -s KILL some-id; sleep 0.5; {ctr} tasks delete some-id; {ctr} containers delete some-id"],
                       env=stage.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        remove_groups("default")
    stage.endings.append(clear)
    return judged(stage, left)


def stays(left):
    """What the page calls not enough leaves a container."""
    def judge():
        found = left()
        if not found:
            raise Failed("the page says that this is not enough, and nothing is left")
        return f"left: {'; '.join(found)}"
    return judge


@scene("docker run --init is not enough", in_document=False, control=False)
def _(stage):
    docker = Docker(stage, init="tini-static")
    docker.build("some-image", 'FROM debian:stable-slim\nENTRYPOINT ["some-server"]\n')
    stage.kill(docker.client("docker run -i --rm --init some-image"))
    stage.passes(5)
    return stays(docker.containers)


@scene("treaper in front of docker run is not enough", in_document=False, control=False)
def _(stage):
    docker = Docker(stage)
    docker.build("some-image", 'FROM debian:stable-slim\nENTRYPOINT ["some-server"]\n')
    # The host is a shell; treaper and the client are behind it.
    host = docker.client("sh -c 'treaper docker run --network none -i --rm some-image; true'")
    stage.kill(host)
    stage.until("the end of treaper", lambda: not stage.find("treaper docker"))
    return stays(docker.containers)


@scene("docker-exec")
def _(stage):
    docker = Docker(stage)
    stage.run(["docker", "run", "-d", "--name", "some-container", "--network", "none", "-e", "TREAPER_GRACE=1s",
               "debian:stable-slim", "sh", "-c", "while :; do sleep 1; done"])
    stage.kill(docker.client(stage.text("docker-exec")))

    def left():
        return [line.strip() for line in stage.run(["docker", "exec", "some-container", "ps"]).splitlines() if "some-" in line]
    return judged(stage, left)


@scene("docker-exec-it", without="--idle=8h ")
def _(stage):
    """The terminal in the container stays open when the client is killed."""
    stage.need("script")
    Docker(stage)
    stage.run(["docker", "run", "-d", "--name", "some-container", "--network", "none", "-e", "TREAPER_GRACE=1s",
               "debian:stable-slim", "sh", "-c", "while :; do sleep 1; done"])
    command = stage.text("docker-exec-it").strip().replace("=8h", "=5s")
    screen = stage.start(["script", "-qefc", f"exec {command}", "/dev/null"], stdin=subprocess.PIPE)
    stage.until("the server", lambda: "up" in stage.read("log"))
    for client in stage.find("docker exec -it"):
        if client.comm == "docker":
            stage.kill(client.pid)
    screen.wait(60)

    def left():
        return [line.strip() for line in stage.run(["docker", "exec", "some-container", "ps"]).splitlines() if "some-" in line]
    return judged(stage, left)


@scene("agent-in-container", without="--finally='docker rm -f agent' ")
def _(stage):
    """The terminal in the container stays open when the client is killed."""
    stage.need("script")
    docker = Docker(stage)
    docker.build("some-image", 'FROM debian:stable-slim\nENTRYPOINT ["/usr/bin/treaper", "--", "some-server"]\n')
    command = stage.text("agent-in-container").strip().replace("docker run", "docker run --network none -e TREAPER_GRACE=1s")
    screen = stage.start(["script", "-qefc", f"exec {command}", "/dev/null"], stdin=subprocess.PIPE)
    stage.until("the server", lambda: "up" in stage.read("log"))
    for client in stage.find("docker run"):
        if client.comm == "docker":
            stage.kill(client.pid)
    screen.wait(60)
    return judged(stage, docker.containers)


@scene("kubernetes-image")
def _(stage):
    """The containers of the pod, one after the other, in the engine that is here."""
    import yaml
    docker = Docker(stage)
    pod = yaml.safe_load(stage.text("kubernetes-image"))["spec"]
    stage.write("context/some-server", LEAVING, 0o755)
    docker.build("some-image", 'FROM debian:stable-slim\nRUN ["/bin/rm", "/treaper"]\n')
    docker.build("some-other-image", 'FROM debian:stable-slim\nCOPY some-server /usr/bin/some-server\n'
                 'RUN ["/bin/rm", "/treaper", "/usr/bin/treaper"]\n')
    os.mkdir(stage.path("volume"))
    os.chmod(stage.path("volume"), 0o777)
    for container in pod["initContainers"] + pod["containers"]:
        mount, = container["volumeMounts"]
        entrypoint, *words = container["command"] + container.get("args", [])
        options = ["--read-only"] if container.get("securityContext", {}).get("readOnlyRootFilesystem") else []
        volume = f"{stage.path('volume')}:{mount['mountPath']}:{'ro' if mount.get('readOnly') else 'rw'}"
        keeps_running = [] if container in pod["initContainers"] else ["-d"]
        stage.run(["docker", "run", "--name", container["name"], "--network", "none", "--user", str(pod["securityContext"]["runAsUser"]),
                   "-v", volume, *options, *keeps_running, "--entrypoint", entrypoint, container["image"], *words])
    logs = lambda: stage.run(["docker", "logs", "some-server"])
    stage.until("the server", lambda: "up\n" in logs())
    stage.run(["docker", "stop", "-t", str(pod["terminationGracePeriodSeconds"]), "some-server"])

    def judge():
        if docker.containers() or ("finished" in logs()) == stage.control:
            raise Failed("the worker: " + logs())
        return "nothing left" + (" either, but the worker did not finish its work" if stage.control else "")
    return judge


class Podman:
    def __init__(self, stage):
        stage.need("podman", "runc")
        own_mounts()
        self.stage = stage
        stage.env["TMPDIR"] = stage.folder
        flags = (f"--root {stage.path('root')} --runroot {stage.path('run')} --tmpdir {stage.path('tmp')} --storage-driver vfs "
                 "--cgroup-manager cgroupfs --events-backend none --runtime runc --log-level error")
        # Explicit limits: podman asks for more open files than a root without CAP_SYS_RESOURCE may have.
        stage.write("bin/podman", f"""#!/bin/sh
verb=$1; shift
case $verb in
    run) set -- --network none --ulimit nofile=4096:4096 --ulimit nproc=8192:8192 -e TREAPER_GRACE=1s -e TREAPER_DRAIN=300ms "$@" ;;
    build) set -- --isolation chroot "$@" ;;
esac
exec /usr/bin/podman {flags} "$verb" "$@"
""", 0o755)
        stage.endings.append(self.end)
        self.context = image(stage)
        stage.run(["podman", "build", "-q", "-t", "debian:stable-slim", "-f", stage.path("base/Dockerfile"), self.context])

    def build(self, tag, text):
        self.stage.write("Dockerfile", text)
        self.stage.run(["podman", "build", "-q", "--pull=never", "-t", tag, "-f", self.stage.path("Dockerfile"), self.context])

    def containers(self):
        return self.stage.run(["podman", "ps", "--format", "{{.Image}} {{.Command}}"]).splitlines()

    def end(self):
        subprocess.run(["podman", "rm", "-fa", "-t", "0"], env=self.stage.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        remove_groups("libpod_parent")


def podman_client(stage, command):
    client = stage.start(["sh", "-c", "exec " + command], stdin=subprocess.PIPE)
    stage.until("the server", lambda: "up\n" in stage.read("log"))
    stage.passes(FIRST_SECOND)
    return client


@scene("podman run", "dockerfile", "podman")
def _(stage):
    podman = Podman(stage)
    podman.build("some-image", stage.text("dockerfile"))
    stage.kill(podman_client(stage, stage.text("podman")))
    return judged(stage, podman.containers)


@scene("podman-init", without="-e TREAPER_STDIN=watch ")
def _(stage):
    podman = Podman(stage)
    podman.build("some-image", 'FROM debian:stable-slim\nENTRYPOINT ["some-server"]\n')
    stage.kill(podman_client(stage, stage.text("podman-init").replace("/usr/bin/treaper", stage.path("bin/treaper"))))
    return judged(stage, podman.containers)


# ---- OpenRC

class OpenRC:
    """The machine's own files with OpenRC and the service on top, in a mount namespace of its own."""

    LAYER, ROOT = "/mnt/layer", "/mnt/root"

    def __init__(self, stage, snippet):
        unpacked = os.path.join(CACHE, "openrc/root")
        if not os.path.exists(unpacked):
            raise Skip("OpenRC is not there")
        own_mounts()
        self.stage = stage
        # A layer may not be a part of another one, so it is in a file system of its own.
        stage.run(["mount", "-t", "tmpfs", "none", "/mnt"])
        os.mkdir(self.ROOT)
        shutil.copytree(unpacked, self.LAYER, symlinks=True)
        for program in ("treaper", "some-server"):
            shutil.copy(stage.path(f"bin/{program}"), f"{self.LAYER}/usr/bin/{program}")
        shutil.copy(stage.snippet(snippet, "some-server", 0o755), f"{self.LAYER}/etc/init.d/some-server")
        # OpenRC passes on only the variables that it is told to.
        with open(f"{self.LAYER}/etc/rc.conf", "w") as file:
            file.write('rc_env_allow="TREAPER_GRACE"\n')
        stage.run(["mount", "-t", "overlay", "overlay", "-o", f"lowerdir={self.LAYER}:/", self.ROOT])
        for place in ("/proc", "/dev", "/sys"):
            stage.run(["mount", "--bind", place, self.ROOT + place])
        for place in ("/run", "/tmp"):
            stage.run(["mount", "-t", "tmpfs", "none", self.ROOT + place])
        # What a boot makes: OpenRC starts no service before.
        for place in ("daemons", "exclusive", "failed", "inactive", "options", "scheduled", "started", "starting", "stopping", "tmp", "wasinactive"):
            os.makedirs(f"{self.ROOT}/run/openrc/{place}")
        open(f"{self.ROOT}/run/openrc/softlevel", "w").close()
        # The server writes into the folder of the stage, and the service into /var/log.
        os.mkdir(self.ROOT + stage.folder)
        stage.run(["mount", "--bind", stage.folder, self.ROOT + stage.folder])
        os.mkdir(stage.path("var-log"))
        stage.run(["mount", "--bind", stage.path("var-log"), f"{self.ROOT}/var/log"])
        stage.said("var-log/some-server.log")

    def service(self, verb):
        """`rc-service stop` waits until the supervisor is reaped. Here that is not done by the init of the machine."""
        process = self.stage.start(["chroot", self.ROOT, "/sbin/rc-service", "some-server", verb])
        self.stage.until(f"the end of rc-service {verb}", lambda: procs.reap() or process.poll() is not None)


@scene("openrc", trigger="parent-exit")
def _(stage):
    openrc = OpenRC(stage, "openrc")
    openrc.service("start")
    stage.ready()
    for supervisor in stage.find("supervise-daemon"):
        stage.kill(supervisor.pid)


@scene("openrc stop", "openrc", trigger="terminate")
def _(stage):
    openrc = OpenRC(stage, "openrc")
    openrc.service("start")
    stage.ready()
    openrc.service("stop")


# ---- systemd

def systemd_says(stage, snippet, play):
    """What tests/hosts/systemd.sh says after it has played this."""
    stage.need("systemctl", "unshare", "nsenter")
    stage.write(f"snippets/{snippet}", stage.text(snippet))
    env = {**os.environ, "BIN": stage.path("bin/treaper"), "CONTROL": str(int(stage.control))}
    said = stage.run([os.path.join(HERE, "systemd.sh"), stage.path("snippets"), play], timeout=200, env=env, check=False)
    if "left: " not in said:
        raise (Skip if "skipped" in said else Failed)(said.strip()[-300:])
    return said, int(said.split("left: ")[1].split()[0])


def systemd(stage, snippet, play):
    said, left = systemd_says(stage, snippet, play)

    def judge():
        if "result: " in said and "result: success" not in said:
            raise Failed(said)
        if left and not stage.control:
            raise Failed(f"{left} left")
        if not left and stage.control and play == "scope":
            raise Failed("the control leaves nothing, so the scene shows nothing")
        return f"{left} left" if left else "nothing left" + (" either: systemd kills the group of a unit" if stage.control else "")
    return judge


@scene("systemd unit", "systemd-unit")
def _(stage):
    return systemd(stage, "systemd-unit", "unit")


@scene("systemd user unit", "systemd-user")
def _(stage):
    return systemd(stage, "systemd-user", "user")


@scene("systemd scope", "systemd-scope")
def _(stage):
    return systemd(stage, "systemd-scope", "scope")


@scene("quadlet", alone=True)
def _(stage):
    """The generator of podman makes the unit."""
    stage.need("podman", "runc", "conmon")
    if not os.path.exists(QUADLET):
        raise Skip("the generator of podman is not there")
    context = image(stage)
    stage.write("context/some-server", LEAVING, 0o755)
    os.makedirs(f"{context}/usr/bin", exist_ok=True)
    for program in ("treaper", "some-server"):
        shutil.move(f"{context}/{program}", f"{context}/usr/bin/{program}")
    for name in ("sh", "setsid", "sleep"):
        os.symlink("busybox", f"{context}/bin/{name}")
    os.mkdir(stage.path("snippets"))
    stage.run(["tar", "-C", context, "-cf", stage.path("snippets/image.tar"), "."])
    shutil.copy(QUADLET, stage.path("snippets/generator"))
    said, left = systemd_says(stage, "quadlet", "quadlet")

    def judge():
        if "result: success" not in said or left:
            raise Failed(said)
        if ("finished" in said) == stage.control:
            raise Failed("the worker: " + said)
        return "nothing left" + (" either, but the worker did not finish its work" if stage.control else "")
    return judge
