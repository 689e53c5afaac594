import pytest
import torch

from flows.report import task_name
from pipeline_lib.processor import machine
from pipeline_lib.report.style import wrap
from pipeline_lib.report.text import cell, sentence_only, typeset


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"),
        (True, "yes"),
        (1234567, "1,234,567"),
        (0.123456, "0.1235"),
        (-0.5, "−0.5"),
        (0.0, "0"),
        (123456.7, "123,457"),
        (3.2e-7, "3.2·10⁻⁷"),
        ("as it is -1", "as it is -1"),
    ],
)
def test_cells(value: object, text: str) -> None:
    assert cell(value) == text


def test_an_environment_of_ones_own_is_called_by_its_class() -> None:
    assert [task_name(kind) for kind in ("coding", "my_task:Shifts", "mine.tasks")] == [
        "coding",
        "Shifts",
        "mine.tasks",
    ]


def test_sentences() -> None:
    assert sentence_only("IMPROVED: on 9 problems.") == "On 9 problems."
    assert typeset("-3.2 to +1.8 points, p < 1e-6, p = 2e-05, pre-declared") == (
        "−3.2 to +1.8\N{NO-BREAK SPACE}points, p\N{NO-BREAK SPACE}<\N{NO-BREAK SPACE}10⁻⁶, "
        "p\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}2·10⁻⁵, pre-declared"
    )
    assert typeset("plan 9d8100e32848 was followed") == "plan 9d8100e32848 was followed"  # a digest, no power of ten
    assert wrap("single-agent GRPO, seed 0", 12) == "single-agent\nGRPO, seed 0"


def test_a_page_tells_processors_of_one_name_apart_that_round_differently() -> None:
    assert f"({torch.backends.cpu.get_cpu_capability()}), " in machine()
