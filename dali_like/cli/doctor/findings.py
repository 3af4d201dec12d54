"""What a check has found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    """How good that is."""

    OK = "ok"
    #: Something that not everybody needs is not there.
    NOTE = "note"
    #: It works, but more slowly, or not for long.
    WARNING = "warning"
    #: It does not work.
    FAILURE = "failure"


@dataclass(frozen=True)
class Finding:
    """What a check has found.

    Attributes:
        subject: what has been looked at.
        verdict: how good it is.
        found: what is there.
        remedy: what to do about it; empty where there is nothing to do.
    """

    subject: str
    verdict: Verdict
    found: str
    remedy: str = ""

    @property
    def calls_for_action(self) -> bool:
        """Whether something can be done, or does not work."""
        return self.verdict in (Verdict.WARNING, Verdict.FAILURE) or bool(self.remedy)


#: Looks at one thing. What it raises is a failure of what it looks at.
Check = Callable[[], Finding]


def ok(subject: str, found: str) -> Finding:
    """There is nothing to do."""
    return Finding(subject, Verdict.OK, found)


def note(subject: str, found: str, remedy: str = "") -> Finding:
    """Something that not everybody needs is not there. Without a remedy, nobody needs to do anything about it."""
    return Finding(subject, Verdict.NOTE, found, remedy)


def warning(subject: str, found: str, remedy: str) -> Finding:
    """It works, but more slowly, or not for long."""
    return Finding(subject, Verdict.WARNING, found, remedy)


def failure(subject: str, found: str, remedy: str) -> Finding:
    """It does not work."""
    return Finding(subject, Verdict.FAILURE, found, remedy)
