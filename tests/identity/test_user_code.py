"""Of the code of users everything counts, however it is written: whatever can change a reward changes the digest."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline_lib.identity import code
from pipeline_lib.identity.code import code_of, named_code

ROOT = Path(__file__).parents[2]
TASK = "from lab_of_mine.settings import LabSettings\nclass Lab:\n    settings = LabSettings\n"
FILES = {
    "__init__.py": "",
    "task.py": TASK,
    "settings.py": "BONUS = 1.0\nclass LabSettings:\n    @property\n    def bonus(self):\n        return BONUS\n",
    "hidden/__init__.py": "__all__ = ['rules']\n",
    "hidden/rules.py": "LIMIT = 1\n",
    "texts/prompt.py": "# Write a function.\n",
    "texts/broken.py": "this is {{ a template }}\n",
    "texts/table.csv": "1\n",
}


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    for name, text in FILES.items():
        path = tmp_path / "lab_of_mine" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    code._located.cache_clear()
    yield tmp_path / "lab_of_mine"
    code._located.cache_clear()


def digest() -> str:
    return named_code("lab_of_mine.task:Lab").digest


@pytest.mark.parametrize(
    "way",
    [
        "",
        "from lab_of_mine.hidden import *\n",
        "from importlib import import_module as load\nrules = load('lab_of_mine.hidden.' + 'rules')\n",
        "import importlib\nload = getattr(importlib, 'import_' + 'module')\n",
        "rules = __builtins__['__imp' + 'ort__']('lab_of_mine.hidden.rules')\n",
    ],
)
def test_any_change_of_a_package_counts_however_it_is_read(package: Path, way: str) -> None:
    (package / "task.py").write_text(way + TASK)
    found = {digest()}
    changes = [
        ("settings.py", "BONUS = 1.0", "BONUS = 2.0"),
        ("settings.py", "return BONUS", "return BONUS + 1"),
        ("hidden/rules.py", "LIMIT = 1", "LIMIT = 2"),
        ("texts/prompt.py", "Write a", "Write no"),
        ("texts/broken.py", "a template", "another"),
        ("texts/table.csv", "1", "2"),
    ]
    for number, (file, old, new) in enumerate(changes, start=2):
        (package / file).write_text((package / file).read_text().replace(old, new))
        found.add(digest())
        assert len(found) == number, f"{file}: {new}"


def test_comments_and_docstrings_of_what_is_imported_do_not_count(package: Path) -> None:
    before = digest()
    (package / "settings.py").write_text('"""Mine."""\n' + FILES["settings.py"] + "# why\n")
    (package / "__pycache__").mkdir()
    (package / "__pycache__/task.pyc").write_bytes(b"1")
    (package / ".notes").write_text("hidden")
    assert digest() == before


@pytest.mark.parametrize(
    "reading",
    [
        "from pathlib import Path\nTEXT = Path(__file__).with_name('settings.py').read_text()\n",
        "TEXT = open(__file__).read()\n",
        "import inspect\nimport lab_of_mine.settings as it\nTEXT = inspect.getsource(it)\n",
        "from inspect import getdoc as told\n",
        "import lab_of_mine.settings as it\nTEXT = it.__doc__\n",
        "TEXT = __doc__\n",
    ],
)
def test_texts_that_the_package_reads_are_more_than_comments(package: Path, reading: str) -> None:
    (package / "reader.py").write_text(reading)
    before = digest()
    (package / "settings.py").write_text('"""Mine."""\n' + FILES["settings.py"])
    assert digest() != before


def test_what_a_package_imports_counts_too(package: Path) -> None:
    (package / "late.py").write_text("def run():\n    import helper_of_mine\n    import yaml\n")
    helper = package.parent / "helper_of_mine.py"
    helper.write_text("from somebody_else.deep import VALUE\n")
    other = package.parent / "somebody_else"  # a package without __init__.py
    other.mkdir()
    for name in ("deep", "unread"):
        (other / f"{name}.py").write_text("VALUE = 1\n")
    assert named_code("lab_of_mine.task:Lab").versions["PyYAML"]
    for file in (other / "deep.py", other / "unread.py", helper):
        before = digest()
        file.write_text(file.read_text() + "MORE = 1\n")
        assert digest() != before, file


def test_a_module_alone_finds_what_it_names(package: Path) -> None:
    alone, beside = (package.parent / f"{name}_of_mine.py" for name in ("alone", "beside"))
    for way in (
        "from importlib import import_module as get\nget('beside_of_mine')\n",
        "import pkgutil\npkgutil.resolve_name('beside_of_mine:VALUE')\n",
    ):
        alone.write_text(way)
        beside.write_text("VALUE = 1\n")
        before = named_code("alone_of_mine:Lab").digest
        beside.write_text("VALUE = 2\n")
        assert named_code("alone_of_mine:Lab").digest != before, way


def test_words_that_are_also_names_lead_nowhere(package: Path) -> None:
    """A main guard beside an import by name is no import of the running program, nor is "tests" one of a folder."""
    (package.parent / "alone_of_mine.py").write_text("import importlib\nif __name__ == '__main__':\n    VALUE = 1\n")
    assert "__main__" not in named_code("alone_of_mine:Lab").files
    found = {name.partition(".")[0].partition("/")[0] for name in code_of("flows.prepare").files}
    assert not found & {"tests", "benchmarks", "scripts", "docs"}


@pytest.mark.parametrize("folder", ["", "without_init_of_mine"])
@pytest.mark.parametrize(
    ("file", "reading"),
    [
        ("table.json", "Path(__file__).with_name('table.json').read_text()"),
        ("tables/one.json", "(Path(__file__).parent / 'tables' / 'one.json').read_text()"),
        ("tables/one.json", "open('{folder}tables/one.json').read()"),
        ("rules.txt", "exec(open('{folder}rules.txt').read())"),
        ("rules.txt", "open('./{folder}rules.txt').read()"),
        ("a/b/c.txt", "open(Path(__file__).parent / 'a' / 'b' / 'c.txt').read()"),
        ("c.txt", "open(Path(__file__).parent / 'texts' / '..' / 'c.txt').read()"),
        ("../c.txt", "open(os.path.join(os.path.dirname(__file__), '..', 'c.txt')).read()"),
        ("../beside/c.txt", "(Path(__file__).parent / '../beside/c.txt').read_text()"),
        ("c.txt", "open(f'{{HERE}}/c.txt').read()"),
        ("c.txt", "open('{absolute}').read(), '" + "я" * 200 + "'"),
    ],
)
def test_a_module_in_no_package_finds_the_files_that_it_names(
    package: Path, folder: str, file: str, reading: str
) -> None:
    place = package.parent / folder
    (place / file).parent.mkdir(parents=True, exist_ok=True)
    (place / "texts").mkdir(exist_ok=True)
    (place / "itself").symlink_to(place)
    written = reading.format(folder=folder and folder + "/", absolute=place / file)
    (place / "reads_of_mine.py").write_text(f"VALUE = {written}\nNAMES = 'itself', '/', '.'\n")
    (place / file).write_text("1")
    (place / "output.json").write_text("1")
    name = f"{folder and folder + '.'}reads_of_mine:Lab"
    before = named_code(name).digest
    (place / "output.json").write_text("2")
    assert named_code(name).digest == before
    (place / file).write_text("2")
    assert named_code(name).digest != before


def test_a_package_finds_the_files_that_it_names_outside(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere = package.parent / "project"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    (package / "task.py").write_text("VALUE = open('table.json').read()\n" + TASK)
    for file in (elsewhere / "table.json", package.parent / "table.json"):
        before = digest()
        file.write_text("1")
        assert digest() != before, file


def test_what_the_chain_writes_does_not_count_whoever_names_it(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(package.parent)
    shutil.copy(ROOT / "dvc.yaml", "dvc.yaml")
    listed = ["dvc.lock", "report/index.html", "results/metrics.json", "results/test/cost.json", "data/problems/a"]
    listed += ["models/trained/team-0/step-1/a", "results/identity/train.json"]
    own = ["data/mine.json", "reports.txt", "dvc.lock.txt", "results/mine.json", "models/trained.txt"]
    (package.parent / "alone_of_mine.py").write_text(f"NAMES = {[*listed, *own, 'results', 'metrics.json']}\n")
    for name in (*listed, *own):
        before = named_code("alone_of_mine:Lab").digest
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text("1")
        assert (named_code("alone_of_mine:Lab").digest == before) == (name in listed), name


def test_only_modules_that_are_imported_name_files_of_a_folder_without_init(package: Path) -> None:
    place = package.parent / "without_init_of_mine"
    place.mkdir()
    (place / "task.py").write_text("from without_init_of_mine import helps\n")
    (place / "helps.py").write_text("VALUE = 'table.json', '.hidden/table.json'\n")
    (place / "test_task.py").write_text("NAMES = 'metrics.json'\n")
    hidden = package.parent / ".hidden"
    hidden.mkdir()
    for file in (package.parent / "metrics.json", package.parent / "table.json", hidden / "table.json"):
        file.write_text("1")
    before = named_code("without_init_of_mine.task:Lab").digest
    (package.parent / "metrics.json").write_text("2")
    (hidden / "table.json").write_text("2")
    assert named_code("without_init_of_mine.task:Lab").digest == before
    (package.parent / "table.json").write_text("2")
    assert named_code("without_init_of_mine.task:Lab").digest != before


def test_an_installed_package_counts_alike(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(code, "_library_folders", lambda: (package.parent,))
    for file in ("hidden/rules.py", "texts/table.csv", "settings.py"):
        before = digest()
        (package / file).write_text(FILES[file].replace("1", "3"))
        assert digest() != before, file


def test_code_that_is_not_there_is_refused(package: Path) -> None:
    for name in ("lab_of_mine.nothing", "nobodys.module"):
        with pytest.raises(ValueError, match=f"there is no module {name}"):
            named_code(f"{name}:Lab")
