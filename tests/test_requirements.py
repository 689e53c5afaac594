"""The pinned packages can be installed on every Python that the project promises."""

import importlib.metadata
import re
from pathlib import Path

from packaging.specifiers import SpecifierSet

LOCK = Path(__file__).parents[1] / "requirements.lock"


def test_every_pin_can_be_installed_on_the_oldest_python() -> None:
    pins = re.findall(r"^([A-Za-z0-9._-]+)==", LOCK.read_text(), flags=re.M)
    wanted = {name: importlib.metadata.metadata(name).get("Requires-Python") or "" for name in pins}
    assert len(wanted) > 100
    assert {name: needs for name, needs in wanted.items() if not SpecifierSet(needs).contains("3.11.0")} == {}
