"""The journal in bad times: servers that are down, silent, or come back; killed processes; damaged files."""

import contextlib
import json
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pipeline_lib.tracking import Checkpoint, Tracker, journal, tracker
from pipeline_lib.tracking.operations import Operation, RunKey, merged
from pipeline_lib.tracking.processes import is_gone, own_process
from tests.tracking.conftest import Reader


@contextlib.contextmanager
def silent_server() -> Iterator[str]:
    """A server that takes connections and never says a word."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(64)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


def waiting(home: Path) -> list[Path]:
    return sorted((home / "waiting").rglob("*.jsonl"))


def test_a_server_that_never_answers_does_not_stop_the_work(home: Path, caplog: pytest.LogCaptureFixture) -> None:
    with silent_server() as uri:
        tracking = Tracker(home, "team", "brave-owl", uri=uri, interval_s=0.01)
        run = tracking.start_run("train", 0)
        for step in range(30_000):  # more than memory holds: it would stand still here if it waited
            run.log(step, {"reward": float(step)})
        run.finish()
        assert not tracking.close(0.1)
    values = [
        value
        for file in waiting(home)
        for line in file.read_text().splitlines()
        for value in json.loads(line)["fields"].get("values", [])
    ]
    assert {value[3] for value in values} == set(range(30_000))
    assert caplog.text.count("cannot reach the server") == 1


LOGGING = """
import sys, time
from pathlib import Path
from pipeline_lib.tracking import Tracker
tracking = Tracker(Path(sys.argv[1]), "team", "brave-owl", interval_s=3600)
run = tracking.start_run("train", 0, "a" * 64)
assert tracking.flush(60)
for step in range(1000):
    run.log(step, {"reward": float(step)})
print("put", flush=True)
time.sleep(100)
"""


def test_what_was_put_the_moment_before_a_process_is_killed_is_sent_by_the_next_one(home: Path, reader: Reader) -> None:
    process = subprocess.Popen([sys.executable, "-c", LOGGING, str(home)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "put\n"
    process.kill()
    process.wait()
    assert Tracker(home, "team", "calm-fox").close(60)
    assert reader.curve("train seed 0", "reward") == [(step, float(step)) for step in range(1000)]
    assert reader.statuses()["train seed 0"] == "KILLED"
    assert waiting(home) == []


def test_what_was_sent_leaves_the_file(home: Path) -> None:
    """It would grow with a long training, and all of it be sent again after a kill."""
    tracking = Tracker(home, "team", "brave-owl")
    run = tracking.start_run("train", 0)
    for step in range(3):
        run.log(step, {"reward": float(step)})
        assert tracking.flush(60)
        assert [file.stat().st_size for file in waiting(home)] == [0]
    assert tracking.close(60)
    assert waiting(home) == []


def test_a_full_disk_does_not_stop_the_work(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "waiting").write_text("a file where a folder should be: nothing can be written")
    tracking = Tracker(tmp_path, "team", "brave-owl")
    tracking.start_run("train", 0).log(0, {"reward": 1.0})
    tracking.close(60)
    assert len(tracking.rejected()) == 3
    assert "not recorded: metrics of brave-owl train seed 0" in caplog.text


AWAY = """
import sys
from pathlib import Path
from pipeline_lib.tracking import Checkpoint, Tracker
Tracker._connect = lambda self: (_ for _ in ()).throw(ConnectionError("the database is away"))
owner = sys.argv[2]
tracking = Tracker(Path(sys.argv[1]), "team", "brave-owl", interval_s=0.05, process=owner, owned=bool(owner))
run = tracking.start_run("train", 0, "a" * 64)
for step in range(5):
    run.log(step, {"reward": float(step)})
