"""What programs and tests find as in a plain Python process, and what docs/verdicts.md names as lower than there."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline_lib.sandbox import Executor, Job, Limits, Status
from pipeline_lib.sandbox.inside.confine import landlock_version
from pipeline_lib.sandbox.inside.folders import Folder
from pipeline_lib.sandbox.inside.values import BadValue
from tests.needs import JAILS

pytestmark = pytest.mark.sample("jail", "pipeline_lib/sandbox")  # one jail for each case


@pytest.fixture(scope="module", params=JAILS)
def jail(request: pytest.FixtureRequest) -> Iterator[tuple[str, Executor]]:
    with Executor(slots=1, cache=0, jail=request.param, limits=Limits(wall_s=4.0)) as opened:
        yield request.param, opened


def holds_in_python(code: str, tests: str, folder: Path) -> bool:
    """Return whether the tests pass in a plain Python process."""
    (folder / "both.py").write_text(f"{code}\n{tests}\n")
    return subprocess.run([sys.executable, "both.py"], cwd=folder, check=False, capture_output=True).returncode == 0


SAME = "def f(x):\n    return x\n"
GOES = "import os\ndef f(x):\n    os.chdir(x)\n    return len(os.listdir())\n"
GOES_AND_WRITES = "import os\ndef f(x):\n    os.mkdir(x)\n    os.chdir(x)\n    open('a', 'w').close()\n    return x\n"
IS_FOLDER = "import os\ndef f(name):\n    return os.path.isdir(name)\n"
FORK = "import os, sys\npid = os.fork()\n"
CODE_OF_CHILD = "f(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))"

AS_PYTHON = {
    "time zones": (
        "from datetime import datetime\nfrom zoneinfo import ZoneInfo\n"
        "def f(x):\n    return datetime(2024, 7, 1, tzinfo=ZoneInfo(x)).isoformat()\n",
        "assert f('Europe/Berlin') == '2024-07-01T00:00:00+02:00'",
    ),
    "time zone of the process": (
        "import os, time\ndef f(x):\n    os.environ['TZ'] = x\n    time.tzset()\n"
        "    return time.localtime(0).tm_hour\n",
        "assert f('Europe/Berlin') == 1",
    ),
    "locale": (
        "import locale\ndef f(x):\n    locale.setlocale(locale.LC_ALL, x)\n    return locale.getlocale()[1]\n",
        "assert f('C.UTF-8') == 'UTF-8'",
    ),
    "types of files": (
        "import mimetypes\ndef f(x):\n    return mimetypes.guess_type(x)[0] is not None\n",
        "assert f('a.docx')",
    ),
    "services": ("import socket\ndef f(x):\n    return socket.getservbyname(x)\n", "assert f('http') == 80"),
    "a program that goes to the root": (
        "import os\ndef f(x):\n    os.chdir('/')\n    return x\n",
        "import os\nopen('a', 'w').close()\nassert f(1) == 1\nassert os.getcwd() == '/' and not os.path.exists('a')",
    ),
    "a program that goes to the root by a link": (
        "import os\ndef f(x):\n    os.symlink('/', 'a')\n    os.chdir('a')\n    return x\n",
        "import os\nassert f(1) == 1",
    ),
    "a program that goes to another folder": (
        GOES_AND_WRITES,
        "import os\nopen('b', 'w').close()\nassert f('c') == 'c'\nassert os.listdir() == ['a']\n"
        "assert os.path.exists('../b') and not os.path.exists('c/a')",
    ),
    "a program that goes to another folder, and tests that expect it elsewhere": (
        GOES_AND_WRITES,
        "import os\nassert f('c') == 'c'\nassert os.path.exists('c/a')",
    ),
    "a program that comes back": (
        GOES_AND_WRITES.replace("return x", "yield os.path.basename(os.getcwd())\n    os.chdir('..')\n    yield 1"),
        "import os\ng = f('c')\nassert next(g) == os.path.basename(os.getcwd()) == 'c' and os.listdir() == ['a']\n"
        "assert next(g) == 1\nassert os.path.exists('c/a')",
    ),
    "a program whose folder is gone": (
        "import os\ndef f(x):\n    os.mkdir(x)\n    os.chdir(x)\n    os.rmdir('../' + x)\n    return 1\n",
        "import os\nassert f('a') == 1",
    ),
    "tests that go to another folder": (
        GOES,
        "import os, tempfile\nold = os.getcwd()\nwith tempfile.TemporaryDirectory() as new:\n    os.chdir(new)\n"
        "    open('a', 'w').close()\n    assert f('.') == 1\n    os.chdir(old)\nassert f('.') == len(os.listdir())",
    ),
    "a folder in place of a file": (
        IS_FOLDER,
        "import os\nopen('a', 'w').close()\nassert not f('a')\nos.remove('a')\nos.mkdir('a')\n"
        "open('a/b', 'w').close()\nassert f('a')",
    ),
    "a file in place of a folder": (
        IS_FOLDER,
        "import os, shutil\nos.makedirs('a/b')\nopen('a/c', 'w').close()\nassert f('a')\nshutil.rmtree('a')\n"
        "open('a', 'w').close()\nassert not f('a')\nos.remove('a')\nassert not f('a')",
    ),
    "a folder that the program puts in place of a file": (
        "import os\ndef f(x):\n    os.remove('a')\n    os.makedirs('a/b')\n    return x\n",
        "import os\nopen('a', 'w').close()\nassert f(1) == 1\nassert os.path.isdir('a/b')",
    ),
    "a file that the program made unreadable": (
        "import os\ndef f(x):\n    if x == 1:\n        open('a', 'w').close()\n"
        "        os.chmod('a', 0)\n    return x\n",
        "import os\nassert f(1) == 1\nassert os.path.exists('a')\nassert f(2) == 2",
    ),
    "a folder that the program made unreadable": (
        "import os\ndef f(x):\n    if x == 1:\n        os.mkdir('a')\n        os.chmod('a', 0)\n    return x\n",
        "import os\nassert f(1) == 1\nassert os.path.exists('a')\nassert f(2) == 2",
    ),
    "a file that the tests made unreadable": (
        "import os\ndef f(x):\n    return os.path.exists(x)\n",
        "import os\nopen('a', 'w').close()\nos.chmod('a', 0)\nassert f('a')\nassert f('a')\nassert not f('b')",
    ),
    "files under a mask of modes": (
        "import os\ndef f(x):\n    os.umask(0o777)\n    return len(os.listdir())\n",
        "import os\nbefore = f(1)\nos.umask(0o022)\nos.makedirs('a/b')\nopen('a/b/c', 'w').close()\n"
        "assert f(1) == before + 1\nopen('a/b/d', 'w').close()\nassert f(1) == before + 1",
    ),
    "an exception with two builtin bases": (
        "class E(KeyError, ValueError):\n    pass\ndef f(x):\n    raise E('a')\n",
        "caught = None\ntry:\n    f(1)\nexcept ValueError as error:\n    caught = error\n"
        "assert isinstance(caught, KeyError)\nassert caught.args == ('a',)",
    ),
    "an exception that inherits two bases": (
        "class E(ArithmeticError):\n    pass\nclass F(E, LookupError):\n    pass\ndef f(x):\n    raise F\n",
        "caught = 0\nfor kind in (ArithmeticError, LookupError):\n    try:\n        f(1)\n"
        "    except kind:\n        caught += 1\nassert caught == 2",
    ),
    "an exception that derives from one of a module, too": (
        "import json\nclass E(json.JSONDecodeError, KeyError):\n    pass\ndef f(x):\n    raise E('a', 'b', 0)\n",
        "import json\ncaught = 0\nfor kind in (json.JSONDecodeError, KeyError):\n    try:\n        f(1)\n"
        "    except kind:\n        caught += 1\nassert caught == 2",
    ),
    "an exception of io": (
        "def f(x):\n    open(x, 'w').read()\n",
        "import io\ncaught = 0\nfor kind in (io.UnsupportedOperation, OSError, ValueError):\n    try:\n        f('a')\n"
        "    except kind:\n        caught += 1\nassert caught == 3",
    ),
    "an exception with a base that the tests define, too": (
        "class B(Exception):\n    pass\nclass E(B, KeyError):\n    pass\ndef f(x):\n    raise E\n",
        "class B(Exception):\n    pass\ncaught = None\ntry:\n    f(1)\nexcept B:\n    caught = B\n"
        "except KeyError:\n    caught = KeyError\nassert caught is KeyError",
    ),
    "an exception that is caught as a base that the tests define, too": (
        "class B(Exception):\n    pass\nclass E(B):\n    pass\ndef f(x):\n    raise E\n",
        "class B(Exception):\n    pass\ncaught = False\ntry:\n    f(1)\nexcept B:\n    caught = True\nassert caught",
    ),
    "a class with the name of a flag": (
        "class A(Exception):\n    pass\nclass B(A):\n    pass\ndef f(x):\n    raise B(x)\n",
        "caught = None\ntry:\n    f(1)\nexcept A as error:\n    caught = error\nassert isinstance(caught, B)",
    ),
    "an exception that says what it is": (
        "class E(Exception):\n    def __str__(self):\n        return 'own'\ndef f(x):\n    raise E\n",
        "caught = None\ntry:\n    f(1)\nexcept Exception as error:\n    caught = str(error)\nassert caught == 'own'",
    ),
    "how an exception with attributes is written": (
        "class E(Exception):\n    def __init__(self, *needs):\n        self.needs = needs\n"
        "def f(*needs):\n    raise E(*needs)\n",
        "def caught(*needs):\n    try:\n        f(*needs)\n    except Exception as error:\n        return repr(error)\n"
        "assert (caught(), caught(1), caught('a', 2)) == ('E()', 'E(1)', \"E('a', 2)\")",
    ),
    "what an exception of the tests' function says": (
        "def f(g):\n    try:\n        g()\n    except Exception as error:\n        return error.args, str(error)\n",
        "assert f(lambda: {}['a']) == (('a',), \"'a'\")\nassert f(lambda: next(iter([]))) == ((), '')\n"
        "def g():\n    raise ValueError('a', [1])\nassert f(g) == (('a', [1]), \"('a', [1])\")",
    ),
    "an exception of the tests' function with fields": (
        "def f(g):\n    try:\n        g()\n    except FileNotFoundError as error:\n        return error.filename\n"
        "    except UnicodeDecodeError as error:\n        return error.start\n",
        "assert f(lambda: open('a')) == 'a'\nassert f(lambda: b'a\\xff'.decode()) == 1",
    ),
    "an exception of the tests' function that cannot be sent": (
        "def f(g):\n    try:\n        g()\n    except ValueError as error:\n        return 'object' in str(error)\n",
        "def g():\n    raise ValueError(object())\nassert f(g)",
    ),
    "files that are named by an import from a module": (
        "def f(x):\n    open(x, 'w').close()\n",
        "from pathlib import Path\nf('a')\nassert Path('a').exists()",
    ),
    "times with a time zone": (
        "from datetime import timedelta\ndef f(time, zone):\n    return time.astimezone(zone) + timedelta(hours=1)\n",
        "from datetime import datetime, timezone\nfrom zoneinfo import ZoneInfo\nberlin = ZoneInfo('Europe/Berlin')\n"
        "moved = f(datetime(2024, 10, 26, 23, tzinfo=timezone.utc), berlin)\n"
        "assert moved == datetime(2024, 10, 27, 2, tzinfo=berlin)\nassert moved.utcoffset().seconds == 7200\n"
        "assert f(moved, timezone.utc) == datetime(2024, 10, 27, 1, tzinfo=timezone.utc)\n"
        "assert moved.tzinfo is berlin",
    ),
    "the second of two equal times": (
        "def f(time):\n    return time.replace(fold=1)\n",
        "from datetime import datetime\nfrom zoneinfo import ZoneInfo\n"
        "later = f(datetime(2024, 10, 27, 2, 30, tzinfo=ZoneInfo('Europe/Berlin')))\n"
        "assert later.fold == 1\nassert later.utcoffset().seconds == 3600",
    ),
    "a time zone that the program made up": (
        "import io\nfrom datetime import datetime\nfrom zoneinfo import ZoneInfo\n"
        "def f(x):\n    with open('/usr/share/zoneinfo/Asia/Tokyo', 'rb') as file:\n"
        "        zone = ZoneInfo.from_file(file, key='Europe/Berlin')\n    return datetime(2024, 7, 1, tzinfo=zone)\n",
        "from datetime import datetime\nfrom zoneinfo import ZoneInfo\n"
        "assert f(1) == datetime(2024, 7, 1, tzinfo=ZoneInfo('Europe/Berlin'))",
    ),
    "files of the standard library": (
        "import importlib.resources\ndef f(x):\n    return (importlib.resources.files('json') / x).is_file()\n",
        "assert f('__init__.py')",
    ),
    "tests that lower a hard limit": (
        SAME,
        "import resource\nresource.setrlimit(resource.RLIMIT_AS, (800 << 20, 800 << 20))\nassert f(1) == 1",
    ),
    "tests that leave themselves no memory": (
        SAME,
        "import resource\nresource.setrlimit(resource.RLIMIT_AS, (1, 1))\nassert f(1) == 1",
    ),
    "a forked process that exits": (SAME, f"{FORK}if pid == 0:\n    sys.exit(7)\nassert {CODE_OF_CHILD} == 7"),
    "a forked process that raises": (SAME, f"{FORK}if pid == 0:\n    1 / 0\nassert {CODE_OF_CHILD} == 1"),
    "a forked process that fails": (
        SAME,
        f"{FORK}if pid == 0:\n    assert pid != 0\nelse:\n    assert {CODE_OF_CHILD} == 1",
    ),
    "a forked process that goes on to the end": (SAME, f"{FORK}if pid:\n    assert {CODE_OF_CHILD} == 0"),
    "a forked process that writes": (
        SAME,
        f"{FORK}if pid == 0:\n    out = open('a', 'w')\n    out.write('x')\n    sys.exit()\n"
        "os.waitpid(pid, 0)\nassert f(open('a').read()) == 'x'",
    ),
}

#: With a Landlock that confines signals as in plain Python, also in `bare`.
SIGNALS = {
    "send signals to processes": (
        SAME,
        "import os, signal\nsignal.signal(signal.SIGUSR1, signal.SIG_IGN)\nos.kill(os.getpid(), signal.SIGUSR1)\n"
        "assert f(1) == 1",
    ),
    "a signal that ends the tests": (SAME, "import os\nassert f(9) == 9\nos.kill(os.getpid(), f(9))\nassert f(1) == 1"),
    "a forked process that ends the tests": (
        SAME,
        f"assert f(9) == 9\n{FORK}if pid == 0:\n    try:\n        os.kill(os.getppid(), 9)\n    finally:\n"
        f"        os._exit(0)\nassert {CODE_OF_CHILD} == 0",
    ),
}
if landlock_version() >= 6:
    AS_PYTHON |= SIGNALS


@pytest.mark.parametrize("name", AS_PYTHON)
def test_as_in_plain_python(name: str, jail: tuple[str, Executor], tmp_path: Path) -> None:
    code, tests = AS_PYTHON[name]
    (verdict,) = jail[1].run([Job("job", code, tests, "f")])
    assert (verdict.status is Status.PASSED) == holds_in_python(code, tests, tmp_path), verdict.error


POINT = "import dataclasses\n@dataclasses.dataclass\nclass P:\n    x: int\ndef f(x):\n    return P(x)\n"
NOTES_SIGNAL = "import os, signal, threading\ndef f(x):\n    signal.signal(signal.SIGUSR1, signal.SIG_IGN)\n    "
ASKS_LIMIT = "    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]\n"
SOURCE = "import inspect\ndef f(x):\n    return inspect.getsource(f)[:3]\n"

#: By the words with which docs/verdicts.md names it: what passes in plain Python only.
LOWER = {
    "call the program in a process that they fork": (
        SAME,
        f"{FORK}if pid == 0:\n    f(1)\n    sys.exit(0)\nassert {CODE_OF_CHILD} == 0",
    ),
    "call it there and lose the error": (
        SAME,
        "import os\npid = os.fork()\nif pid == 0:\n    try:\n        f(1)\n    finally:\n        os._exit(0)\n"
        "os.waitpid(pid, 0)\nassert f(1) == 1",
    ),
    "in a `multiprocessing.Process`": (
        SAME,
        "import multiprocessing\nprocess = multiprocessing.Process(target=f, args=(1,))\nprocess.start()\n"
        "process.join()\nassert f(process.exitcode) == 0",
    ),
    "end their own process": (SAME, "import os\nassert f(1) == 1\nos._exit(0)"),
    "`sys.exit(0)`": (SAME, "import sys\nassert f(1) == 1\nsys.exit(0)"),
    "close descriptors that they have not opened": (SAME, "import os\nos.closerange(3, 100)\nassert f(1) == 1"),
    "start programs": (SAME, "import subprocess\nassert f(subprocess.run(['true']).returncode) == 0"),
    "`multiprocessing.Queue`": (
        SAME,
        "import multiprocessing\nqueue = multiprocessing.Queue()\nqueue.put(1)\nassert f(queue.get()) == 1",
    ),
    "`Pool`": (
        SAME,
        "import multiprocessing\nwith multiprocessing.Pool(2) as p:\n    assert p.map(abs, [f(-1)]) == [1]",
    ),
    "connect to a server of their own": (
        SAME,
        "import socket\nserver = socket.create_server(('127.0.0.1', 0))\n"
        "client = socket.create_connection(server.getsockname())\nassert f(1) == 1",
    ),
    "`getpass.getuser`": (SAME, "import getpass\nassert f(getpass.getuser())"),
    "memoryviews": ("def f(x):\n    return bytes(x)\n", "assert f(memoryview(b'ab')) == b'ab'"),
    "return one": ("def f(x):\n    return memoryview(x)\n", "assert f(b'ab') == b'ab'"),
    "`dataclasses.asdict`": (POINT, "import dataclasses\nassert dataclasses.asdict(f(1)) == {'x': 1}"),
    "send signals to themselves": (NOTES_SIGNAL + "signal.raise_signal(signal.SIGUSR1)\n    return x\n", "assert f(1)"),
    "`os.kill`": (NOTES_SIGNAL + "os.kill(os.getpid(), signal.SIGUSR1)\n    return x\n", "assert f(1)"),
    "start processes": ("import subprocess\ndef f(x):\n    return subprocess.run(['true']).args\n", "assert f(1)"),
    "named pipes": ("import os\ndef f(x):\n    return os.mkfifo(x)\n", "assert f('p') is None"),
    "sockets": (
        "import socket\ndef f(x):\n    return socket.create_server((x, 0)) is x\n",
        "assert not f('127.0.0.1')",
    ),
    "semaphores": (
        "import multiprocessing\ndef f(x):\n    with multiprocessing.Lock():\n        return x\n",
        "assert f(1)",
    ),
    "`shared_memory`": (
        "from multiprocessing import shared_memory\ndef f(x):\n"
        "    memory = shared_memory.SharedMemory(create=True, size=x)\n    memory.unlink()\n    return x\n",
        "assert f(1) == 1",
    ),
    "the names of users": ("import pwd\ndef f(x):\n    return pwd.getpwuid(x).pw_uid\n", "assert f(0) == 0"),
    "read back a limit that they have set": (
        "import resource\ndef f(x):\n    resource.setrlimit(resource.RLIMIT_NOFILE, (x, x))\n" + ASKS_LIMIT,
        "assert f(20) == 20",
    ),
    "process numbers": ("import os\ndef f(x):\n    return os.getpid()\n", "assert f(1) > 0"),
    "thread numbers": ("import threading\ndef f(x):\n    return threading.get_native_id()\n", "assert f(1) > 0"),
    "priorities": ("import os\ndef f(x):\n    return os.nice(x)\n", "assert f(0) >= -20"),
    "load": ("import os\ndef f(x):\n    return len(os.getloadavg())\n", "assert f(1) == 3"),
    "set the times of files": (
        "import os\ndef f(x):\n    open('a', 'w').close()\n    os.utime('a', (x, x))\n"
        "    return os.stat('a').st_mtime\n",
        "assert f(1) == 1",
    ),
    "their own source": (SOURCE, "assert f(1) == 'def'"),
    "`__file__`": ("def f(x):\n    return __file__[-3:]\n", "assert f(1) == '.py'"),
    "`__name__`": ("def f(x):\n    return __name__\n", "assert f(1) == '__main__'"),
    "`sys.argv`": ("import sys\ndef f(x):\n    return len(sys.argv)\n", "assert f(1) == 1"),
    "`find_library`": (
        "import ctypes.util\ndef f(x):\n    return ctypes.util.find_library(x) is not None\n",
        "assert f('c')",
    ),
}
#: The same, in `bare` only.
LOWER_IN_BARE = {
    "set the mode of files": (
        "import os\ndef f(x):\n    os.chmod(x, 0o640)\n    return os.stat(x).st_mode & 0o777\n",
        "open('a', 'w').close()\nassert f('a') == 0o640",
    ),
    "absolute paths of temporary folders": (
        "def f(x):\n    open(x + '/a', 'w').close()\n    return x\n",
        "import os, tempfile\nnew = tempfile.mkdtemp()\nassert f(new) == new\nassert os.listdir(new) == ['a']",
    ),
    "create sockets": (SAME, "import socket\nwith socket.create_server(('127.0.0.1', 0)):\n    assert f(1) == 1"),
}
if not SIGNALS.keys() <= AS_PYTHON.keys():
    LOWER_IN_BARE["send signals to processes"] = SIGNALS["send signals to processes"]
_DOCS = " ".join((Path(__file__).parents[2] / "docs/verdicts.md").read_text().split())


@pytest.mark.parametrize("name", [*LOWER, *LOWER_IN_BARE])
def test_what_is_lower_than_in_plain_python_is_named(name: str, jail: tuple[str, Executor], tmp_path: Path) -> None:
    code, tests = (LOWER | LOWER_IN_BARE)[name]
    assert name in _DOCS
    assert holds_in_python(code, tests, tmp_path)
    (verdict,) = jail[1].run([Job("job", code, tests, "f")])
    if name in LOWER_IN_BARE and jail[0] != "bare":
        assert verdict.status is Status.PASSED, verdict.error
    else:
        assert verdict.status in (Status.FAILED, Status.CRASH), verdict.error
        assert verdict.error


@pytest.mark.parametrize("called", ["E()", "E", "[E()]", "(E(),)", "{1: E()}"])
def test_a_class_that_says_it_is_every_class_is_refused_in_words(called: str, jail: tuple[str, Executor]) -> None:
    meta = "class M(type):\n    def __eq__(self, other):\n        return True\n    __hash__ = type.__hash__\n"
    code = f"{meta}class E(metaclass=M):\n    pass\ndef f(x):\n    return {called}\n"
    (verdict,) = jail[1].run([Job("job", code, "assert f(1) == 2", "f")])
    assert verdict.status is Status.FAILED
    assert "the class E defines how its objects are recognised; it cannot be sent" in verdict.error


def test_changes_of_files_go_through_no_link(tmp_path: Path) -> None:
    outside, inside = tmp_path / "outside", tmp_path / "inside"
    for folder in (outside, inside):
        folder.mkdir()
    (outside / "a").write_text("kept")
    (inside / "link").symlink_to(outside)
    for change in (["link/a", 0o100644, ""], ["link/new", 0o100644, ""], ["link/a", 0, None], ["link/b", 0o40755, ""]):
        with pytest.raises(BadValue, match=re.escape("below what is no folder")):
            Folder(str(inside), 1 << 20).apply(["", change])
    Folder(str(inside), 1 << 20).apply(
        ["", ["link", 0o40755, ""], ["link/a", 0o100644, "aGk="]]
    )  # a folder in place of the link
    assert {path.name: path.read_text() for path in outside.iterdir()} == {"a": "kept"}
    assert (inside / "link/a").read_text() == "hi"
