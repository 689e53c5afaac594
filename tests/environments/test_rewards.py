"""Reward terms: golden values of both presets, and what no longer pays."""

import itertools

import pytest

from pipeline_lib.environment_api.reward import is_enough, total
from pipeline_lib.environments.coding.program import build_program
from pipeline_lib.environments.coding.rewards import Facts, PaperReward, Reward, SoundReward, Team, make_reward
from pipeline_lib.environments.coding.settings import (
    CodingSettings,
    FineCodingReward,
    PaperCodingReward,
    SoundCodingReward,
)
from pipeline_lib.environments.coding.task import CodingTask
from pipeline_lib.settings.environment import CustomReward

AUX = "def aux(x):\n    return x * 2"
USES = "def main(x):\n    return aux(x) + 1"
WRAPS = "def main(x):\n    dummy = 1\n    return aux(x)"
IGNORES = "def main(x):\n    aux(x)\n    return 3"
ALONE = "def main(x):\n    return x * 2  # aux(x)"
NO_VALUE = "def main(x):\n    print(x)"
BROKEN = "def main(x:\n    return aux(x)"

SOUND = SoundReward(SoundCodingReward(), "pair")
PAPER = PaperReward("pair")


def facts(helper, main, passed=0.0, **more):
    return Facts(build_program((helper, main), "main"), passed, **more)


def terms(structure, syntax, tests, cooperation):
    return pytest.approx({"structure": structure, "syntax": syntax, "tests": tests, "cooperation": cooperation})


@pytest.mark.parametrize("share", [0.5, 1.0])
@pytest.mark.parametrize("greatest", [4.0, 0.0, -1.0])
def test_the_greatest_reward_always_ends_an_episode(greatest: float, share: float):
    bounds = (-3.0, greatest)
    assert is_enough(greatest, bounds, share)
    assert is_enough(greatest - 1.6, bounds, share) == (greatest == 4 and share == 0.5)


@pytest.mark.parametrize(
    ("known", "expected"),
    [
        (facts(AUX, USES, 1.0, needs_helper=True), (0.4, 0.2, 1.0, 0.4)),
        (facts(AUX, USES, 0.5, needs_helper=True), (0.4, 0.2, 0.5, 0.4)),
        (facts(AUX, USES, 1.0), (0.4, 0.2, 1.0, 0.0)),  # called, but not needed
        (facts(AUX, ALONE, 1.0), (0.4, 0.2, 1.0, 0.0)),
        (facts(AUX, IGNORES, 0.5), (0.4, 0.2, 0.5, 0.0)),
        (facts(AUX, BROKEN), (0.2, 0.0, 0.0, 0.0)),
        (facts(AUX, NO_VALUE), (0.2, 0.2, 0.0, 0.0)),
        (facts("", USES), (0.2, 0.0, 0.0, 0.0)),
        (facts("", ""), (0.0, 0.0, 0.0, 0.0)),
    ],
)
def test_sound(known, expected):
    assert SOUND.terms(known) == terms(*expected)


@pytest.mark.parametrize(
    ("known", "expected"),
    [
        (facts(AUX, USES, 1.0), (1.0, 0.5, 1.0, 1.5)),  # the published maximum, 4.0
        (facts(AUX, USES, 0.25), (1.0, 0.5, 0.25, 1.5)),
        (facts(AUX, USES, 0.0), (1.0, 0.5, 0.0, 0.0)),  # no bonus before a test passes
        (facts(AUX, WRAPS, 1.0), (1.0, 0.5, 1.0, 0.5)),  # a dummy statement hides no wrapper
        (facts(AUX, IGNORES, 0.5), (1.0, 0.5, 0.5, 1.0)),  # the penalty applies
        (facts(AUX, ALONE, 1.0), (1.0, 0.5, 1.0, 0.0)),  # a comment is no call
        (facts(AUX, NO_VALUE, 0.0), (0.4, 0.0, 0.0, 0.0)),  # without a main function, no more
        (facts(AUX, BROKEN, 0.0), (0.4, 0.0, 0.0, 0.0)),
        (facts("def aux(x:", ALONE, 1.0), (0.6, 0.0, 0.0, 0.0)),  # what does not parse ends it
        (facts("x = 1", ALONE, 1.0), (0.6, 0.5, 1.0, 0.0)),  # the helper is optional
        (facts("x = 1", f"{AUX}\n{USES}", 1.0), (0.6, 0.5, 1.0, 0.0)),  # one's own aux is nobody's help
    ],
)
def test_paper(known, expected):
    assert PAPER.terms(known) == terms(*expected)


def test_published_maxima():
    assert PaperReward("pair").bounds == (0.0, 4.0)
    assert PaperReward("single").bounds == (0.0, 2.1)
    solo = Facts(build_program(("def main(x):\n    return x",), "main"), 1.0)
    assert total(PaperReward("single").terms(solo)) == pytest.approx(2.1)


