"""Plays the hosts of this folder: scenes.py FOLDER, where they were built. Each scene runs for the hosts with std and tokio."""

import itertools
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback

sys.path.append(os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "mcp"))
import procs

BUILT = sys.argv[1]
HOSTS = ["host-std", "host-tokio"]
LIMIT = 60  # seconds
CONTROL_WINDOW = 1.5  # seconds for which what the control leaves has to stay
# What a program gets. The shell changes none of it, except that it blocks all signals while it starts a command.
PROBE = """
while read -r line; do case $line in Sig[BI]* | Groups:* | [UG]id:* | NoNewPrivs:*) echo "$line" ;; esac; done </proc/$$/status
for fd in /proc/$$/fd/*; do echo "${fd##*/} $(readlink "$fd")"; done
tr '\\0' '\\n' </proc/$$/cmdline
tr '\\0' '\\n' </proc/$$/environ
pwd
"""
ARGUMENTS = [b"name", b"", b"\xff\xfe", b"two words", b"--", b"--help", b"-v"]
# Its helper leads a session of its own, and ignores SIGTERM.
TREE = "setsid sh -c 'trap \"\" TERM; echo up; exec sleep 1000' </dev/null & exec sleep 1000"


class Skip(Exception):
    pass


def run(host, kind, *command, setup="", argv0=None, **more):
    """The host as a finished process, with bytes of stdout and stderr."""
    path = os.path.join(BUILT, host)
    more.setdefault("stdin", subprocess.DEVNULL)
    env = {**os.environ, "SETUP": setup, "TREAPER_GRACE": "1s", **more.pop("env", {})}
    return subprocess.run([path if argv0 is None else argv0, kind, *command], executable=more.pop("executable", path), env=env,
                          capture_output=True, timeout=LIMIT, **more)


def comparable(done):
    for line in done.stdout.split(b"\n"):
        if b" pipe:[" in line:
            line = line.partition(b"[")[0]  # another number in each run
        if line.startswith(b"SigIgn"):
            # The posix_spawn of glibc ignores the two signals that it keeps for itself, and Command does not always use it.
            line = int(line.split()[1], 16) & ~(3 << 31)
        yield line


def same(host, setup="", before=None, **more):
    """The program gets the same behind treaper as without it."""
    def got(kind):
        return run(host, kind, "sh", "-c", PROBE, *ARGUMENTS, setup=setup, preexec_fn=before, restore_signals=False, **more)

    bare, wrapped = got("bare"), got("treaper")
    assert bare.returncode == 0 and b"SigIgn" in bare.stdout and ARGUMENTS[2] in bare.stdout, bare.stderr
    both = list(itertools.zip_longest(comparable(bare), comparable(wrapped)))
    assert wrapped.returncode == 0 and all(one == other for one, other in both), [pair for pair in both if len(set(pair)) > 1]


def plain(host):
    same(host)


def sigpipe(host):
    same(host, before=lambda: signal.signal(signal.SIGPIPE, signal.SIG_DFL))
    same(host, before=lambda: signal.signal(signal.SIGPIPE, signal.SIG_IGN))


def mask(host):
    same(host, before=lambda: signal.pthread_sigmask(signal.SIG_SETMASK, [signal.SIGUSR1, signal.SIGPIPE, 40]))


def ignored(host):
    def before():
        for number in (signal.SIGHUP, signal.SIGUSR2, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
    same(host, before=before)


def descriptors(host):
    with open("/etc/passwd") as file:
        same(host, before=lambda: os.dup2(file.fileno(), 9, inheritable=True), close_fds=False)
    same(host, before=lambda: os.close(0))
    same(host, setup="closed")


def environment(host):
    same(host, setup="clear", env={"TREAPER_GRACE": ""})
    same(host, setup="cwd", env={"odd": "a\udcffb"})


def odd_names(host):
    for name in (b"", b"\xff\xfe", b"treaper", b"-host", b"tini", b"/usr/bin/treaper"):
        done = run(host, "treaper", "echo", "ran", argv0=name)
        assert done.returncode == 0 and done.stdout == b"ran\n", (name, done)


def statuses(host):
    for script, status in (("exit 7", 7), ("kill -KILL $$", 137), ("kill -SEGV $$", 139), ("kill -PIPE $$", 141)):
        assert run(host, "treaper", "sh", "-c", script).returncode == status, script
    missing = run(host, "treaper", "no-such-program")
    assert missing.returncode == 127 and b"no-such-program" in missing.stderr, missing
    for program in (b"--help", b"-v"):
        assert run(host, "treaper", program).returncode == 127, program
    done = run(host, "treaper", "true", env={"TREAPER_GRACE": "soon"})
    assert done.returncode == 125 and b"TREAPER_GRACE" in done.stderr, done


def names(host):
    """The processes of treaper are told apart by name."""
    script = "cat /proc/$PPID/comm /proc/$PPID/cmdline; read -r _ _ _ shim _ </proc/$PPID/stat; cat /proc/$shim/comm"
    done = run(host, "treaper", "sh", "-c", script)
    assert done.stdout.replace(b"\0", b"") == b"tree-monitor\ntree-monitortreaper\n", done


def replaced(host):
    """The program of a running host is replaced by another one, or deleted."""
    for new in ("#!/bin/sh\necho new\n", None):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "host")
            shutil.copy(os.path.join(BUILT, host), path)
            env = {**os.environ, "SETUP": "wait"}
            script = "cat /proc/$PPID/comm"
            with subprocess.Popen([path, "treaper", "sh", "-c", script], stdin=-1, stdout=-1, env=env) as process:
                # It runs, since its exec is over.
                os.unlink(path)
                if new:
                    with open(path, "w") as file:
                        file.write(new)
                    os.chmod(path, 0o755)
                output, _ = process.communicate(b"x", timeout=LIMIT)
            assert (process.returncode, output) == (0, b"tree-monitor\n"), output


