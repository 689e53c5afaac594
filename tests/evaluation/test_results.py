import json
import math

import numpy as np
import pytest

from pipeline_lib.evaluation.results import Estimate, EvaluationError, to_json


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_no_result_can_hold_a_number_that_is_none(value: float) -> None:
    with pytest.raises(EvaluationError, match=r"Estimate\.low is .*: report it in `degenerate` instead"):
        Estimate(0.5, value, 1.0, 0.95, "mean", 9)


def test_json() -> None:
    estimate = Estimate(0.5, None, None, 0.95, "mean", 1, "one family")
    value = to_json({3: (estimate, np.float64(0.25)), "x": [1, None]})
    assert value == {"3": [{**estimate.to_json()}, 0.25], "x": [1, None]}
    assert json.loads(json.dumps(value, allow_nan=False)) == value
