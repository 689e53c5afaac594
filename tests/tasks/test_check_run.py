"""A run that could not end well is refused before its first stage works, by the one check that every door calls."""

import importlib.util
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from flows.experiment import change
from pipeline_lib.settings import Params, SettingsError, load_params
from tasks.experiment.arms import SINGLE, TEAM, planned_seeds
from tasks.experiment.check_run import check_run
from tasks.identity.files import changed_identities, write_identities

ROOT = Path(__file__).parents[2]
EXPERT = {"kind": "coding", "turns": 2, "feedback": ["expert"], "expert": {"url": "http://a", "model": "m"}}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "conf").symlink_to(ROOT / "conf")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def settings(**sections: Any) -> Params:
    """Write the shipped settings with these sections; return what they resolve to."""
    shipped = yaml.safe_load((ROOT / "params.yaml").read_text())
    Path("params.yaml").write_text(yaml.safe_dump(shipped | sections))
    return load_params()


@pytest.mark.parametrize(
    ("sections", "said"),
    [
        ({"problems": {"kind": "humaneval", "source": "six.jsonl"}}, "policy.kind: the embedded model cannot play"),
        ({"environment": "modules-classeval"}, "no demonstrations of problems of kind"),
        ({"rollouts": "vllm", "policy": "qwen2.5-coder-3b-lora"}, "rollouts.python: there is no program"),
        (
            {"environment": {**EXPERT, "expert": {**EXPERT["expert"], "key_variable": "NO_SUCH_KEY"}}},
            "environment.expert.key_variable: the environment variable NO_SUCH_KEY is not set",
        ),
        (
            {
                "policy": {
                    "kind": "embedded",
                    "agents": {"main": {"server": {"url": "http://a", "model": "m", "key_variable": "NO_SUCH_KEY"}}},
                }
            },
            "policy.agents.main.server.key_variable: the environment variable NO_SUCH_KEY is not set",
        ),
    ],
)
def test_what_would_fail_in_a_later_stage_is_refused_first(project: Path, sections: dict[str, Any], said: str):
    params = settings(**sections)
    for door in (lambda: check_run(params), write_identities, changed_identities):
        with pytest.raises(SettingsError, match=said):
            door()
    assert not (project / "results").exists()


@pytest.mark.parametrize(
    ("path", "options", "said"),
    [
        ("own_rewards:Mine", {"power": "two"}, "environment.reward.options: own_rewards:Mine does not take .*power"),
        ("own_rewards:Mine", {"power": 1, "more": 1}, "environment.reward.options: own_rewards:Mine does not take"),
        ("own_rewards:Nope", {}, "environment.reward.path: cannot find 'own_rewards:Nope'"),
        ("no_such_module:X", {}, "environment.reward.path: cannot find 'no_such_module:X'"),
        ("os:getcwd", {}, "environment.reward.path: os:getcwd is .*which is not a reward"),
        ("broken_rewards:X", {}, "environment.reward.path: broken_rewards:X: SyntaxError"),
        ("exiting_rewards:X", {}, "environment.reward.path: exiting_rewards:X: SystemExit: 0"),
        ("raising_rewards:X", {}, "environment.reward.path: raising_rewards:X: ValueError: boom"),
    ],
)
def test_a_reward_that_cannot_be_made_is_refused_before_anything_is_written(
    project: Path, monkeypatch: pytest.MonkeyPatch, path: str, options: dict[str, Any], said: str
):
    monkeypatch.syspath_prepend(str(project))
    (project / "own_rewards.py").write_text(
        "from pipeline_lib.environments.coding.rewards import Reward\n\n\nclass Mine(Reward):\n"
        "    def __init__(self, power: int) -> None:\n        self.bounds = (0.0, float(power))\n\n"
        "    def terms(self, facts):\n        return {'tests': facts.passed}\n"
    )
    (project / "broken_rewards.py").write_text("class X(:\n")
    (project / "exiting_rewards.py").write_text("import sys\n\nsys.exit(0)\n")
    (project / "raising_rewards.py").write_text("raise ValueError('boom')\n")
    settings()
    written = Path("params.yaml").read_bytes()
    reward = json.dumps({"kind": "custom", "path": path, "options": options})
    with pytest.raises(SettingsError, match=said):
        change([f"environment.reward={reward}"], [])
    assert Path("params.yaml").read_bytes() == written
    change(['environment.reward={kind: custom, path: "own_rewards:Mine", options: {power: 1}}'], [])
    assert Path("params.yaml").read_bytes() != written


