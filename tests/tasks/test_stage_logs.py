"""What stages say: everything in a file, what people read without what only programs write, and the table."""

import io
import logging
import time
from pathlib import Path

import pytest
from rich.console import Console

from tasks.chain.graph import Stage
from tasks.chain.live_table import LiveTable, rows
from tasks.chain.side_by_side import Board
from tasks.chain.stage_process import PlainFormatter, StageLog, is_housekeeping, readable

NOTHING = [
    "00:52:21.385 | INFO    | Flow run 'ab-cd prepare' - Beginning flow run 'ab-cd prepare' for flow 'prepare'",
    "00:52:21.399 | INFO    | Flow run 'ab-cd prepare' - View at http://127.0.0.1:47859/runs/flow-run/c5f1017f",
    "00:40:46.857 | INFO    | Task run 'team 2 step 10' - Finished in state Completed()",
    "00:41:12.217 | INFO    | Task run 'team 0 step 60' - Finished in state Cached(type=COMPLETED)",
    "00:42:46.103 | INFO    | prefect - Stopping temporary server on http://127.0.0.1:8598",
    "\rLoading weights:   0%|          | 0/24 [00:00<?, ?it/s]\rLoading weights: 100%|██| 24/24 [00:00<00:00, 9.1it/s]",
]
SOMETHING = {
    "train team seed 0: 7/60   12%  1 min 40 s left  reward 1.52": None,
    "00:42:25.134 | INFO    | Flow run 'ab verdict' - IMPROVED: on 128 held-out problems": "IMPROVED: on 128 held-out "
    "problems",
    "00:42:25.134 | WARNING | Flow run 'ab train' - cannot reach MLflow": "warning: cannot reach MLflow",
    "09:21:52.203 | WARNING | symposium.tracking - cannot reach the server": "warning: cannot reach the server",
    "00:42:25.134 | ERROR   | Task run 'x' - Finished in state Failed('no')": "error: Finished in state Failed('no')",
    "error: stage prepare was told to fail": None,
    "reward is 50%| of what it was": None,
}


@pytest.mark.parametrize("line", NOTHING)
def test_housekeeping_is_not_told(line: str) -> None:
    assert readable(line) == ""


@pytest.mark.parametrize(("line", "text"), SOMETHING.items())
def test_everything_else_is_told_once_and_without_the_stages_own_clock(line: str, text: str | None) -> None:
    assert readable(line) == (line if text is None else text)


def test_all_words_are_kept_in_a_file_of_the_stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SYMPOSIUM_HOME", str(tmp_path))
    for lines in (NOTHING, ["again"]):
        with StageLog("a/run", "train@0") as kept:
            for line in lines:
                kept.write(line)
    assert kept.path == tmp_path / "logs/a-run/train@0.log"
    with kept.path.open(newline="\n") as file:
        assert file.read().split("\n") == [*NOTHING, "again", ""]


def test_a_plain_line_has_the_time_the_stage_and_what_it_says() -> None:
    record = logging.LogRecord("x", logging.WARNING, "", 0, "disk %d %% full", (98,), None)
    record.task_run_name = "sweep@1"
    line = PlainFormatter().format(record)
    assert line[8:] == "  sweep@1         warning: disk 98 % full"
    assert not is_housekeeping(record.getMessage())


class Running:
    def share(self) -> float:
        return 0.25

    def progress(self) -> dict[str, object]:
        return {"text": "reward 1.52", "remaining_s": 100.0}


def board() -> Board:
    names = ("identity", "prepare", "train@0", "train@1", "report")
    chain = {name: Stage(name, 10.0, frozenset()) for name in names}
    made = Board(chain, 2, finished={"identity", "prepare"})
    made.took |= {"prepare": 14.2, "train@1": 3.0}
    made.failed.add("train@1")
    made.last |= {"train@1": "a very long last word " * 20, "train@0": "older"}
    made.running["train@0"] = (Running(), 0.0)  # type: ignore[assignment]
    return made


def test_every_stage_has_a_row_that_says_how_it_stands() -> None:
    found = {row["stage"]: (row["state"], row["share"], row["time"]) for row in rows(board())}
    assert found == {
        "identity": ("up to date", 0.0, ""),
        "prepare": ("done", 0.0, "14 s"),
        "train@0": ("runs", 0.25, "1 min 40 s left"),
        "train@1": ("failed", 0.0, "3 s"),
        "report": ("waits", 0.0, ""),
    }


def test_the_time_left_runs_on_while_a_stage_says_nothing_and_then_is_the_time_taken() -> None:
    now = time.monotonic()

    class Silent(Running):
        def __init__(self, silent_s: float) -> None:
            self.silent_s = silent_s

        def progress(self) -> dict[str, object]:
            return super().progress() | {"at": now - self.silent_s}

    shown = board()
    times = []
    for silent_s in (30.0, 300.0):
        shown.running["train@0"] = (Silent(silent_s), now - 400.0)  # type: ignore[assignment]
        times += [row["time"] for row in rows(shown) if row["stage"] == "train@0"]
    assert times == ["1 min 10 s left", "6 min 40 s"]


@pytest.mark.parametrize("width", [60, 100, 200])
def test_the_table_fits_any_terminal_and_names_states_whole(width: int) -> None:
    console = Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None)
    table = LiveTable(console, "brave-owl")
    table.watch(board())
    table(30, 120, "1 min left: train@0")
    lines = ["".join(part.text for part in line) for line in console.render_lines(table.__rich__(), pad=False)]
    assert all(len(line) <= width for line in lines)
    for row in rows(board()):
        assert any(line.startswith(row["stage"]) and row["state"] in line and row["time"] in line for line in lines)
    assert lines[-1].startswith("brave-owl  25%  1 min left: train@0")
    assert ("reward 1.52" in "".join(lines)) == (width >= 100)
