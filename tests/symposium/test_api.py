"""`import symposium` as a user has it: from an environment of one's own to a comparison, with the chain's guards."""

import inspect
import math
import shutil
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from apart import Apart
from rendezvous import Rendezvous

import symposium
from pipeline_lib.assembly.auditing import audit_team
from pipeline_lib.environment_api.metrics import with_reward
from pipeline_lib.environment_api.registry import task_class
from pipeline_lib.settings import SettingsError
from symposium.results import Evaluation
from symposium.teams import Team, setup_of

TINY: dict[str, Any] = {
    "problems": {"sizes": {"train": 48, "validation": 16, "test": 12}},
    "policy": {
        "hidden_size": 32, "mlp_size": 64, "vocabulary": 280, "context": 64, "warm_start": {"steps": 60, "batch": 16},
    },
    "rollouts": {"max_new_tokens": 1},
    "audit": {"problems": 6},
    "train": {"steps": 10, "checkpoint_every": 5, "problems_per_step": 16, "learning_rate": 5e-3},
    "evaluate": {"baselines": [], "pass_k": [1, 2]},
    "verdict": {"resamples": 500},
}  # fmt: skip


class Balanced(HTMLParser):
    """Complains of elements that are not closed."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        if tag not in ("br", "progress"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: Any) -> None:
        """Nothing stays open."""

    def handle_endtag(self, tag: str) -> None:
        if tag != "progress":
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def shown(result: Any) -> str:
    """Return the text that a notebook shows, from HTML in which everything is closed."""
    parser = Balanced()
    parser.feed(result._repr_html_())
    assert not parser.open
    return parser.text


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("lab")


@pytest.fixture(scope="module")
def experiment(lab: Path) -> symposium.Experiment:
    return symposium.Experiment(lab, Rendezvous, **TINY)


@pytest.fixture(scope="module")
def run(experiment: symposium.Experiment) -> symposium.TrainingRun:
    return symposium.train(experiment)


@pytest.fixture(scope="module")
def checkpoints(run: symposium.TrainingRun) -> symposium.Checkpoints:
    return symposium.sweep(run)


def test_the_audit_and_the_run_are_shown_with_their_numbers(
    experiment: symposium.Experiment, run: symposium.TrainingRun
) -> None:
    audit = symposium.audit(experiment)
    assert audit.passed and "both at x" in shown(audit) and audit.result.summary in shown(audit)
    assert run.steps == (0, 5, 10) and [row["step"] for row in run.rows] == list(range(1, 11))
    assert "meetings" in shown(run) and "<svg" in run._repr_html_()
    assert run.learning._repr_svg_().startswith("<svg")
    assert run.override == "" and "although" not in shown(run)


def test_the_audit_tells_how_many_teams_it_lets_play(experiment: symposium.Experiment) -> None:
    small = {"hidden_size": 32, "mlp_size": 64, "warm_start": {"steps": 2, "batch": 4}}
    few = {"train": 48, "validation": 16, "test": 12}
    coding = symposium.Experiment(
        experiment.folder, "coding", policy=small, problems={"sizes": few}, audit={"problems": 2, "group_size": 2}
    )
    told: list[tuple[int, int, str]] = []
    for made in (experiment, coding):
        audit_team(setup_of(made), lambda *report: told.append(report))
    names = ("base policy", "base policy", "helper alone", "main alone", "single agent")
    for expected in (
        [(done, 1, "base policy") for done in (0, 1)],
        [(done, 4, text) for done, text in enumerate(names)],
    ):
        assert any(told[start : start + len(expected)] == expected for start in range(len(told)))


def test_what_was_made_is_there_and_is_not_made_again(
    lab: Path, run: symposium.TrainingRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    from symposium import training

    def never(*arguments: Any, **more: Any) -> None:
        raise AssertionError("it was trained again")

    monkeypatch.setattr(training, "train_team", never)
    again = symposium.train(symposium.Experiment(lab, Rendezvous, **TINY))
    assert (again.folder, again.rows) == (run.folder, run.rows)
    other = {**TINY, "train": {**TINY["train"], "learning_rate": 4e-3}}
    with pytest.raises(AssertionError, match="trained again"):
        symposium.train(symposium.Experiment(lab, Rendezvous, **other))


def test_a_sweep_selects_by_the_rule_and_a_comparison_says_where_it_was_made(
    run: symposium.TrainingRun, checkpoints: symposium.Checkpoints
) -> None:
    means = {step: one.means["met"] for step, one in checkpoints.evaluations[0].items()}
    (selected,) = checkpoints.selected
    assert means[selected.team.step] == max(means.values())
    assert "selected" in shown(checkpoints)
    found = symposium.compare(selected, checkpoints.base)
    assert found.result.problems == 16 and found.verdict in ("IMPROVED", "INCONCLUSIVE")
    assert found.result.difference.estimate == pytest.approx(selected.means["met"] - checkpoints.base.means["met"])
    for text in ("on 16 validation problems", "A claim needs the chain's test on held-out problems"):
        assert text in found.sentence and text in shown(found)
    with pytest.raises(ValueError, match="same training seed"):
        symposium.compare([selected, selected], checkpoints.base)
    with pytest.raises(ValueError, match="same seed"):
        symposium.sweep(run, run)


def test_an_evaluation_is_paired_by_its_seed_and_shows_what_was_said(checkpoints: symposium.Checkpoints) -> None:
    base = checkpoints.base
    again = symposium.evaluate(base.team)
    assert [one.to_json() for one in again.episodes] == [one.to_json() for one in base.episodes]
    assert symposium.evaluate(base.team, samples=1, seed=7).episodes[0] != base.episodes[0]
    first = base.episodes[0].shown
    assert first is not None and f"left of {first['told'][0].removeprefix('left of ')}" in shown(base)
    assert set(base.means) >= {"reward", "met", "pass@2"} and 0 < sum(base.schemes.values()) <= 1


def test_a_plan_needs_more_problems_for_smaller_differences(checkpoints: symposium.Checkpoints) -> None:
    found = symposium.plan(checkpoints.selected, checkpoints.base, (0.1, 0.2), samples=(4,), runs=(1,))
    small, large = (row["problems"] for row in found.rows)
    assert small > large > 0 and f"{small:,}" in shown(found)
    corrected = symposium.plan(checkpoints.selected, checkpoints.base, (0.1,), samples=(4,), runs=(1,), comparisons=4)
    assert corrected.rows[0]["problems"] > small


def test_without_a_declared_range_a_plan_and_a_comparison_say_that_there_is_no_verdict(
    checkpoints: symposium.Checkpoints, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same episodes, of which the one and only change is that the class declares no range of its metric."""
    teams = checkpoints.selected, checkpoints.base
    assert symposium.plan(*teams, (0.1,)).caveat == "" and "No range" not in str(symposium.compare(*teams))
    monkeypatch.setattr(Rendezvous, "measures", {"met": symposium.Metric("meetings")})
    planned, compared = symposium.plan(*teams, (0.1,)), symposium.compare(*teams)
    assert compared.verdict == "INCONCLUSIVE"
    for told in (planned, compared):
        assert "No range of meetings is declared" in repr(told) and "No range of meetings" in shown(told)


