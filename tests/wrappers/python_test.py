"""What `import treaper` does. Played with the Python in which the wheel is installed."""

import asyncio
import datetime
import errno
import inspect
import json
import os
import pickle
import re
import signal
import subprocess
import sys
import tempfile
import unittest
import warnings
from pathlib import Path
from unittest import mock

import treaper

HERE = os.path.dirname(os.path.abspath(__file__))


def words(**settings):
    before, _, after = " ".join(treaper.command(["x"], **settings)[1:]).partition("-- x")
    assert not after
    return before.strip()


class Command(unittest.TestCase):
    def test_path_is_the_native_binary(self):
        with open(treaper.path(), "rb") as file:
            self.assertEqual(file.read(4), b"\x7fELF")

    def test_each_option_of_the_help_is_a_keyword(self):
        text = subprocess.check_output([treaper.path(), "--help"], text=True)
        names = set(re.findall(r"--([a-z][a-z-]+)", text.partition("Variables:")[0])) - {"help", "version", "doctor"}
        self.assertGreater(len(names), 30)
        known = treaper.CommandSettings.__optional_keys__
        names = {name.replace("-", "_").replace("finally", "finally_") for name in names}
        self.assertEqual(names | {"required", "stdin_", "stdout_", "stderr_"}, known)

    def test_values(self):
        self.assertEqual(words(grace=5), "--grace=5")
        self.assertEqual(words(grace="500ms"), "--grace=500ms")
        self.assertEqual(words(grace=0.25, drain=datetime.timedelta(minutes=2)), "--grace=250ms --drain=120000ms")
        self.assertEqual(words(no_parent=True, no_guard=False, idle=None), "--no-parent")
        self.assertEqual(words(watch_pid=[1, 2], watch_ancestor="sh"), "--watch-pid=1 --watch-pid=2 --watch-ancestor=sh")
        self.assertEqual(words(signal=signal.SIGINT, success=(143, "TERM")), "--signal=2 --success=143 --success=TERM")
        self.assertEqual(words(report=Path("/r"), stderr=b"/e"), "--report=/r --stderr=/e")
        self.assertEqual(words(stdin="ignore", stdout_="watch", verbose=2), "--stdin=ignore --stdout=watch -v -v")
        self.assertEqual(words(finally_="true"), "--finally=true")

    def test_none_is_the_same_as_no_setting(self):
        for name in treaper.CommandSettings.__optional_keys__:
            self.assertEqual(words(**{name: None}), "", name)
        self.assertEqual(treaper.call(["sh", "-c", "exit 3"], **dict.fromkeys(treaper.Settings.__optional_keys__)), 3)

    def test_words_are_those_that_treaper_accepts(self):
        with tempfile.TemporaryDirectory() as folder:
            settings = {"grace": 0.25, "drain": datetime.timedelta(seconds=1), "signal": signal.SIGINT, "success": [3],
                        "stdin": "ignore", "report": Path(folder) / "report", "no_new_privs": True, "watch_pid": os.getpid()}
            done = subprocess.run(treaper.command(["sh", "-c", "exit 3"], **settings))
            self.assertEqual(done.returncode, 0)
            self.assertEqual(json.loads((Path(folder) / "report").read_text())["server_status"], 3)

    def test_an_unknown_keyword_is_a_type_error(self):
        for call in (treaper.command, treaper.Popen, treaper.run):
            with self.assertRaisesRegex(TypeError, "graze"):
                call(["true"], graze=5)
        with self.assertRaisesRegex(TypeError, "graze"):
            asyncio.run(treaper.create_subprocess_exec("true", graze=5))

    def test_a_missing_binary(self):
        with mock.patch.object(treaper, "_candidates", return_value=iter(["/nonexistent/treaper", ""])):
            treaper.path.cache_clear()
            self.addCleanup(treaper.path.cache_clear)
            with self.assertRaisesRegex(FileNotFoundError, "the program treaper is missing"):
                treaper.run(["true"])
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                self.assertEqual(treaper.run(["sh", "-c", "exit 3"], required=False, grace=5).returncode, 3)
                self.assertEqual(treaper.command(["x"], required=False), ["x"])
            self.assertEqual([str(warning.message)[:27] for warning in caught],
                             ["sh is started without treap", "x is started without treape"])


