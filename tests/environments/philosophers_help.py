"""Helpers of the philosophers' tests: play memoryless rules on the vectorised table."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from pipeline_lib.environments.philosophers import table as tables
from pipeline_lib.environments.philosophers.scenarios import make_graph
from pipeline_lib.environments.philosophers.table import Table
from pipeline_lib.environments.philosophers.table import step as clean_step

Rule = Callable[[Table], npt.NDArray[np.int8]]
Step = Callable[[Table, npt.NDArray[np.int8]], Table]


def ring(n: int, batch: int = 1, horizon: int = 30, **options) -> Table:
    return tables.make_table(make_graph("ring", n), np.tile(np.arange(n), (batch, 1)), horizon, **options)


def play(table: Table, rule: Rule, step: Step = clean_step) -> Table:
    while not table.done.all():
        table = step(table, rule(table))
    return table


def constant(action: int) -> Rule:
    return lambda table: np.full(table.left.shape, action, np.int8)
