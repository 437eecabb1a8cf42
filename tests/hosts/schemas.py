"""Checks of formats whose host is not available, against the published schema or the published documentation."""

import configparser
import http.server
import json
import os
import shlex
import shutil
import subprocess
import tempfile
import threading
import tomllib
import urllib.parse

from scene import check
from stage import CACHE, QUADLET, Failed, Skip

BIN = os.path.join(CACHE, "venv/bin")


def program(name):
    path = os.path.join(BIN, name)
    if not os.path.exists(path):
        raise Skip(f"{name} is not installed")
    return path


def fits(text, file, command):
    """What `command` says of a file with this text, and whether it accepts it."""
    folder = tempfile.mkdtemp(prefix="treaper-hosts-")
    try:
        path = os.path.join(folder, file)
        with open(path, "w") as out:
            out.write(text)
        done = subprocess.run([*command, path], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True)
        return done.returncode == 0, done.stdout
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def judge(text, wrong, file, command):
    """`text` is accepted. As a control, `wrong` is not."""
    accepted, said = fits(text, file, command)
    if not accepted:
        raise Failed(said)
    if wrong == text or fits(wrong, file, command)[0]:
        raise Failed("the control, a text with a mistake, is accepted too")


def published(name, schema, file, right, wrong):
    """A check against a schema that comes with check-jsonschema. The control has `wrong` in place of `right`."""
    @check(f"{name}, schema", name)
    def _(found):
        text = found[name].text
        judge(text, text.replace(right, wrong), file, [program("check-jsonschema"), "--builtin-schema", schema])
        return f"it has the form of {schema}"


published("github", "vendor.github-workflows", "test.yml", "runs-on", "runs-in")
published("gitlab", "vendor.gitlab-ci", ".gitlab-ci.yml", "script:", "scripts:")
published("compose", "vendor.compose-spec", "compose.yaml", "stop_grace_period", "stop_grace")


MANIFESTS = ("kubernetes", "kubernetes-sidecar", "kubernetes-image")


@check("kubernetes, schema", *MANIFESTS)
def _(found):
    for name in MANIFESTS:
        text = found[name].text
        wrong = text.replace("terminationGracePeriodSeconds", "terminationGrace")
        judge(text, wrong, "pod.yaml", [program("kubernetes-validate"), "--strict"])
    return "they have the form of the published schema"


def documented(name, where, parse, form):
    """A check against a form that is copied here by hand from the documentation of `where`."""
    def fits(value, form):
        if isinstance(form, dict):
            return isinstance(value, dict) and value.keys() == form.keys() and all(fits(value[key], form[key]) for key in form)
        return isinstance(value, form) if isinstance(form, type) else value == form

    @check(f"{name}, documented form", name, quick=parse is not yaml)
    def _(found):
        value = parse(found[name].text)
        if not fits(value, form):
            raise Failed(f"{value} is not of the form {form}")
        return f"as documented by {where}"


def yaml(text):
    import yaml
    return yaml.safe_load(text)


def ini(text):
    parser = configparser.ConfigParser()
    parser.optionxform = str
    parser.read_string(text)
    return {name: dict(parser[name]) for name in parser.sections()}


STDIO = {"command": "treaper", "args": list}
documented("mcp-json", "Claude Desktop, Cursor and Windsurf", json.loads, {"mcpServers": {"everything": STDIO}})
documented("vscode", "VS Code, MCP configuration reference", json.loads, {"servers": {"everything": {"type": "stdio", **STDIO}}})
documented("zed", "Zed, Model Context Protocol", json.loads, {"context_servers": {"everything": STDIO}})
documented("goose", "Goose, configuration files", yaml, {"extensions": {"everything": {
    "enabled": bool, "type": "stdio", "name": "everything", "cmd": "treaper", "args": list, "timeout": int}}})
documented("quadlet", "Podman, podman-systemd.unit", ini, {
    "Unit": {"Description": str}, "Container": {"Image": str, "Exec": str, "StopTimeout": "30"},
    "Service": {"SuccessExitStatus": "143"}, "Install": {"WantedBy": str}})
documented("helix", "Helix, languages", tomllib.loads, {"language-server": {"pylsp": STDIO}})


@check("quadlet, the generator of podman", "quadlet")
def _(found):
    if not os.path.exists(QUADLET):
        raise Skip("the generator of podman is not there")
    text = found["quadlet"].text
    init = text.replace("[Service]", "RunInit=yes\nPodmanArgs=--init-path=/usr/bin/treaper\n\n[Service]")
    for form in (text, init):
        for user in ("", "-user"):
            command = ["sh", "-c", 'QUADLET_UNIT_DIRS=$(dirname "$2") exec "$0" -dryrun $1', QUADLET, user]
            judge(form, form.replace("StopTimeout", "StopTime"), "some-server.container", command)
    return "podman's generator accepts it"


