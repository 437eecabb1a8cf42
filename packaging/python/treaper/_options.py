# Made from the options by `UPDATE=1 cargo test --features fixtures --test docs`: change src/settings/options.rs instead.
"""The options of treaper as keywords."""

from __future__ import annotations

import datetime
import os
from typing import Literal, Optional, Sequence, TypedDict, Union

Time = Union[str, int, float, datetime.timedelta]  # a number is seconds
Path = Union[str, bytes, "os.PathLike[str]", "os.PathLike[bytes]"]


class Settings(TypedDict, total=False):
    required: Optional[bool]  # Without treaper: raise an error (True), or run the bare command with a warning (False) [True]
    no_parent: Optional[bool]  # Do not stop when the parent process is gone
    watch_pid: Optional[Union[Union[int, str], Sequence[Union[int, str]]]]  # Stop when process PID is gone
    watch_ancestor: Optional[Union[str, Sequence[str]]]  # Stop when the nearest ancestor NAME is gone
    stdin_: Optional[Literal["auto", "watch", "ignore"]]  # Stop when stdin closes: auto, watch, ignore [auto]
    idle: Optional[Time]  # Stop when the host writes nothing to stdin for TIME
    stdout_: Optional[Literal["watch", "ignore"]]  # Stop when stdout has no reader: watch, ignore [ignore]
    until: Optional[Literal["server", "tree"]]  # Run until the end of: server, tree [server]
    signal: Optional[Union[int, str]]  # Stop signal [TERM]
    kill_mode: Optional[Literal["staged", "tree", "mixed"]]  # Order of the stop signals: staged, tree, mixed [staged]
    drain: Optional[Time]  # Time to exit by itself after the end of input [5s]
    grace: Optional[Time]  # Time from the stop signal to SIGKILL [10s]
    stage: Optional[Time]  # Signal the rest of the tree this long before SIGKILL [2s]
    kill_timeout: Optional[Time]  # Give up on survivors this long after SIGKILL [5s]
    finally_: Optional[str]  # Run COMMAND with /bin/sh when the tree is gone
    hup: Optional[Literal["auto", "stop", "forward"]]  # What SIGHUP does: auto, stop, forward [auto]
    term: Optional[Literal["stop", "forward"]]  # What SIGTERM does: stop, forward [stop]
    forward_to: Optional[Literal["server", "group", "tree"]]  # Forward other signals to: server, group, tree [server]
    rewrite: Optional[Union[str, Sequence[str]]]  # Treat signal FROM as TO; TO 0 drops it
    contain: Optional[Literal["group", "cgroup", "pidns"]]  # Hold the tree by: group, cgroup, pidns [group]
    spare: Optional[Union[str, Sequence[str]]]  # Keep the daemon NAME of the tree running
    no_guard: Optional[bool]  # One process instead of two; leaks if SIGKILLed
    no_new_privs: Optional[bool]  # Deny setuid programs to the whole tree
    inject: Optional[Union[str, Sequence[str]]]  # Other processes write messages to the server through a socket
    turn: Optional[Union[str, Sequence[str]]]  # The messages to the server that begin a turn
    cancel: Optional[Union[str, Sequence[str]]]  # The messages to the server that cancel the turn that runs
    boundary: Optional[Union[str, Sequence[str]]]  # The messages from the server that end a turn
    cancel_drain: Optional[Time]  # Time in which a cancelled turn must end [5s]
    stderr_: Optional[Path]  # Append stderr of the server and of treaper to FILE
    report: Optional[Path]  # Append a JSON object about the run to FILE or fd:N
    report_arguments: Optional[bool]  # Name the arguments of COMMAND in the report
    success: Optional[Union[Union[int, str], Sequence[Union[int, str]]]]  # Exit with 0 instead of STATUS (or signal name)
    log: Optional[str]  # Log levels and modules instead of -v, such as debug
    verbose: Optional[int]  # Log each step; -vv: each process


class CommandSettings(Settings, total=False):
    # Here the names of subprocess are free.
    stdin: Optional[Literal["auto", "watch", "ignore"]]
    stdout: Optional[Literal["watch", "ignore"]]
    stderr: Optional[Path]
