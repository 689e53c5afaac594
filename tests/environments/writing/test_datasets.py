"""Published texts from files with the published fields, and how they are read."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline_lib.environments.writing.datasets import read_dataset
from pipeline_lib.environments.writing.settings import PublishedTexts
from pipeline_lib.problems.content import ProblemsError
from pipeline_lib.problems.prepare import prepare
from pipeline_lib.problems.splits import load_split
from tests.environments.writing.help import SOUND, work

POST = (
    "SUBREDDIT: r/relationships\n\nTITLE: My roommate keeps feeding my cat number {0}\n\nPOST: I have lived with my "
    "roommate for {0} years. My cat is overweight and the vet told me to cut his food. My roommate says the cat looks "
    "sad and gives him tuna at night. I asked her to stop and she cried. Now the cat ignores me.\n\nTL;DR:"
)


def write_rows(path: Path, rows: list[dict]) -> PublishedTexts:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return PublishedTexts(kind="tldr" if "prompt" in rows[0] else "arxiv", source=str(path))


def test_posts_are_read_pooled_and_dealt_out(tmp_path: Path):
    settings = write_rows(tmp_path / "posts.jsonl", [{"prompt": POST.format(i), "completion": " x"} for i in range(20)])
    found = [problem for problem, _ in read_dataset(settings)]
    assert len(found) == 20 and found[0].task == "summary" and found[0].source == "tldr"
    assert not found[0].text.endswith("TL;DR:") and "tuna" in found[0].observations["first"]
    assert "8 to 40 words" in found[0].observations["first"] and "empty line" in found[0].observations["single"]
    prepare("writing", settings, tmp_path / "problems")
    splits = {split: load_split(tmp_path / "problems", split) for split in ("train", "validation", "test")}
    assert {split: len(problems) for split, problems in splits.items()} == {"train": 12, "validation": 3, "test": 5}
    assert {p.id for problems in splits.values() for p in problems} == {p.id for p in found}
    assert len(read_dataset(settings.model_copy(update={"most": 4}))) == 4


def test_abstracts_of_the_published_length_are_used(tmp_path: Path):
    rows = [{"abstract_text": "<S> " + "Noise limits the sensor . " * n + "</S>"} for n in (10, 24, 40, 90)]
    (problem, _), (other, _) = read_dataset(write_rows(tmp_path / "abstracts.jsonl", rows))
    assert problem.task == "introduction" and "<S>" not in problem.text
    assert (len(problem.text.split()), len(other.text.split())) == (120, 200)
    assert "background and motivation only" in problem.observations["first"]
    assert "method and implications only" in problem.observations["second"]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (
            [{"prompt": "a post"}, {"text": "no"}],
            r"rows.jsonl:2: problem tldr/1-\w+: the field prompt is missing; it has text",
        ),
        ([{"abstract_text": "too short"}], "none of its texts can be used"),
    ],
)
def test_a_dataset_that_cannot_be_used_is_an_answer_in_words(tmp_path: Path, rows, message):
    with pytest.raises(ProblemsError, match=message):
        read_dataset(write_rows(tmp_path / "rows.jsonl", rows))


@pytest.fixture
def post(tmp_path: Path):
    return read_dataset(write_rows(tmp_path / "posts.jsonl", [{"prompt": POST.format(3)}]))[0][0]


GOOD = (
    "A roommate feeds an overweight cat against the advice of the vet.",
    "The cat has to eat less, the vet told its owner, who lives with a roommate. At night the roommate gives the sad "
    "cat some tuna. She cried when she was asked to stop. The cat now ignores its owner.",
)


def test_words_tell_true_texts_from_nonsense_lists_and_copies(post):
    def earned(*texts: str) -> float:
        return sum(SOUND.terms(work(post, *texts)).values())

    good = work(post, *GOOD).reading
    assert good.coverage > 0.4 and good.inventions < 0.2 and good.copied == 0.0 and good.complete == 1.0
    assert good.links > 0.1
    other = ("A robot painted the harbour green.", "The robot likes painting. Nobody bought a green harbour in March.")
    listed = ("Roommate cat vet food tuna night owner.", "Cat roommate years food vet tuna night sad cried ignores.")
    copied = post.text.split("POST: ")[1]
    assert earned(*GOOD) > 0.5
    for texts in (other, listed, (copied, copied), ("", ""), ("However, moreover, thus, if so.", "Then indeed.")):
        assert earned(*texts) < 0.3 * earned(*GOOD), texts
    assert earned(GOOD[0], GOOD[0]) < earned(*GOOD)
    assert work(post, GOOD[0], GOOD[0]).reading.repeated > 0


def test_words_are_counted_the_same_in_every_process():
    """The order of a set differs between processes; sums of its items must not."""
    program = (
        "from pipeline_lib.environments.writing.problem import Limits, WritingProblem\n"
        "from pipeline_lib.environments.writing.reading import read_by_words\n"
        "limits = Limits((1, 9), (1, 9), (1.0, 2.0))\n"
        "for length in range(8, 24):\n"
        "    words = [f'{a}{b}ok' for a in 'bcdfghjklm' for b in 'aeiou'][:length]\n"
        "    problem = WritingProblem('a', 'a', 'a', 'summary', {}, ' '.join(words * 2), limits)\n"
        "    told = [words, *(words[n : n + 3] + [f'bl{n}{k}p' for k in range(n % 5)] for n in range(0, length, 2))]\n"
        "    said = ' '.join(' '.join(['The and of in it', *each, f'new{len(each)} end.']) for each in told)\n"
        "    print(repr(read_by_words(problem, said, said).coverage))\n"
    )
    run = [sys.executable, "-c", program]
    seeds = [{**os.environ, "PYTHONHASHSEED": str(seed)} for seed in range(4)]
    found = {subprocess.run(run, env=seed, capture_output=True, text=True, check=True).stdout for seed in seeds}
    assert len(found) == 1
