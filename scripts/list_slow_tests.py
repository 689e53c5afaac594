"""Write tests/slow.txt, the tests that take long, of which `make test` draws a third (tests/sampling.py).

make test-all PYTEST_ARGS=--junitxml=tests.xml && python -m scripts.list_slow_tests tests.xml

The seconds are those of the test itself, without what it shares with others (so pyproject.toml asks for).
"""

import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from pathlib import Path

LIST = Path("tests/slow.txt")


def listed(report: Path, least_s: float = 5.0) -> Iterator[str]:
    """Yield the lines of the list from a report of pytest: tests that took at least so many seconds."""
    for case in ElementTree.parse(report).iter("testcase"):
        module = Path(case.attrib["file"]).with_suffix("").as_posix().replace("/", ".")
        inside = case.attrib["classname"].removeprefix(module).strip(".").split(".")
        name = "::".join([case.attrib["file"], *filter(None, inside), case.attrib["name"]])
        if float(case.attrib["time"]) >= least_s:
            yield f"{float(case.attrib['time']):6.1f} {name}\n"


if __name__ == "__main__":
    LIST.write_text("".join(sorted(listed(Path(sys.argv[1])), key=lambda line: line.split()[1])))
