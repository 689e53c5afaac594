"""Checkpoints: complete or absent, verified, published by link, and the point to continue from."""

import json
import logging
from pathlib import Path

import pytest
import torch

from pipeline_lib.policies.store import team_digest
from pipeline_lib.storage import CorruptFileError, folder_digest
from pipeline_lib.training import checkpoints
from pipeline_lib.training.checkpoint_folders import step_folder, steps_in
from pipeline_lib.training.checkpoints import (
    clear_leftovers,
    load_checkpoint,
    publish,
    read_checkpoint,
    write_checkpoint,
)
from pipeline_lib.training.learners import make_learners
from pipeline_lib.training.trainer_state import load_state, read_state, resume_point, state_folder, tidy, write_state
from tests.training.conftest import SAMPLING, make_settings, make_team


def damage(folder: Path, how: str) -> Path:
    """Spoil the largest file of a folder."""
    path = max((p for p in folder.rglob("*") if p.is_file()), key=lambda p: p.stat().st_size)
    content = path.read_bytes()
    if how == "truncated":
        path.write_bytes(content[: len(content) // 2])
    elif how == "flipped":
        path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    else:
        path.unlink()
    return path


def test_layout_and_round_trip(tmp_path: Path) -> None:
    team = make_team()
    folder = write_checkpoint(tmp_path, 10, team)
    assert folder == tmp_path / "step-00010"
    record = json.loads((folder / "checkpoint.json").read_text())
    assert record["step"] == 10
    assert record["team"] == team_digest(team)
    assert set(record["files"]) >= {"team.json", "one/model.safetensors", "two/model.safetensors"}
    other = make_team(seed=5)
    assert team_digest(other) != record["team"]
    assert load_checkpoint(folder, other) == 10
    assert team_digest(other) == record["team"]


def test_the_same_weights_give_the_same_bytes(tmp_path: Path) -> None:
    team = make_team(lora=True)
    assert folder_digest(write_checkpoint(tmp_path / "a", 3, team)) == folder_digest(
        write_checkpoint(tmp_path / "b", 3, team)
    )


@pytest.mark.parametrize("how", ["truncated", "flipped", "missing"])
def test_damage_is_found_and_the_file_named(tmp_path: Path, how: str) -> None:
    folder = write_checkpoint(tmp_path, 10, make_team())
    path = damage(folder, how)
    with pytest.raises(CorruptFileError, match=path.name):
        read_checkpoint(folder)


@pytest.mark.parametrize("content", ["{", "[]", '{"format": 2, "files": {}}', '{"format": 1}'])
def test_a_damaged_record_is_found(tmp_path: Path, content: str) -> None:
    folder = write_checkpoint(tmp_path, 10, make_team())
    (folder / "checkpoint.json").write_text(content)
    with pytest.raises(CorruptFileError, match=r"checkpoint\.json"):
        read_checkpoint(folder)


def test_a_write_that_fails_leaves_nothing_and_the_old_one_untouched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    team = make_team()
    before = folder_digest(write_checkpoint(tmp_path, 10, team))

    def full_disk(team: object, folder: Path) -> None:
        (folder / "half").write_text("x")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoints, "save_team", full_disk)
    with pytest.raises(OSError, match="No space left"):
        write_checkpoint(tmp_path, 10, team)
    assert folder_digest(step_folder(tmp_path, 10)) == before
    assert [path.name for path in tmp_path.iterdir()] == ["step-00010"]


def test_leftovers_of_killed_runs_are_removed_and_never_taken_for_checkpoints(tmp_path: Path) -> None:
    (tmp_path / ".step-00010.1.part").mkdir()
    (tmp_path / ".step-00020.old.1.part").mkdir()
    (tmp_path / "step-x").mkdir()
    assert steps_in(tmp_path) == []
    clear_leftovers(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["step-x"]


def test_publish_links_the_steps_asked_for_and_removes_others(tmp_path: Path) -> None:
    scratch, output = tmp_path / "scratch", tmp_path / "output"
    team = make_team()
    for step in (0, 10, 20):
        write_checkpoint(scratch, step, team)
    write_checkpoint(output, 90, team)
    (output / ".step-00010.1.part").mkdir()
    assert [path.name for path in publish(scratch, output, [0, 10])] == ["step-00000", "step-00010"]
    assert steps_in(output) == [0, 10]
    for step in (0, 10):
        for path in step_folder(scratch, step).rglob("*"):
            twin = step_folder(output, step) / path.relative_to(step_folder(scratch, step))
            if path.is_file():
                assert path.samefile(twin)
    publish(scratch, output, [0, 10, 20])
    assert steps_in(output) == [0, 10, 20]
    assert not list(output.glob(".*"))


def test_publish_never_writes_into_what_lies_there(tmp_path: Path) -> None:
    """The output may be hard-linked into a cache: its bytes must not change under it."""
    scratch, output = tmp_path / "scratch", tmp_path / "output"
    write_checkpoint(scratch, 10, make_team())
    (weights,) = [publish(scratch, output, [10])[0] / "one" / "model.safetensors"]
    cached = tmp_path / "cached"
    cached.hardlink_to(weights)
    before = cached.read_bytes()
    write_checkpoint(scratch, 10, make_team(seed=9))
    publish(scratch, output, [10])
    assert cached.read_bytes() == before != weights.read_bytes()


def test_publish_refuses_damage(tmp_path: Path) -> None:
    damage(write_checkpoint(tmp_path / "scratch", 10, make_team()), "flipped")
    with pytest.raises(CorruptFileError):
        publish(tmp_path / "scratch", tmp_path / "output", [10])


PLANNED = [0, 10, 20, 30]


def saved(scratch: Path, steps: list[int]) -> None:
    team = make_team()
    learners = make_learners(make_settings(), SAMPLING, team, None, None)
    for step in steps:
        if step:
            for learner in learners:
                for parameter in learner.optimiser.parameters.values():
                    parameter.grad = torch.ones_like(parameter)
                learner.optimiser.step(1e-3)
            write_state(scratch, step, learners, {"drawn": 3 * step}, {"executed": step, "lost": 0})
        write_checkpoint(scratch, step, team)
        tidy(scratch, step, PLANNED)


def test_state_round_trip(tmp_path: Path) -> None:
    saved(tmp_path, [0, 10])
    team = make_team()
    learners = make_learners(make_settings(), SAMPLING, team, None, None)
    assert load_state(tmp_path, 10, learners) == ({"drawn": 30}, {"executed": 10, "lost": 0})
    assert [learner.policy.version for learner in learners] == [1, 1]
    assert learners[0].optimiser.state()["step/model.norm.weight"] == 1.0
    others = make_learners(make_settings(), SAMPLING, make_team(("one",)), None, None)
    with pytest.raises(CorruptFileError, match="not those of this team"):
        load_state(tmp_path, 10, others)


def test_only_the_newest_states_are_kept(tmp_path: Path) -> None:
    saved(tmp_path, [0, 10, 20, 30])
    assert sorted(path.name for path in tmp_path.glob("state-*")) == ["state-00020", "state-00030"]


def test_resume_from_the_newest(tmp_path: Path) -> None:
    assert resume_point(tmp_path, 30, PLANNED) is None
    saved(tmp_path, [0, 10, 20])
    assert resume_point(tmp_path, 30, PLANNED) == 20
    assert resume_point(tmp_path, 20, [0, 10, 20]) == 20
    assert resume_point(tmp_path, 10, [0, 10]) == 10


@pytest.mark.parametrize("how", ["truncated", "flipped", "missing"])
@pytest.mark.parametrize("what", ["weights", "state"])
def test_damage_goes_back_one_checkpoint_and_names_the_file(
    tmp_path: Path, how: str, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    saved(tmp_path, [0, 10, 20])
    path = damage(step_folder(tmp_path, 20) if what == "weights" else state_folder(tmp_path, 20), how)
    with caplog.at_level(logging.WARNING):
        assert resume_point(tmp_path, 30, PLANNED) == 10
    assert str(path) in caplog.text


def test_a_hole_in_the_plan_is_filled(tmp_path: Path) -> None:
    """A finer interval than before: what is missing has to be trained again, from before the hole."""
    saved(tmp_path, [0, 20, 40])
    assert resume_point(tmp_path, 40, [0, 20, 40]) == 40
    assert resume_point(tmp_path, 40, [0, 10, 20, 30, 40]) == 0


def test_with_all_states_gone_training_starts_anew(tmp_path: Path) -> None:
    saved(tmp_path, [0, 10, 20, 30])
    for step in (20, 30):
        damage(state_folder(tmp_path, step), "missing")
    assert resume_point(tmp_path, 40, [0, 10, 20, 30, 40]) == 0
    with pytest.raises(CorruptFileError):
        read_state(state_folder(tmp_path, 30))