def test_the_test_split_cannot_be_looked_at(experiment: symposium.Experiment) -> None:
    from pipeline_lib.problems.splits import load_split

    with pytest.raises(ValueError, match="git counts every look"):
        experiment.problems("test")
    hidden = load_split(experiment.problems_folder(), "test")[:1]
    with pytest.raises(ValueError, match="a problem of the test split"):
        symposium.evaluate(symposium.load_team(experiment), problems=hidden)


@pytest.mark.drawn("comparisons of the API", "symposium")
def test_a_reward_that_the_audit_refuses_is_trained_on_for_a_reason_only_which_is_shown(lab: Path) -> None:
    few = {**TINY, "train": {**TINY["train"], "steps": 1, "checkpoint_every": 1}}
    refused = symposium.Experiment(lab, Apart, **few)
    audit = symposium.audit(refused)
    assert not audit.passed and "apart" in shown(audit)
    with pytest.raises(SettingsError, match=r"reward audit failed.*audit\.override"):
        symposium.train(refused)
    reason = {**few, "audit": {**few["audit"], "override": "to see it fail"}}
    run = symposium.train(symposium.Experiment(lab, Apart, **reason))
    assert run.override == "to see it fail" and "because: to see it fail" in shown(run)


def test_a_checkpoint_is_named_by_its_step_and_verified(run: symposium.TrainingRun, lab: Path, tmp_path: Path) -> None:
    for step in (None, 7):
        with pytest.raises(ValueError, match="it has: 0, 5, 10"):
            symposium.load_team(run, step)
    with pytest.raises(ValueError, match="untrained"):
        symposium.load_team(run.experiment, 5)
    team = symposium.load_team(run, 5)
    assert team.checkpoint is not None
    with team.open() as player:
        assert set(player.team.policies) == {"left", "right"}
    copy = tmp_path / "copy"
    shutil.copytree(run.folder, copy)
    weights = next((copy / "step-00005").rglob("*.safetensors"))
    weights.write_bytes(weights.read_bytes()[:-1] + b"x")
    import dataclasses

    with pytest.raises(Exception, match="damaged"):
        symposium.load_team(dataclasses.replace(run, folder=copy), 5)


