"""Starts programs behind treaper: what they start ends when they end, and when this process ends, however it ends.

`Popen`, `run`, `call`, `check_call` and `check_output` are those of `subprocess`, and `create_subprocess_exec` is that
of `asyncio`. They take the options of treaper as further keywords: `treaper.run(["make"], grace=5, report="report")`.
The options `--stdin`, `--stdout` and `--stderr` are `stdin_`, `stdout_` and `stderr_`, since subprocess has the others,
and `--finally` is `finally_`, since that is a word of Python.
As with subprocess, the end of the input alone stops no program, unless `stdin_` says so.
"""

from __future__ import annotations

import datetime
import errno
import functools
import importlib.util
import mmap
import os
import shutil
import stat
import subprocess
import types
import warnings
from typing import TYPE_CHECKING, Any, AnyStr, Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence, Union, cast

from ._options import CommandSettings, Path, Settings

__all__ = ["Popen", "call", "check_call", "check_output", "command", "create_subprocess_exec", "path", "run"]
Args = Union[Path, Sequence[Path]]


@functools.lru_cache(maxsize=None)
def path() -> str:
    """The treaper that came with this package, or else the one on PATH."""
    for candidate in _candidates():
        if os.access(candidate, os.X_OK):
            return os.path.realpath(candidate)
    hint = "the program treaper is missing: install the package again (pip install --force-reinstall treaper)"
    raise FileNotFoundError(errno.ENOENT, hint, "treaper")


def _candidates() -> Iterator[str]:
    from importlib import metadata

    try:
        files = metadata.files("treaper") or []
    except metadata.PackageNotFoundError:
        files = []
    yield from (str(file.locate()) for file in files if file.parts[-2:] == ("bin", "treaper"))
    # pip install --target moves the files, and does not correct its list of them.
    yield os.path.join(os.path.dirname(os.path.dirname(__file__)), "bin", "treaper")
    yield shutil.which("treaper") or ""


def _command(argv: list[str], settings: Mapping[str, Any]) -> list[str]:
    required = settings.get("required")
    options = [word for name, value in settings.items() if name != "required" for word in _words(name, value)]
    try:
        return [path(), *options, "--", *argv]
    except FileNotFoundError as error:
        if required is None or required:
            raise
        warnings.warn(f"{argv[0]} is started without treaper: {error.strerror}", RuntimeWarning, stacklevel=4)
        return argv


def _words(name: str, value: Any) -> list[str]:
    if value is None or value is False:
        return []
    if name == "verbose":
        return ["-v"] * value
    option = "--" + name.rstrip("_").replace("_", "-")
    if value is True:
        return [option]
    if isinstance(value, (str, bytes, os.PathLike)) or not isinstance(value, Iterable):
        value = [value]
    return [f"{option}={_text(each)}" for each in value]


def _text(value: Any) -> str:
    if isinstance(value, datetime.timedelta):
        value = value.total_seconds()
    if isinstance(value, float):
        return f"{value * 1000:.0f}ms"
    # A signal is an int, too, and its str() is its name in some versions.
    return str(int(value)) if isinstance(value, int) else os.fsdecode(value)


def _argv(args: Args, executable: Path | None = None, shell: bool = False) -> tuple[list[str], Path]:
    """The words with which subprocess would start it, and the program as the caller has named it, for errors.

    Unlike with subprocess, the first word is always the executable.
    """
    if isinstance(args, os.PathLike) and shell:
        raise TypeError("path-like args is not allowed when shell is true")
    words = [args] if isinstance(args, (str, bytes, os.PathLike)) else list(args)
    if shell:
        words = ["/bin/sh", "-c", *words]
    if executable is not None:
        words[:1] = [executable]
    return [os.fsdecode(word) for word in words], words[0]


def _look_up(program: Path, cwd: Path | None, env: Mapping[Any, Any] | None) -> str:
    """The word by which treaper finds the program that subprocess would start.

    Raises what subprocess would raise: treaper can only exit, with 127 or 126, and by then it has been started.
    """
    name = os.fsdecode(program)
    base = os.fsdecode(cwd or "")
    if not os.path.isdir(base or "."):
        return name  # subprocess raises an error about cwd
    places = [name]
    if not os.path.dirname(name):
        places = [os.path.join(os.fsdecode(folder) or ".", name) for folder in os.get_exec_path(env)]
    reason, skipped = errno.ENOENT, False
    for place in places:
        found = _obstacle(os.path.join(base, place))
        if not found:
            # Treaper would not skip that script, but run it by a shell, as execvp does.
            return place if skipped else name
        skipped = skipped or found == errno.ENOEXEC
        if reason in (errno.ENOENT, errno.ENOTDIR):
            reason = found
    raise OSError(reason, os.strerror(reason), program)


