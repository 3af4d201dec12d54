"""The ``dali-like`` command. A subcommand is a module of this package that is named in `COMMANDS`.

Such a module has the name of its subcommand, and what it is for as the first line of its docstring; `add_arguments` says
which arguments it takes, and `run` does the work. All of them are imported for ``dali-like --help``; so what is optional or
heavy is imported where it is used.
"""

from __future__ import annotations

import argparse
import inspect
import os
import sys
from collections.abc import Sequence
from typing import Protocol

from dali_like import __version__
from dali_like.cli import bench, doctor, top, tune, view
from dali_like.errors import ArgumentError, MissingExtraError, NotRunningError, TraceFileError

__all__ = ["COMMANDS", "Command", "main"]

_USAGE_ERROR = 2  # as argparse
_INTERRUPTED = 130  # as shells say it
_PIPE_CLOSED = 141


class Command(Protocol):
    """A module that is a subcommand."""

    __name__: str
    __doc__: str | None

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Declare its arguments."""

    def run(self, options: argparse.Namespace) -> int:
        """Do the work.

        Args:
            options: what the user has said of each argument.

        Returns:
            The exit status, 0 where all is well.

        Raises:
            ArgumentError: an argument makes no sense; it is shown without a traceback.
            MissingExtraError: what is needed is not installed; likewise.
            NotRunningError, TraceFileError: there is nothing to look at; likewise.
        """


#: All there are, in the order of the help.
COMMANDS: tuple[Command, ...] = (doctor, bench, tune, top, view)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a subcommand.

    Args:
        arguments: what stands behind ``dali-like`` on the command line; None: what does.

    Returns:
        The exit status: that of the subcommand, 2 for arguments that make no sense, 130 for Ctrl-C.
    """
    parser = _parser()
    options = parser.parse_args(arguments)
    try:
        status: int = options.run(options)
        sys.stdout.flush()
    except (ArgumentError, MissingExtraError, NotRunningError, TraceFileError) as error:
        print(f"{parser.prog} {options.command}: {error}", file=sys.stderr)
        return _USAGE_ERROR
    except BrokenPipeError:  # whoever reads the output has had enough; the interpreter would still flush it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _PIPE_CLOSED
    except KeyboardInterrupt:
        return _INTERRUPTED
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="dali-like", description="Looks after data pipelines of dali_like.")
    parser.add_argument("--version", action="version", version=f"dali_like {__version__}")
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="command")
    for command in COMMANDS:
        purpose, _, details = inspect.cleandoc(command.__doc__ or "").partition("\n\n")
        subparser = subparsers.add_parser(
            command.__name__.rpartition(".")[2],
            help=purpose,
            description=f"{purpose}\n\n{details}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        command.add_arguments(subparser)
        subparser.set_defaults(run=command.run)
    return parser
