"""Stages of one DVC command share a server and the libraries, and nothing stays behind when DVC has ended."""

import json
import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tasks.services.process_environment import HOME
from tasks.services.stage_proxy import ADDRESS, JOINED
from tests.needs import ROOT
from tests.tasks.waiting import wait

pytestmark = [pytest.mark.service]

# As a stage of `flows` begins; the parent of both, without DVC's variable, stands for DVC.
STAGE = """
import json, os, sys
sys.argv, sys.orig_argv = ["-m"], [sys.executable, "-m", "flows.select"]
from tasks.services.process_environment import prepare
prepare()
from tasks.services.stage_proxy import join_dvc
join_dvc()
print(json.dumps(dict(os.environ)))
"""
DVC = f"""
import os, subprocess, sys
for _ in range(2):
    subprocess.run([sys.executable, "-c", {STAGE!r}], env=os.environ | {{"DVC_STAGE": "select"}}, check=True)
"""


def test_two_stages_share_what_the_first_has_started_and_it_ends_with_dvc(tmp_path: Path) -> None:
    kept = {name: value for name, value in os.environ.items() if name != "PREFECT_API_URL"}
    done = subprocess.run(
        [sys.executable, "-c", DVC],
        cwd=ROOT,
        env={**kept, HOME: str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    first, second = (json.loads(line) for line in done.stdout.splitlines())
    shared = ("PREFECT_API_URL", "PREFECT_UI_URL", ADDRESS, JOINED)
    assert [first[name] for name in shared] == [second[name] for name in shared]
    assert first["PREFECT_UI_URL"] == "" and first["PREFECT_API_URL"].startswith("http://127.0.0.1:")

    def left() -> list[str]:
        commands = (" ".join(process.info["cmdline"] or ()) for process in psutil.process_iter(["cmdline"]))
        return [command for command in commands if str(tmp_path) in command]

    wait(lambda: not left() and not list(tmp_path.glob("with-dvc-*.json")))