@check("codex mcp list", "codex")
def _(found):
    codex = os.path.join(CACHE, "clients/node_modules/.bin/codex")
    if not os.path.exists(codex):
        raise Skip("codex is not installed")

    def listed(text):
        with tempfile.TemporaryDirectory(prefix="treaper-hosts-") as home:
            with open(os.path.join(home, "config.toml"), "w") as file:
                file.write(text)
            done = subprocess.run([codex, "mcp", "list", "--json"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, text=True, env={**os.environ, "CODEX_HOME": home, "HOME": home})
            return done.returncode, done.stdout, done.stderr

    text = found["codex"].text
    status, said, error = listed(text)
    if status != 0 or json.loads(said)[0]["transport"]["command"] != "treaper":
        raise Failed(said + error)
    if listed(text.replace("command", "comand"))[0] == 0:
        raise Failed("the control, a text with a mistake, is accepted too")
    return "codex reads it"


@check("cline config mcp", "mcp-json")
def _(found):
    cline = os.path.join(CACHE, "clients/node_modules/.bin/cline")
    if not os.path.exists(cline):
        raise Skip("cline is not installed")

    def listed(text):
        with tempfile.TemporaryDirectory(prefix="treaper-hosts-") as home:
            settings = os.path.join(home, ".cline/data/settings")
            os.makedirs(settings)
            with open(os.path.join(settings, "cline_mcp_settings.json"), "w") as file:
                file.write(text)
            done = subprocess.run([cline, "config", "mcp"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, text=True, env={"PATH": os.environ["PATH"], "HOME": home})
            return done.returncode, done.stdout

    text = found["mcp-json"].text
    status, said = listed(text)
    if status != 0 or "everything [stdio]" not in said:
        raise Failed(said)
    if listed(text.replace("command", "comand"))[0] == 0:
        raise Failed("the control, a text with a mistake, is accepted too")
    return "cline reads it"


# In place of vim-lsp. The members are those of its README.
VIM_LSP = """function! lsp#register_server(server) abort
    call writefile([json_encode(extend({'cmd': a:server.cmd({})}, a:server, 'keep'))], 'registered')
endfunction
"""


@check("vim-lsp, documented form", "vim-lsp")
def _(found):
    vim = shutil.which("vim")
    if not vim:
        raise Skip("vim is not installed")
    with tempfile.TemporaryDirectory(prefix="treaper-hosts-") as folder:
        os.mkdir(f"{folder}/autoload")
        for name, text in (("autoload/lsp.vim", VIM_LSP), ("vimrc", found["vim-lsp"].text)):
            with open(os.path.join(folder, name), "w") as file:
                file.write(text)
        command = [vim, "-Nes", "-u", "vimrc", "--cmd", f"set runtimepath={folder}", "-c", "doautocmd User lsp_setup", "-c", "qa!"]
        done = subprocess.run(command, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        try:
            with open(f"{folder}/registered") as file:
                server = json.load(file)
        except OSError as error:
            raise Failed(f"vim did not register a server: {done.stdout}") from error
    if server != {"name": "pylsp", "cmd": ["treaper", "pylsp"], "allowlist": ["python"]}:
        raise Failed(f"vim has registered {server}")
    return "vim reads it, and it is as documented by vim-lsp"


class Cluster(http.server.BaseHTTPRequestHandler):
    """In place of a cluster: it has one pod, and notes what is asked of it."""

    asked = ()
    answers = {
        "/api": {"kind": "APIVersions", "versions": ["v1"]},
        "/apis": {"kind": "APIGroupList", "groups": []},
        "/api/v1": {"kind": "APIResourceList", "groupVersion": "v1", "resources": [
            {"name": "pods", "singularName": "pod", "namespaced": True, "kind": "Pod", "verbs": ["get"]}]},
        "/api/v1/namespaces/default/pods/some-pod": {
            "kind": "Pod", "apiVersion": "v1", "metadata": {"name": "some-pod", "namespace": "default"},
            "spec": {"containers": [{"name": "some-container", "image": "some-image"}]}, "status": {"phase": "Running"}},
    }

    def do_GET(self):  # noqa: N802
        asked = urllib.parse.urlparse(self.path)
        if asked.path.endswith("/exec"):
            Cluster.asked = urllib.parse.parse_qsl(asked.query)
        answer = self.answers.get(asked.path)
        if answer is None:
            self.send_error(404)
            return
        body = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_GET  # noqa: N815  (older versions ask so)

    def log_message(self, *_):
        pass


@check("kubectl exec, as kubectl asks it", "kubectl-exec")
def _(found):
    if not shutil.which("kubectl"):
        raise Skip("kubectl is not installed")
    cluster = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Cluster)
    threading.Thread(target=cluster.serve_forever, daemon=True).start()

    def asked(text):
        words = shlex.split(text)
        with tempfile.TemporaryDirectory(prefix="treaper-hosts-") as home:
            words[1:1] = ["--kubeconfig", "/dev/null", "--server", f"http://127.0.0.1:{cluster.server_port}", "--namespace", "default"]
            done = subprocess.run(words, env={"PATH": os.environ["PATH"], "HOME": home}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, text=True, timeout=60)
        words = [value for name, value in Cluster.asked if name == "command"]
        return words, ("stdin", "true") in Cluster.asked, done.stdout

    text = found["kubectl-exec"].text
    words, stdin, said = asked(text)
    if words != ["treaper", "some-server"] or not stdin:
        raise Failed(f"kubectl asks for {Cluster.asked}: {said}")
    if asked(text.replace(" -i", ""))[1]:
        raise Failed("the control, without -i, has a stdin too")
    return "the cluster is asked to start treaper with a stdin"
