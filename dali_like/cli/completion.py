"""Prints a completion script for your shell: bash, zsh or fish.

bash: add  source <(dali-like completion bash)  to ~/.bashrc
zsh: add  source <(dali-like completion zsh)  to ~/.zshrc, behind compinit
fish: dali-like completion fish > ~/.config/fish/completions/dali-like.fish
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

__all__ = ["add_arguments", "run"]


class _Option(NamedTuple):
    """An option of a subcommand.

    Attributes:
        flags: its names.
        help: its description, in one line.
        takes_value: whether a value follows.
    """

    flags: Sequence[str]
    help: str
    takes_value: bool


class _Subcommand(NamedTuple):
    """A subcommand.

    Attributes:
        help: its purpose.
        options: its options.
        words: the words that its argument can be; empty: files.
    """

    help: str
    options: Sequence[_Option]
    words: Sequence[str]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """See `dali_like.cli.Command`."""
    parser.add_argument("shell", choices=tuple(_SCRIPTS))


def run(options: argparse.Namespace) -> int:
    """See `dali_like.cli.Command`."""
    from dali_like.cli import parsers  # it imports this module

    print("\n".join(_SCRIPTS[options.shell]({name: _described(parser) for name, parser in parsers().items()})))
    return 0


def _described(parser: argparse.ArgumentParser) -> _Subcommand:
    options, words = [], []
    for action in parser._actions:
        if action.option_strings:
            text = " ".join((action.help or "").replace("%(default)s", str(action.default)).split())
            options.append(_Option(action.option_strings, text, action.nargs != 0))
        elif action.choices is not None:
            words += [*action.choices]
    return _Subcommand((parser.description or "").partition("\n")[0], options, words)


def _bash(commands: Mapping[str, _Subcommand]) -> Iterator[str]:
    yield "_dali_like() {"
    yield '    local word="${COMP_WORDS[COMP_CWORD]}" options="" words=""'
    yield "    if [ $COMP_CWORD -eq 1 ]; then"
    yield f'        mapfile -t COMPREPLY < <(compgen -W "{" ".join(commands)} --help --version" -- "$word")'
    yield "        return"
    yield "    fi"
    yield '    case "${COMP_WORDS[1]}" in'
    for name, command in commands.items():
        flags = " ".join(flag for option in command.options for flag in option.flags)
        yield f'        {name}) options="{flags}" words="{" ".join(command.words)}" ;;'
    yield "    esac"
    yield '    if [[ "$word" == -* ]]; then'
    yield '        mapfile -t COMPREPLY < <(compgen -W "$options" -- "$word")'
    yield '    elif [ -n "$words" ]; then'
    yield '        mapfile -t COMPREPLY < <(compgen -W "$words" -- "$word")'
    yield "    else"
    yield '        mapfile -t COMPREPLY < <(compgen -f -- "$word")'
    yield "    fi"
    yield "}"
    yield "complete -o filenames -F _dali_like dali-like"


def _zsh(commands: Mapping[str, _Subcommand]) -> Iterator[str]:
    yield "#compdef dali-like"
    yield "_dali_like() {"
    yield "    local -a commands"
    yield "    if (( CURRENT == 2 )); then"
    yield "        commands=("
    for name, command in commands.items():
        yield f"            {_quoted(f'{name}:{command.help}')}"
    yield "        )"
    yield "        _describe command commands"
    yield "        return"
    yield "    fi"
    yield '    local command="$words[2]"'
    yield "    shift words; (( CURRENT -= 1 ))"
    yield '    case "$command" in'
    for name, command in commands.items():
        # In a specification, brackets enclose the description, and colons separate the parts.
        text = [
            _quoted(f"{flag}[{_without(option.help, '[]:')}]{':value:_files' if option.takes_value else ''}")
            for option in command.options
            for flag in option.flags
        ]
        rest = f"*:argument:({' '.join(command.words)})" if command.words else "*:argument:_files"
        yield f"        {name}) _arguments {' '.join(text)} {_quoted(rest)} ;;"
    yield "    esac"
    yield "}"
    yield "compdef _dali_like dali-like"


def _fish(commands: Mapping[str, _Subcommand]) -> Iterator[str]:
    yield "complete -c dali-like -f -n __fish_use_subcommand -l help -d 'show the subcommands'"
    yield "complete -c dali-like -f -n __fish_use_subcommand -l version -d 'show the version'"
    for name, command in commands.items():
        yield f"complete -c dali-like -f -n __fish_use_subcommand -a {name} -d {_quoted(command.help)}"
    for name, command in commands.items():
        seen = f"complete -c dali-like -n '__fish_seen_subcommand_from {name}'"
        for option in command.options:
            flags = " ".join(
                f"-l {flag.removeprefix('--')}" if flag.startswith("--") else f"-s {flag.removeprefix('-')}"
                for flag in option.flags
            )
            yield f"{seen} {flags}{' -r' if option.takes_value else ''} -d {_quoted(option.help)}"
        if command.words:
            yield f"{seen} -f -a {_quoted(' '.join(command.words))}"


def _quoted(text: str) -> str:
    """Quote a text for a shell. The texts have no backslashes."""
    return "'" + text.replace("'", "'\\''") + "'"


def _without(text: str, characters: str) -> str:
    return "".join(" " if character in characters else character for character in text)


_SCRIPTS: dict[str, Callable[[Mapping[str, _Subcommand]], Iterator[str]]] = {"bash": _bash, "zsh": _zsh, "fish": _fish}