def _obstacle(path: str) -> int:
    """The error with which the file cannot be executed, or 0."""
    try:
        mode = os.stat(path).st_mode
    except OSError as error:
        return error.errno or errno.ENOENT
    if not stat.S_ISREG(mode) or not mode & 0o111:
        return errno.EACCES
    return errno.ENOEXEC if _is_script_without_interpreter(path) else 0


def _is_script_without_interpreter(path: str) -> bool:
    """Whether it is a text without `#!`, which subprocess refuses."""
    try:
        with open(path, "rb") as file:
            head = file.read(256)
    except OSError:
        return False
    return not head.startswith(b"#!") and b"\0" not in head


class _LookUpLater:
    """Looks the program up after `preexec_fn`, which may change what can be found, in the new process."""

    def __init__(self, preexec_fn: Callable[[], Any], program: Path, env: Mapping[Any, Any] | None) -> None:
        self.preexec_fn, self.program, self.env, self.missing = preexec_fn, program, env, mmap.mmap(-1, 4)

    def __call__(self) -> None:
        self.preexec_fn()
        try:
            # By now it is in the folder `cwd`.
            if _look_up(self.program, None, self.env) != os.fsdecode(self.program):
                # It is too late to give treaper another word.
                raise OSError(errno.ENOEXEC, os.strerror(errno.ENOEXEC))
        except OSError as error:
            self.missing[:] = (error.errno or errno.ENOENT).to_bytes(4, "little")
            raise

    def explain(self) -> None:
        """Raises what the look has found."""
        reason = int.from_bytes(self.missing[:], "little")
        if reason:
            raise OSError(reason, os.strerror(reason), self.program) from None


def _settings(keywords: MutableMapping[str, Any]) -> dict[str, Any]:
    """Takes the settings of treaper out of the keywords. None is the same as no setting."""
    found = {name: keywords.pop(name) for name in list(keywords) if name in Settings.__optional_keys__}
    return {"stdin_": "ignore", **{name: value for name, value in found.items() if value is not None}}


if TYPE_CHECKING:
    import asyncio.subprocess
    from typing import IO, Literal, overload

    from typing_extensions import Unpack

    File = Union[None, int, IO[Any]]
    Before = Union[Callable[[], Any], None]
    Env = Union[Mapping[bytes, Path], Mapping[str, Path], None]

    class _Keywords(Settings, total=False):
        """Keywords of subprocess, without those that can be positional or decide between text and bytes."""

        restore_signals: bool
        start_new_session: bool
        pass_fds: Iterable[int]
        user: str | int | None
        group: str | int | None
        extra_groups: Iterable[str | int] | None
        umask: int
        pipesize: int
        process_group: int | None

    class _Timed(_Keywords, total=False):
        timeout: float | None

    class _Call(_Timed, total=False):
        text: Flag
        encoding: Text
        errors: Text
        universal_newlines: Flag

    class _CheckOutput(_Timed, total=False):
        input: bytes | str | None

    class _Run(_CheckOutput, total=False):
        capture_output: bool
        check: bool

    class _Asyncio(_Keywords, total=False):
        executable: Path | None
        stdin: File
        stdout: File
        stderr: File
        preexec_fn: Before
        close_fds: bool
        shell: bool
        cwd: Path | None
        env: Env
        bufsize: int
        limit: int

    Yes = Literal[True]
    No = Union[Literal[False], None]
    Flag = Union[bool, None]
    Text = Union[str, None]


def command(argv: Args, **settings: Unpack[CommandSettings]) -> list[str]:
    """The words that start `argv` behind treaper, for what starts programs itself."""
    for name in settings:
        if name not in CommandSettings.__optional_keys__:
            raise TypeError(f"command() got an unexpected keyword argument {name!r}")
    return _command(_argv(argv)[0], settings)


