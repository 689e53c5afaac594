"""Every figure in the tables of docs/scale.md follows from its premises and the measurements it names."""

import json
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs/scale.md").read_text()

AGENTS, GROUP, PROBLEMS, GPUS, PER_UPDATE, PROMPT, ACTION = 2, 16, 10_000, 64, 64, 300, 300
PARAMETERS, RANK = 32e9, 16
MODEL = (PARAMETERS, 64, 5_120, 27_648, 1_024)  # layers, width, width within the layers, width of keys
SMALL = (3.1e9, 36, 2_048, 11_008, 256)
GPUS_OF_AN_ENGINE, CHECKPOINTS, STORE = 4, 16, 44e6
METRICS = 75  # of an update of the default


def row(name: str) -> list[str]:
    """Return the cells of the row of a table that begins with a name."""
    (line,) = [line for line in PAGE.splitlines() if line.startswith(f"| {name}")]
    return [cell.strip() for cell in line.split("|")[2:-1]]


def test_the_amounts() -> None:
    updates = -(-PROBLEMS // PER_UPDATE)
    joint, now = PROBLEMS * GROUP, PER_UPDATE * GROUP
    assert row("updates") == [f"{updates}", ""]
    assert row("joint actions") == [f"{joint:,}", f"{now:,}"]
    assert row("with `train.credit") == [f"{joint * GROUP:,}", f"{now * GROUP:,}"]
    for name, tokens in (("sampled tokens", ACTION), ("tokens through", PROMPT + ACTION)):
        assert row(name) == [
            f"{joint * AGENTS * tokens / 1e6:.0f} million",
            f"{now * AGENTS * tokens / 1e6:.1f} million",
        ]
    assert row("rows in MLflow") == [f"{updates * METRICS:,}", f"{METRICS}"]


def test_the_time() -> None:
    gpu = json.loads((ROOT / "benchmarks/results/gpu.json").read_text())
    rate = json.loads((ROOT / "benchmarks/results/sandbox.json").read_text())["rows"]["sandbox, processes"]["rate"]
    now, updates = PER_UPDATE * GROUP, -(-PROBLEMS // PER_UPDATE)
    measured = gpu["models"]["qwen2.5-coder-0.5b"]
    shares = (measured["engine"]["share_of_bandwidth"], 0.6), (measured["update"]["share_of_products"], 0.4)
    assert f"{shares[0][0]:.0%} of the memory".replace("%", " %") in PAGE.replace("\n", " ")
    assert f"{shares[1][0]:.0%} of the rate".replace("%", " %") in PAGE.replace("\n", " ")
    totals = [0.0, 0.0]
    for place in (0, 1):
        reading = 2 * PARAMETERS / GPUS_OF_AN_ENGINE / (shares[0][place] * gpu["bandwidth"])
        sampling = ACTION * reading
        work = 4 * PARAMETERS * now * AGENTS * (PROMPT + ACTION)
        update = work / (shares[1][place] * gpu["products"] * GPUS)
        assert row("sampling, if")[place] == f"{sampling:.1f} s"
        assert row("the update")[place] == f"{update:.1f} s"
        totals[place] = updates * (sampling + update) / 3600
        assert row("1,024 verdicts")[place] == f"{now / rate:.1f} s" and f"{rate:.0f} a second" in PAGE
        assert row("16,384 verdicts")[place] == f"{now * GROUP / rate:.1f} s"
        assert row("all 157")[place] == f"{totals[place]:.1f} h", totals
    assert f"{now * AGENTS // (GPUS // GPUS_OF_AN_ENGINE)} actions each" in PAGE


def test_the_bytes() -> None:
    for place, (parameters, layers, width, inner, keys) in enumerate((MODEL, SMALL)):
        adapter = layers * RANK * (2 * (width + width) + 2 * (width + keys) + 3 * (width + inner))
        checkpoint, state = AGENTS * adapter * 4, AGENTS * adapter * 8
        assert row("a checkpoint:")[place] == f"{checkpoint / 1e9:.1f} GB"
        assert row("trainer state")[place] == f"{state / 1e9:.1f} GB"
        assert row("16 checkpoints")[place] == f"{(CHECKPOINTS * checkpoint + state) / 1e9:.1f} GB"
        assert row("sending a checkpoint")[place] == f"{(checkpoint + state) / STORE:.0f} s"
        assert row("the same, if all")[place] == f"{AGENTS * parameters * 12 / 1e9:.0f} GB"


def test_the_page_says_what_was_never_made() -> None:
    assert re.search(r"\*\*never made\*\*", PAGE) and "Not seen" in " ".join(PAGE.split())
