"""Changes in ``params.yaml``: the rest stays as it was written."""

import random
import shutil
import stat
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from pipeline_lib.settings import SettingsError, load_params
from tasks.chain import params_file
from tasks.chain.params_file import write_changes

ROOT = Path(__file__).parents[2]
CHANGES: dict[str, tuple[Any, ...]] = {
    "seeds.single_agent": ([], [0], [3, 4]),
    "train.stop_when": ([], ["reward_hacking"], ["reward_hacking", "turn_instability"]),
    "evaluate.baselines": ([], ["sequential_pipeline"]),
    "evaluate.pass_k": ([1], [1, 2]),
    "policy.warm_start": ({"steps": 5}, {"steps": 7, "batch": 4}),
    "train.learning_rate": (1e-3, 2.5e-4),
    "environment.turns": (2, 1),
    "policy": ("embedded-lora",),
}
#: One list that a person wrote, with comments around it.
BY_HAND = [
    "  single_agent: [1] # which\n",
    "  single_agent: # which\n  - 1\n",
    "  single_agent:       # which\n\n  - 1\n",
    "  single_agent: # which\n\n    # few\n    - 1 # one\n    - 2 # two\n    # behind\n",
    "  single_agent:\n    # few\n    - 1\n\n  # behind\n",
    "  single_agent: [1, # one\n    2] # two\n",
]


def content(file: Path) -> Any:
    return YAML(typ="safe").load(file.read_text())


def comments(text: str) -> list[str]:
    return [line[line.index("# ") :] for line in text.splitlines() if "# " in line]


def inside(values: Any, key: str) -> tuple[Any, str]:
    *parents, last = key.split(".")
    for part in parents:
        values = values[part]
    return values, last


def test_a_change_alters_its_line_alone(tmp_path: Path) -> None:
    file = tmp_path / "params.yaml"
    before = (ROOT / "params.yaml").read_text()
    file.write_text(before)
    write_changes(file, {"seeds.single_agent": [0, 3]}, "-S")
    write_changes(file, {"evaluate.metric": "reward"}, "-S")
    old, new = before.splitlines(), file.read_text().splitlines()
    assert [line.split(" #")[0].strip() for one, line in zip(old, new, strict=True) if one != line] == [
        "single_agent: [0, 3]",
        "metric: reward",
    ]
    assert comments(file.read_text()) == comments(before)


@pytest.mark.parametrize("seed", range(6))
def test_changes_one_after_the_other(tmp_path: Path, seed: int) -> None:
    """Each gives the file with this value; a list after a longer list once joined two later lines."""
    draw, file = random.Random(seed), tmp_path / "params.yaml"
    (tmp_path / "conf").symlink_to(ROOT / "conf")
    file.write_text((ROOT / "params.yaml").read_text())
    for _ in range(12):
        key = draw.choice([*CHANGES][:-1])
        value, expected = draw.choice(CHANGES[key]), content(file)
        part, last = inside(expected, key)
        part[last] = value
        write_changes(file, {key: value}, "-S")
        assert content(file) == expected
    assert comments(file.read_text()) == comments((ROOT / "params.yaml").read_text())
    write_changes(file, {"policy.layers": 2}, "-S")
    write_changes(file, {"policy": "embedded-lora"}, "-S")  # in place of a section with a value of its own
    assert load_params(file, tmp_path / "conf").policy.adapter is not None
    assert "policy: embedded-lora # the language models\n\nrollouts: # how" in file.read_text()


@pytest.mark.parametrize("value", [[], [3], [3, 4]], ids=str)
@pytest.mark.parametrize("written", BY_HAND, ids=range(len(BY_HAND)))
def test_a_list_that_a_person_wrote(tmp_path: Path, written: str, value: list[int]) -> None:
    file = tmp_path / "params.yaml"
    for behind in ("  train: [0, 1] # runs\n", "\n"):
        file.write_text(f"seeds: # how\n{written}{behind}\n# the end\nverdict:\n  alpha: 0.01\n  margin: 0.2\n")
        expected = content(file)
        expected["seeds"]["single_agent"] = value
        write_changes(file, {"seeds.single_agent": value}, "-S")
        assert content(file) == expected
        for comment in ("# how", "# which", "# behind", "# the end", "# runs"):
            assert (comment in file.read_text()) == (comment in f"# how # the end {written}{behind}")


def test_a_new_key_stands_before_the_comments_behind_its_section(tmp_path: Path) -> None:
    file = tmp_path / "params.yaml"
    file.write_text(
        "policy:\n  agents: # by name\n    helper: {}\n    main:\n      layers: 3\n  # of imitation\n"
        "  warm_start: {steps: 5}\n\n# the end\nverdict:\n  margin: 0.2\n"
    )
    write_changes(file, {"policy.agents.main.heads": 2}, "-S")
    assert "      layers: 3\n      heads: 2\n  # of imitation\n  warm_start" in file.read_text()
    write_changes(file, {"policy.agents": {}}, "-S")
    assert "  agents: {} # by name\n  # of imitation\n  warm_start: {steps: 5}\n\n# the end" in file.read_text()
    write_changes(file, {"policy.layers": 2}, "-S")
    assert "  warm_start: {steps: 5}\n  layers: 2\n\n# the end\nverdict" in file.read_text()


def test_what_only_one_reader_of_yaml_takes_is_named(tmp_path: Path) -> None:
    file = tmp_path / "params.yaml"
    file.write_text(before := "train:\n  steps: 30\t# tab\n")
    with pytest.raises(SettingsError, match=r"params\.yaml, line 2: .*correct this line"):
        write_changes(file, {"seeds.single_agent": []}, "-S")
    assert file.read_text() == before


