# mypy: disallow-any-generics, disallow-untyped-calls, warn-return-any, strict-equality
"""A user's script, as `make check` sees it: mypy, as strict as it can be, finds right what is right, and what is wrong.

Where a line is marked as wrong and mypy finds nothing, it complains of the mark.
"""

import symposium

experiment = symposium.Experiment("lab", "philosophers", train={"steps": 3})
runs = [symposium.train(experiment, seed) for seed in range(3)]
found = symposium.sweep(*runs)
base = symposium.evaluate(symposium.load_team(experiment), samples=2)
sentence: str = symposium.compare(found.selected, base).sentence
rows: float = symposium.plan(found.selected, base, [0.1]).rows[0]["difference"]
passed: bool = symposium.audit(experiment).passed

symposium.train("lab")  # type: ignore[arg-type]
symposium.compare(1, 2)  # type: ignore[arg-type]
text: str = symposium.audit(experiment).passed  # type: ignore[assignment]