@pytest.mark.parametrize("settings", [SoundCodingReward(), FineCodingReward(), PaperCodingReward()])
@pytest.mark.parametrize("team", ["pair", "single"])
def test_bounds_are_exact(settings, team):
    reward = make_reward(settings, team)
    found = set()
    texts = (AUX, "", "def aux(x:", USES, WRAPS, IGNORES, ALONE, NO_VALUE, BROKEN, "print(1)")
    for helper, main, passed, needs in itertools.product(texts, texts, (0.0, 0.5, 1.0), (False, True)):
        program = build_program((helper, main) if team == "pair" else (main,), "main")
        needed = needs and bool(program.ablated)
        more = (passed * needed, passed, float(program.roles[0].defined), float(needed))
        found.add(total(reward.terms(Facts(program, passed, 0.0, needed, *more))))
    assert (min(found), max(found)) == reward.bounds


def test_every_term_is_always_named():
    names = ["structure", "syntax", "tests", "cooperation"]
    for reward in (SOUND, PAPER):
        assert list(reward.terms(facts("", ""))) == names
        assert list(reward.terms(facts(AUX, USES, 1.0))) == names


def test_weights_are_used():
    weights = SoundCodingReward(structure=3, syntax=5, tests=7, cooperation=11)
    reward = SoundReward(weights, "pair")
    assert reward.terms(facts(AUX, USES, 0.5, needs_helper=True)) == terms(3, 5, 3.5, 11)
    assert reward.bounds == (0, 26)
    assert SoundReward(weights, "single").bounds == (0, 15)


@pytest.mark.parametrize(
    ("passed", "none", "expected"),
    [(1.0, 0.5, 1.0), (0.75, 0.5, 0.5), (0.5, 0.5, 0.0), (0.25, 0.5, 0.0), (0.7, 1.0, 0.7)],
)
def test_credit_above_a_program_that_returns_none(passed, none, expected):
    reward = SoundReward(SoundCodingReward(above_none=True), "pair")
    known = facts(AUX, USES, passed, passed_by_none=none)
    assert reward.needs_baseline
    assert reward.terms(known)["tests"] == pytest.approx(expected)
    assert SOUND.terms(known)["tests"] == passed
    assert not SOUND.needs_baseline


class OwnReward(Reward):
    """A reward of one's own: tests to a power, and what a team of two may earn beyond them."""

    def __init__(self, power: int, team: Team, together: float = 0.5) -> None:
        self.power, self.together = power, together if team == "pair" else 0.0
        self.bounds = (0.0, 1.0 + self.together)

    def terms(self, facts):
        return {"tests": facts.passed**self.power, "together": self.together * facts.needs_helper}


class NoBounds(Reward):
    """Forgets to say what it can be worth."""

    def terms(self, facts):
        return {}


def own(name="OwnReward", **options):
    return CustomReward(path=f"{__name__}:{name}", options=options)


def test_a_reward_of_ones_own_has_its_own_settings_terms_and_bounds():
    pair, single = make_reward(own(power=2), "pair"), make_reward(own(power="2", together=9), "single")
    assert pair.terms(facts(AUX, USES, 0.5, needs_helper=True)) == {"tests": 0.25, "together": 0.5}
    assert (pair.bounds, single.bounds) == ((0.0, 1.5), (0.0, 1.0))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (own(), "power: field required; its settings: power, together"),
        (own(power=1.5), "power: input should be a valid integer"),
        (own(power=1, team="pair"), "team: extra inputs"),
        (own("NoBounds"), "must set its attribute 'bounds'"),
        (own("facts"), "is function, which is not a reward"),
    ],
)
def test_mistakes_in_a_reward_of_ones_own_are_answered_in_words(settings, words):
    with pytest.raises(ValueError, match=words):
        make_reward(settings, "pair")


@pytest.mark.parametrize("settings", [SoundCodingReward(), FineCodingReward(), PaperCodingReward()])
def test_the_terms_said_to_be_a_teams_alone_are_those_that_a_single_agent_never_earns(settings):
    alone, pair = make_reward(settings, "single"), make_reward(settings, "pair")
    all_done = {"needs_helper": True, "helper_adds": 1.0, "passed_weighted": 1.0, "contract": 1.0, "killed": 1.0}
    known = [facts(*parts, 1.0, **all_done) for parts in itertools.product((AUX, ""), (USES, WRAPS, ALONE))]
    never = {name for name in pair.terms(known[0]) if not any(alone.terms(fact)[name] for fact in known)}
    task = CodingTask()
    assert set(task.team_terms(CodingSettings(reward=settings))) == never
    assert never == ({"contract", "mutation", "ablation"} if settings.kind == "fine" else {"cooperation"})
    assert not task.team_terms(CodingSettings(reward=settings, team="single"))
    assert set(task.terms(CodingSettings(reward=settings))) == set(pair.terms(known[0]))