def without_proc(host):
    if os.getuid() != 0:
        raise Skip("only root can unmount /proc")
    for path, cwd in ((os.path.join(BUILT, host), "/"), (f"./{host}", BUILT)):
        # Without /proc, a program sees only whether its parent is the host.
        script = f'umount -l /proc; cd {cwd}; {path} "$0" sh -c \'echo $PPID\' & wait $!; echo $!'
        for kind in ("bare", "treaper"):
            done = subprocess.run(["unshare", "-m", "sh", "-c", script, kind], stdin=subprocess.DEVNULL, capture_output=True,
                                  timeout=LIMIT)
            parent, pid = done.stdout.split()
            assert (parent == pid) == (kind == "bare"), done


def another_user(host):
    if os.getuid() != 0:
        raise Skip("only root can become another user")
    same(host, before=lambda: os.setuid(65534))
    same(host, setup="uid")


def outlived(host, kind, setup=""):
    """What is left after the host was killed, or with `kill`, after it has killed its child."""
    env = {**os.environ, "SETUP": setup, "TREAPER_GRACE": "1s"}
    process = subprocess.Popen([os.path.join(BUILT, host), kind, "sh", "-c", TREE], stdin=subprocess.DEVNULL, stdout=-1, env=env)
    try:
        assert process.stdout.readline() == (b"killed\n" if setup else b"up\n")
        if not setup:
            process.kill()
            process.wait()
        deadline = time.monotonic() + (LIMIT if kind == "treaper" else CONTROL_WINDOW)
        while True:
            if not setup:
                procs.reap()
            found = procs.descendants(os.getpid()) - ({process.pid} if setup else set())
            left = [p for p in map(procs.describe, found) if p]
            if not left or time.monotonic() > deadline:
                return left
            procs.wait_any_exit(left, min(deadline, time.monotonic() + 0.1))
    finally:
        process.kill()
        process.stdout.close()
        process.wait()
        for left in filter(None, map(procs.describe, procs.descendants(os.getpid()))):
            procs.kill(left)
        while not procs.reap():
            time.sleep(0.01)


def host_killed(host):
    assert outlived(host, "bare"), "the control leaves nothing"
    left = outlived(host, "treaper")
    assert not left, left


def child_killed(host):
    assert outlived(host, "bare", "kill"), "the control leaves nothing"
    left = outlived(host, "treaper", "kill")
    assert not left, left


def found(host):
    with tempfile.TemporaryDirectory() as folder:
        for name, mode in (("none", None), ("plain", 0o644), ("program", 0o755), ("later", 0o755)):
            os.mkdir(f"{folder}/{name}")
            if mode:
                with open(f"{folder}/{name}/treaper", "w") as file:
                    file.write("#!/bin/sh\n")
                os.chmod(f"{folder}/{name}/treaper", mode)
        os.makedirs(f"{folder}/folder/treaper")

        def answer(names):
            path = ":".join(names) + ":/usr/bin:/bin" if names else "/nowhere"
            return run(host, "bare", "/bin/true", setup="find", cwd=f"{folder}/program", env={"PATH": path}).stdout.decode().strip()

        in_order = [f"{folder}/{name}" for name in ("none", "folder", "plain", "program", "later")]
        assert answer(["", ".", *in_order]) == f'Some("{folder}/program/treaper")', answer(["", ".", *in_order])
        assert answer([]) == "None", answer([])


def too_late(host):
    done = run("host-late", "treaper", "echo", "ran")
    assert done.returncode == 125 and not done.stdout and b"call treaper::dispatch() first in main" in done.stderr, done


def forgotten(host):
    done = run("host-forgetful", "treaper", "echo", "ran")
    first, second = done.stderr.decode().splitlines()
    assert first == "main" and not done.stdout, done
    assert second.startswith("NotADirectory ") and "treaper::dispatch() was not called first in main" in second, second
    # The guard and not the path is what ends it: this host would run itself.
    done = run("host-forgetful", "--treaper", "echo", "ran", argv0=b"treaper")
    assert done.stderr.decode().splitlines()[0] == "main", done


SCENES = [plain, sigpipe, mask, ignored, descriptors, environment, odd_names, statuses, names, replaced, without_proc, another_user,
          host_killed, child_killed, found]


def main():
    procs.become_subreaper()
    passed = failed = skipped = 0
    plays = [(scene, host) for host in HOSTS for scene in SCENES] + [(too_late, "host-late"), (forgotten, "host-forgetful")]
    for scene, host in plays:
        name = f"{host}: {scene.__name__}"
        try:
            scene(host)
            passed += 1
            print(f"ok    {name}", flush=True)
        except Skip as why:
            failed, skipped = (failed + 1, skipped) if os.environ.get("FORBID_SKIPS") else (failed, skipped + 1)
            print(f"skip  {name}: {why}", flush=True)
        except Exception:
            failed += 1
            print(f"FAIL  {name}\n{traceback.format_exc()}", flush=True)
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed else 0


sys.exit(main())