def test_an_environment_must_have_a_source_and_run_as_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    typed = type("Typed", (Rendezvous,), {"__module__": "__main__"})
    with pytest.raises(SettingsError, match="%%writefile"):
        symposium.Experiment(tmp_path, typed)
    source = Path(inspect.getsourcefile(Rendezvous) or "")
    (tmp_path / "edited_task.py").write_text(source.read_text())
    monkeypatch.syspath_prepend(str(tmp_path))
    task_class.cache_clear()
    made = symposium.Experiment(tmp_path / "lab", "edited_task:Rendezvous", **TINY)
    before = made.place("anything")
    (tmp_path / "edited_task.py").write_text(source.read_text() + "\n# a comment\n")
    assert made.place("anything") == before
    (tmp_path / "edited_task.py").write_text(source.read_text().replace("0.2 *", "0.3 *"))
    with pytest.raises(SettingsError, match="restart"):
        made.place("anything")


def test_presets_are_known_by_name_and_every_given_value_counts(tmp_path: Path) -> None:
    made = symposium.Experiment(tmp_path, "philosophers", train={"steps": 60}, policy={"warm_start": {"batch": 8}})
    params = made.params
    assert (params.environment.kind, params.problems.kind) == ("philosophers", "scenarios")
    assert params.train.steps == 60, "the default, and not the 80 of the preset that comes along"
    assert params.train.schedule == "cosine", "of the preset that comes along"
    assert (params.policy.warm_start.batch, params.policy.warm_start.steps) == (8, 150)
    with pytest.raises(SettingsError, match=r"settings: train\.stpes: unknown key"):
        symposium.Experiment(tmp_path, "philosophers", train={"stpes": 60})
    with pytest.raises(SettingsError, match="no environment 'philosopher'"):
        symposium.Experiment(tmp_path, "philosopher")


def test_every_name_is_documented_and_has_a_home() -> None:
    assert set(symposium.__all__) == set(symposium._HOMES) <= set(dir(symposium))
    for name in symposium.__all__:
        value = getattr(symposium, name)
        assert value.__doc__ and value.__doc__.strip().endswith("."), name
        for member, function in inspect.getmembers(value, inspect.isfunction) if inspect.isclass(value) else ():
            if not member.startswith("_") and function.__module__.startswith("symposium"):
                assert function.__doc__, f"{name}.{member}"
    with pytest.raises(AttributeError, match="no attribute 'trian'"):
        symposium.trian  # noqa: B018


@pytest.mark.drawn("comparisons of the API", "symposium")
def test_a_comparison_says_which_problems_it_was_made_on(
    experiment: symposium.Experiment, run: symposium.TrainingRun
) -> None:
    def on(problems: list[Any]) -> str:
        teams = symposium.load_team(run, 10), symposium.load_team(experiment)
        return symposium.compare(*(symposium.evaluate(team, samples=2, problems=problems) for team in teams)).sentence

    train, validation = experiment.problems("train")[:8], experiment.problems()[:8]
    assert "on 8 training problems" in on(train) and "These are training problems" in on(train)
    assert "on 16 chosen problems" in on(train + validation) and "chosen by hand" in on(train + validation)