run.checkpoint(Checkpoint("seed-0-step-4", 4, "b" * 64, "models/x"))
run.finish()
sys.exit(10 if tracking.close() else 0)
"""


def away(home: Path, owner: str = "") -> None:
    subprocess.run([sys.executable, "-c", AWAY, str(home), owner], check=True)


def test_what_a_process_could_not_send_is_sent_by_the_next_one(home: Path, reader: Reader) -> None:
    away(home)
    away(home)  # the same run again, also in vain
    assert len(waiting(home)) == 2
    tracking = Tracker(home, "team", "brave-owl")
    sweep = tracking.start_run("sweep", 0)
    checkpoint = Checkpoint("seed-0-step-4", 4, "b" * 64, "models/x")
    sweep.checkpoint_metrics(checkpoint, {"tests_passed": 0.5}, ("validation", "d" * 64))
    sweep.finish()
    assert tracking.close(60)
    assert waiting(home) == []
    assert reader.curve("train seed 0", "reward") == [(step, float(step)) for step in range(5)]
    experiment = reader.runs()["brave-owl"].info.experiment_id
    (model,) = reader.client.search_logged_models([experiment])
    assert model.source_run_id == reader.runs()["train seed 0"].info.run_id
    assert set(reader.statuses().values()) == {"FINISHED"}
    for run in reader.runs().values():
        assert 0 <= run.info.end_time - run.info.start_time < 10_000, "it would seem to last until it was sent"


def test_who_has_time_waits_for_the_server_and_sends_what_others_could_not(
    home: Path, reader: Reader, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The report of a run on a worker went with its workspace, and the rest waited there for another run."""
    said: list[str] = []
    assert tracker.send_waiting(home, 0.0, lambda: said.append("waits")) and not said, "there is nothing to send"
    away(home)
    attempts, connect = [], tracker.open_recorder

    def open_recorder(uri: str, folder: Path) -> Any:
        attempts.append(uri)
        if len(attempts) < 3:
            raise ConnectionError("the database is away")
        return connect(uri, folder)

    monkeypatch.setattr(tracker, "open_recorder", open_recorder)
    monkeypatch.setattr(journal, "_RETRY_S", 0.0)
    assert not tracker.send_waiting(home, 0.0, lambda: said.append("waits")) and said == ["waits"]
    assert tracker.send_waiting(home, 60.0, lambda: said.append("waits"))
    assert waiting(home) == [] and set(reader.statuses().values()) == {"FINISHED"}
    assert caplog.text.count("cannot reach the server") == 1


def test_a_run_whose_owner_sends_what_its_stages_could_not_ends_as_its_owner_says(home: Path, reader: Reader) -> None:
    tracking = Tracker(home, "team", "brave-owl", owned=True)
    assert tracking.flush(60)
    away(home, own_process())
    assert tracker.send_waiting(home, 60.0, lambda: None)
    assert reader.statuses() == {"brave-owl": "RUNNING", "train seed 0": "FINISHED"}
    tracking.whole.finish()
    assert tracking.close(60) and waiting(home) == []
    assert set(reader.statuses().values()) == {"FINISHED"}


def test_a_run_that_is_sent_by_another_one_ends_as_it_ended(home: Path, reader: Reader) -> None:
    away(home)
    assert Tracker(home, "team", "calm-fox").close(60)
    statuses = reader.statuses()
    assert statuses["brave-owl"] == statuses["train seed 0"] == "FINISHED"


def test_a_run_that_another_process_tells_of_is_not_taken_for_that_process(home: Path, reader: Reader) -> None:
    away(home)
    (file,) = waiting(home)
    told = [line for line in file.read_text().splitlines(keepends=True) if '"close"' not in line]  # killed before
    file.write_text("".join(told))
    assert Tracker(home, "team", "calm-fox").flush(60)
    assert reader.statuses()["train seed 0"] == "KILLED"


def test_a_damaged_line_is_left_out_and_the_others_are_sent(
    home: Path, reader: Reader, caplog: pytest.LogCaptureFixture
) -> None:
    away(home)
    (file,) = waiting(home)
    file.write_text('{"half a li\n' + file.read_text())
    tracking = Tracker(home, "team", "brave-owl")
    assert tracking.flush(60)
    tracking.close(60)
    assert "a damaged line" in caplog.text
    assert len(reader.curve("train seed 0", "reward")) == 5


