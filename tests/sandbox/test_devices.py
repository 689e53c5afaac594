"""Devices of the machine are in every jail; no program can leave something in one, whoever owns them."""

import json
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.needs import JAILS, needs

_USER = 54321
_SANDBOX = Path(__file__).parents[2] / "pipeline_lib/sandbox"
_RUN = """
import json, os, sys
from pipeline_lib.sandbox import Executor, Job
from pipeline_lib.sandbox.backend import SandboxUnavailable
CODE = '''
import os
def f(x):
    try:
        os.chmod("/dev/null", 0o622)
    except OSError as error:
        return "refused"
    return "done"
'''
jail = sys.argv[1] or None
try:
    with Executor(slots=1, jail=jail, packages=[]) as executor:
        (verdict,) = executor.run([Job("job", CODE, "def check(c):\\n    assert c(1) in ('refused', 'done')", "f")])
        jail = executor.health()["jail"]
    print(json.dumps([jail, verdict.status, oct(os.stat("/dev/null").st_mode & 0o777)]))
except SandboxUnavailable as error:
    print(json.dumps([str(error)]))
"""
_CLAIM = """
import json, os
from pipeline_lib.sandbox.runtime import claim_user
first = claim_user()
first.claim.close()
os.chown("/dev/null", first.number, -1)
print(json.dumps([claim_user().number - first.number]))
"""
_DEVICE = "mknod -m 666 /dev/null c 1 3"


@pytest.fixture(scope="module")
def library() -> Iterator[Path]:
    """Yield a folder that everybody may read, with the sandbox in it."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    shutil.copytree(_SANDBOX, folder / "pipeline_lib/sandbox", ignore=shutil.ignore_patterns("__pycache__"))
    yield folder
    shutil.rmtree(folder)


def with_devices(library: Path, null: str, user: int, code: str, *arguments: str) -> list[object]:
    """Return what code prints that runs as a user, where ``/dev`` has only urandom and what ``null`` makes."""
    become = f"setpriv --reuid={user} --regid={user} --clear-groups"
    run = f'{become} env PYTHONPATH={library} /usr/bin/python3 -P -c "$0" "$@"'
    script = f"mount -t tmpfs none /dev && mknod -m 666 /dev/urandom c 1 9 && {null} && exec {run}"
    command = ["unshare", "--mount", "sh", "-c", script, code, *arguments]
    done = subprocess.run(command, check=False, stdin=subprocess.PIPE, capture_output=True, text=True, cwd="/")
    assert done.returncode == 0, done.stderr
    found: list[object] = json.loads(done.stdout)
    return found


@needs("root")
@needs("python of the system")
@needs("bubblewrap")
def test_an_owner_of_a_device_is_told_or_gets_one_that_cannot_be_changed(library: Path) -> None:
    owned = f"{_DEVICE} && chown {_USER} /dev/null"
    (told,) = with_devices(library, owned, _USER, _RUN, "bwrap")
    assert "/dev/null belongs to the user of the programs" in str(told)
    assert "chown root:root /dev/null" in str(told)
    for jail in ("unshare", "bare"):
        assert with_devices(library, owned, _USER, _RUN, jail) == [jail, "passed", "0o666"]
    assert with_devices(library, owned, _USER, _RUN, "") == ["unshare", "passed", "0o666"]
    assert with_devices(library, _DEVICE, _USER, _RUN, "") == ["bwrap", "passed", "0o666"]


@needs("root")
@needs("python of the system")
def test_root_gives_programs_no_user_that_owns_a_device(library: Path) -> None:
    assert with_devices(library, _DEVICE, 0, _CLAIM) == [1]


@needs("root")
@needs("python of the system")
@pytest.mark.parametrize("jail", JAILS)
def test_a_file_in_the_place_of_a_device_is_refused(library: Path, jail: str) -> None:
    (told,) = with_devices(library, "touch /dev/null && chmod 666 /dev/null", 0, _RUN, jail)
    assert "/dev/null is not the device of that name" in str(told)
