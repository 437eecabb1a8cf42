"""The scenes with programs that hold a GPU. No GPU is needed: a file that a worker has locked stands for its memory."""

import os
import signal

from scene import scene
from scenes import free_ports
from stage import CACHE, Failed, Skip

# A stand-in for vLLM: the server has an engine in a session of its own, and the engine has three workers. Each one
# ignores SIGTERM, and none exits when its parent is gone. One is blocked in a write, one is in state D (it waits for a
# child that has been made by vfork), one only sleeps.
VLLM = """#!/usr/bin/python3
import fcntl, os, signal, time

HERE = "{here}"


def says(role):
    with open(HERE + "/up", "a") as file:
        file.write(f"{{role}} {{os.getpid()}}\\n")


def child(work, *words):
    pid = os.fork()
    if pid == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        work(*words)
        os._exit(0)
    return pid


def worker(number):
    memory = open(HERE + f"/gpu{{number}}", "w")
    try:
        fcntl.flock(memory, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        print("CUDA out of memory", flush=True)
        os._exit(1)
    says(f"worker{{number}}")
    if number == 0:
        os.write(os.pipe()[1], bytes(1 << 20))
    if number == 1:
        os.posix_spawn("/bin/true", ["true"], {{}}, file_actions=[(os.POSIX_SPAWN_OPEN, 0, HERE + "/fifo", os.O_RDONLY, 0)])
    time.sleep(1000)


def engine():
    os.setsid()
    for number in range(3):
        child(worker, number)
    time.sleep(1000)


child(engine)
while sum(open(HERE + "/up").read().count(f"worker{{n}}") for n in range(3)) % 3 or not open(HERE + "/up").read():
    time.sleep(0.02)
says("server")
time.sleep(1000)
"""


def state(pid):
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(")")[2].split()[0]


def vllm(stage):
    stage.write("bin/vllm", VLLM.format(here=stage.folder), 0o755)
    stage.write("up", "")
    os.mkfifo(stage.path("fifo"))
    host = serve(stage)
    stage.ready()
    return host


def serve(stage):
    """The host: it has more to do when the server has ended."""
    script = stage.snippet("vllm", "serve.sh")
    return stage.start(["sh", "-c", f". {script}; echo over >>{stage.path('over')}; exec sleep 1000"])


@scene("vllm, the server is killed", "vllm", quick=True)
def _(stage):
    host = vllm(stage)
    stage.until("state D", lambda: state(stage.pids()["worker1"]) == "D")
    stage.kill(stage.pids()["server"])
    stage.until("the end of the command", lambda: stage.read("over"))
    stage.kill(host)


@scene("vllm, the next server", "vllm", quick=True)
def _(stage):
    """The memory is free as soon as the command has ended."""
    host = vllm(stage)
    stage.kill(stage.pids()["server"])
    stage.until("the end of the command", lambda: stage.read("over"))
    second = serve(stage)
    if stage.control:
        stage.until("the complaint", lambda: "out of memory" in stage.messages())
    else:
        stage.ready(2)
        if "out of memory" in stage.messages():
            raise Failed("the memory was not free")
    stage.kill(second)
    stage.kill(host)


@scene("vllm, the host is killed", "vllm", quick=True, trigger="parent-exit")
def _(stage):
    stage.kill(vllm(stage))


def torch(stage, snippet, train):
    """A training of Debian's torch. `up` has what its processes write."""
    if not os.path.exists("/usr/bin/torchrun"):
        raise Skip("python3-torch is not installed")
    os.symlink("/usr/bin/python3", stage.path("bin/python3"))
    stage.write("up", "")
    stage.write("train.py", train.format(here=stage.folder))
    stage.env["OMP_NUM_THREADS"] = "1"
    return stage.start(["sh", "-c", f". {stage.snippet(snippet, 'train.sh')}; exec sleep 1000"])


TRAIN = """
import os, signal, time
import torch
torch.ones(2).sum()
signal.signal(signal.SIGTERM, signal.SIG_IGN)
with open("{here}/up", "a") as file:
    file.write("rank " + os.environ["RANK"] + " " + str(os.getpid()) + "\\n")
time.sleep(1000)
"""


def torchrun(stage):
    # Debian's torchrun cannot read its own defaults of these options.
    stage.env.update(PET_REDIRECTS="1", PET_TEE="1", PET_MASTER_PORT=str(free_ports(1)[0]))
    host = torch(stage, "torchrun", TRAIN)
    stage.until("the workers", lambda: stage.read("up").count("rank ") == 2)
    return host


@scene("torchrun is killed", "torchrun")
def _(stage):
    host = torchrun(stage)
    stage.kill(next(p.pid for p in stage.find("bin/torchrun") if "python3" in p.comm or p.comm == "torchrun"))
    stage.kill(host)


@scene("torchrun, the host is killed", "torchrun", trigger="parent-exit")
def _(stage):
    stage.kill(torchrun(stage))


LOADER = """
import os, time
import torch.utils.data


class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        with open("{here}/up", "a") as file:
            file.write("loader " + str(os.getpid()) + "\\n")
        time.sleep(1000)


for batch in torch.utils.data.DataLoader(Data(), num_workers=2):
    pass
"""


@scene("DataLoader, the training is killed", "dataloader")
def _(stage):
    host = torch(stage, "dataloader", LOADER)
    stage.until("the workers", lambda: stage.read("up").count("loader ") == 2)
    loaders = [int(line.split()[1]) for line in stage.read("up").splitlines()]
    with open(f"/proc/{loaders[0]}/stat") as file:
        training = int(file.read().rpartition(")")[2].split()[1])
    stage.kill(training)
    stage.kill(host)


RAY = """
import os, subprocess, time
import ray

ray.init(num_cpus=1, include_dashboard=False, _temp_dir="{here}/r")


@ray.remote
def work():
    subprocess.Popen(["some-server"], stdin=subprocess.DEVNULL)
    time.sleep(1000)


ray.get(work.remote())
"""


@scene("ray, the driver is killed", "ray")
def _(stage):
    if not os.path.exists(f"{CACHE}/venv/bin/ray"):
        raise Skip("ray is not installed")
    stage.write("job.py", RAY.format(here=stage.folder))
    host = stage.start(["sh", "-c", f". {stage.snippet('ray', 'job.sh')}; exec sleep 1000"])
    stage.ready()
    driver, = [p.pid for p in stage.find("python3 job.py") if p.comm.startswith("python")]
    stage.kill(driver, signal.SIGKILL)
    stage.kill(host)