def test_what_waits_for_one_server_is_not_sent_to_another(home: Path, tmp_path: Path) -> None:
    away(home)
    other = f"sqlite:///{tmp_path}/other.db"
    shutil.copy(home / "mlflow.db", tmp_path / "other.db")
    tracking = Tracker(home, "team", "calm-fox", uri=other)
    tracking.start_run("prepare").finish()
    assert tracking.close(60)
    assert len(waiting(home)) == 1
    assert set(Reader(other).runs()) == {"calm-fox", "prepare"}


def test_the_file_of_a_process_that_still_runs_is_left_to_it(home: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", LOGGING, str(home)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "put\n"
    (living,) = waiting(home)
    assert Tracker(home, "team", "calm-fox").close(60)
    assert waiting(home) == [living]
    process.kill()
    process.wait()
    assert Tracker(home, "team", "calm-fox").close(60)
    assert waiting(home) == []


def test_what_the_server_refuses_is_reported_and_the_rest_goes_on(
    home: Path, reader: Reader, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "page.html").touch()
    tracking = Tracker(home, "team", "brave-owl", interval_s=3600)
    assert tracking.flush(60)
    run = tracking.start_run("train", 0)
    run.artifact(tmp_path / "page.html")
    (tmp_path / "page.html").unlink()
    run.log(1, {"reward": 1.0})
    run.finish()
    assert tracking.close(60)
    (refused,) = tracking.rejected()
    assert refused.startswith("artifact of brave-owl train seed 0: FileNotFoundError")
    assert refused in caplog.text
    assert reader.curve("train seed 0", "reward") == [(1, 1.0)]


KILLED = """
import sys
from pathlib import Path
from pipeline_lib.tracking import Tracker
tracking = Tracker(Path(sys.argv[1]), "team", "brave-owl", interval_s=3600)
run = tracking.start_run("report")
assert tracking.flush(60)
run.artifact(Path(sys.argv[2]))
print("put", flush=True)
sys.stdin.read()
"""


def test_of_a_report_that_was_killed_and_is_made_anew_nothing_is_said(
    home: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """DVC removes its files before it is made again, and a warning told of an artifact that was not recorded."""
    (page := tmp_path / "page.html").touch()
    command = [sys.executable, "-c", KILLED, str(home), str(page)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "put\n"
        process.kill()
    page.unlink()
    tracking = Tracker(home, "team", "brave-owl")
    assert tracking.close(60) and not waiting(home)
    assert not tracking.rejected() and "not recorded" not in caplog.text


def test_neighbouring_values_of_one_run_are_sent_together() -> None:
    one, two = RunKey("e", "r", "s", "one", "one"), RunKey("e", "r", "s", "two", "two")

    def metrics(key: RunKey, step: int) -> Operation:
        return Operation("metrics", key, {"values": [("reward", 0.0, 0, step)]})

    operations = [metrics(one, 0), metrics(one, 1), metrics(two, 0), Operation("close", two, {}), metrics(two, 1)]
    joined = list(merged(operations))
    assert [(operation.kind, operation.key.part) for operation in joined] == [
        ("metrics", "one"),
        ("metrics", "two"),
        ("close", "two"),
        ("metrics", "two"),
    ]
    assert len(joined[0].fields["values"]) == 2
    assert len(operations[0].fields["values"]) == 1, "the input was changed"


def test_a_process_is_known_by_more_than_its_number() -> None:
    host, pid, created = own_process().rsplit(":", 2)
    assert not is_gone(own_process())
    assert is_gone(f"{host}:{pid}:{float(created) - 100:.2f}"), "another process had this number before"
    assert not is_gone(f"elsewhere:{pid}:1.0"), "nothing is known about other machines"
    assert not is_gone("")