@pytest.mark.parametrize(
    ("environment", "path"),
    [
        ("philosophers", "meals_rewards:Meals"),
        ("writing", "writing_rewards:Told"),
        ("documents", "documents_rewards:Own"),
        ("documents-tools", "documents_rewards:Own"),
        ("planning", "planning_rewards:Own"),
        ("modules", "modules_rewards:SystemOnly"),
    ],
)
def test_a_reward_that_can_be_made_is_accepted_in_every_environment(
    project: Path, monkeypatch: pytest.MonkeyPatch, environment: str, path: str
):
    monkeypatch.syspath_prepend(str(project))
    monkeypatch.syspath_prepend(str(ROOT / "tests/environments/own_rewards"))
    (project / "meals_rewards.py").write_text(
        "from pipeline_lib.environments.philosophers.rewards import Reward\n\n\nclass Meals(Reward):\n"
        "    bounds = (0.0, 1.0)\n\n    def terms(self, summary):\n        return {'meals': summary.share}\n"
    )
    check_run(settings(environment={"preset": environment, "reward": {"kind": "custom", "path": path}}))


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ("./nowhere", "policy.models: './nowhere': no such folder"),
        ("/nowhere/model", "policy.models: '/nowhere/model': no such folder"),
        ("a/b/c", "policy.models: 'a/b/c': no such folder"),
        ("a b", "policy.models: 'a b': no such folder"),
        ("modèle/ü", "policy.models: 'modèle/ü': no such folder"),
        ("", "policy.models: '': no such folder"),
        ("empty", "policy.models: empty: the folder has no config.json file"),
        ("empty", "policy.models: empty: the folder has no *.safetensors file"),
    ],
)
def test_a_model_that_is_not_there_is_refused_first(project: Path, model: str, said: str):
    (project / "empty").mkdir()
    params = settings(policy={"kind": "pretrained", "models": [model]}, audit={"override": "no reason"})
    with pytest.raises(SettingsError, match=re.escape(said)):
        check_run(params)


@pytest.mark.parametrize("sections", [{"evaluate": {"ray": {"cpus": 2}}}, {"sandbox": {"kind": "ray"}}], ids=str)
def test_a_missing_ray_is_told_before_anything_is_trained(
    project: Path, sections: dict[str, Any], monkeypatch: pytest.MonkeyPatch
):
    found = importlib.util.find_spec
    there: dict[str, Any] = {"ray": True}
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *more: there["ray"] if name == "ray" else found(name, *more)
    )
    check_run(settings(**sections))
    there["ray"] = None
    with pytest.raises(SettingsError, match="Ray is not installed: pip install"):
        check_run(settings(**sections))


def test_a_reason_in_the_override_lets_the_embedded_model_try(project: Path):
    check_run(settings(problems="humaneval", audit={"override": "to see what happens"}))


def test_the_shipped_settings_pass_and_plan_their_seeds(project: Path):
    check_run(settings())
    assert (planned_seeds(TEAM), planned_seeds(SINGLE)) == ((0, 1, 2), (0,))


@pytest.mark.parametrize("preset", sorted(path.stem for path in (ROOT / "conf/environment").glob("*.yaml")))
def test_every_preset_for_the_embedded_model_passes(project: Path, preset: str):
    sections = {"policy": "qwen2.5-coder-3b-lora"} if preset in ("dpbench", "modules-classeval") else {}
    check_run(settings(environment=preset, **sections))


def test_the_published_reward_of_writing_passes_until_the_audit(project: Path):
    check_run(settings(environment={"preset": "writing", "reward": {"kind": "paper"}}))


MINE = """
import symposium


class Rendezvous(symposium.TextTask):
    agents = ("left", "right")
    measures = {"met": symposium.Metric("meetings", share=True, solves=True)}
    reward_bounds = (0.0, 1.2)

    def draw(self, rng):
        return "".join(rng.choices("abcdef", k=5))

    def observe(self, text, agent):
        return f"{agent} of {text}:"

    def score(self, text, actions):
        return symposium.Score({"met": 0.0}, {"met": 0.0})

    def teams(self, text):
        return {"both at x": ("working", ["x", "x"]), "apart": ("degenerate", ["x", "y"])}
"""


def test_an_environment_of_ones_own_needs_its_kind_alone(project: Path, monkeypatch: pytest.MonkeyPatch):
    """No single-agent form: nobody asked for that baseline, so it is left out; who asks for it is refused at once."""
    (project / "mine_of_checks.py").write_text(MINE)
    monkeypatch.syspath_prepend(str(project))
    kind = {"kind": "mine_of_checks:Rendezvous"}
    try:
        params = settings(environment=kind)
        assert params.seeds.single_agent == ()
        with pytest.raises(SettingsError, match="has no method `example`"):
            check_run(params)
        check_run(settings(environment=kind, policy="smollm2-135m"))
        with pytest.raises(SettingsError, match=r"seeds.single_agent: .*no single-agent form"):
            settings(environment=kind, seeds={"train": [0], "single_agent": [0]})
    finally:
        sys.modules.pop("mine_of_checks", None)


def test_fewer_episodes_need_no_other_k(project: Path):
    assert settings(evaluate={"test": {"samples": 4}}).evaluate.pass_k == (1, 4)
    with pytest.raises(SettingsError, match="pass_k has 8"):
        settings(evaluate={"test": {"samples": 4}, "pass_k": [1, 8]})
