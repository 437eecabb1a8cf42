"""Runs the suites of CPython and of Node on the wrappers, and prints the tests that fail with them only.

wrappers.py cpython | wrappers.py node TESTS DIRECTORY, where DIRECTORY has the npm package. Started by tests/suites/wrappers.
"""

import concurrent.futures
import os
import re
import subprocess
import sys
import tempfile
import unittest

FEWEST = {"cpython": 200, "node": 30}  # tests that have to pass: otherwise it was not the suite that was run
LIMIT = 120  # seconds for one test of Node
# Puts the wrapper in the place of child_process.spawn, and makes a file when it is called.
PRELOAD = """
const child_process = require("node:child_process"), { spawn } = require("treaper");
child_process.spawn = (...words) => (require("node:fs").writeFileSync(process.env.CALLED, ""), spawn(...words));
require("node:module").syncBuiltinESMExports();
"""


def log(text):
    print(text, file=sys.stderr, flush=True)


def cpython(*names):
    """All tests on treaper, or without it those named."""
    import treaper

    # Before the tests are imported: some of their classes are derived from Popen.
    for name in () if names else treaper.__all__:
        if hasattr(subprocess, name):
            setattr(subprocess, name, getattr(treaper, name))
    load = unittest.defaultTestLoader
    if names:
        suite = load.loadTestsFromNames([f"test.test_subprocess.{name}" for name in names])
    else:
        suite = load.loadTestsFromName("test.test_subprocess")
    result = unittest.TextTestRunner(sys.stderr).run(suite)
    failed = {getattr(test, "test_case", test).id() for test, _ in result.failures + result.errors}
    failed = {name.partition("test_subprocess.")[2] for name in failed}
    if names:
        return failed, set(), 0
    bare = subprocess.run([sys.executable, __file__, "cpython", *sorted(failed)], stdout=subprocess.PIPE, text=True)
    return failed, set(bare.stdout.split()), result.testsRun - len(result.skipped) - len(failed)


def node(tests, directory):
    folder = os.path.join(tests, "parallel")
    names = sorted(name for name in os.listdir(folder) if name.startswith("test-child-process-"))
    # What does not name it cannot call it: exec, execFile, fork and spawnSync do not call the spawn that is exported.
    texts = {name: open(os.path.join(folder, name)).read() for name in names}
    names = [name for name in names if re.search(r"\bspawn\b", texts[name])]
    log(f"{len(texts) - len(names)} of {len(texts)} do not call spawn")
    preload = os.path.join(directory, "preload.js")
    with open(preload, "w") as file:
        file.write(PRELOAD)

    def play(name, words):
        flags = re.search(r"^// Flags: (.*)$", texts[name], re.MULTILINE)
        with tempfile.TemporaryDirectory() as own:
            env = {**os.environ, "CALLED": f"{own}/called", "NODE_TEST_DIR": own}
            command = ["node", *words, *(flags[1].split() if flags else []), os.path.join(folder, name)]
            try:
                done = subprocess.run(command, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                      stderr=subprocess.STDOUT, text=True, errors="replace", timeout=LIMIT)
                status, said = done.returncode, done.stdout[-1500:]
            except subprocess.TimeoutExpired:
                status, said = "none", ""
            called = os.path.exists(f"{own}/called")
        if status != 0:
            log(f"== {name}{' with treaper' if words else ''}: status {status}\n{said}")
        return status == 0, called

    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        ours = dict(zip(names, pool.map(lambda name: play(name, ["--require", preload]), names)))
        failed = {name for name in names if not ours[name][0]}
        bare = dict(zip(sorted(failed), pool.map(lambda name: play(name, []), sorted(failed))))
    passed = sum(well and called for well, called in ours.values())
    return failed, {name for name, (well, _) in bare.items() if not well}, passed


def main():
    suite, *words = sys.argv[1:]
    failed, fail_bare, passed = {"cpython": cpython, "node": node}[suite](*words)
    for name in sorted(failed - fail_bare):
        print(name)
    if fail_bare:
        log(f"fail without treaper as well: {', '.join(sorted(fail_bare))}")
    log(f"{passed} pass, {len(failed - fail_bare)} fail with treaper only")
    return 0 if suite == "cpython" and words or passed >= FEWEST[suite] else 1


if __name__ == "__main__":
    sys.exit(main())
