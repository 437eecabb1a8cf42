"""The programs that are measured: a name, and the words before the command."""

import os
import shutil


class Contender:
    def __init__(self, name, words, reaps=True):
        self.name = name
        self.words = words
        # Whether it adopts orphans when it is not PID 1.
        self.reaps = reaps


def path(name):
    found = shutil.which(name)
    if not found:
        raise SystemExit(f"{name} is not installed")
    return found


def make(work):
    """All, the yardstick (the fastest of Debian's) first."""
    static = os.path.join(work, "treaper-static")
    default = os.path.join(work, "treaper-default")
    # It has a namespace of its own, since only that makes its kill complete.
    bubblewrap = [path("bwrap"), "--die-with-parent", "--unshare-pid", "--dev-bind", "/", "/", "--proc", "/proc", "--"]
    return [
        Contender("tini-static", [path("tini-static"), "-s", "--"]),
        Contender("tini", [path("tini"), "-s", "--"]),
        Contender("dumb-init", [path("dumb-init"), "--"], reaps=False),
        Contender("catatonit", [path("catatonit"), "--"]),
        Contender("bubblewrap", bubblewrap),
        Contender("treaper", [static, "--"]),
        Contender("treaper --no-guard", [static, "--no-guard", "--"]),
        Contender("treaper --contain cgroup", [static, "--contain", "cgroup", "--"]),
        Contender("treaper --contain pidns", [static, "--contain", "pidns", "--"]),
        Contender("treaper (cargo build)", [default, "--"]),
        Contender("treaper --no-guard (cargo build)", [default, "--no-guard", "--"]),
    ]


# benches/run builds these: the file, and what the tables call it.
BUILDS = {"debian": "Debian's flags", "fedora": "Fedora's flags", "lean": "without libgcc_s", "pie": "static-pie, glibc"}


def builds(work):
    """The same sources as they are built: the release, and dynamic builds. The yardstick is Debian's dynamic tini."""
    tini, static, default = named(make(work), "tini", "treaper", "treaper (cargo build)")
    others = [Contender(f"treaper ({name})", [os.path.join(work, f"treaper-{file}"), "--"]) for file, name in BUILDS.items()]
    return [tini, static, default, *others]


def flags(work):
    """The flags of each build: a line each, as benches/run gave them to rustc."""
    lines = ["- treaper: see `packaging/static/build`", "- treaper (cargo build): none, and rustup's compiler instead of Debian's"]
    for file, name in BUILDS.items():
        with open(os.path.join(work, f"flags-{file}"), encoding="utf-8") as given:
            lines.append(f"- treaper ({name}): `{given.read().strip()}`")
    return "\n".join(lines) + "\n"


def named(contenders, *names):
    return [next(c for c in contenders if c.name == name) for name in names]
