"""`symposium verdict` and `symposium.verdict`: terminal, JSON, page, plan, and status 2 for what is wrong."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pandas
import pytest

import symposium
from tasks.services.process_environment import HOME
from tests.programs import command

ROWS = [
    {"problem": f"p{i}", "system": system, "value": float((i * k) % 7 > 2)}
    for i in range(40)
    for system, k in (("base", 3), ("<b>team</b>", 5))
]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "o.csv"
    pandas.DataFrame(ROWS).to_csv(path, index=False)
    return path


def test_terminal_json_and_page_say_the_same_as_python(file: Path) -> None:
    found = symposium.verdict(file)
    page = file.with_suffix(".html")
    status, printed, _ = command(file.parent, "verdict", file, "--page", page)
    assert status == 0 and printed.startswith("\n".join(found.lines))
    assert found.sentences["<b>team</b>"] in printed
    status, printed, _ = command(file.parent, "verdict", file, "--json")
    assert status == 0 and json.loads(printed) == json.loads(json.dumps(found.result.to_json()))
    html = page.read_text()
    assert f'<span class="word">{found.verdicts["<b>team</b>"]}</span>' in html
    assert (
        "<b>team</b>" not in html
        and "<script" not in html
        and not re.search(r"""(src|href)=["'](?!#)|url\((?!#)""", html)
    )


def test_outcomes_without_a_row_are_lost_unless_only_common_ones_are_asked_for(file: Path) -> None:
    rows = pandas.read_csv(file)
    rows[~((rows.system == "<b>team</b>") & (rows.value == rows.value.min()))].to_csv(file, index=False)
    for words, only_common in (((), False), (("--only-common",), True)):
        status, printed, _ = command(file.parent, "verdict", file, *words)
        assert status == 0 and ("have no row" in printed) != only_common
        assert printed.startswith("\n".join(symposium.verdict(file, only_common=only_common).lines))


def test_names_of_somebody_else_neither_break_the_verdict_nor_steer_the_terminal(tmp_path: Path) -> None:
    name = "a$\\frac{$ \x1b[31m\u202eteam\ud83d"  # mathematics, a colour, from right to left, half an emoji
    rows = [
        {"problem": f"p{i}", "system": system, "value": int(system == name or i % 3 == 0)}
        for i in range(12)
        for system in ("base", name)
    ]
    (tmp_path / "o.jsonl").write_text("\n".join(map(json.dumps, rows)))
    status, printed, errors = command(tmp_path, "verdict", "o.jsonl", "--page", "o.html")
    assert status == 0, errors
    for text in (printed, (tmp_path / "o.html").read_text()):
        assert "a$\\frac{$ �[31m�team\\ud83d" in text and not {"\x1b", "\u202e"} & set(text)


def test_rows_and_frames_are_as_good_as_a_file(file: Path) -> None:
    wanted = symposium.verdict(file).result.to_json()
    assert symposium.verdict(ROWS).result.to_json() == wanted
    assert symposium.verdict(pandas.DataFrame(ROWS)).result.to_json() == wanted
    renamed = [{"task": row["problem"], "system": row["system"], "value": row["value"]} for row in ROWS]
    assert symposium.verdict(renamed, columns={"problem": "task"}).verdicts == symposium.verdict(ROWS).verdicts
    with pytest.raises(ValueError, match="columns has 'task'; accepted: problem, system, "):
        symposium.verdict(renamed, columns={"task": "problem"})
    with pytest.raises(TypeError, match="give files, or one list of rows"):
        symposium.verdict(file, ROWS)


def test_a_plan_and_then_the_verdict(file: Path, tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    design = ("--baseline", "base", "--metric-range", 0, 1, "--problems", 41, "--systems", "<b>team</b>")
    assert command(tmp_path, "verdict", "--plan", plan, *design).status == 0
    file.touch()  # the outcomes come after the plan
    judged = command(tmp_path, "verdict", file, "--plan", plan)
    assert judged.status == 0 and "problems: planned 41, done 40" in judged.out.lower()
    assert "was not kept; the caveats say where." in judged.out


def test_a_plan_that_was_kept_and_is_younger_than_the_outcomes(file: Path, tmp_path: Path) -> None:
    os.utime(file, (1, 1))
    plan = tmp_path / "plan.json"
    design = ("--baseline", "base", "--metric-range", 0, 1, "--problems", 40, "--systems", "<b>team</b>")
    assert command(tmp_path, "verdict", "--plan", plan, *design).status == 0
    judged = command(tmp_path, "verdict", file, "--plan", plan)
    assert "was kept, but files are older than it." in judged.out and "not kept" not in judged.out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "give files of outcomes, or --plan FILE"),
        (("none.csv",), "none.csv: no such file"),
        (("FILE", "--problems", 3), "--problems is for writing a plan"),
        (("FILE", "--margin", 0), "got '0'; give a number"),
        (("FILE", "--basline", "x"), "did you mean --baseline"),
        (("FILE", "--value", "vlaue"), "did you mean value"),
        (("--plan", "plan.json"), "give --baseline, --systems and --problems"),
    ],
)
def test_status_2(file: Path, words: tuple[object, ...], message: str) -> None:
    ended = command(file.parent, "verdict", *(file if word == "FILE" else word for word in words))
    assert ended.status == 2 and message in ended.err


def test_it_needs_neither_prefect_nor_dvc_nor_mlflow(file: Path) -> None:
    code = (
        "import sys, symposium; symposium.verdict(sys.argv[1]).page(sys.argv[1] + '.html');"
        "print([name for name in ('prefect', 'dvc', 'mlflow', 'torch') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code, str(file)], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_it_leaves_nothing_in_the_folder_where_it_runs(file: Path) -> None:
    environment = {key: value for key, value in os.environ.items() if key != HOME}
    words = [sys.executable, "-m", "symposium", "verdict", file.name]
    done = subprocess.run(words, cwd=file.parent, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert list(file.parent.iterdir()) == [file]
