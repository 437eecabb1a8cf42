"""The scenes with notebooks, tests and watchers."""

import json
import os
import subprocess
import time

from scene import scene
from stage import CACHE, Failed, Skip

PYTHON = os.path.join(CACHE, "venv/bin/python3")
HELPER = "import subprocess; subprocess.Popen(['some-server'], stdin=subprocess.DEVNULL)\n"

# The host of a kernel, as Jupyter is: what it is told on stdin is one method of the kernel's manager.
JUPYTER = """
import os, sys, time
from jupyter_client import KernelManager

manager = KernelManager(kernel_name=sys.argv[1])
manager.start_kernel()
client = manager.client()
client.start_channels()
client.wait_for_ready(timeout=120)


def answer(code):
    return client.execute_interactive(code, timeout=120, store_history=False)["content"]["status"]


HELPER = sys.argv[2]
assert answer(HELPER) == "ok"
print("started", flush=True)
for word in sys.stdin:
    if word == "interrupt\\n":
        message = client.execute("import time\\nopen('busy', 'w').close()\\nwhile True: time.sleep(0.1)")
        while not os.path.exists("busy"):
            time.sleep(0.05)
        manager.interrupt_kernel()
        while (reply := client.get_shell_msg(timeout=120))["parent_header"].get("msg_id") != message:
            pass
        assert reply["content"]["ename"] == "KeyboardInterrupt", reply
        # For an instant after an error, the kernel drops what it is asked.
        answers = (answer("1") for _ in range(100))
        status = next((status for status in answers if status != "aborted"), "aborted")
        assert status == "ok", status
    elif word == "restart\\n":
        manager.restart_kernel()
        client.wait_for_ready(timeout=120)
        assert answer(HELPER) == "ok"
    elif word == "shutdown\\n":
        manager.shutdown_kernel()
    print("done", word.strip(), flush=True)
"""


def jupyter(stage, cell=None):
    """A host whose kernel has started a helper, or executed `cell`."""
    if not os.path.exists(os.path.join(CACHE, "venv/bin/jupyter-kernel")):
        raise Skip("jupyter_client is not installed")
    if cell is None:
        stage.snippet("kernel", ".local/share/jupyter/kernels/treaper/kernel.json")
    what = ["python3", cell] if cell else ["treaper", HELPER + "1"]
    host = stage.start([PYTHON, stage.write("host.py", JUPYTER), *what], stdin=subprocess.PIPE)
    stage.ready()
    stage.until("the kernel", lambda: "started" in stage.messages())
    return host


def asks(stage, host, word):
    host.stdin.write(f"{word}\n".encode())
    host.stdin.flush()
    stage.until(f"the {word}", lambda: f"done {word}" in stage.messages() or host.poll() is not None)
    if host.poll() is not None:
        raise Failed("the host of the kernel has failed")


@scene("jupyter is killed", "kernel")
def _(stage):
    stage.kill(jupyter(stage))


@scene("jupyter interrupts", "kernel")
def _(stage):
    host = jupyter(stage)
    pids = stage.pids()
    asks(stage, host, "interrupt")
    if not stage.is_alive(pids["worker"]):
        raise Failed("the interrupt has ended a worker of the kernel")
    stage.kill(host)


@scene("jupyter restarts the kernel", "kernel")
def _(stage):
    host = jupyter(stage)
    first = stage.pids()
    asks(stage, host, "restart")
    stage.ready(2)
    if not stage.control:
        stage.until("the end of the first worker", lambda: not stage.is_alive(first["worker"]))
    elif not stage.is_alive(first["worker"]):
        raise Failed("the control has stopped the first worker")
    stage.kill(host)


@scene("jupyter shuts the kernel down", "kernel")
def _(stage):
    host = jupyter(stage)
    asks(stage, host, "shutdown")
    host.stdin.close()
    host.wait(60)


@scene("jupyter, a server of a cell", "notebook-cell", trigger="parent-exit")
def _(stage):
    """An interrupt of the cell does not reach it, and a restart stops it."""
    host = jupyter(stage, stage.text("notebook-cell"))
    first = stage.pids()
    asks(stage, host, "interrupt")
    if not stage.is_alive(first["server"]):
        raise Failed("the interrupt has ended the server")
    asks(stage, host, "restart")
    stage.ready(2)
    if not stage.control:
        stage.until("the end of the first server", lambda: not any(map(stage.is_alive, first.values())))
    stage.kill(host)


@scene("reloader", trigger="parent-exit")
def _(stage):
    """What both workers of the reloader have started is stopped with it."""
    stage.need("uvicorn")
    app = stage.write("some_app.py", HELPER + "async def app(scope, receive, send): pass\n")
    # With a command behind it, the shell waits.
    host = stage.start(["sh", "-c", stage.text("reloader").replace("8080", "0") + ":"])
    stage.ready()
    # A change is lost until the reloader watches.
    reloads = (os.utime(app) or stage.comes_within(5, lambda: stage.read("up").count("server ") >= 2) for _ in range(20))
    if not any(reloads):
        raise Failed("the reloader does not reload")
    stage.kill(host)


NOTEBOOK = {
    "cells": [{"cell_type": "code", "id": "a", "metadata": {}, "execution_count": None, "outputs": [], "source": "WORK"}],
    "metadata": {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}},
    "nbformat": 4, "nbformat_minor": 5,
}


def papermill(stage, work):
    stage.need("papermill")
    stage.write("some.ipynb", json.dumps(NOTEBOOK).replace("WORK", work.replace("\n", "\\n")))
    return stage.shell("papermill")


