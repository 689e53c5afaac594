"""The plan holds what decides how teams answer."""

from pathlib import Path

import pytest

from pipeline_lib.evaluation.plan import changes
from pipeline_lib.identity import syntax
from pipeline_lib.problems.prepare import prepare
from pipeline_lib.settings.compose import validate_params
from tasks.experiment import plans
from tasks.experiment.arms import PROBLEMS
from tasks.experiment.plans import plan_of
from tasks.identity.stages import identity_of
from tasks.services.caches import syntaxes

ROOT = Path(__file__).parents[2]


def test_code_and_files_of_the_environment_belong_to_the_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("SYMPOSIUM_HOME", str(tmp_path / "home"))
    module, text = tmp_path / "meeting_of_mine.py", (ROOT / "tests/symposium/own/rendezvous.py").read_text()
    module.write_text(text + "\nTABLE = 'table.json'\n")
    sizes = {"train": 32, "validation": 2, "test": 2}
    settings = {"problems": {"sizes": sizes}, "environment": {"kind": "meeting_of_mine:Rendezvous"}}
    params = validate_params({**settings, "seeds": {"single_agent": []}}, Path("params.yaml"))
    prepare(params.environment.kind, params.problems, PROBLEMS)
    before = plan_of(params)
    module.write_text(module.read_text() + "# a comment\n")
    (tmp_path / "unnamed.json").write_text("1")
    assert plan_of(params) == before
    for file, new in ((tmp_path / "table.json", "1"), (module, text.replace("left == right", "placed"))):
        file.write_text(new)
        (change,) = changes(before.to_json(), plan_of(params).to_json())
        assert change.words().startswith("play.code from code ")
        before = plan_of(params)


def test_a_change_of_one_agents_temperature_changes_the_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SYMPOSIUM_HOME", str(tmp_path / "home"))

    def params(**agents: object):  # type: ignore[no-untyped-def]
        sizes = {"train": 32, "validation": 2, "test": 2}
        policy = {"kind": "embedded", "agents": agents}
        return validate_params({"problems": {"sizes": sizes}, "policy": policy}, Path("params.yaml"))

    alike, cooler = params(), params(main={"temperature": 0.5})
    prepare("coding", alike.problems, PROBLEMS)
    assert plan_of(cooler).play["sampling"]["agents"] == {"main": 0.5}
    assert plan_of(params(main={"learning_rate": 0.01})).play == plan_of(alike).play
    for stage in ("preregister", "select", "verdict"):
        assert identity_of(stage, cooler)["settings"] != identity_of(stage, alike)["settings"]


def test_a_later_process_parses_no_source_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SYMPOSIUM_HOME", str(tmp_path / "home"))

    def begin_as_a_new_process() -> None:
        syntaxes.cache_clear()
        plans._statistics.cache_clear()

    def refuse(content: bytes, name: str) -> syntax.Syntax:
        raise AssertionError(f"{name} is parsed again")

    params = validate_params({"problems": {"sizes": {"train": 32, "validation": 2, "test": 2}}}, Path("params.yaml"))
    prepare("coding", params.problems, PROBLEMS)
    begin_as_a_new_process()
    first = plan_of(params)
    begin_as_a_new_process()
    monkeypatch.setattr(syntax, "parse", refuse)
    try:
        assert plan_of(params) == first
    finally:
        begin_as_a_new_process()
