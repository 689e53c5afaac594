"""Everything that uses one team uses the same one: the one that the stage `select` wrote, which passes the guards."""

from pathlib import Path

import pytest

from pipeline_lib import storage
from pipeline_lib.evaluation.selection import select
from pipeline_lib.project import RESULTS, NotSelectedError, selected_checkpoint
from pipeline_lib.settings import Params
from pipeline_lib.settings.evaluate import EvaluateSettings, Guard, VerdictSettings
from pipeline_lib.training.checkpoint_folders import step_folder
from symposium.teams import Project
from tasks.experiment.arms import SINGLE, TEAM, trained_folder
from tasks.use.choosing import ChoiceError, choose_team
from tests.evaluation.build import episode


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project in which the seed with the best mean has no checkpoint that passes the guards."""
    monkeypatch.chdir(tmp_path)
    Path("params.yaml").write_text("{}")
    guard = Guard(metric="syntax", limit=0.5)
    episodes = {
        seed: {10: [episode(f"q{i}", 0, mean + 0.001 * i, syntax=syntax) for i in range(4)]}
        for seed, mean, syntax in ((0, 0.9, 0.0), (1, 0.6, 1.0), (2, 0.5, 1.0))
    }
    settings = EvaluateSettings(metric="tests_passed", guards=(guard,))
    found = select(episodes, (), settings, VerdictSettings(resamples=200))
    storage.write_json(RESULTS / "selection.json", {TEAM: found.to_json()})
    return tmp_path


def test_the_selected_team_passes_the_guards_wherever_it_is_used(project: Path) -> None:
    assert selected_checkpoint() == selected_checkpoint(project) == (1, 10)
    assert choose_team(Params(), "selected").folder == step_folder(trained_folder(TEAM, 1), 10)
    assert Project(project).checkpoint("selected") == project / step_folder(trained_folder(TEAM, 1), 10)


def test_what_was_not_selected_is_said(project: Path) -> None:
    with pytest.raises(NotSelectedError, match="arm single"):
        selected_checkpoint(arm=SINGLE)
    with pytest.raises(ChoiceError, match="arm single"):
        choose_team(Params(), "single")
    (RESULTS / "selection.json").unlink()
    with pytest.raises(NotSelectedError, match="no checkpoint was selected yet; run `symposium run` first"):
        Project(project).checkpoint("selected")