@scene("papermill is killed", "papermill")
def _(stage):
    host = papermill(stage, HELPER + "import time; time.sleep(1000)")
    stage.ready()
    stage.kill(stage.find("bin/papermill")[-1].pid)
    host.wait(60)


@scene("papermill ends", "papermill")
def _(stage):
    host = papermill(stage, HELPER + f"import time\nwhile 'server' not in open('{stage.path('up')}').read(): time.sleep(0.1)")
    stage.write("up", "")
    host.wait(120)
    if not os.path.exists(stage.path("output.ipynb")):
        raise Failed("papermill has not written its output")


# ---- tests

TEST = """
import subprocess, time
import pytest


@pytest.mark.parametrize("number", range(4))
def test_some(number):
    if number == 0:
        subprocess.Popen(["some-server"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while "server" not in open("up").read():
        time.sleep(0.05)
    time.sleep(SECONDS)
"""


def pytest(stage, seconds, *more):
    stage.need("pytest")
    stage.write("up", "")
    stage.write("test_some.py", TEST.replace("SECONDS", str(seconds)))
    script = stage.snippet("pytest", "pytest.sh")
    if more:
        with open(script) as file:
            text = file.read().strip()
        stage.write("pytest.sh", " ".join([text, *more]))
    host = stage.start(["sh", "-c", ". ./pytest.sh; exit $?"])
    stage.ready()
    return host


@scene("pytest, the shell is killed", "pytest")
def _(stage):
    stage.kill(pytest(stage, 1000))


@scene("pytest is killed", "pytest")
def _(stage):
    host = pytest(stage, 1000)
    stage.kill(min(p.pid for p in stage.find("bin/pytest") if "treaper" not in p.cmdline))
    host.wait(60)


@scene("pytest ends", "pytest")
def _(stage):
    if pytest(stage, 0.1).wait(120) != 0:
        raise Failed("the tests did not pass")


@scene("pytest-timeout", "pytest")
def _(stage):
    if pytest(stage, 1000, "--timeout=3", "--timeout-method=thread").wait(120) == 0:
        raise Failed("no test ran into the limit")


BROWSER = """
import time
from selenium import webdriver


def test_page():
    options = webdriver.ChromeOptions()
    for word in ("headless", "no-sandbox", "disable-gpu", "disable-dev-shm-usage", "user-data-dir=PROFILE"):
        options.add_argument("--" + word)
    options.binary_location = "/usr/bin/chromium"
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService("/usr/bin/chromedriver"))
    driver.get("data:text/html,<title>some</title>")
    assert driver.title == "some"
    open("page", "w").close()
    time.sleep(1000)
"""


PLAYWRIGHT = """
import time
from playwright.sync_api import sync_playwright


def test_page():
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page()
        page.goto("data:text/html,<title>some</title>")
        assert page.title() == "some"
        open("page", "w").close()
        time.sleep(1000)
"""


def browser(stage, test):
    stage.env["TREAPER_GRACE"] = "5s"
    stage.write("test_page.py", test)
    host = stage.start(["sh", "-c", f". {stage.snippet('pytest', 'pytest.sh')}; exit $?"])
    stage.until("the page", lambda: os.path.exists(stage.path("page")) or host.poll() is not None)
    if host.poll() is not None:
        raise Failed("the browser did not start")
    return host


@scene("selenium", "pytest", limit=40)
def _(stage):
    stage.need("pytest", "chromium", "chromedriver")
    stage.kill(browser(stage, BROWSER.replace("PROFILE", stage.path("profile"))))


@scene("playwright", "pytest", limit=40)
def _(stage):
    stage.need("pytest", "chromium", "playwright")
    stage.kill(browser(stage, PLAYWRIGHT))


# ---- watchers

# A server that says whether the worker of the one before lives on.
SERVER = """#!/bin/sh
cd {here}
before=$(cat worker 2>/dev/null)
[ -z "$before" ] || ! kill -0 "$before" 2>/dev/null || echo "overlap $before" >>up
setsid sh -c 'trap "" TERM HUP INT; echo $$ >worker; echo "worker $$" >>up; exec sleep 1000' </dev/null >/dev/null 2>&1 &
until [ "$(cat worker 2>/dev/null)" != "$before" ]; do sleep 0.02; done
echo "server $$" >>up
exec sleep 1000
"""


def watcher(stage, name, host_name):
    """The watcher starts the server a second time when a file changes. Then it is killed."""
    stage.write("bin/some-server", SERVER.format(here=stage.folder), 0o755)
    stage.write("src/file", "0")
    host = stage.start(["bash", stage.snippet(name, "watch.sh")])
    stage.ready()
    # Watchers do not say when they watch, so the file may have to change more than once.
    for _ in range(10):
        stage.write("src/file", str(time.monotonic()))
        if stage.comes_within(10, lambda: stage.read("up").count("server ") >= 2):
            break
    stage.ready(2)
    if ("overlap" in stage.read("up")) != stage.control:
        raise Failed("the worker of the first server: " + stage.read("up"))
    stage.kill(stage.find(host_name)[0].pid)
    host.wait(60)


@scene("entr", quick=True)
def _(stage):
    stage.need("entr")
    watcher(stage, "entr", "entr -r")


@scene("watchfiles")
def _(stage):
    stage.need("watchfiles")
    watcher(stage, "watchfiles", "bin/watchfiles")
