"""Messages with file descriptors between the main process and its forkservers."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

import pytest

from dali_like.engine.memory.descriptor_messages import as_socket, receive, send, socket_pair
from dali_like.engine.memory.descriptors import Descriptor


@pytest.fixture
def ends() -> Iterator[tuple[Descriptor, Descriptor]]:
    """The two ends of a pair of sockets."""
    ours, theirs = socket_pair()
    with contextlib.closing(ours), contextlib.closing(theirs):
        yield ours, theirs


def test_messages_arrive_whole_and_in_order_with_their_descriptors(ends: tuple[Descriptor, Descriptor]) -> None:
    read, write = os.pipe()
    with as_socket(ends[0]) as ours, as_socket(ends[1]) as theirs:
        send(ours, b"none")
        send(ours, b"two", [read, write])

        assert receive(theirs, 100, 2) == (b"none", [])
        message, (got_read, got_write) = receive(theirs, 100, 2)

    assert message == b"two"
    os.write(got_write, b"through")
    assert os.read(got_read, 100) == b"through"
    for fd in (read, write, got_read, got_write):
        os.close(fd)


def test_received_descriptors_are_not_inherited(ends: tuple[Descriptor, Descriptor]) -> None:
    with as_socket(ends[0]) as ours, as_socket(ends[1]) as theirs:
        send(ours, b"own", [ends[0].fileno()])
        _, (copy,) = receive(theirs, 100, 1)

    assert not os.get_inheritable(copy)
    os.close(copy)


def test_the_end_of_the_other_side_is_an_empty_message(ends: tuple[Descriptor, Descriptor]) -> None:
    ends[0].close()

    with as_socket(ends[1]) as theirs:
        assert receive(theirs, 100, 1) == (b"", [])


def test_a_socket_that_does_not_block_raises_without_a_message(ends: tuple[Descriptor, Descriptor]) -> None:
    with as_socket(ends[1], blocking=False) as theirs, pytest.raises(BlockingIOError):
        receive(theirs, 100, 1)
