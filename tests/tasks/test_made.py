"""Results carry from what they were made; who changes ``dvc.lock`` without running the stage is not believed."""

import json
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from flows.plan import from_pilot
from pipeline_lib.settings import Params
from tasks.identity.dvc_record import (
    MADE,
    content_of,
    dvc_digest,
    made_file,
    made_from,
    refuse_false_records,
    write_made,
)
from tasks.identity.files import (
    changed_identities,
    made_with_other_libraries,
    refuse_stale,
    write_identities,
    wrong_inputs,
)
from tasks.identity.stages import IdentityError, identity_of
from tasks.use.choosing import choose_team
from tests.flows.project import ROOT, call

IDENTITY = Path("results/identity/audit.json")
OWN = "results/made/audit.json"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project in which the stage `audit` has run."""
    monkeypatch.chdir(tmp_path)
    Path("dvc.yaml").write_bytes((ROOT / "dvc.yaml").read_bytes())
    Path("params.yaml").write_bytes((ROOT / "params.yaml").read_bytes())
    for name, text in {"data/problems/train.jsonl": "1", "models/base/weights": "2", IDENTITY: "3"}.items():
        written(name, text)
    lock(prepare={"outs": ["data/problems"]}, warm_start={"outs": ["models/base"]})
    began = made_from("audit")
    written("results/audit.json", "{}")
    write_made("audit", began)
    commit()
    refuse_false_records()
    return tmp_path


@pytest.mark.parametrize("level", ["--global", "--project", "--local"])
def test_the_cache_is_where_dvc_has_it(level: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A setting for all projects of a person counts, and a project's own comes before it."""
    monkeypatch.setenv("DVC_GLOBAL_CONFIG_DIR", str(tmp_path / "mine"))
    (project := tmp_path / "project").mkdir()
    monkeypatch.chdir(project)

    def dvc(*command: str) -> None:
        subprocess.run([sys.executable, "-m", "dvc", "--quiet", *command], check=True)

    dvc("init", "--no-scm")
    if level != "--global":
        dvc("config", "--global", "cache.dir", str(tmp_path / "elsewhere"))
    dvc("config", level, "cache.dir", "../shared-cache")  # relative to the file with the setting
    Path("data").write_text("kept")
    dvc("add", "data")
    md5 = dvc_digest(Path("data"))
    Path("data").unlink()
    assert content_of(Path("data"), md5) == b"kept"
    assert not (project / ".dvc/cache/files").exists()


def written(name: str | Path, text: str) -> None:
    Path(name).parent.mkdir(parents=True, exist_ok=True)
    Path(name).write_text(text)


def lock(**stages: Mapping[str, list[str]]) -> None:
    """Write ``dvc.lock`` as DVC does, with what lies in the folder."""
    content: dict[str, Any] = {}
    for stage, entry in stages.items():
        content[stage] = {
            kind: [{"path": path, "md5": dvc_digest(Path(path))} for path in paths] for kind, paths in entry.items()
        }
    Path("dvc.lock").write_text(yaml.safe_dump({"schema": "2.0", "stages": content}))


def commit() -> None:
    """Do to the stage `audit` what ``dvc commit --force`` and ``dvc exp save`` do."""
    deps = [IDENTITY.as_posix(), "data/problems", "models/base"]
    audit = {"deps": deps, "outs": ["results/audit.json", OWN]}
    lock(prepare={"outs": ["data/problems"]}, warm_start={"outs": ["models/base"]}, audit=audit)


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        (IDENTITY, IDENTITY.as_posix()),
        ("data/problems/train.jsonl", "data/problems"),
        ("data/problems/further.jsonl", "data/problems"),
        ("models/base/weights", "models/base"),
        ("results/audit.json", "results/audit.json"),
    ],
)
def test_what_a_stage_did_not_make_or_read_cannot_be_put_under_its_name(
    project: Path, changed: str | Path, named: str
) -> None:
    written(changed, "another")
    refuse_false_records()  # DVC sees the change, and nobody says otherwise
    commit()
    with pytest.raises(IdentityError, match=f"audit: {named}\n.*repro --force --single-item audit"):
        refuse_false_records()
    assert any(f"audit is not what dvc.lock says: it was not made with {named}" in line for line in lines())
    with pytest.raises(IdentityError):
        choose_team(Params(), "base")
    with pytest.raises(IdentityError):
        from_pilot(Params())
    before = Path(changed).read_text()
    written(changed, "a third time")
    if Path(changed).parts[0] != "models":
        refuse_false_records()  # so DVC makes it anew
    written(changed, before)
    write_made("audit", made_from("audit"))  # the stage runs again
    commit()
    refuse_false_records()


def lines() -> list[str]:
    return wrong_inputs("", ["results/audit.json"])


def test_what_a_run_changed_while_it_ran_is_not_what_it_read(project: Path) -> None:
    began = made_from("audit")
    written("data/problems/train.jsonl", "written by somebody else, meanwhile")
    write_made("audit", began)
    commit()
    with pytest.raises(IdentityError, match="audit: data/problems"):
        refuse_false_records()


def test_a_file_that_is_elsewhere_is_read_from_the_cache(project: Path) -> None:
    """As in the workspace of an experiment, whose outputs DVC has not linked yet."""
    content = Path(OWN).read_bytes()
    written(IDENTITY, "of other code")
    commit()
    md5 = dvc_digest(Path(OWN))
    Path(OWN).unlink()
    refuse_false_records()  # nobody has it, so DVC makes it anew
    place = project / "elsewhere/files/md5" / md5[:2] / md5[2:]
    place.parent.mkdir(parents=True)
    place.write_bytes(content)
    written(".dvc/config", f"[cache]\n    dir = {project / 'elsewhere'}\n['remote \"x\"']\n    url = y%z\n")
    with pytest.raises(IdentityError, match="audit"):
        refuse_false_records()


