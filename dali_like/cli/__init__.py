"""The ``dali-like`` command. Each subcommand is a module of this package, listed in `COMMANDS`.

The module has the name of the subcommand. The first line of its docstring is the help text; `add_arguments` declares the
arguments, and `run` does the work. ``dali-like --help`` imports all of them, so optional and heavy libraries are imported
where they are used.
"""

from __future__ import annotations

import argparse
import inspect
import os
import re
import sys
from collections.abc import Sequence
from typing import NoReturn, Protocol

from dali_like import __version__
from dali_like.cli import bench, check, completion, doctor, replay, run, top, tune, view
from dali_like.common.suggestions import list_unknown, with_suggestion
from dali_like.errors import ArgumentError, MissingExtraError, NotRunningError, TraceFileError

__all__ = ["COMMANDS", "Command", "main", "parsers"]

_USAGE_ERROR = 2  # as argparse
_INTERRUPTED = 130  # as shells say it
_PIPE_CLOSED = 141


class Command(Protocol):
    """A module that is a subcommand."""

    __name__: str
    __doc__: str | None

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare the arguments."""

    def run(self, options: argparse.Namespace) -> int:
        """Do the work.

        Args:
            options: the parsed arguments.

        Returns:
            The exit status; 0 on success.

        Raises:
            ArgumentError: an argument is invalid. Shown without a traceback, as the following errors.
            MissingExtraError: an optional library is not installed.
            NotRunningError, TraceFileError: there is no running pipeline, or no trace, to show.
        """


#: All subcommands, in the order of the help.
COMMANDS: tuple[Command, ...] = (run, doctor, check, replay, bench, tune, top, view, completion)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a subcommand.

    Args:
        arguments: arguments behind ``dali-like``; None: the arguments of the command line.

    Returns:
        The exit status: that of the subcommand, 2 for invalid arguments, 130 for Ctrl-C.
    """
    parser = _SuggestingParser(prog="dali-like", description="Tools for data pipelines of dali_like.")
    subparsers = _add_commands(parser)
    options, unknown = parser.parse_known_args(arguments)
    if unknown:
        known = subparsers[options.command]._option_string_actions
        subparsers[options.command].error(f"unrecognized arguments: {list_unknown(unknown, known)}")
    try:
        status: int = options.run(options)
        sys.stdout.flush()
    except (ArgumentError, MissingExtraError, NotRunningError, TraceFileError) as error:
        print(f"{parser.prog} {options.command}: {error}", file=sys.stderr)
        return _USAGE_ERROR
    except BrokenPipeError:  # the reader has closed the pipe; the interpreter would still flush it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _PIPE_CLOSED
    except KeyboardInterrupt:
        return _INTERRUPTED
    return status


def parsers() -> dict[str, argparse.ArgumentParser]:
    """Return the parser of each subcommand."""
    return _add_commands(_SuggestingParser(prog="dali-like"))


class _SuggestingParser(argparse.ArgumentParser):
    """Suggests the subcommand that has a similar name. From Python 3.14 on, argparse has a switch for that."""

    def error(self, message: str) -> NoReturn:
        if wrong := re.search("invalid choice: '([^']*)'", message):
            message = with_suggestion(message, wrong[1], map(_name_of, COMMANDS))
        super().error(message)


def _name_of(command: Command) -> str:
    return command.__name__.rpartition(".")[2]


def _add_commands(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """Declare all arguments, and return the parsers of the subcommands."""
    parser.add_argument("--version", action="version", version=f"dali_like {__version__}")
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="command")
    for command in COMMANDS:
        purpose, _, details = inspect.cleandoc(command.__doc__ or "").partition("\n\n")
        subparser = subparsers.add_parser(
            _name_of(command),
            help=purpose,
            description=f"{purpose}\n\n{details}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        command.add_arguments(subparser)
        subparser.set_defaults(run=command.run)
    return subparsers.choices
