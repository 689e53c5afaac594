"""Workspaces of experiments: they share what is shared, carry changed settings, and leave the working tree alone."""

import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from flows import study_cells
from pipeline_lib.locks import locked
from pipeline_lib.settings import Params, load_params
from pipeline_lib.tracking.processes import own_process
from tasks.chain import params_file, workspaces
from tasks.chain.graph import ChainError
from tasks.chain.workspaces import save_experiment
from tasks.looks.records import LOOKS, record, records
from tests.flows.project import call
from tests.flows.toy_project import CONFIG, commit

ONE_STAGE = """
stages:
  alone:
    cmd: python work.py alone out/alone
    deps: [work.py]
    params: [train]
    outs: [out/alone]
"""


def changed(params: Params, **sections: dict[str, Any]) -> Params:
    content = params.model_dump(mode="json")
    for name, values in sections.items():
        content[name] = {**content[name], **values}
    return Params.model_validate(content)


@pytest.fixture(autouse=True)
def home(toy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SYMPOSIUM_HOME", str(toy / ".symposium"))


def state(toy: Path) -> dict[str, tuple[int, bytes]]:
    """Return time and content of every file of the working tree."""
    files = (path for path in toy.rglob("*") if path.is_file() and not {".git", ".dvc", ".symposium"} & set(path.parts))
    return {str(path): (path.stat().st_mtime_ns, path.read_bytes()) for path in files}


def test_an_experiment_is_saved_under_its_name_and_the_working_tree_is_untouched(
    toy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (toy / "dvc.yaml").write_text(ONE_STAGE)
    commit(toy, "one stage is enough here")
    (toy / "work.py").write_text((toy / "work.py").read_text() + "# not finished\n")
    before = state(toy)
    wanted = changed(load_params(toy / "params.yaml", toy / "conf"), train={"steps": 6})
    assert workspaces.uncommitted(toy) == ["work.py"]
    with workspaces.workspace(toy, "brave-owl") as folder:
        assert folder == toy / ".symposium/workspaces/brave-owl"
        monkeypatch.chdir(folder)
        record(LOOKS, "a" * 64, {"run": "brave-owl"})
        monkeypatch.chdir(toy)
        assert "# not finished" not in (folder / "work.py").read_text()
        assert params_file.change_settings(folder / "params.yaml", wanted) == {"train.steps": (4, 6)}
        assert "steps: 6 # few" in (folder / "params.yaml").read_text()
        call(folder, "dvc", "repro", "-q", "alone")
        saved = workspaces.save_experiment(folder, toy, "brave-owl")
    assert not folder.exists()
    assert state(toy) == before
    assert records(LOOKS) == [{"run": "brave-owl"}], "a look that was made in a workspace counts for the project"
    assert "brave-owl" in call(toy, "dvc", "exp", "list", "--name-only")
    assert "steps: 6 # few" in call(toy, "git", "show", f"{saved}:params.yaml")
    assert "alone" in call(toy, "git", "show", f"{saved}:dvc.lock")
    assert workspaces.free_name(toy, "Brave Owl") == "brave-owl-2"
    call(toy, "git", "checkout", "-q", "--", "work.py")
    call(toy, "dvc", "exp", "apply", "-q", "brave-owl")
    assert (toy / "out/alone").read_text() == "alone", "its data is in the project's cache"


RESULTS = """
stages:
  run:
    cmd: python run.py
    deps: [run.py]
    params: [train]
    outs:
      - models
      - report/page.html
      - results/plan.json: {cache: false}
    metrics:
      - results/metrics.json: {cache: false}
"""
RUN = """
from pathlib import Path
written = "models/weights.bin models/deep/er.bin report/page.html results/plan.json results/metrics.json"
for name in written.split():
    Path(name).parent.mkdir(parents=True, exist_ok=True)
    Path(name).write_text(f'"{name} of {Path("params.yaml").read_text()!r}"')
"""


def test_a_saved_run_that_is_applied_is_that_run_whole(toy: Path) -> None:
    """File by file, whatever holds it (git, DVC's cache, or neither), over the results of another run."""
    (toy / "dvc.yaml").write_text(RESULTS)
    (toy / "run.py").write_text(RUN)
    commit(toy, "a stage with every kind of output")
    call(toy, "dvc", "repro", "-q")  # the results of another run lie in the tree, and git does not know them
    other = contents(toy)
    wanted = changed(load_params(toy / "params.yaml", toy / "conf"), train={"steps": 6})
    with workspaces.workspace(toy, "brave-owl") as folder:
        params_file.change_settings(folder / "params.yaml", wanted)
        call(folder, "dvc", "repro", "-q")
        whole = contents(folder)
        workspaces.save_experiment(folder, toy, "brave-owl")
        assert contents(folder) == whole, "a study keeps a cell's results after it is saved"
    assert len(whole) > 8
    assert len([name for name in whole if whole[name] != other[name]]) == 7, "settings, lock and five outputs"
    call(toy, "dvc", "exp", "apply", "-q", "brave-owl")
    assert contents(toy) == whole
    assert call(toy, "dvc", "status", "--json").strip() == "{}"
    assert "brave-owl" in call(toy, "dvc", "exp", "show", "--csv")


def contents(folder: Path) -> dict[str, bytes]:
    """Return the content of every file of a working tree."""
    files = ((path.relative_to(folder), path) for path in folder.rglob("*") if path.is_file())
    return {str(name): path.read_bytes() for name, path in files if name.parts[0] not in {".git", ".dvc", ".symposium"}}


def test_a_cell_of_a_study_whose_experiment_cannot_be_saved_is_not_kept(
    toy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the chain one stage is enough here: what is wrong comes after it."""
    (toy / "dvc.yaml").write_text(ONE_STAGE)
    commit(toy, "one stage is enough here")
    call(toy, "git", "update-ref", "refs/exps", "HEAD")  # where experiments would be saved
    monkeypatch.chdir(toy)
    monkeypatch.setattr(study_cells, "identity_of", lambda place: "identity")

    def short_chain(place: Path, project: Path, params: Params, run: str, *_: object) -> None:
        call(place, "dvc", "repro", "-q")
        save_experiment(place, project, run)

    monkeypatch.setattr(study_cells, "in_workspace", short_chain)
    params = changed(load_params(toy / "params.yaml", toy / "conf"), train={"steps": 6})
    with pytest.raises(ChainError, match="cannot lock ref"):
        study_cells.cell.fn("rates", "high", params, (0, 1), 1)
    assert not list((toy / ".symposium").rglob("kept.json"))


def test_what_was_computed_in_one_workspace_is_not_computed_again_in_the_next(toy: Path) -> None:
    for number in (1, 2):
        with workspaces.workspace(toy, f"run-{number}") as folder:
            said = call(folder, "dvc", "repro", "alone")
            assert ("alone at work" in said) == (number == 1)
            assert (folder / "out/alone").read_text() == "alone"


def test_the_workspace_of_a_process_that_is_gone_is_removed(toy: Path) -> None:
    code = "from pipeline_lib.tracking.processes import own_process; print(own_process())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    folder = toy / ".symposium" / "workspaces"
    contained = own_process().replace("/", "/1", 3)
    owners = {"dead": done.stdout.strip(), "living": own_process(), "gone": contained, "contained": contained}
    for name, owner in owners.items():
        (folder / name).mkdir(parents=True)
        (folder / f"{name}.owner").write_text(owner)
    with locked(folder / "contained.owner"), workspaces.running() as names:
        assert names == {"living", "contained"}
    left = {path.name for path in folder.iterdir()}
    assert left == {"living", "living.owner", "contained", "contained.owner"}


def test_the_workspace_of_an_experiment_that_is_running_is_left_alone(toy: Path) -> None:
    """Two studies started together would otherwise give their cells the same name, and each remove the other's."""
    with workspaces.workspace(toy, "run") as folder:
        assert workspaces.free_name(toy, "run") == "run-2"
        with pytest.raises(ChainError, match="another process runs"), workspaces.workspace(toy, "run"):
            pass
        assert (folder / "params.yaml").exists()
    assert workspaces.free_name(toy, "run") == "run"


def test_a_project_without_a_commit_is_refused_in_words(tmp_path: Path) -> None:
    call(tmp_path, "git", "init", "-q")
    with pytest.raises(ChainError, match="git"), workspaces.workspace(tmp_path, "run"):
        pass
    assert not list((tmp_path / ".symposium").rglob("run"))


def test_a_store_that_is_named_from_the_project_and_the_persons_own_settings_are_the_same_in_a_workspace(
    toy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Results would be shared with nobody: with a folder beside the workspace, or beside a worker's clone."""

    def remote(name: str, url: str) -> str:
        return f"['remote \"{name}\"']\n    url = {url}\n"

    stores = remote("store", "../../store") + remote("other", "s3://bucket/store")
    (toy / ".dvc/config").write_text(f"{CONFIG}    remote = store\n{stores}")  # from its own folder, as DVC writes it
    commit(toy, "a store")
    (toy / ".dvc/config.local").write_text(remote("mine", "../../my store"))
    worker = toy.parent / "elsewhere/worker"
    call(toy, "git", "clone", "-q", str(toy), str(worker))
    for home in (toy, worker):
        monkeypatch.setenv("SYMPOSIUM_HOME", str(home / ".symposium"))
        with workspaces.workspace(toy, "run") as folder:
            settings = call(folder, "dvc", "config", "--list").splitlines()
            assert f"remote.store.url={home.parent / 'store'}" in settings
            assert "remote.other.url=s3://bucket/store" in settings
            assert (f"remote.mine.url={home.parent / 'my store'}" in settings) == (home == toy)
            assert f"cache.dir={home / '.dvc/cache'}" in settings
            assert call(folder, "git", "status", "--porcelain") == "", "nothing of it is part of the experiment"


@pytest.mark.parametrize(
    ("file", "sections"),
    [
        ("train: {steps: 4, checkpoint_every: 2} # mine\n", {"train": {"learning_rate": 1e-5}}),
        ("train: {steps: 4, checkpoint_every: 2}\n", {"train": {"loss": {"kl": 0.1}}}),
        ("train: {steps: 4, checkpoint_every: 2}\n", {"seeds": {"train": [3, 4, 5], "single_agent": []}}),
        ("{}\n", {"policy": {"adapter": {"kind": "lora", "rank": 4}}}),
        ("policy: {kind: embedded, adapter: {kind: lora, rank: 4}}\n", {"policy": {"adapter": {"kind": "none"}}}),
        ("problems: small # a preset\n", {"problems": {"seed": 9}}),
        ("{}\n", {"audit": {"override": 'it\'s "known": yes, 100 %'}}),
    ],
)
def test_settings_are_changed_and_everything_else_stays(
    tmp_path: Path, file: str, sections: dict[str, dict[str, Any]]
) -> None:
    (tmp_path / "conf/problems").mkdir(parents=True)
    (tmp_path / "conf/problems/small.yaml").write_text("kind: generated\nsizes: {train: 64, validation: 8, test: 8}\n")
    path = tmp_path / "params.yaml"
    path.write_text(f"# what a person wrote\nverdict: {{alpha: 0.01}} # strict\n{file}" if file != "{}\n" else file)
    wanted = changed(load_params(path, tmp_path / "conf"), **sections)
    params_file.change_settings(path, wanted)
    assert load_params(path, tmp_path / "conf") == wanted
    if file != "{}\n":
        assert path.read_text().startswith("# what a person wrote\nverdict: {alpha: 0.01} # strict\n")


def test_settings_that_cannot_be_written_as_on_a_full_disk_leave_the_file_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "params.yaml"
    path.write_text(f"{'# what a person wrote' * 9_000}\ntrain: {{steps: 50}}\n")
    before, (limit, most) = path.read_text(), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, most))
    try:
        with pytest.raises(OSError, match="File too large"):
            params_file.write_changes(path, {"train.steps": 60}, "me")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, most))
    assert path.read_text() == before


