"""Rewards of the audit's table (`python -m benchmarks.audit` runs all of it): every answer as expected."""

import pytest

from benchmarks.audit import audit_all, every_entry, row
from tests.sampling import sampled

SAMPLE = (
    ("philosophers", "meals and 2 times released"),
    ("coding", "all tests or nothing"),
    ("coding", "a long helper, and a little for tests"),
    ("coding", "tests and calls of the helper"),
    ("coding", "fine, contract 1, tests 0.2, no more"),
    ("modules", "the default"),
    ("modules", "any system test, and unit tests"),
)


def test_there_are_enough_rewards_of_each_kind_and_their_names_differ():
    entries = every_entry()
    assert len({(task, entry.name) for task, entry in entries}) == len(entries) >= 60
    for label in ("bad", "sound"):
        assert sum(entry.label == label for _, entry in entries) >= 25


@pytest.mark.parametrize("entry_of", sampled(SAMPLE, 1, "the audit's table", "pipeline_lib"), ids=" ".join)
def test_the_audit_answers_as_expected(entry_of):
    task, name = entry_of
    chosen = [(other, entry) for other, entry in every_entry() if (other, entry.name) == (task, name)]
    [(_, entry, checks)] = audit_all(chosen)
    found = row(task, entry, checks)
    assert not found["wrong"], found