def test_seeds_and_runs_of_several_stages_are_told_apart(project: Path) -> None:
    for seed in (0, 1):
        written(f"results/identity/train@{seed}.json", "1")
        for name in (f"models/trained/team-{seed}/w", f"results/train/team-{seed}.jsonl"):
            written(name, str(seed))
        written(f"results/compute/team-{seed}.json", str(seed))
        write_made(f"train@{seed}", made_from(f"train@{seed}"))
    assert sorted(path.name for path in MADE.iterdir()) == ["audit.json", "train@0.json", "train@1.json"]
    outputs = json.loads(made_file("train@1").read_text())["outputs"]
    assert list(outputs) == ["models/trained/team-1", "results/train/team-1.jsonl", "results/compute/team-1.json"]
    written("results/identity/sweep@1.json", "1")
    written("results/plan.json", "{}")
    assert list(made_from("sweep@1")["inputs"]) == ["data/problems", "models/base", "results/plan.json"]


@pytest.fixture
def with_dvc(empty_project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository of DVC with the project's chain and presets, in which nothing has run; the current folder."""
    shutil.copytree(empty_project, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SYMPOSIUM_HOME", str(tmp_path / ".symposium"))
    for name in ("dvc.yaml", "params.yaml"):
        Path(name).write_bytes((ROOT / name).read_bytes())
    Path("conf").symlink_to(ROOT / "conf")
    return tmp_path


def test_dvc_itself_trains_only_the_seed_that_has_come(with_dvc: Path) -> None:
    """With the real DVC: a preset leaves out the seeds 1 and 2; then 1 is wanted, too, and 2 is planned no longer."""
    text = Path("params.yaml").read_text()
    start, end = text.index("environment:"), text.index("policy:")
    text = f"{text[:start]}environment: coding-quick\n\n{text[end:]}"
    Path("params.yaml").write_text(text)
    for name in ("data/problems/train.jsonl", "models/base/weights", "results/audit.json"):
        written(name, "1")
    names = ["train@0", "train@1", "train@2"]
    write_identities()
    for seed, name in enumerate(names):
        for output in (f"models/trained/team-{seed}/w", f"results/train/team-{seed}.jsonl"):
            written(output, str(seed))
        written(f"results/compute/team-{seed}.json", str(seed))
        write_made(name, made_from(name))
    call(with_dvc, "dvc", "commit", "-q", "--force", *names)
    assert json.loads(call(with_dvc, "dvc", "status", "--json", *names)) == {}
    Path("params.yaml").write_text(text.replace('train: ["0", "1", "2"]', "train: [0, 1]"))
    assert {name for name in changed_identities() if name.startswith("train@")} == {"train@1"}
    write_identities()
    stale = json.loads(call(with_dvc, "dvc", "status", "--json", *names[:2]))
    assert list(stale) == ["train@1"] and {"results/identity/train@1.json": "modified"} in [
        found for item in stale["train@1"] for found in item.values()
    ]
    assert not made_file("train@1").exists() and made_file("train@0").exists() and made_file("train@2").exists()


def test_dvc_itself_commits_no_results_of_other_settings(with_dvc: Path) -> None:
    """With the real DVC: `dvc commit --force` and `dvc exp save` lack an output as soon as identities are renewed."""
    write_identities()
    written("data/problems/train.jsonl", "1")
    write_made("prepare", made_from("prepare"))
    call(with_dvc, "dvc", "commit", "-q", "--force", "prepare")
    assert changed_identities() == []
    text = Path("params.yaml").read_text()
    Path("params.yaml").write_text(text.replace("train: default 1024", "train: 512"))
    assert "prepare" in changed_identities(), "what the test changes is gone"
    assert made_file("prepare").exists(), "who only asks changes nothing"
    write_identities()
    said = call(with_dvc, "dvc", "commit", "--force", "prepare", status=1)
    assert "output 'results/made/prepare.json' does not exist" in said
    Path("params.yaml").write_text(text)
    write_identities()
    call(with_dvc, "dvc", "checkout", "-q", "prepare")
    assert call(with_dvc, "dvc", "status", "prepare").strip() == "Data and pipelines are up to date."
    Path("data/problems/train.jsonl").unlink()
    written("data/problems/train.jsonl", "edited by hand")
    call(with_dvc, "dvc", "commit", "-q", "--force", "prepare")
    for door in (write_identities, changed_identities):
        with pytest.raises(IdentityError, match="prepare: data/problems\n"):
            door()


def test_results_of_a_machine_with_other_libraries_are_named_as_such(project: Path) -> None:
    """Else they are stale, or made anew for hours, and no setting and no code has changed."""
    identity = identity_of("audit")
    written(IDENTITY, json.dumps(identity))
    commit()
    assert made_with_other_libraries() == ""
    here, identity["versions"]["torch"] = identity["versions"]["torch"], "2.0.1"
    written(IDENTITY, json.dumps(identity))
    commit()
    says = f"the results here are stale, since other libraries have made them: torch 2.0.1 (here {here})"
    assert made_with_other_libraries() == says
    with pytest.raises(IdentityError) as told:
        refuse_stale(["results/audit.json"])
    assert says in str(told.value) and "audit is stale" in str(told.value)
    command = [sys.executable, "-m", "flows.identity", "--changed"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "audit" in done.stdout.split() and done.stderr.strip() == says, done.stderr
    lock(prepare={"outs": ["data/problems"]})
    assert made_with_other_libraries() == "", "nothing was made"
