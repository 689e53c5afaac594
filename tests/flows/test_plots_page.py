"""The page of ``dvc plots`` draws every plot by itself, in a real browser that reaches no network."""

import shutil
from pathlib import Path

import pytest

from tests.flows.browser import browser
from tests.flows.project import ROOT, call

PLOTS = """
plots:
  - learning:
      title: reward while learning
      x: step
      y: {learning.csv: [reward, primary]}
  - problems:
      template: scatter
      x: base
      y: {problems.csv: selected}
  - report/plots/terms:
      title: a term
      x: step
      y: reward
  - nothing:
      x: step
      y: {nothing.csv: reward}
"""


@pytest.mark.service
def test_the_page_of_plots_needs_no_network_and_shows_every_run(tmp_path: Path) -> None:
    project = tmp_path / "project"
    (project / ".dvc").mkdir(parents=True)
    for name in (".dvc/config", ".dvc/plots.html", ".dvc/.gitignore"):
        shutil.copy(ROOT / name, project / name)
    (project / "dvc.yaml").write_text(PLOTS)
    (project / "problems.csv").write_text("base,selected\n0.1,0.5\n0.2,0.4\n0.3,\n")
    (project / "report/plots/terms").mkdir(parents=True)
    (project / "report/plots/terms/syntax.csv").write_text("step,reward\n1,0.1\n2,0.2\n")
    (project / "nothing.csv").write_text("step,reward\n1,\n")
    (project / "learning.csv").write_text("step,reward,primary\n1,0.1,0\n2,0.3,0.5\n")
    for command in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "start"]):
        call(project, "git", "-c", "user.name=t", "-c", "user.email=t@localhost", *command)
    (project / "learning.csv").write_text("step,reward,primary\n1,0.2,0.1\n2,0.6,0.7\n3,0.8,0.9\n")
    call(project, "dvc", "plots", "diff", "HEAD", "workspace")
    page = project / "dvc_plots/index.html"
    assert "<script src" not in page.read_text() and "<link" not in page.read_text()
    with browser(tmp_path) as window:
        window.open(page.as_uri())
        window.see("reward while learning", "workspace reward", "a term: terms syntax", "HEAD primary", "no data")
        script = "return [...document.querySelectorAll('#learning polyline')].map(line => line.points.numberOfItems)"
        assert sorted(window.driver.execute_script(script)) == [2, 2, 3, 3]
        points = "return document.querySelectorAll('#problems circle').length"
        assert window.driver.execute_script(points) == 4, "two problems of two runs; an empty value is no point"
        window.picture("dvc-plots")
