"""``dropmargin completion SHELL``: a script that completes commands, options and their choices."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import NamedTuple

from dropmargin.cli.console import Console


class _Option(NamedTuple):
    """An option as shells need it: its names, what it does, whether a value follows, and of which choices."""

    names: list[str]
    help: str
    takes_value: bool
    choices: list[str]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("shell", choices=tuple(_SCRIPTS), help='for bash: eval "$(dropmargin completion bash)"')


def run(options: argparse.Namespace, console: Console) -> int:
    """Print the script."""
    from dropmargin.cli.main import SUCCESS, available_commands, make_parser

    commands = {name: command.help for name, command in available_commands().items()}
    known = {}
    for name in commands:
        actions = make_parser(name).actions()
        known[name] = [
            _Option(
                list(action.option_strings),
                action.help or "",
                action.nargs != 0,
                [str(choice) for choice in action.choices or ()],
            )
            for action in actions
            if action.option_strings or action.choices
        ]
    script = _SCRIPTS[options.shell](commands, known)
    console.result({"shell": options.shell, "script": script}, script)
    return SUCCESS


def _bash(commands: dict[str, str], known: dict[str, list[_Option]]) -> str:
    cases = []
    for command, options in known.items():
        values = [
            f"            {'|'.join(option.names)}) words='{' '.join(option.choices)}' ;;"
            for option in options
            if option.names and option.choices
        ]
        plain = [name for option in options if option.takes_value and not option.choices for name in option.names]
        if plain:
            values.append(f"            {'|'.join(plain)}) words='' ;;")
        words = [word for option in options for word in option.names or option.choices]
        lines = [f'        {command}) case "$before" in', *values, f"            *) words='{' '.join(words)}' ;;"]
        cases.append("\n".join([*lines, "        esac ;;"]))
    return "\n".join(
        [
            "_dropmargin() {",
            '    local word="${COMP_WORDS[COMP_CWORD]}" before="${COMP_WORDS[COMP_CWORD-1]}" words',
            '    if [ "$COMP_CWORD" -eq 1 ]; then',
            f"        words='{' '.join(commands)} --help --version'",
            '    else case "${COMP_WORDS[1]}" in',
            *cases,
            "    esac; fi",
            '    COMPREPLY=($(compgen -W "$words" -- "$word"))',
            "}",
            "complete -o default -F _dropmargin dropmargin",
        ]
    )


def _zsh(commands: dict[str, str], known: dict[str, list[_Option]]) -> str:
    lines = ["#compdef dropmargin", "_dropmargin() {", "    local -a commands", "    commands=("]
    lines += [f"        {_quoted(f'{name}:{text}')}" for name, text in commands.items()]
    lines += ["    )", "    if (( CURRENT == 2 )); then", "        _describe command commands; return", "    fi"]
    lines += ["    local command=$words[2]", "    shift words; (( CURRENT-- ))", "    case $command in"]
    for command, options in known.items():
        specs = []
        for option in options:
            text = option.help.replace("[", "(").replace("]", ")").replace(":", " -")
            values = f"({' '.join(option.choices)})" if option.choices else "_files"
            follows = f":value:{values}" if option.takes_value else ""
            specs += [_quoted(f"{name}[{text}]{follows}") for name in option.names]
            specs += [] if option.names else [_quoted(f"1:choice:{values}")]
        lines.append(f"        {command}) _arguments {' '.join(specs)} '*:file:_files' ;;")
    return "\n".join([*lines, "    esac", "}", "compdef _dropmargin dropmargin"])


def _fish(commands: dict[str, str], known: dict[str, list[_Option]]) -> str:
    start = "complete -c dropmargin"
    lines = [f"{start} -f -n __fish_use_subcommand -a {name} -d {_quoted(text)}" for name, text in commands.items()]
    for command, options in known.items():
        inside = f"{start} -n '__fish_seen_subcommand_from {command}'"
        for option in options:
            names = [f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in option.names]
            parts = [inside, *names, f"-d {_quoted(option.help)}"]
            if option.choices:
                parts.append(f"-{'x ' if option.names else 'f '}-a {_quoted(' '.join(option.choices))}")
            elif option.takes_value:
                parts.append("-r")
            lines.append(" ".join(parts))
    return "\n".join(lines)


def _quoted(text: str) -> str:
    """Return a word for a shell, in single quotes; fish, bash and zsh agree on this form."""
    return "'" + text.replace("'", "'\"'\"'") + "'"


_SCRIPTS: dict[str, Callable[[dict[str, str], dict[str, list[_Option]]], str]] = {
    "bash": _bash,
    "zsh": _zsh,
    "fish": _fish,
}