class Popen(subprocess.Popen[AnyStr]):
    """subprocess.Popen behind treaper. A program that was ended by signal N has the returncode 128 + N, at a terminal -N."""

    if TYPE_CHECKING:
        @overload
        def __init__(
            self: Popen[str], args: Args, bufsize: int = ..., executable: Path | None = ..., stdin: File = ...,
            stdout: File = ..., stderr: File = ..., preexec_fn: Before = ..., close_fds: bool = ..., shell: bool = ...,
            cwd: Path | None = ..., env: Env = ..., *, text: Yes, encoding: Text = ..., errors: Text = ...,
            **more: Unpack[_Keywords],
        ) -> None: ...
        @overload
        def __init__(
            self: Popen[str], args: Args, bufsize: int = ..., executable: Path | None = ..., stdin: File = ...,
            stdout: File = ..., stderr: File = ..., preexec_fn: Before = ..., close_fds: bool = ..., shell: bool = ...,
            cwd: Path | None = ..., env: Env = ..., *, encoding: str, text: Flag = ..., errors: Text = ...,
            **more: Unpack[_Keywords],
        ) -> None: ...
        @overload
        def __init__(
            self: Popen[bytes], args: Args, bufsize: int = ..., executable: Path | None = ..., stdin: File = ...,
            stdout: File = ..., stderr: File = ..., preexec_fn: Before = ..., close_fds: bool = ..., shell: bool = ...,
            cwd: Path | None = ..., env: Env = ..., *, text: No = ..., encoding: None = ..., errors: None = ...,
            **more: Unpack[_Keywords],
        ) -> None: ...
        @overload
        def __init__(
            self: Popen[Any], args: Args, bufsize: int = ..., executable: Path | None = ..., stdin: File = ...,
            stdout: File = ..., stderr: File = ..., preexec_fn: Before = ..., close_fds: bool = ..., shell: bool = ...,
            cwd: Path | None = ..., env: Env = ..., *, text: Flag = ..., encoding: Text = ..., errors: Text = ...,
            universal_newlines: Flag = ..., **more: Unpack[_Keywords],
        ) -> None: ...

    def __init__(
        self, args: Args, bufsize: int = -1, executable: Path | None = None, stdin: File = None, stdout: File = None,
        stderr: File = None, preexec_fn: Callable[[], Any] | None = None, close_fds: bool = True, shell: bool = False,
        cwd: Path | None = None, env: Mapping[Any, Any] | None = None, *more: Any, **keywords: Any,
    ) -> None:
        settings = _settings(keywords)
        argv, program = _argv(args, executable, shell)
        if preexec_fn is None:
            argv[0] = _look_up(program, cwd, env)
        else:
            preexec_fn = _LookUpLater(preexec_fn, program, env)
        try:
            super().__init__(_command(argv, settings), bufsize, None, stdin, stdout, stderr, preexec_fn, close_fds,
                             False, cwd, env, *more, **keywords)
        except subprocess.SubprocessError:
            if isinstance(preexec_fn, _LookUpLater):
                preexec_fn.explain()
            raise
        self.args = args


async def create_subprocess_exec(
    program: Path, *args: Path, **keywords: Unpack[_Asyncio],
) -> asyncio.subprocess.Process:
    """asyncio.create_subprocess_exec behind treaper."""
    import asyncio

    theirs = cast("dict[str, Any]", keywords)
    settings = _settings(theirs)
    argv, program = _argv([program, *args], theirs.pop("executable", None))
    preexec_fn = theirs.get("preexec_fn")
    if preexec_fn is None:
        argv[0] = _look_up(program, theirs.get("cwd"), theirs.get("env"))
    else:
        preexec_fn = theirs["preexec_fn"] = _LookUpLater(preexec_fn, program, theirs.get("env"))
    try:
        return await asyncio.create_subprocess_exec(*_command(argv, settings), **theirs)
    except subprocess.SubprocessError:
        if preexec_fn is not None:
            preexec_fn.explain()
        raise


