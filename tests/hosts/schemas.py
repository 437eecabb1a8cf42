"""The checks of formats whose host cannot be had: against the published schema, or the published documentation."""

import os
import shutil
import subprocess
import tempfile

from scene import check
from stage import CACHE, Failed, Skip

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
