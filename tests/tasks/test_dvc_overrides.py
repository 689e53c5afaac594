"""Overrides of ``dvc exp run`` of which DVC would drop one are refused."""

import pytest

from pipeline_lib.settings import SettingsError
from tasks.experiment.check_run import refuse_lost


@pytest.mark.parametrize(
    ("command", "advice"),
    [
        (["-S", "train.steps=9", "-S", "train=coding-paper"], "-S train.preset=coding-paper -S train.steps=9"),
        (["-Strain=coding-paper", "--set-param", "+train.steps=9"], "-S train.preset=coding-paper -S train.steps=9"),
        (["--set-param=environment=philosophers", "-S", "environment.prompt=default"], "-S environment.preset=phil"),
        (["-S", "train.steps=9", "-S", "environment=philosophers"], ""),
        (["-S", "train.preset=coding-paper", "-S", "train.steps=9", "train"], ""),
        (["-n", "train", "-f"], ""),
    ],
)
def test_a_preset_in_place_of_a_section_and_values_of_it(command: list[str], advice: str) -> None:
    words = ["exp", "run", *command]
    if not advice:
        refuse_lost(words)
        return
    with pytest.raises(SettingsError) as caught:
        refuse_lost(words)
    assert advice in str(caught.value)
