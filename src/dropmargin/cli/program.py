"""Runs a click command: errors become one line on standard error and an exit code."""

from __future__ import annotations

import io
import json
import math
import os
import shlex
import sys
import traceback
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from types import SimpleNamespace
from typing import Any

import click
from click.shell_completion import shell_complete

from dropmargin.errors import ParameterError

SUCCESS, FAILURE, WRONG_USAGE = 0, 1, 2
_INTERRUPTED, _BROKEN_PIPE = 130, 141
_MAX_LINE = 2000
CONTEXT_SETTINGS: dict[str, Any] = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
CONTEXT_SETTINGS["show_default"] = True


class Console:
    """Prints results, as one JSON object or as text, notes (unless ``quiet``), warnings and errors."""

    def __init__(self, *, as_json: bool = False, quiet: bool = False) -> None:
        self.as_json, self.quiet = as_json, quiet

    def result(self, facts: Mapping[str, Any], text: str) -> None:
        """Print the result: ``facts`` as a JSON object with ``--json``, else ``text``."""
        print(json.dumps(_to_json(facts), allow_nan=False) if self.as_json else printable(text))

    def note(self, text: str) -> None:
        """Print a line, unless the console is quiet."""
        if not self.quiet:
            self._print_line(text)

    def warn(self, text: str) -> None:
        """Print a warning."""
        self._print_line(f"warning: {text}")

    def error(self, text: str) -> None:
        """Print an error."""
        self._print_line(f"error: {text}")

    def _print_line(self, text: str) -> None:
        line = printable(" ".join(text.split()))
        line = line if len(line) <= _MAX_LINE else f"{line[:_MAX_LINE]}..."
        print(f"dropmargin: {line}", file=sys.stderr, flush=True)


def printable(text: str) -> str:
    """Return the text with control characters other than line ends escaped, as they could change the terminal."""
    return "".join(c if c.isprintable() or c == "\n" else repr(c)[1:-1] for c in text)