class Processes(unittest.TestCase):
    def test_treaper_is_in_front_and_nothing_else(self):
        with treaper.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            process.stdin.write(b"x")
            process.stdin.flush()
            process.stdout.read(1)
            self.assertEqual(os.readlink(f"/proc/{process.pid}/exe"), treaper.path())
            self.assertEqual(process.args, ["cat"])

    def test_an_input_that_ends_late_stops_nothing(self):
        script = ["sh", "-c", "sleep 1.3; cat >/dev/null; sleep 1; echo done"]
        late = {"input": b"x" * 300_000, "capture_output": True, "drain": 0.1}
        self.assertEqual(treaper.run(script, **late).stdout, b"done\n")
        self.assertEqual(treaper.run(script, **late, stdin_=None).stdout, b"done\n")
        self.assertEqual(treaper.run(script, **late, stdin_="auto").stdout, b"")

    def test_functions(self):
        self.assertEqual(treaper.run("echo $0; exit 3", shell=True, stdout=-1, text=True).stdout, "/bin/sh\n")
        self.assertEqual(treaper.run(["cat"], input=b"x", capture_output=True).stdout, b"x")
        self.assertEqual(treaper.check_output(["sh", "-c", "echo x"], grace=1), b"x\n")
        self.assertEqual(treaper.call(["sh", "-c", "exit 4"]), 4)
        with self.assertRaises(subprocess.CalledProcessError) as caught:
            treaper.check_call(["sh", "-c", "exit 4"], grace=1)
        self.assertEqual(caught.exception.cmd, ["sh", "-c", "exit 4"])
        with self.assertRaises(subprocess.TimeoutExpired):
            treaper.run(["sleep", "1000"], timeout=0.1)
        for name in ("run", "call", "check_call", "check_output"):
            self.assertEqual(inspect.signature(getattr(treaper, name)), inspect.signature(getattr(subprocess, name)))
            # A pool of processes gets the function by pickle.
            self.assertIs(pickle.loads(pickle.dumps(getattr(treaper, name))), getattr(treaper, name))

    def test_functions_that_something_else_has_replaced(self):
        for other in ("mock.Mock()", "traced(theirs)", "lambda *words: unknown"):
            script = f"""
import functools, subprocess
from unittest import mock
def traced(theirs):
    return functools.wraps(theirs)(lambda *words, **more: theirs(*words, **more))
for name in ("call", "check_call", "check_output", "run"):
    theirs = getattr(subprocess, name)
    setattr(subprocess, name, {other})
import treaper
assert treaper.call(["sh", "-c", "exit 4"]) == 4
assert treaper.check_output(["echo", "x"]) == b"x\\n"
assert isinstance(treaper.run(["true"], check=True), subprocess.CompletedProcess)
try:
    treaper.check_call(["sh", "-c", "exit 4"], grace=1)
except subprocess.CalledProcessError as error:
    assert error.returncode == 4
"""
            with self.subTest(other):
                done = subprocess.run([sys.executable, "-c", script], stderr=subprocess.PIPE, text=True)
                self.assertEqual(done.returncode, 0, done.stderr)

    def test_the_executable_is_what_runs(self):
        script = "import sys; print(sys.argv)"
        for first in ("no-such-program", sys.executable):
            said = treaper.check_output([first, "-c", script, "a"], executable=sys.executable)
            self.assertEqual(said, b"['-c', 'a']\n")
        self.assertEqual(treaper.call([], executable="/bin/true"), 0)

    def test_a_program_that_cannot_be_started(self):
        with tempfile.TemporaryDirectory() as folder:
            plain = Path(folder, "plain")
            plain.write_text("")
            for program in ("no-such-program", f"{plain}", f"{plain}/below", folder, "./none", b"none"):
                with self.assertRaises(OSError) as bare:
                    subprocess.Popen([program], cwd=folder)
                with self.assertRaises(OSError) as ours:
                    treaper.Popen([program], cwd=folder)
                with self.assertRaises(type(bare.exception)):
                    asyncio.run(treaper.create_subprocess_exec(program, cwd=folder))
                self.assertEqual(type(ours.exception), type(bare.exception))
                self.assertEqual(os.fsdecode(ours.exception.filename), os.fsdecode(bare.exception.filename))
            with self.assertRaises(FileNotFoundError) as caught:
                treaper.Popen(["true"], cwd=f"{folder}/none")
            self.assertEqual(caught.exception.filename, f"{folder}/none")
            # Also with a function that runs before it.
            plain.chmod(0o755)
            for text in ("", "exit 0"):
                plain.write_text(text)
                for program in ("no-such-program", f"{plain}", "./plain", f"{plain}/below", folder):
                    for before in (None, lambda: None):
                        seen = []
                        for popen in (subprocess.Popen, treaper.Popen):
                            with self.assertRaises(OSError) as raised:
                                popen([program], cwd=folder, preexec_fn=before)
                            seen.append((type(raised.exception), raised.exception.errno))
                        self.assertEqual(*seen, msg=program)
            with self.assertRaises(FileNotFoundError):
                asyncio.run(treaper.create_subprocess_exec("no-such-program", preexec_fn=lambda: None))
            with self.assertRaises(subprocess.SubprocessError):
                treaper.Popen(["true"], preexec_fn=lambda: 1 / 0)
            self.assertEqual(treaper.call(["./plain"], cwd="/", preexec_fn=lambda: os.chdir("/bin"), executable="./true"), 0)
            plain.write_text("#!/bin/sh\nexit 3\n")
            self.assertEqual(treaper.call(["plain"], env={"PATH": folder}), 3)
            self.assertEqual(treaper.call(["./plain"], cwd=folder), 3)

    def test_no_words_are_the_error_of_subprocess(self):
        for before in (None, lambda: None):
            for popen in (subprocess.Popen, treaper.Popen):
                with self.assertRaises(IndexError):
                    popen([], preexec_fn=before)

    def test_the_search_along_path(self):
        with tempfile.TemporaryDirectory() as folder:
            for name, mode, text in (("closed", 0o644, ""), ("plain", 0o755, "exit 2"), ("script", 0o755, "#!/bin/sh\nexit 3\n")):
                os.mkdir(f"{folder}/{name}")
                Path(folder, name, "prog").write_text(text)
                Path(folder, name, "prog").chmod(mode)
            Path(folder, "file").write_text("")
            for folders in ("plain script", "closed plain", "plain closed", "closed script", "closed plain script", "file",
                            "none file", "file none", "plain", "closed none"):
                path = ":".join(f"{folder}/{name}" for name in folders.split())
                # The last one is the current folder.
                for env in ({"PATH": path}, {"PATH": f"{path}:"}):
                    for before in (None, lambda: None):
                        seen = []
                        for popen in (subprocess.Popen, treaper.Popen):
                            try:
                                seen.append(popen(["prog"], env=env, cwd=f"{folder}/script", preexec_fn=before).wait())
                            except OSError as error:
                                seen.append((type(error), error.errno, error.filename))
                        # The search after preexec_fn comes too late to pass a script over.
                        if before and seen[0] == 3 and "plain" in folders:
                            seen[0] = (OSError, errno.ENOEXEC, "prog")
                        self.assertEqual(*seen, msg=(folders, env, before))

            async def play():
                process = await treaper.create_subprocess_exec("prog", env={"PATH": f"{folder}/plain:{folder}/script"})
                return await process.wait()
            self.assertEqual(asyncio.run(play()), 3)

    def test_the_error_names_what_the_caller_gave(self):
        for name in ("no-such-program", b"no-such-program", Path("no-such-program"), Path("./no-such-program")):
            for words in ({"args": [name]}, {"args": name}, {"args": ["x"], "executable": name}):
                for before in (None, lambda: None):
                    seen = []
                    for popen in (subprocess.Popen, treaper.Popen):
                        with self.assertRaises(FileNotFoundError) as raised:
                            popen(**words, preexec_fn=before)
                        seen.append(raised.exception.filename)
                    self.assertEqual(*seen)
            with self.assertRaises(FileNotFoundError) as raised:
                asyncio.run(treaper.create_subprocess_exec(name))
            self.assertEqual(raised.exception.filename, name)
            with self.assertRaises(FileNotFoundError) as raised:
                asyncio.run(treaper.create_subprocess_exec("x", executable=name, preexec_fn=lambda: None))
            self.assertEqual(raised.exception.filename, name)
        with self.assertRaises(FileNotFoundError) as raised:
            treaper.Popen("exit 0", shell=True, executable=b"no-such-shell")
        self.assertEqual(raised.exception.filename, b"no-such-shell")

    def test_asyncio(self):
        async def play():
            process = await treaper.create_subprocess_exec("cat", stdin=-1, stdout=-1, grace=1, limit=100)
            return await process.communicate(b"x")
        self.assertEqual(asyncio.run(play()), (b"x", None))


HOSTS = {
    "Popen": "import {0} as m, os, time; p = m.Popen(os.environ['SERVER'], shell=True); time.sleep(1000)",
    "run": "import {0} as m, os; m.run(os.environ['SERVER'], shell=True)",
    "asyncio": "import {1} as m, os, asyncio\nasync def f():\n"
               "    p = await m.create_subprocess_exec('sh', '-c', os.environ['SERVER']); await p.wait()\n"
               "asyncio.run(f())",
}


class KilledHost(unittest.TestCase):
    def play(self, expected, *modules):
        for name, host in HOSTS.items():
            with self.subTest(name):
                done = subprocess.run([sys.executable, f"{HERE}/killed.py", expected, sys.executable, "-c", host.format(*modules)],
                                      stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
                self.assertEqual(done.returncode, 0, done.stdout)

    def test_nothing_is_left(self):
        self.play("nothing", "treaper", "treaper")

    def test_control_without_treaper_something_is_left(self):
        self.play("something", "subprocess", "asyncio")


unittest.main()
