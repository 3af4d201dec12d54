"""The result of a check: a finding and its verdict."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    """Severity of a finding, in ascending order."""

    OK = "ok"
    #: An optional component is absent.
    NOTE = "note"
    #: The component works, but is slow or may fail later.
    WARNING = "warning"
    #: The component does not work.
    FAILURE = "failure"


@dataclass(frozen=True)
class Finding:
    """Result of a check.

    Attributes:
        subject: the component or limit that was checked.
        verdict: the severity.
        found: the observed state, in one line.
        remedy: the suggested action; empty if no action is needed.
    """

    subject: str
    verdict: Verdict
    found: str
    remedy: str = ""

    @property
    def needs_action(self) -> bool:
        """Whether the finding is a warning or a failure, or has a remedy."""
        return self.verdict in (Verdict.WARNING, Verdict.FAILURE) or bool(self.remedy)


#: Checks one component. An exception counts as a failure of that component.
Check = Callable[[], Finding]


def ok(subject: str, found: str) -> Finding:
    """Return a finding that needs no action."""
    return Finding(subject, Verdict.OK, found)


def note(subject: str, found: str, remedy: str = "") -> Finding:
    """Return the finding that an optional component is absent. Give a remedy if users may want to install it."""
    return Finding(subject, Verdict.NOTE, found, remedy)


def warning(subject: str, found: str, remedy: str) -> Finding:
    """Return the finding that a component is slow or may fail later."""
    return Finding(subject, Verdict.WARNING, found, remedy)


def failure(subject: str, found: str, remedy: str) -> Finding:
    """Return the finding that a component does not work."""
    return Finding(subject, Verdict.FAILURE, found, remedy)
