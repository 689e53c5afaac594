"""Two processes on the CPU (gloo) end where one does."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from pipeline_lib.play import Decision, Experience, join
from pipeline_lib.rollouts.engine import Action
from pipeline_lib.training.parallel import Processes
from tests.training.several import CASES, HANDED_OVER, begin, end, run_case

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def together(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of results of two processes, started by torch's launcher as ``accelerate launch`` does."""
    folder = tmp_path_factory.mktemp("two")
    asked = [item for item in request.session.items if item.path == Path(__file__) and hasattr(item, "callspec")]
    cases = sorted({item.callspec.params["name"] for item in asked})
    handed_over = sorted({item.callspec.params["name"] for item in asked if "began" in item.name})
    for name in handed_over:
        begin(name, folder / "begun-by-one" / name, Processes())
        shutil.copytree(folder / "begun-by-one" / name, folder / "begun-by-one-again" / name)
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "-m", "tests.training.several"]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, *launcher, str(folder), json.dumps(cases), json.dumps(handed_over)]
    with (folder / "log").open("w+") as log:
        launched = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=log, stderr=subprocess.STDOUT)
        try:
            status = launched.wait(540)
        finally:
            launched.terminate()  # asked politely, it ends its processes
            launched.wait(60)
    assert status == 0, (folder / "log").read_text()[-8000:]
    return folder


@pytest.mark.drawn("ranks", "pipeline_lib/training", count=2)
@pytest.mark.parametrize("name", CASES)
def test_two_processes_give_the_result_of_one(together: Path, tmp_path: Path, name: str) -> None:
    """Weights, after a stop, a new start and four updates, differ by rounding only; so does what is logged."""
    alone = run_case(name, tmp_path, Processes())
    both = [json.loads((together / f"{name}-{rank}-of-2.json").read_text()) for rank in (0, 1)]
    assert both[0]["digest"] == both[1]["digest"]
    assert both[1]["rows"] == []
    assert len(alone["rows"]) == 2
    same_up_to_rounding(both[0]["rows"], together / f"{name}-team", alone["rows"], tmp_path / f"{name}-team")


@pytest.mark.drawn("ranks", "pipeline_lib/training", count=2)
@pytest.mark.parametrize("name", HANDED_OVER)
def test_what_one_process_began_two_end_and_the_other_way_round(together: Path, tmp_path: Path, name: str) -> None:
    """How many processes there are is the machine's business: the result is the same up to rounding."""
    unchanged = json.loads((together / f"{name}-0-of-2.json").read_text())["rows"], together / f"{name}-team"
    by_one = end(name, tmp_path, together / "begun-by-two" / name, Processes())["rows"]
    by_two = json.loads((together / f"{name}-ended-by-two.json").read_text())["rows"]
    assert [row["step"] for row in by_one] == [row["step"] for row in by_two] == [3, 4], "it began anew"
    same_up_to_rounding(by_one, tmp_path / f"{name}-team", *unchanged)
    same_up_to_rounding(by_two, together / "ended-by-two" / f"{name}-team", *unchanged)


def same_up_to_rounding(
    rows: list[dict[str, float]], team: Path, other_rows: list[dict[str, float]], other_team: Path
) -> None:
    compared = 0
    files, others = (sorted(folder.rglob("*.safetensors")) for folder in (team, other_team))
    for own, theirs in zip(files, others, strict=True):
        first, second = load_file(own), load_file(theirs)
        for key, value in first.items():
            assert torch.allclose(value, second[key], atol=1e-5), key
            compared += 1
    assert compared > 4
    for row, other in zip(rows, other_rows, strict=True):
        assert set(row) == set(other)
        for key, value in row.items():
            if key.partition("/")[0] not in ("time", "memory", "mismatch") and "per_s" not in key:
                assert other[key] == pytest.approx(value, rel=1e-3, abs=1e-4), key


def test_shares_are_disjoint_and_complete() -> None:
    items = list(range(11))
    parts = [Processes(rank, 3).share(items) for rank in range(3)]
    assert sorted(item for part in parts for item in part) == items
    assert Processes().share(items) == items
    assert Processes().gather(5) == [5]
    assert not Processes().any(False)


def decision(group: int, parent: int | None) -> Decision:
    return Decision("a", 0, group, parent, 1.0, ("one",), ((5,),), (Action((8,), (-0.1,), "0", "stop"),), 1.0)


def test_experience_of_several_processes_is_put_together() -> None:
    first = Experience([decision(0, None), decision(1, 0)], {"one": 2}, generation_s=1.0)
    second = Experience([decision(0, None), decision(1, 0)], {"one": 2}, generation_s=3.0)
    whole = join([first, second])
    assert [d.group for d in whole.decisions] == [0, 1, 2, 3]
    assert [d.parent for d in whole.decisions] == [None, 0, None, 2]
    assert whole.generation_s == 3.0
    with pytest.raises(ValueError, match="different versions"):
        join([first, Experience(versions={"one": 3})])
