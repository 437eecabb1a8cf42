from pathlib import Path
import subprocess, treaper
from typing_extensions import assert_type
from datetime import timedelta

assert_type(treaper.path(), str)
assert_type(treaper.command(["a", Path("b")], grace=5, drain=timedelta(seconds=1), watch_pid=[1, 2], stdin="ignore"), "list[str]")
assert_type(treaper.run(["x"], text=True), "subprocess.CompletedProcess[str]")
assert_type(treaper.run(["x"], encoding="utf-8", stdout=subprocess.PIPE), "subprocess.CompletedProcess[str]")
assert_type(treaper.run("x", shell=True, timeout=4), "subprocess.CompletedProcess[bytes]")
assert_type(treaper.check_output(["x"]), bytes)
assert_type(treaper.check_output(["x"], text=True), str)
assert_type(treaper.Popen(["x"], stdin=subprocess.PIPE), "treaper.Popen[bytes]")
assert_type(treaper.Popen(["x"], text=True, grace=1, stdin_="watch", env={"a": "b"}), "treaper.Popen[str]")
assert_type(treaper.Popen(["x"], universal_newlines=True).wait(), int)
with treaper.Popen(["x"], text=True) as p:
    assert_type(p, "treaper.Popen[str]")
assert_type(treaper.Popen(["x"], 0, stdin=subprocess.PIPE), "treaper.Popen[bytes]")
assert_type(treaper.Popen(["x"], bufsize=1, text=True), "treaper.Popen[str]")
assert_type(treaper.run(["x"], 0), "subprocess.CompletedProcess[bytes]")
assert_type(treaper.check_output(["x"], -1, text=True), str)
assert_type(treaper.call(["x"], 0) + treaper.check_call(["x"], bufsize=0), int)
assert_type(treaper.call(["x"], text=True) + treaper.check_call(["x"], encoding="utf-8", errors="strict", timeout=1), int)
assert_type(treaper.call(["x"], universal_newlines=True, grace=1), int)
PIPE = subprocess.PIPE
assert_type(treaper.Popen(["x"], -1, None, PIPE, PIPE, None, None, True, False, "/", {"a": "b"}, grace=1), "treaper.Popen[bytes]")
assert_type(treaper.Popen(["x"], -1, None, PIPE, PIPE, text=True), "treaper.Popen[str]")
assert_type(treaper.Popen(["x"], -1, None, PIPE, encoding="utf-8"), "treaper.Popen[str]")
assert_type(treaper.run(["x"], -1, None, None, PIPE, grace=1), "subprocess.CompletedProcess[bytes]")
assert_type(treaper.run(["x"], -1, None, None, PIPE, text=True, check=True), "subprocess.CompletedProcess[str]")
assert_type(treaper.check_output(["x"], -1, None, PIPE, timeout=1), bytes)
assert_type(treaper.check_output(["x"], -1, "x", encoding="utf-8"), str)
assert_type(treaper.call(["x"], -1, None, PIPE, PIPE) + treaper.check_call(["x"], 0, "x", PIPE), int)
assert_type(treaper.command(["a"], required=None, stdin=None, grace=None, spare=None, verbose=None), "list[str]")
assert_type(treaper.run(["x"], no_guard=None, signal=None, stdin_=None, report=None), "subprocess.CompletedProcess[bytes]")
host: subprocess.Popen[bytes] = treaper.Popen(["x"])
async def f() -> None:
    q = await treaper.create_subprocess_exec("x", "y", stdin=subprocess.PIPE, grace=5, limit=5)
    assert_type(await q.wait(), int)
treaper.command(["a"], graze=5)  # type: ignore[call-arg]
treaper.run(["a"], kill_mode="x")  # type: ignore[call-overload]
treaper.Popen(["a"], stdin="ignore")  # type: ignore[call-overload]
treaper.run(["a"], -1, None, "ignore")  # type: ignore[call-overload]
treaper.call(["a"], text="x")  # type: ignore[arg-type]
treaper.check_call(["a"], 0, 5)  # type: ignore[arg-type]