def test_teams_that_were_judged_differently_are_not_compared(
    experiment: symposium.Experiment, checkpoints: symposium.Checkpoints
) -> None:
    strict = symposium.Experiment(experiment.folder, Rendezvous, **TINY, sandbox={"limits": {"cpu_s": 1.0}})
    strange = Evaluation(Team(strict), checkpoints.base.episodes)
    with pytest.raises(ValueError, match="differ in sandbox"):
        symposium.compare(checkpoints.selected, strange)


def test_what_cannot_be_computed_is_refused(
    experiment: symposium.Experiment, checkpoints: symposium.Checkpoints
) -> None:
    for seed in (-1, True, 1.0, "0"):
        with pytest.raises(ValueError, match="must be an integer of at least 0"):
            symposium.train(experiment, seed)  # type: ignore[arg-type]
    for wrong in ({"samples": (0,)}, {"runs": (0,)}, {"comparisons": 0}):
        with pytest.raises(ValueError, match="must be an integer of at least 1"):
            symposium.plan(checkpoints.selected, checkpoints.base, **wrong)  # type: ignore[arg-type]
    with pytest.raises(SettingsError, match=r"train: got \[1\]"):
        symposium.Experiment(experiment.folder, Rendezvous, train=[1])  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="'higher' or 'lower'"):
        symposium.Metric("speed", better="up")  # type: ignore[arg-type]
    for low, high in ((0.0, math.inf), (-math.inf, None), (math.nan, 1.0)):
        with pytest.raises(ValueError, match="is no range; leave out an end that there is not"):
            symposium.Metric("speed", low=low, high=high)
    with pytest.raises(ValueError, match="speed: low is 2, which must be below high, 2"):
        symposium.Metric("speed", low=2.0, high=2.0)
    for ends in ((-math.inf, math.inf), (0.0, 0.0), (math.nan, 1.0)):
        assert with_reward({}, *ends) == {}, "such bounds of a reward are no range"


def test_a_mixed_up_argument_is_refused_with_what_was_given_and_what_is_accepted(
    experiment: symposium.Experiment, checkpoints: symposium.Checkpoints
) -> None:
    def refused(kind: type[Exception], words: str, call: Callable[..., object], *given: Any, **more: Any) -> None:
        with pytest.raises(kind, match=words):
            call(*given, **more)

    base = checkpoints.base
    refused(TypeError, "folder is None; it must be a path", symposium.Experiment, None, Rendezvous)
    with pytest.raises(TypeError, match=r"trian is no section of the settings; accepted: problems, .*, train, "):
        symposium.Experiment("lab", Rendezvous, trian={"steps": 1})
    for call in (symposium.audit, symposium.train):
        refused(TypeError, "experiment is 'lab'; it must be an experiment", call, "lab")
    refused(TypeError, r"run is Experiment\(.*; it must be a run of `symposium.train`", symposium.sweep, experiment)
    refused(TypeError, r"run is \[\]; .*sweep\(\*runs\)", symposium.sweep, [])
    refused(TypeError, "source is None; it must be an experiment.* or a path", symposium.load_team, None)
    refused(ValueError, "team is 'champion', but only", symposium.load_team, experiment, team="champion")
    for nothing in (None, experiment):
        refused(TypeError, "team is .*; it must be a team of `symposium.load_team`", symposium.evaluate, nothing)
    for wrong in ({"samples": "2"}, {"samples": 0}, {"seed": "x"}, {"seed": -1}):
        refused(ValueError, "must be an integer of at least", symposium.evaluate, base.team, **wrong)
    refused(TypeError, "problem is 'x'; it must be one of", symposium.evaluate, base.team, problems=["x"])
    refused(ValueError, "problems is empty", symposium.evaluate, base.team, problems=[])
    refused(ValueError, "evaluations is empty", symposium.compare, [], base)
    refused(TypeError, "None is no evaluation", symposium.compare, None, base)
    refused(TypeError, "evaluation is .*; it must be a result", symposium.compare, [experiment], base)
    refused(TypeError, "differences is 0.1; it must be a list", symposium.plan, base, base, 0.1)
    refused(TypeError, "difference is '1'; it must be a number", symposium.plan, base, base, ["1"])
