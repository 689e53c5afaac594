"""A history that does not fit into a policy's context is cut from the oldest turn on, and what was cut is counted."""

import pytest

from pipeline_lib.evaluation.run import evaluate_team
from pipeline_lib.play import Player, paired
from pipeline_lib.rollouts import EngineError
from pipeline_lib.training.summary import experience_metrics
from tests.protocols.world import SAMPLING, Listening, Talk, Talking, TalkState, make_team

LONG = 300
CONTEXT = 1024  # of the model in tests.protocols.world, whose tokens are bytes


class Telling(Talking):
    """Talking that shows a page for every turn so far, the oldest first."""

    def observe(self, state: TalkState, agent: int) -> str:
        return self._shown(state, agent, 0)

    def shortened(self, state: TalkState, agent: int, cut: int) -> str | None:
        return self._shown(state, agent, cut) if cut < len(state.said) else None

    def _shown(self, state: TalkState, agent: int, cut: int) -> str:
        pages = [f"{turn}" * LONG for turn in range(cut, len(state.said))]
        return f"{state.problem.speakers[agent]}:" + "".join(pages)


def test_the_oldest_turns_are_cut_until_an_action_fits_and_they_are_counted() -> None:
    team, engine = make_team("one", "two"), Listening()
    engine.load(team.policies)
    player = Player(Telling(), team, engine, SAMPLING)
    experience = player.play(paired([Talk("a", turns=6)], 1, 1))
    seen = [[text.split(":")[1] for _, text, _ in call] for call in engine.calls]
    pages = ["", "0", "01", "012", "123", "234"]  # three pages and an action fit
    assert [{"".join(dict.fromkeys(text)) for text in texts} for texts in seen] == [{page} for page in pages]
    assert all(len(text) + SAMPLING.max_new_tokens <= CONTEXT for call in engine.calls for _, text, _ in call)
    assert [(d.cut_turns, d.cut_tokens) for d in experience.decisions] == [
        *[(0, 0)] * 4,
        (2 * 1, 2 * LONG),
        (2 * 2, 2 * 2 * LONG),
    ]
    metrics = experience_metrics(experience, [], 0.0)
    assert (metrics["observations/cut_turns"], metrics["observations/cut_tokens"]) == (6, 6 * LONG)
    (record,) = evaluate_team(player, [Talk("a", turns=6)], 1, 1)
    assert (record.details["cut_turns"], record.details["cut_tokens"]) == (6, 6 * LONG)


def test_what_needs_no_cut_stays_as_it_is() -> None:
    team, engine = make_team("one", "two"), Listening()
    engine.load(team.policies)
    short = Player(Telling(), team, engine, SAMPLING).play(paired([Talk("a", turns=3)], 1, 1))
    assert not any(decision.cut_turns or decision.cut_tokens for decision in short.decisions)


def test_an_agent_writes_nothing_where_a_later_turn_leaves_no_room() -> None:
    class Fixed(Telling):
        def shortened(self, state: TalkState, agent: int, cut: int) -> str | None:
            return None

    team, engine = make_team("one", "two"), Listening()
    engine.load(team.policies)
    found = Player(Fixed(), team, engine, SAMPLING).play(paired([Talk("a", turns=6)], 1, 1)).decisions
    assert [(len(decision.actions), decision.unread) for decision in found] == [(2, 0)] * 4 + [(0, 2)] * 2
    assert all(len(prompt) < CONTEXT for decision in found for prompt in decision.prompts)

    class Long(Fixed):
        def observe(self, state: TalkState, agent: int) -> str:
            return "a" * CONTEXT

    with pytest.raises(EngineError, match="shorten the observation"):
        Player(Long(), team, engine, SAMPLING).play(paired([Talk("a", turns=6)], 1, 1))
