"""Runs a click command: errors become one line on standard error and an exit code."""

from __future__ import annotations

import io
import os
import shlex
import sys
import traceback
import warnings
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import click
from click.shell_completion import shell_complete

from dropmargin.cli.console import Console, printable
from dropmargin.errors import ParameterError, ParameterWarning

SUCCESS, FAILURE, WRONG_USAGE, NOT_CONVERGED = 0, 1, 2, 3
_INTERRUPTED, _BROKEN_PIPE = 130, 141
CONTEXT_SETTINGS: dict[str, Any] = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
CONTEXT_SETTINGS["show_default"] = True
_OUTPUT_OPTIONS = [
    click.Option(["--json"], is_flag=True, help="Print the result as one JSON object."),
    click.Option(["--quiet"], is_flag=True, help="No notes and no progress, only warnings and errors."),
    click.Option(["--debug"], is_flag=True, help="Show the traceback of an error."),
]


class Command(click.Command):
    """A command whose function takes ``(options, console)`` and returns the exit code, None after a success.

    ``options`` has an attribute per option and argument, and ``command_line``, the command as typed. The help lists
    the options by section, see `dropmargin.cli.options.section`.
    """

    def __init__(self, name: str | None, params: list[click.Parameter], **settings: Any) -> None:
        super().__init__(name, CONTEXT_SETTINGS, params=[*params, *_OUTPUT_OPTIONS], **settings)

    def invoke(self, ctx: click.Context) -> Any:
        options = SimpleNamespace(**ctx.params, command_line=ctx.find_root().obj)
        console = Console(as_json=options.json, quiet=options.quiet)
        assert self.callback is not None
        with warnings.catch_warnings():
            warnings.simplefilter("default")
            warnings.filterwarnings("ignore", message="X does not have valid feature names")
            warnings.showwarning = lambda message, *place: console.warn(_text_of(message))
            return self.callback(options, console) or SUCCESS

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, a section after the other."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx) if isinstance(param, click.Option) else None
            if record is not None:
                sections.setdefault(getattr(param, "section", "Options"), []).append(record)
        for title, records in sections.items():
            with formatter.section(title):
                formatter.write_dl(records)


def run_program(program: click.Command, argv: Sequence[str] | None, name: str) -> int:
    """Run a click command and return its exit code; ``argv`` is as for `dropmargin.cli.main.main`."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    variable = f"_{name.upper()}_COMPLETE"
    _prepare_streams()
    try:
        if instruction := os.environ.get(variable):
            return shell_complete(program, {}, name, variable, instruction)
        code = _invoke(program, arguments, name)
        sys.stdout.flush()
        return code
    except (KeyboardInterrupt, click.UsageError, ValueError, OSError, ImportError, MemoryError) as error:
        return _report(error, debug="--debug" in arguments)


def _prepare_streams() -> None:
    """Open the null device in place of closed streams; escape characters that the encoding of the output lacks."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


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
    if isinstance(error, click.UsageError):
        console.error(_usage_message(error))
        return WRONG_USAGE
    if isinstance(error, ParameterError):
        console.error(_text_of(error))
        return WRONG_USAGE
    if debug:
        print(printable("".join(traceback.format_exception(error))), file=sys.stderr)
    console.error(error_message(error))
    return FAILURE


def _usage_message(error: click.UsageError) -> str:
    """Return the message of a usage error, with the option whose value is wrong or the usage of the command."""
    if type(error) is click.BadParameter and error.param is not None:
        return f"{max(error.param.opts, key=len)}: {error.message}"
    return error.format_message() if error.ctx is None else f"{error.format_message()} ({error.ctx.get_usage()})"


def _text_of(problem: Any) -> str:
    """Return the text of an error or warning; the reason of a problem with a parameter begins with its option."""
    if isinstance(problem, ParameterError | ParameterWarning):
        name = problem.parameter
        return problem.reason if name is None else f"--{name.replace('_', '-').lower()}: {problem.reason}"
    return str(problem)


def error_message(error: BaseException) -> str:
    """Return the message of an error in one line."""
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        return f"{os.fsdecode(error.filename)}: {error.strerror}"
    if isinstance(error, MemoryError):
        return f"not enough memory {error}".rstrip()
    if isinstance(error, ModuleNotFoundError) and "pip install" not in str(error):
        return f"the package {error.name} is not installed: pip install 'dropmargin[cli]'"
    return str(error) or type(error).__name__
