"""Samples of what is too much to run after every change: another one for every change of the sandbox.

The whole runs in the tests marked ``exhaustive``.  What a sample holds follows from the sandbox's source, so a commit
that touches it meets programs that the last one did not, and two runs of one commit meet the same.  Reproducers of
faults that were found late, one of each kind, are in every sample.
"""

import random

from tests import sampling
from tests.sandbox.corpus import FAMILIES, OwnTests, Program, corpus, own_tests

_SOURCE = "pipeline_lib/sandbox"

_REPRODUCERS = """
right_once_then_raise right_once_then_exit right_once_then_die suppressed_death returned_over_death
check_that_is_a_generator tests_that_nobody_runs either_of_two_asserts loop_that_runs_zero_times evalplus
skip_test_of_the_framework own_skip_test exception_named_like_a_builtin
changes_an_argument aliased_rows shared_default_argument cached_list honest_cache in_place_with_a_value
random_numbers_drawn_again range_of_a_thousand_million counter_of_a_thousand_million
decimal_with_a_large_exponent integer_of_200000_digits brackets_without_end
arithmetic_zero three_hundred_lists_kept callback_own_exception_passes_through
argument_that_holds_itself goes_on_changing_what_it_returned_after_an_object
"""
#: One program for each way in which a verdict was once earned by not being judged, or taken from an honest program.
REPRODUCERS = frozenset(_REPRODUCERS.split())
#: The same of the programs that are judged by the corpus' own tests.
_HOSTILE = frozenset({"killed_by_its_own_limit", "equal_to_all", "walk_frames", "loop_in_call", "disk_in_hidden_files"})


def draw(purpose: str) -> random.Random:
    """Return the chance by which the sample for ``purpose`` is drawn."""
    return sampling.draw(purpose, _SOURCE)


def some_of_corpus(purpose: str, each: int) -> list[Program]:
    """Return ``each`` programs of every family of the corpus, and the reproducers, in the corpus' order."""
    programs, chance = corpus(), draw(purpose)
    chosen = set(_HOSTILE)
    for family in FAMILIES:
        names = [program.name for program in programs if program.family == family]
        chosen.update(chance.sample(names, each))
    assert chosen <= {program.name for program in programs}
    return [program for program in programs if program.name in chosen]


def some_own_tests(purpose: str, count: int) -> list[OwnTests]:
    """Return the reproducers and ``count`` other programs with tests of their own, in the corpus' order."""
    programs = own_tests()
    names = [program.name for program in programs]
    assert set(names) >= REPRODUCERS
    chosen = REPRODUCERS | set(draw(purpose).sample([name for name in names if name not in REPRODUCERS], count))
    return [program for program in programs if program.name in chosen]