def table_text(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table with columns of equal width; the first is left-aligned, the others right."""
    cells = [header, *rows]
    first, *widths = [max(len(row[j]) for row in cells) for j in range(len(header))]
    lines = []
    for name, *others in cells:
        padded = [cell.rjust(width) for cell, width in zip(others, widths, strict=True)]
        lines.append("  ".join([name.ljust(first), *padded]).rstrip())
    return "\n".join(lines)


def _to_json(value: Any) -> Any:
    """Return a value of the types of JSON: NaN and infinity become None, arrays become lists."""
    if isinstance(value, Mapping):
        return {str(key): _to_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_to_json(item) for item in value]
    if hasattr(value, "tolist"):
        return _to_json(value.tolist())
    return None if isinstance(value, float) and not math.isfinite(value) else value


def command(*params: Any, **settings: Any) -> Callable[[Callable[..., Any]], click.Command]:
    """Return the decorator of a command: a function of ``(options, console)`` that returns None or an exit code.

    ``options`` has an attribute per option and argument, and ``command_line``, the command as typed.
    """

    def decorate(function: Callable[..., Any]) -> click.Command:
        @wraps(function)
        @click.pass_context
        def run(ctx: click.Context, json: bool, quiet: bool, debug: bool, **given: Any) -> int:
            console = Console(as_json=json, quiet=quiet)
            options = SimpleNamespace(**given, quiet=quiet, command_line=ctx.find_root().obj)
            with warnings.catch_warnings():
                warnings.simplefilter("default")
                warnings.filterwarnings("ignore", message="X does not have valid feature names")
                warnings.showwarning = lambda message, *place: console.warn(_text_of(message))
                return function(options, console) or SUCCESS

        shared = [
            click.option("--json", is_flag=True, help="Print the result as one JSON object."),
            click.option("--quiet", is_flag=True, help="No notes and no progress, only warnings and errors."),
            click.option("--debug", is_flag=True, help="Show the traceback of an error."),
        ]
        for param in reversed([*params, *shared]):
            run = param(run)
        return click.command(context_settings=CONTEXT_SETTINGS, **settings)(run)

    return decorate


def run_program(program: click.Command, argv: Sequence[str] | None, name: str) -> int:
    """Run a click command and return its exit code; ``argv`` is as for `dropmargin.cli.main.main`."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    variable = f"_{name.upper()}_COMPLETE"
    for stream in ("stdout", "stderr"):
        if getattr(sys, stream) is None:  # closed
            setattr(sys, stream, open(os.devnull, "w"))  # noqa: SIM115
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        if instruction := os.environ.get(variable):
            return shell_complete(program, {}, name, variable, instruction)
        code = _invoke(program, arguments, name)
        sys.stdout.flush()
        return code
    except (KeyboardInterrupt, click.ClickException, ValueError, OSError, ImportError, MemoryError) as error:
        return _report(error, debug="--debug" in arguments)


def _invoke(program: click.Command, arguments: list[str], name: str) -> int:
    if isinstance(program, click.Group):
        if arguments[:1] == ["help"]:
            arguments = [*arguments[1:], "--help"]
        if not arguments:
            print(program.make_context(name, ["--help"], resilient_parsing=True).get_help(), file=sys.stderr)
            return WRONG_USAGE
    try:
        with program.make_context(name, list(arguments), obj=shlex.join([*name.split(), *arguments])) as ctx:
            return int(program.invoke(ctx))
    except click.exceptions.Exit as end:  # after --help and --version
        return end.exit_code


def _report(error: BaseException, *, debug: bool) -> int:
    """Print an error in one line and return its exit code."""
    console = Console()
    try:
        sys.stdout.flush()
    except OSError:  # so that Python does not try again at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if isinstance(error, BrokenPipeError):  # the reader of the output has closed it
        return _BROKEN_PIPE
    if isinstance(error, KeyboardInterrupt):
        console.error("interrupted")
        return _INTERRUPTED
    if debug:
        print(printable("".join(traceback.format_exception(error))), file=sys.stderr)
    console.error(error_message(error))
    return WRONG_USAGE if isinstance(error, click.UsageError | ParameterError) else FAILURE


def _text_of(problem: Any) -> str:
    """Return the text of an error or warning; the reason of an error in a parameter begins with its option."""
    if isinstance(problem, ParameterError):
        name = problem.parameter
        return problem.reason if name is None else f"--{name.replace('_', '-').lower()}: {problem.reason}"
    return str(problem)


def error_message(error: BaseException) -> str:
    """Return the message of an error in one line."""
    if isinstance(error, click.BadParameter) and error.param is not None and type(error) is click.BadParameter:
        return f"{max(error.param.opts, key=len)}: {error.message}"
    if isinstance(error, click.UsageError):
        return error.format_message() + (f" ({error.ctx.get_usage()})" if error.ctx is not None else "")
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        return f"{os.fsdecode(error.filename)}: {error.strerror}"
    if isinstance(error, MemoryError):
        return f"not enough memory {error}".rstrip()
    if isinstance(error, ModuleNotFoundError) and "pip install" not in str(error):
        return f"the package {error.name} is not installed: pip install 'dropmargin[cli]'"
    return _text_of(error) or type(error).__name__


def check_files(inputs: Iterable[str], outputs: Mapping[str, str | None], *, force: bool) -> None:
    """Check, before any work, that inputs can be read and outputs be written.

    An output that is also an input is refused, and so is one that exists, unless ``force``.
    """
    known = [path for path in inputs if path != "-"]
    for path in known:
        if not os.path.isdir(path):
            with open(path, "rb"):
                pass
    for option, path in ((option, path) for option, path in outputs.items() if path not in (None, "-")):
        assert path is not None
        if any(os.path.exists(path) and os.path.samefile(path, other) for other in known):
            raise click.UsageError(f"{option} {path} is an input, which would be overwritten")
        if os.path.exists(path) and (not force or os.path.isdir(path)):
            raise click.UsageError(f"{option} {path} exists (--force replaces a file)")
        folder = os.path.dirname(os.path.realpath(path))
        if not os.path.isdir(folder):
            raise FileNotFoundError(2, f"there is no folder {folder}", path)
        if not os.access(folder, os.W_OK):
            raise PermissionError(13, f"cannot write to the folder {folder}", path)
