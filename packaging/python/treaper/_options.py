# Made from the options by `UPDATE=1 cargo test --features fixtures --test docs`: change src/settings/options.rs instead.
"""The options of treaper as keywords."""

from __future__ import annotations

import datetime
import os
from typing import Literal, Sequence, TypedDict, Union

Time = Union[str, int, float, datetime.timedelta]  # a number is seconds
Path = Union[str, bytes, "os.PathLike[str]", "os.PathLike[bytes]"]


class Settings(TypedDict, total=False):
    required: bool  # Without treaper: raise an error (True), or run the bare command with a warning (False) [True]
    no_parent: bool  # Do not stop when the parent process is gone
    watch_pid: Union[Union[int, str], Sequence[Union[int, str]]]  # Stop when process PID is gone
    watch_ancestor: Union[str, Sequence[str]]  # Stop when the nearest ancestor NAME is gone
    stdin_: Literal["auto", "watch", "ignore"]  # Stop when stdin closes: auto, watch, ignore [auto]
    idle: Time  # Stop when the host writes nothing to stdin for TIME
    stdout_: Literal["watch", "ignore"]  # Stop when stdout has no reader: watch, ignore [ignore]
    until: Literal["server", "tree"]  # Run until the end of: server, tree [server]
    signal: Union[int, str]  # Stop signal [TERM]
    kill_mode: Literal["staged", "tree", "mixed"]  # Order of the stop signals: staged, tree, mixed [staged]
    drain: Time  # Time to exit by itself after the end of input [5s]
    grace: Time  # Time from the stop signal to SIGKILL [10s]
    stage: Time  # Signal the rest of the tree this long before SIGKILL [2s]
    kill_timeout: Time  # Give up on survivors this long after SIGKILL [5s]
    finally_: str  # Run COMMAND with /bin/sh when the tree is gone
    hup: Literal["auto", "stop", "forward"]  # What SIGHUP does: auto, stop, forward [auto]
    term: Literal["stop", "forward"]  # What SIGTERM does: stop, forward [stop]
    forward_to: Literal["server", "group", "tree"]  # Forward other signals to: server, group, tree [server]
    rewrite: Union[str, Sequence[str]]  # Treat signal FROM as TO; TO 0 drops it
    contain: Literal["group", "cgroup", "pidns"]  # Hold the tree by: group, cgroup, pidns [group]
    spare: Union[str, Sequence[str]]  # Keep the daemon NAME of the tree running
    no_guard: bool  # One process instead of two; leaks if SIGKILLed
    no_new_privs: bool  # Deny setuid programs to the whole tree
    inject: Union[str, Sequence[str]]  # Other processes write messages to the server through a socket
    turn: Union[str, Sequence[str]]  # The messages to the server that begin a turn
    cancel: Union[str, Sequence[str]]  # The messages to the server that cancel the turn that runs
    boundary: Union[str, Sequence[str]]  # The messages from the server that end a turn
    cancel_drain: Time  # Time in which a cancelled turn must end [5s]
    stderr_: Path  # Append stderr of the server and of treaper to FILE
    report: Path  # Append a JSON object about the run to FILE or fd:N
    report_arguments: bool  # Name the arguments of COMMAND in the report
    success: Union[Union[int, str], Sequence[Union[int, str]]]  # Exit with 0 instead of STATUS (or signal name)
    log: str  # Log levels and modules instead of -v, such as debug
    verbose: int  # Log each step; -vv: each process


class CommandSettings(Settings, total=False):
    # Here the names of subprocess are free.
    stdin: Literal["auto", "watch", "ignore"]
    stdout: Literal["watch", "ignore"]
    stderr: Path