@pytest.mark.parametrize("written", ["# mine\n", "# mine"])
def test_comments_of_a_file_without_settings_stay(tmp_path: Path, written: str) -> None:
    file = tmp_path / "params.yaml"
    file.write_text(written)
    write_changes(file, {"seeds.single_agent": []}, "-S")
    assert file.read_text() == "# mine\nseeds:\n  single_agent: []\n"


def test_what_would_damage_the_file_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "params.yaml"
    before = "seeds:\n  single_agent: # which\n\n  - 0\ntrain:\n  steps: 30\n  group_size: 4\n"
    file.write_text(before)
    monkeypatch.setattr(params_file, "_replace", lambda whole, inside, key, value: inside.update({key: value}))
    with pytest.raises(SettingsError, match=r"-S changes seeds\.single_agent, which would damage other lines"):
        write_changes(file, {"seeds.single_agent": []}, "-S")
    assert file.read_text() == before


@pytest.mark.parametrize("mode", [0o600, 0o444, 0o664])
def test_the_permissions_of_the_file_stay(tmp_path: Path, mode: int) -> None:
    file = tmp_path / "params.yaml"
    file.write_text("seeds:\n  single_agent: [0]\n")
    file.chmod(mode)
    write_changes(file, {"seeds.single_agent": []}, "-S")
    assert content(file) == {"seeds": {"single_agent": []}}
    assert stat.S_IMODE(file.stat().st_mode) == mode


#: A file as people write them: an object over several lines with comments, columns of comments, anchors.
ODD = """\
seeds:   {train: [0, 1],   single_agent: [0]}    # which
problems:
    kind: generated
    sizes: {
      train: &most 64, # to learn
      validation: 32,  # to choose
      test: *most # to judge
    }
train:
   steps:      30      # updates
   "learning_rate": 1e-3     # quoted
   group_size: *most
"""


@pytest.mark.parametrize("ends", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", ["", params_file.BOM])
@pytest.mark.parametrize(
    ("key", "value", "old", "new"),
    [
        ("train.steps", 50, "steps:      30 ", "steps:      50 "),
        ("train.learning_rate", 0.5, "1e-3", "0.5"),
        ("problems.sizes.validation", 8, "32", "8"),
        ("seeds.train", [4, 5, 6], "[0, 1]", "[4, 5, 6]"),
    ],
)
def test_a_value_on_a_line_is_all_that_changes(
    tmp_path: Path, ends: str, mark: str, key: str, value: Any, old: str, new: str
) -> None:
    file = tmp_path / "params.yaml"
    before = (mark + ODD.replace("\n", ends)).encode()
    file.write_bytes(before)
    write_changes(file, {key: value}, "-S")
    assert before.count(old.encode()) == 1
    assert file.read_bytes() == before.replace(old.encode(), new.encode())


def test_what_would_lose_comments_is_not_written(tmp_path: Path) -> None:
    """Another value than that of the anchor: the file would be written anew."""
    file = tmp_path / "params.yaml"
    file.write_text(ODD)
    with pytest.raises(SettingsError, match=r"-S changes train\.group_size, which would damage other lines"):
        write_changes(file, {"train.group_size": 2}, "-S")
    assert file.read_text() == ODD
    file.write_text(ODD.replace("# to learn", "").replace("# to choose", "").replace("# to judge", ""))
    write_changes(file, {"train.group_size": 2}, "-S")
    assert content(file)["train"]["group_size"] == 2 and content(file)["problems"]["sizes"]["test"] == 64


@pytest.mark.parametrize("ends", ["\n", "\r\n"])
def test_the_ends_of_lines_stay_where_a_line_is_new(tmp_path: Path, ends: str) -> None:
    file = tmp_path / "params.yaml"
    file.write_bytes(f"# mine{ends}seeds:{ends}  train: [0, 1] # which{ends}".encode())
    write_changes(file, {"seeds.single_agent": [1]}, "-S")
    assert (
        file.read_bytes() == f"# mine{ends}seeds:{ends}  train: [0, 1] # which{ends}  single_agent: [1]{ends}".encode()
    )


def test_objects_inside_of_objects_stand_on_the_line(tmp_path: Path) -> None:
    file = tmp_path / "params.yaml"
    shutil.copy(ROOT / "docs/examples/careful_reward.py", tmp_path)
    file.write_text("environment:\n  kind: coding\n  reward: {kind: fine} # how\n")
    reward = {"kind": "custom", "path": "careful_reward:Careful", "options": {"power": 2}}
    write_changes(file, {"environment.reward": reward}, "-S")
    assert content(file)["environment"]["reward"] == reward
    assert len(file.read_text().splitlines()) == 3 and file.read_text().endswith("# how\n")
    file.write_text("environment:\n  kind: coding\n")
    write_changes(file, {"environment.reward": reward}, "-S")
    assert content(file)["environment"]["reward"] == reward


@pytest.mark.parametrize("train", [[7], [4, 5, 6, 7, 8, 9, 10, 11]])
def test_a_section_and_a_value_of_it_on_the_same_line(tmp_path: Path, train: list[int]) -> None:
    file = tmp_path / "params.yaml"
    file.write_text('seeds: {train: [0, 1, 2], single_agent: [0]} # which\naudit: {override: "as #3 says"}\n')
    write_changes(
        file, {"seeds": {"train": [1], "single_agent": []}, "seeds.train": train, "audit.override": "c"}, "-S"
    )
    assert content(file) == {"seeds": {"train": train, "single_agent": []}, "audit": {"override": "c"}}
    assert "# which" in file.read_text()
