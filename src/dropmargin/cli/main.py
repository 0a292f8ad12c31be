"""``dropmargin COMMAND ...``: finds the command, reads its options, runs it, and turns errors into a line and a code.

Nothing here imports NumPy or scikit-learn, nor does a command before it runs: help is there at once. To add a command,
write its module (``add_arguments(parser)`` and ``run(options, console)``, which returns the exit code) and add a line
to `COMMANDS`.
"""

from __future__ import annotations

import argparse
import difflib
import importlib.util
import os
import re
import shlex
import sys
import traceback
import warnings
from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from typing import Any, NamedTuple, NoReturn

from dropmargin import __version__
from dropmargin.cli.console import Console, UsageError, print_output, printable
from dropmargin.cli.streams import abandon, prepared_streams, writing_output
from dropmargin.errors import ParameterError, ParameterWarning

SUCCESS, FAILURE, WRONG_USE, NOT_CONVERGED = 0, 1, 2, 3
_INTERRUPTED, _BROKEN_PIPE = 130, 141


class Command(NamedTuple):
    """A command: the module that has it, and what it does, in a line."""

    module: str
    help: str


#: Every command by its name; one whose module is not there is not offered.
COMMANDS = {
    "train": Command("dropmargin.cli.train", "train a model on a data file"),
    "cv": Command("dropmargin.cli.cv", "choose noise and C by cross-validation"),
    "predict": Command("dropmargin.cli.predict", "predict labels, scores or probabilities of a data file"),
    "evaluate": Command("dropmargin.cli.evaluate", "compare predictions with the labels of a data file"),
    "nightmare": Command("dropmargin.cli.nightmare", "measure how models fare when features are deleted"),
    "info": Command("dropmargin.cli.info", "say what a model file holds"),
    "export": Command("dropmargin.cli.export", "write a model for LIBLINEAR or ONNX"),
    "demo": Command("dropmargin.cli.demo", "the main job from end to end, on data of scikit-learn"),
    "completion": Command("dropmargin.cli.completion", "print a script that completes commands in a shell"),
}
_INVALID_CHOICE = re.compile(r"invalid choice: '([^']*)' \(choose from (.*)\)")
_EXITS = "exit codes: 0 done, 1 failed, 2 wrong use, 3 not converged (with --strict)"


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code.

    Parameters
    ----------
    argv : sequence of str or None, default=None
        The arguments, by default those of the process.
    """
    return run_program(_run, argv)


def run_program(program: Callable[[list[str], Console], int], argv: Sequence[str] | None = None) -> int:
    """Call ``program(arguments, console)`` and return its exit code; an error is one line and an exit code.

    ``argv`` is as for `main`.
    """
    with prepared_streams():
        return _guarded(program, list(sys.argv[1:] if argv is None else argv))


def _guarded(program: Callable[[list[str], Console], int], arguments: list[str]) -> int:
    console = Console()
    try:
        code = program(arguments, console)
        with writing_output():
            sys.stdout.flush()
        return code
    except BrokenPipeError:  # who read the output has seen enough
        abandon(sys.stdout)
        return _BROKEN_PIPE
    except KeyboardInterrupt:
        console.error("interrupted")
        return _INTERRUPTED
    except UsageError as error:
        console.error(str(error))
        return WRONG_USE
    except ParameterError as error:
        console.error(_with_option(error))
        return WRONG_USE
    except (ValueError, OSError, ImportError, MemoryError) as error:
        if "--debug" in arguments:
            print(printable(traceback.format_exc()), file=sys.stderr)
        console.error(error_message(error))
        abandon(sys.stdout)
        return FAILURE


def available_commands() -> dict[str, Command]:
    """Return the commands whose modules are there."""
    return {name: command for name, command in COMMANDS.items() if importlib.util.find_spec(command.module)}


def make_parser(name: str) -> _Parser:
    """Return the parser of a command's options."""
    command = available_commands()[name]
    return build_parser(f"dropmargin {name}", command.help, import_module(command.module).add_arguments)


def build_parser(prog: str, summary: str, add_arguments: Callable[[argparse.ArgumentParser], None]) -> _Parser:
    """Return a parser with the options that ``add_arguments`` adds, and those of all commands."""
    parser = _Parser(
        prog=prog,
        description=f"{summary[:1].upper()}{summary[1:]}.",
        epilog=_EXITS,
        allow_abbrev=False,
        formatter_class=_HelpFormatter,
    )
    add_arguments(parser)
    group = parser.add_argument_group("output")
    group.add_argument("--json", action="store_true", help="print the result as one JSON object")
    group.add_argument("--quiet", action="store_true", help="no notes, only warnings and errors")
    group.add_argument("--debug", action="store_true", help="show where in the program an error came up")
    return parser


def closest(word: str, known: Iterable[str]) -> str:
    """Return ``; did you mean ...?`` with the known word that is nearest, if one is near."""
    found = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f"; did you mean {found[0]}?" if found else ""


