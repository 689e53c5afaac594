"""Plain English tells each writer what the short lines tell it."""

import pytest

from pipeline_lib.environments.writing.settings import GeneratedTexts
from pipeline_lib.environments.writing.world import generate


@pytest.mark.parametrize("task", ["summary", "introduction"])
def test_the_same_problems_with_the_same_facts(task: str) -> None:
    sizes = {"train": 40, "validation": 1, "test": 1}
    short, plain = (
        generate(GeneratedTexts.model_validate({"task": task, "sizes": sizes, "prompt": prompt}))["train"]
        for prompt in ("compact", "plain")
    )
    for old, new in zip(short, plain, strict=True):
        assert (old.id, old.facts, old.parts, old.reference) == (new.id, new.facts, new.parts, new.reference)
        for role, text in new.observations.items():
            told, _, asked = text.partition("\n")
            assert old.observations[role].startswith(f"{told} "), "the part of the source is the same"
            assert asked.startswith("Write ") and asked.endswith("Answer with the text only.\n")
            assert ("Another writer" in asked) == (role != "single")
