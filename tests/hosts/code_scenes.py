"""Hosts that are code: by `import treaper`, from the packages that tests/wrappers/build has made, or without a package."""

import os
import shutil
import subprocess

from scene import scene
from scenes import MCP, sdk_host
from stage import CACHE, READY_LIMIT, ROOT, Skip

# In a control, the bare command.
PYTHON = """
import asyncio, subprocess
command = lambda argv, **settings: argv
Popen = lambda argv, **settings: subprocess.Popen(argv)
create_subprocess_exec = lambda *argv, **settings: asyncio.create_subprocess_exec(*argv)
"""
NODE = """
exports.command = (command, args) => ({ command, args });
exports.spawn = require("node:child_process").spawn;
"""


def install(stage, kind):
    """The package in the folder of the scene."""
    name, text = {"python": ("treaper.py", PYTHON), "node": ("node_modules/treaper/index.js", NODE)}[kind]
    if stage.control:
        stage.write(name, text)
    else:
        build = [os.path.join(ROOT, "tests/wrappers/build"), stage.path("dist"), stage.binary]
        if subprocess.run(build, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode:
            raise Skip("the packages cannot be made")
        dist = os.listdir(stage.path("dist"))
        package = stage.path("dist/" + next(n for n in dist if n.endswith(".whl" if kind == "python" else ".tgz")))
        if kind == "python":
            stage.run(["/usr/bin/python3", "-m", "venv", "--without-pip", stage.path("venv")])
            stage.run([f"{ROOT}/.cache/tools/python/bin/pip", "--python", stage.path("venv"), "install", "-q", "--no-index", package])
            stage.env["PYTHONPATH"] = stage.run([stage.path("venv/bin/python"), "-c",
                                                 "import sysconfig; print(sysconfig.get_path('purelib'))"]).strip()
        else:
            stage.run(["npm", "install", "--silent", "--offline", "--prefix", stage.folder, package])
    if kind == "node" and os.path.isdir(f"{CACHE}/node/node_modules/@modelcontextprotocol"):
        os.symlink(f"{CACHE}/node/node_modules/@modelcontextprotocol", stage.path("node_modules/@modelcontextprotocol"))


def host(name, kind, **more):
    @scene(name, quick=True, **more)
    def _(stage):
        stage.need("npm")
        install(stage, kind)
        python, node = ["/usr/bin/python3", stage.path("host.py")], ["node", stage.path("host.mjs")]
        stage.snippet(name, "host.py" if kind == "python" else "host.mjs")
        process = stage.start(python if kind == "python" else node)
        stage.ready()
        stage.kill(process)


def sdk(name, kind):
    @scene(name, limit=40)
    def _(stage):
        install(stage, kind)
        python = [f"{MCP}/venv/bin/python", "host.py"]
        stage.snippet(name, "host.py" if kind == "python" else "host.mjs")
        sdk_host(stage, python if kind == "python" else ["/usr/bin/node", "host.mjs"])


CARGO = """
[package]
name = "{name}"
version = "0.0.0"
edition = "2024"
[workspace]
[dependencies]
tokio = {{ version = "1", features = ["macros", "process", "rt-multi-thread"] }}
treaper = {{ path = "{crate}" }}
"""
# In a control, the bare command.
CRATE = """
pub fn dispatch() {}
pub fn command(program: impl AsRef<std::ffi::OsStr>) -> std::process::Command { std::process::Command::new(program) }
"""


def rust(name):
    @scene(name)
    def _(stage):
        cargo = shutil.which("cargo")
        if not cargo:
            raise Skip("cargo is not installed")
        crate = ROOT
        if stage.control:
            stage.write("crate/src/lib.rs", CRATE)
            stage.write("crate/Cargo.toml", '[package]\nname = "treaper"\nversion = "0.0.0"\nedition = "2024"\n')
            crate = stage.path("crate")
        package = f"{name}-bare" if stage.control else name
        stage.snippet(name, "src/main.rs")
        stage.write("Cargo.toml", CARGO.format(name=package, crate=crate))
        target = os.path.join(CACHE, "rust")
        stage.run([cargo, "build", "--quiet"], timeout=900, env={**os.environ, "CARGO_TARGET_DIR": target})
        process = stage.start([f"{target}/debug/{package}"])
        stage.ready()
        stage.kill(process)


for each in ("code-rust", "code-rust-tokio"):
    rust(each)
for each in ("code-python", "code-asyncio", "readme-python"):
    host(each, "python")
for each in ("code-node", "readme-node"):
    host(each, "node")
sdk("code-python-sdk", "python")
sdk("code-typescript-sdk", "node")


def elixir(stage, code):
    """A host that starts the server, and then waits for lines. Returns it, and its VM."""
    stage.need("elixir")
    host = stage.start(["elixir", stage.write("host.exs", code)], stdin=subprocess.PIPE)
    stage.ready()
    # An end of the input within the first second is that of a complete input.
    stage.passes(1.5)
    vm, = [p.pid for p in stage.descendants() if p.comm == "beam.smp"]
    return host, vm


WAITS = "IO.gets(nil)\n"


def closes(stage, opens, ends):
    """The end of the port. The VM goes on, and is no part of what is judged."""
    host, vm = elixir(stage, f'{opens}{WAITS}{ends}File.write!("closed", "")\n{WAITS}')
    stage.spared |= {p.pid for p in stage.descendants() if p.pid == vm or p.comm == "erl_child_setup"}
    host.stdin.write(b"\n")
    host.stdin.flush()
    stage.until("the end of the port", lambda: os.path.exists(stage.path("closed")))


@scene("elixir", trigger="stdin-eof")
def _(stage):
    closes(stage, stage.text("elixir"), "Port.close(port)\n")


@scene("elixir, the owner of the port exits", "elixir", trigger="stdin-eof")
def _(stage):
    owner = f"owner = spawn(fn ->\n{stage.text('elixir')}Port.info(port)\nProcess.sleep(:infinity)\nend)\n"
    closes(stage, owner, "Process.exit(owner, :kill)\n")


@scene("elixir, SIGKILL", "elixir", trigger="parent-exit")
def _(stage):
    host, vm = elixir(stage, stage.text("elixir") + "Port.info(port)\n" + WAITS)
    stage.kill(vm)
    host.wait(READY_LIMIT)


@scene("elixir, System.cmd", in_document=False, trigger="parent-exit")
def _(stage):
    host, vm = elixir(stage, 'System.cmd("treaper", ["some-server"])\n')
    stage.kill(vm)
    host.wait(READY_LIMIT)