def _run(arguments: list[str], console: Console) -> int:
    if not arguments:
        print(_overview(), file=sys.stderr)
        return WRONG_USE
    first = arguments[0]
    if first in ("-h", "--help", "help"):
        print_output(_overview())
        return SUCCESS
    if first == "--version":
        print_output(f"dropmargin {__version__}")
        return SUCCESS
    commands = available_commands()
    if first not in commands:
        if first.startswith("-"):
            raise UsageError(f"the first argument is the command, got {first} (dropmargin --help lists them)")
        hint = closest(first, commands) or f"; the commands are {', '.join(commands)}"
        raise UsageError(f"there is no command {first!r}{hint}")
    return run_command(import_module(commands[first].module).run, make_parser(first), arguments[1:], console)


def run_command(
    run: Callable[[argparse.Namespace, Console], int], parser: _Parser, arguments: list[str], console: Console
) -> int:
    """Parse the options of a command, call ``run(options, console)``, and return its exit code."""
    try:
        options = parser.parse(arguments)
    except SystemExit:  # help was asked for, and printed
        return SUCCESS
    options.command_line = f"{parser.prog} {shlex.join(arguments)}".rstrip()
    console.as_json, console.quiet = options.json, options.quiet
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        warnings.filterwarnings("ignore", message="X does not have valid feature names")
        warnings.showwarning = lambda message, *place: console.warn(_warning_text(message))
        return int(run(options, console))


def _with_option(problem: ParameterError | ParameterWarning) -> str:
    """Return what is wrong with a parameter, with the name of its option."""
    return f"--{problem.parameter.replace('_', '-').lower()}: {problem.reason}"


def _warning_text(message: Any) -> str:
    return _with_option(message) if isinstance(message, ParameterWarning) else str(message)


def _overview() -> str:
    commands = available_commands()
    width = max(map(len, commands))
    lines = [
        "usage: dropmargin COMMAND ... (dropmargin COMMAND --help says more)",
        "",
        "Linear classifiers that survive the loss of their features.",
        "",
        *(f"  {name.ljust(width)}  {command.help}" for name, command in commands.items()),
        "",
        "  dropmargin train train.svm model.json --noise 0.5 -c 1",
        "  dropmargin cv reviews.csv --text review --target stars -o model.json",
        "  dropmargin predict test.svm model.json -o labels.csv",
        "",
        _EXITS,
    ]
    return "\n".join(lines)


def error_message(error: BaseException) -> str:
    """Return what an error says, in a line."""
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        return f"{os.fsdecode(error.filename)}: {error.strerror}"
    if isinstance(error, MemoryError):
        return f"not enough memory {error}".rstrip()
    return str(error) or type(error).__name__


class _HelpFormatter(argparse.HelpFormatter):
    """Says defaults, and keeps to a width that all terminals have."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=30, width=100)


class _Parser(argparse.ArgumentParser):
    """A parser that raises `UsageError`, and says which option was meant."""

    def parse(self, arguments: list[str]) -> argparse.Namespace:
        """Return the options, or say what is wrong with them: unknown ones before all else."""
        for word in arguments[: arguments.index("--") if "--" in arguments else None]:
            if word.startswith("--"):
                self._refuse_unknown(word)
        options, unknown = self.parse_known_args(arguments)
        for word in unknown:
            if word.startswith("-") and word != "-":
                self._refuse_unknown(word)
        if unknown:
            raise UsageError(f"{self.prog} does not know what to do with {unknown[0]!r} ({self.usage_line()})")
        return options

    def _refuse_unknown(self, word: str) -> None:
        name, known = word.partition("=")[0], self.option_names()
        if name not in known:
            raise UsageError(f"{self.prog} has no option {name}{closest(name, known) or ' (--help lists them)'}")

    def option_names(self) -> list[str]:
        """Return all options, such as ``--noise``."""
        return [name for action in self.actions() for name in action.option_strings]

    def actions(self) -> list[argparse.Action]:
        """Return what the parser knows: options, and arguments that have no name."""
        return list(self._actions)

    def usage_line(self) -> str:
        """Return the arguments that have no name, in their order."""
        names = [str(action.metavar or action.dest) for action in self.actions() if not action.option_strings]
        return f"usage: {self.prog} {' '.join(names)} [options]"

    def print_help(self, file: Any = None) -> None:
        """Print the help; argparse's own method ignores errors of writing it."""
        print_output(self.format_help().rstrip("\n"))

    def error(self, message: str) -> NoReturn:
        """Raise the error instead of ending the process."""
        choice = _INVALID_CHOICE.search(message)
        hint = closest(choice[1], re.findall(r"[\w.-]+", choice[2])) if choice else ""
        raise UsageError(f"{message}{hint} ({self.usage_line()}; --help says more)")
