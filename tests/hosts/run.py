"""Plays the snippets of docs/ in the real hosts. Started by tests/hosts/run, which says how."""

import argparse
import json
import os
import signal
import sys
import time
import traceback

import procs_path  # noqa: F401
import procs
import snippets
from scene import SCENES, Check
from stage import CACHE, ROOT, Failed, Skip, Stage

import scenes  # noqa: F401  (registers them)
import agents  # noqa: F401
import notebooks  # noqa: F401
import training  # noqa: F401
import containers  # noqa: F401
import schemas  # noqa: F401
import transcripts  # noqa: F401
import programs  # noqa: F401
import code_scenes  # noqa: F401

DOCUMENTS = ["docs/hosts.md", "docs/programs.md", "docs/troubleshooting.md",
             "packaging/python/README.md", "packaging/npm/README.md"]
SCENE_LIMIT = 240  # seconds
# What a scene is compared with.
BARE, WITHOUT = "bare", "without"


def parse():
    options = argparse.ArgumentParser(prog="tests/hosts/run", description=__doc__)
    options.add_argument("--list", action="store_true", help="print the scenes and end")
    options.add_argument("--only", metavar="NAME", action="append", help="the scene NAME, or else those whose name contains NAME (repeatable)")
    options.add_argument("--quick", action="store_true", help="only what needs no slow installation")
    options.add_argument("--jobs", type=int, default=3, help="scenes at a time (3)")
    options.add_argument("-v", "--verbose", action="store_true", help="also print each scene's log")
    return options.parse_args()


def documents():
    return [path for path in (os.path.join(ROOT, name) for name in DOCUMENTS) if os.path.exists(path)]


def named(names):
    chosen = []
    for name in names:
        chosen += [s for s in SCENES if s.name == name] or [s for s in SCENES if name in s.name]
    return [s for s in SCENES if s in chosen]


class Running:
    """A scene in a process of its own, which adopts what the scene leaves."""

    def __init__(self, scene, control, found, binary):
        self.scene = scene
        self.name = scene.name + {None: "", BARE: ", control", WITHOUT: f", without {getattr(scene, 'without', '')}"}[control]
        self.began = time.monotonic()
        reader, writer = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(reader)
            signal.alarm(SCENE_LIMIT)
            signal.signal(signal.SIGALRM, self.too_late)
            signal.signal(signal.SIGTERM, self.too_late)
            with os.fdopen(writer, "w") as result:
                json.dump(play(scene, control, found, binary), result)
            os._exit(0)
        os.close(writer)
        self.reader = reader

    @staticmethod
    def too_late(*_):
        raise Failed(f"not over after {SCENE_LIMIT} s")

    def result(self):
        with os.fdopen(self.reader) as file:
            text = file.read()
        os.waitpid(self.pid, 0)
        try:
            return json.loads(text)
        except ValueError:
            return {"verdict": "failed", "said": "the scene's process ended early", "log": ""}


def play(scene, control, found, binary):
    procs.become_subreaper()
    if isinstance(scene, Check):
        return verdict(lambda: scene.play(found), lambda: "")
    stage = Stage(found, binary, control == BARE, scene.without if control == WITHOUT else "")
    try:
        return verdict(lambda: play_on(stage, scene, control), lambda: stage.messages()[-6000:])
    finally:
        signal.alarm(0)
        stage.clear()


def play_on(stage, scene, control):
    elsewhere = scene.play(stage)
    if elsewhere is not None:
        return elsewhere()
    if control:
        stage.judge_control(scene.leaks or control == WITHOUT)
        left = ", ".join(sorted({process.comm for process in stage.left}))
        return f"left: {left}" if stage.left else f"nothing left either: {scene.note}"
    stage.judge(scene.limit)
    if scene.trigger and scene.trigger not in stage.messages():
        raise Failed(f"treaper did not name {scene.trigger}")
    return "nothing left"


def verdict(act, log):
    try:
        return {"verdict": "passed", "said": act(), "log": log()}
    except Skip as skip:
        return {"verdict": "skipped", "said": str(skip), "log": ""}
    except Failed as failed:
        return {"verdict": "failed", "said": str(failed), "log": log()}
    except Exception:  # noqa: BLE001  (a scene that breaks is a failure like any other)
        return {"verdict": "failed", "said": traceback.format_exc(), "log": log()}


def main():
    args = parse()
    try:
        found = snippets.read(documents())
    except snippets.Unreadable as error:
        print(f"FAIL {error}\n0 passed, 1 failed, 0 skipped")
        return 1
    used = {name for scene in SCENES for name in scene.snippets}
    wrong = [f"{snippet.place}: no scene plays {name}" for name, snippet in found.items() if name not in used]
    wrong += [f"no document has the snippet {name}" for name in sorted(used - set(found))]
    chosen = named(args.only) if args.only else SCENES
    later = [s for s in chosen if args.quick and not s.quick]
    chosen = [s for s in chosen if s not in later]
    if args.list:
        for scene in chosen:
            print(f"{scene.name}: {', '.join(scene.snippets)}")
        return 0
    binary = os.path.abspath(os.environ["TREAPER"])
    forbidden = bool(os.environ.get("FORBID_SKIPS"))
    procs.become_subreaper()
    os.makedirs(CACHE, exist_ok=True)

    counts = {"passed": 0, "failed": len(wrong), "skipped": 0}
    for line in wrong:
        print(f"FAIL {line}")
    waiting = []
    for scene in chosen:
        waiting.append((scene, None))
        if not isinstance(scene, Check):
            waiting += [(scene, BARE)] if scene.control else []
            waiting += [(scene, WITHOUT)] if scene.without else []
    running = []
    try:
        while waiting or running:
            while waiting and len(running) < args.jobs and not (running and (waiting[0][0].alone or running[0].scene.alone)):
                running.append(Running(*waiting.pop(0), found, binary))
            ready = first(running)
            running.remove(ready)
            result = ready.result()
            kind = result["verdict"]
            if kind == "skipped" and forbidden and ready.scene.quick:
                kind = "failed"
            counts[kind] += 1
            word = {"passed": "ok  ", "failed": "FAIL", "skipped": "skip"}[kind]
            print(f"{word} {ready.name}: {result['said']} ({time.monotonic() - ready.began:.1f} s)", flush=True)
            if args.verbose or kind == "failed":
                print("".join(f"     | {line}\n" for line in result["log"].splitlines()[-40:]), end="", flush=True)
    finally:
        for left in running:
            os.kill(left.pid, signal.SIGTERM)
            os.waitpid(left.pid, 0)
        sweep()
    if later:
        names = [s.name for s in later if not s.name.startswith("program ")]
        print(f"left out by --quick: {', '.join(names)}, and {len(later) - len(names)} cells of docs/programs.md")
    print(f"{counts['passed']} passed, {counts['failed']} failed, {counts['skipped']} skipped")
    return 1 if counts["failed"] else 0


def first(running):
    """The first one that has ended."""
    import select
    ready, _, _ = select.select([r.reader for r in running], [], [])
    return next(r for r in running if r.reader in ready)


def sweep():
    """Ends what the process of a scene that died has left. Otherwise nothing is left here."""
    for process in filter(None, map(procs.describe, procs.descendants(os.getpid()))):
        print(f"left by a scene, ended: {process}", file=sys.stderr)
        procs.kill(process)


if __name__ == "__main__":
    sys.exit(main())
