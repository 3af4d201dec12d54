"""Learn the schema of the next samples from the batches so far."""

from __future__ import annotations

import pytest

from dali_like.engine.memory.schema_learner import SchemaLearner


def expectations(learner: SchemaLearner[str], batches: str) -> str:
    """Return the expectation after each batch. "?": the samples of a batch differ. "-": the learner expects nothing."""
    return "".join(learner.note(None if batch == "?" else batch) or "-" for batch in batches)


def test_first_batch_shows_the_schema():
    assert expectations(SchemaLearner(), "aaa") == "aaa"


def test_first_batch_with_different_samples_shows_no_schema():
    assert expectations(SchemaLearner(trust=2), "?aa") == "--a"


def test_expectation_follows_each_batch_by_default():
    assert expectations(SchemaLearner(), "ab?b") == "ab-b"


@pytest.mark.parametrize(
    ("batches", "expected"),
    [
        ("abbb", "a--b"),
        ("a?bbb", "a---b"),
        ("abaab", "a----"),  # as many of each, but never three in a row
        ("ab?bb", "a----"),
        ("abbbbabbb", "a--bb---b"),
    ],
)
def test_expectation_returns_after_the_trusted_number_of_batches_in_a_row(batches, expected):
    assert expectations(SchemaLearner(trust=3), batches) == expected


@pytest.mark.parametrize(("batches", "expected"), [("abb", "aa-"), ("abaaaab", "aaaaaaa"), ("ababb", "aaaa-")])
def test_expectation_outlives_differences_that_cost_less_than_the_limit(batches, expected):
    assert expectations(SchemaLearner(trust=3, cost=4, most_costs=8), batches) == expected


def test_dropped_expectation_needs_trust_again():
    learner = SchemaLearner[str](trust=2)
    learner.note("a")

    learner.drop()

    assert expectations(learner, "aa") == "-a"


def test_known_schema_is_expected_before_the_first_batch():
    learner = SchemaLearner[str](trust=2)

    learner.begin("a")

    assert learner.expected == "a"
    assert expectations(learner, "bb") == "-b"


def test_learner_that_begins_again_takes_the_schema_of_the_next_batch():
    learner = SchemaLearner[str](trust=2)
    learner.note("a")

    learner.begin(None)

    assert expectations(learner, "b") == "b"
