"""Episodes in the form in which they become traces."""

import dataclasses
import json

from pipeline_lib.environments.coding.task import METRICS
from pipeline_lib.evaluation.episodes import EpisodeRecord
from pipeline_lib.report.viewer import MOST_TEXT, PROBLEMS, TestedTeam, traced
from tests.report.build import experiment, shown, to_read


def with_samples(record: EpisodeRecord) -> EpisodeRecord:
    kept = {**(record.shown or shown("x", False)), "sampled": [[["helper", 3, -1.5], ["main", 9, -0.25]]]}
    return dataclasses.replace(record, shown=kept)


def test_the_first_episodes_of_base_and_selected_team_are_told_action_by_action() -> None:
    teams = [
        dataclasses.replace(team, episodes=[with_samples(record) for record in team.episodes]) for team in to_read()
    ]
    found = traced("brave-owl", teams, "tests_passed", experiment().info, METRICS)
    assert [(one["team"], one["problem"], one["sample"]) for one in found] == [
        (team, f"p{number}", 0) for team in ("base", "selected seed 0") for number in range(3)
    ]
    assert json.loads(json.dumps(found)) == found and len({one["id"] for one in found}) == 6
    first, record = found[3], teams[1].episodes[0]
    assert first["actions"] == [
        {
            "agent": agent,
            "turn": 0,
            "prompt": record.shown["told"][place],
            "text": record.shown["turns"][0][place],
            "tokens": tokens,
            "log_probability": logprob,
        }
        for place, (agent, tokens, logprob) in enumerate([("helper", 3, -1.5), ("main", 9, -0.25)])
    ]
    assert first["feedback"]["reward"] == record.reward and first["feedback"]["tests_passed"] == 0.5
    assert {name: value for name, value in first["feedback"].items() if name.startswith("reward: ")} == {
        f"reward: {name}": value for name, value in record.terms.items()
    }
    assert [one["feedback"]["verdict"] for one in found[3:]] == ["failure", "success", "failure"]


def test_a_changed_episode_has_another_identity_and_long_texts_are_cut() -> None:
    record = with_samples(to_read()[0].episodes[0])
    other = dataclasses.replace(record, shown={**record.shown, "turns": [["x" * (2 * MOST_TEXT), ""]]})
    one, two = (
        traced("owl", [TestedTeam("base", None, None, [kept])], "tests_passed", experiment().info, METRICS)[0]
        for kept in (record, other)
    )
    assert one["id"] != two["id"] and len(two["actions"][0]["text"]) == MOST_TEXT


def test_a_lost_episode_says_so_and_several_rounds_are_told_in_their_order() -> None:
    seen = [
        [
            {"agent": agent, "prompt": [["task", f"{agent} "], ["", f"in round {number}"]], "answer": f"{number}"}
            for number in range(2)
            for agent in ("helper", "main")
        ]
    ]
    sampled = [[[agent, 1, -1.0] for _ in range(2) for agent in ("helper", "main")]]
    kept = {**shown("x", False), "seen": seen, "sampled": sampled}
    record = dataclasses.replace(to_read()[0].episodes[0], reward=None, terms={}, metrics={}, shown=kept)
    (told,) = traced("owl", [TestedTeam("base", None, None, [record])], "tests_passed", experiment().info, METRICS)
    assert told["feedback"] == {"verdict": "lost"}
    assert [(action["prompt"], action["text"]) for action in told["actions"]] == [
        ("helper in round 0", "0"), ("main in round 0", "0"), ("helper in round 1", "1"), ("main in round 1", "1"),
    ]  # fmt: skip


def test_a_few_problems_are_enough() -> None:
    (team, *_) = to_read()
    many = [dataclasses.replace(with_samples(team.episodes[0]), problem=f"q{number}") for number in range(30)]
    found = traced("owl", [TestedTeam("base", None, None, many)], "tests_passed", experiment().info, METRICS)
    assert len(found) == PROBLEMS