if TYPE_CHECKING:
    @overload
    def run(
        args: Args, bufsize: int = ..., executable: Path | None = ..., stdin: File = ..., stdout: File = ...,
        stderr: File = ..., preexec_fn: Before = ..., close_fds: bool = ..., shell: bool = ..., cwd: Path | None = ...,
        env: Env = ..., *, text: Yes, encoding: Text = ..., errors: Text = ..., **more: Unpack[_Run],
    ) -> subprocess.CompletedProcess[str]: ...
    @overload
    def run(
        args: Args, bufsize: int = ..., executable: Path | None = ..., stdin: File = ..., stdout: File = ...,
        stderr: File = ..., preexec_fn: Before = ..., close_fds: bool = ..., shell: bool = ..., cwd: Path | None = ...,
        env: Env = ..., *, encoding: str, text: Flag = ..., errors: Text = ..., **more: Unpack[_Run],
    ) -> subprocess.CompletedProcess[str]: ...
    @overload
    def run(
        args: Args, bufsize: int = ..., executable: Path | None = ..., stdin: File = ..., stdout: File = ...,
        stderr: File = ..., preexec_fn: Before = ..., close_fds: bool = ..., shell: bool = ..., cwd: Path | None = ...,
        env: Env = ..., *, text: No = ..., encoding: None = ..., errors: None = ..., **more: Unpack[_Run],
    ) -> subprocess.CompletedProcess[bytes]: ...
    @overload
    def run(
        args: Args, bufsize: int = ..., executable: Path | None = ..., stdin: File = ..., stdout: File = ...,
        stderr: File = ..., preexec_fn: Before = ..., close_fds: bool = ..., shell: bool = ..., cwd: Path | None = ...,
        env: Env = ..., *, text: Flag = ..., encoding: Text = ..., errors: Text = ...,
        universal_newlines: Flag = ..., **more: Unpack[_Run],
    ) -> subprocess.CompletedProcess[Any]: ...
    def run(args: Args, *more: Any, **keywords: Any) -> subprocess.CompletedProcess[Any]: ...
    @overload
    def check_output(
        args: Args, bufsize: int = ..., executable: Path | None = ..., stdin: File = ..., stdout: File = ...,
        stderr: File = ..., preexec_fn: Before = ..., close_fds: bool = ..., shell: bool = ..., cwd: Path | None = ...,
        env: Env = ..., *, text: Yes, encoding: Text = ..., errors: Text = ..., **more: Unpack[_CheckOutput],
    ) -> str: ...
    @overload
    def check_output(
        args: Args, bufsize: int = ..., executable: Path | None = ..., stdin: File = ..., stdout: File = ...,
        stderr: File = ..., preexec_fn: Before = ..., close_fds: bool = ..., shell: bool = ..., cwd: Path | None = ...,
        env: Env = ..., *, encoding: str, text: Flag = ..., errors: Text = ..., **more: Unpack[_CheckOutput],
    ) -> str: ...
    @overload
    def check_output(
        args: Args, bufsize: int = ..., executable: Path | None = ..., stdin: File = ..., stdout: File = ...,
        stderr: File = ..., preexec_fn: Before = ..., close_fds: bool = ..., shell: bool = ..., cwd: Path | None = ...,
        env: Env = ..., *, text: No = ..., encoding: None = ..., errors: None = ..., **more: Unpack[_CheckOutput],
    ) -> bytes: ...
    @overload
    def check_output(
        args: Args, bufsize: int = ..., executable: Path | None = ..., stdin: File = ..., stdout: File = ...,
        stderr: File = ..., preexec_fn: Before = ..., close_fds: bool = ..., shell: bool = ..., cwd: Path | None = ...,
        env: Env = ..., *, text: Flag = ..., encoding: Text = ..., errors: Text = ...,
        universal_newlines: Flag = ..., **more: Unpack[_CheckOutput],
    ) -> Any: ...
    def check_output(args: Args, *more: Any, **keywords: Any) -> Any: ...
    def call(
        args: Args, bufsize: int = ..., executable: Path | None = ..., stdin: File = ..., stdout: File = ...,
        stderr: File = ..., preexec_fn: Before = ..., close_fds: bool = ..., shell: bool = ..., cwd: Path | None = ...,
        env: Env = ..., **more: Unpack[_Call],
    ) -> int: ...
    def check_call(
        args: Args, bufsize: int = ..., executable: Path | None = ..., stdin: File = ..., stdout: File = ...,
        stderr: File = ..., preexec_fn: Before = ..., close_fds: bool = ..., shell: bool = ..., cwd: Path | None = ...,
        env: Env = ..., **more: Unpack[_Call],
    ) -> int: ...
else:
    # These are subprocess's own functions. Here, their Popen is ours. They come from a copy of the module, because a
    # tracer or a test may have replaced them in subprocess. The exceptions and other classes remain those of subprocess.
    _copy = subprocess
    if subprocess.__spec__ is not None:
        _copy = importlib.util.module_from_spec(subprocess.__spec__)
        subprocess.__spec__.loader.exec_module(_copy)
    _classes = {name: each for name, each in vars(subprocess).items() if isinstance(each, type)}
    _scope = {**vars(_copy), **_classes, "Popen": Popen}
    for _name in ("call", "check_call", "run", "check_output"):
        _theirs = getattr(_copy, _name)
        _ours = types.FunctionType(_theirs.__code__, _scope, _name, _theirs.__defaults__)
        _ours.__kwdefaults__ = _theirs.__kwdefaults__
        globals()[_name] = _scope[_name] = functools.update_wrapper(_ours, _theirs)
        # pickle looks for the function there.
        _ours.__module__ = __name__
