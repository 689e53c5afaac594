"""What `symposium run --on` sends to workers: a commit that they can get from git's origin."""

from pathlib import Path

import pytest

from flows import on_pool
from tasks.chain.graph import ChainError
from tests.flows.project import call
from tests.flows.toy_project import commit


def test_a_commit_that_only_another_remote_has_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (user := tmp_path / "user").mkdir()
    call(user, "git", "init", "-q", "-b", "main")
    (user / "code.py").write_text("1\n")
    commit(user, "start")
    for remote in ("origin", "fork"):
        call(tmp_path, "git", "clone", "-q", "--bare", "user", f"{remote}.git")
        call(user, "git", "remote", "add", remote, f"../{remote}.git")
        call(user, "git", "fetch", "-q", remote)
    url, first = on_pool._commit_on_origin(user)
    assert url == str(tmp_path / "origin.git"), "not from where this checkout is"
    (user / "code.py").write_text("2\n")
    assert on_pool._commit_on_origin(user) == (url, first)
    assert "not committed are not part of this run: code.py" in capsys.readouterr().out
    commit(user, "more")
    call(user, "git", "push", "-q", "fork", "main")
    with pytest.raises(ChainError, match="is not on origin, from where workers get it: git push"):
        on_pool._commit_on_origin(user)