def test_another_variant_replaces_its_section(tmp_path: Path) -> None:
    path = tmp_path / "params.yaml"
    path.write_text("policy: {kind: embedded, hidden_size: 64}\n")
    content = load_params(path, tmp_path).model_dump(mode="json")
    content["policy"] = {"kind": "pretrained", "models": ["Qwen/Qwen3-0.6B"]}
    wanted = Params.model_validate(content)
    params_file.change_settings(path, wanted)
    assert load_params(path, tmp_path) == wanted
    assert "hidden_size" not in path.read_text()


def test_a_file_that_is_not_committed_is_read_from_the_project(tmp_path: Path) -> None:
    project, folder = tmp_path / "project", tmp_path / "workspace"
    for place, name in ((project, "mine.jsonl"), (project, "models/own"), (folder, "models/own")):
        (place / name).mkdir(parents=True)
    content = Params().model_dump(mode="json")
    content["problems"] = {"kind": "humaneval", "source": "mine.jsonl"}
    content["policy"] = {"kind": "pretrained", "models": ["models/own", "Qwen/Qwen3-0.6B"]}
    found, outside = workspaces.with_files_of(Params.model_validate(content), project, folder)
    assert found.problems.source == str(project / "mine.jsonl")
    assert outside == [str(project / "mine.jsonl")]
    assert found.policy == Params.model_validate(content).policy, "committed, or a name on the hub"


def test_nothing_to_change_leaves_the_file_as_it_is(toy: Path) -> None:
    before = (toy / "params.yaml").read_text()
    assert params_file.change_settings(toy / "params.yaml", load_params(toy / "params.yaml", toy / "conf")) == {}
    assert (toy / "params.yaml").read_text() == before
    assert call(toy, "git", "status", "--porcelain") == ""
