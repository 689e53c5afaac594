"""The notebooks of the docs run to their end, show results, and what they show is kept."""

import nbformat
import pytest

from scripts.api_reference import PAGE
from scripts.api_reference import page as api_page
from scripts.notebook_page import page
from scripts.run_notebooks import NOTEBOOKS, run
from tests.sampling import sampled

NAMES = ("quick-start", "own-environment", "verdict", "credit", "other-people")


def kinds(notebook: nbformat.NotebookNode) -> list[list[str]]:
    """Return the kinds of output of every cell that are results, in order."""
    return [
        [output.output_type for output in cell.outputs if output.output_type in ("execute_result", "error")]
        for cell in notebook.cells
        if cell.cell_type == "code"
    ]


def test_these_are_all_notebooks() -> None:
    assert {path.stem for path in NOTEBOOKS.glob("*.ipynb")} == set(NAMES)


@pytest.mark.parametrize("name", sampled(NAMES, 1, "notebooks", "pipeline_lib"))
def test_a_notebook_runs_to_its_end_and_shows_what_its_kept_outputs_show(name: str) -> None:
    path = NOTEBOOKS / f"{name}.ipynb"
    kept, new = nbformat.read(path, as_version=4), run(path)
    assert kinds(new) == kinds(kept)
    assert sum(map(len, kinds(kept))) >= 4, "it shows nothing"
    stopped = [output for cell in new.cells for output in cell.get("outputs", ()) if output.output_type == "error"]
    assert not stopped


@pytest.mark.parametrize("name", NAMES)
def test_a_page_of_a_notebook_has_its_text_its_code_and_its_results(name: str) -> None:
    text = page(NOTEBOOKS / f"{name}.ipynb")
    assert text.startswith("# ") and "```python\n" in text and "/tmp/" not in text
    assert text.count('<div class="notebook-output">') >= 4
    assert ".ipynb)" not in text.rpartition("[This page")[0], "a link leads to the file and not to the page"


def test_the_reference_is_what_signatures_and_docstrings_say() -> None:
    assert PAGE.read_text(encoding="utf-8") == api_page(), "python -m scripts.api_reference"
