"""A sample of modules is really changed in a copy of the project; the whole is ``python -m benchmarks.staleness``."""

import random
from pathlib import Path

from benchmarks.staleness import ROOT, modules, stale_by_module
from pipeline_lib.identity.code import code_of
from tasks.identity.stages import RUNTIME, STAGES, environment_code

ALWAYS = ("pipeline_lib/storage.py", "pipeline_lib/settings/train.py", "pipeline_lib/sandbox/inside/child.py")


def test_a_constant_makes_stale_exactly_what_runs_it_and_a_comment_nothing():
    names = [*ALWAYS, *random.Random(3).sample(modules(ROOT), 5)]
    found = stale_by_module(names)
    code = {
        stage: {**code_of(spec.flow, without=RUNTIME).files, **environment_code("coding").files}
        for stage, spec in STAGES.items()
    }
    for name in names:
        module = Path(name).with_suffix("").as_posix().replace("/", ".").removesuffix(".__init__")
        assert found[name] == [stage for stage in STAGES if module in code[stage]], name
    assert found["pipeline_lib/storage.py"] == list(STAGES)
    assert found["pipeline_lib/settings/train.py"] == []
    assert {"audit", "train", "sweep", "test"} <= set(found["pipeline_lib/sandbox/inside/child.py"])
