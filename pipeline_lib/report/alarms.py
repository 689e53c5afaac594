"""When monitors fired in a run, in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pipeline_lib.monitors import ENDED, MONITORS, Row


def alarms(train: Mapping[int, Sequence[Row]]) -> list[str]:
    """Return one sentence per training seed and monitor that fired, in order of seed and update.

    Args:
        train: metrics of each update with ``step``, by training seed.
    """
    return [sentence for seed, rows in sorted(train.items()) for sentence in _of_run(seed, rows)]


def endings(train: Mapping[int, Sequence[Row]]) -> list[str]:
    """Return one sentence per training run that a monitor ended."""
    found = []
    for seed, rows in sorted(train.items()):
        last = rows[-1] if rows else {}
        if names := [name.removeprefix(ENDED).replace("_", " ") for name in last if name.startswith(ENDED)]:
            found.append(
                f"Training of seed {seed} was ended after update {int(last['step'])} by the monitor "
                f"{' and '.join(names)} (train.stop_when)."
            )
    return found


def silence(train: Mapping[int, Sequence[Row]]) -> str:
    """Return in words that no monitor fired, and which of them could judge; empty if none could, or if one fired."""
    lines = {name for rows in train.values() for row in rows for name in row if _monitor(name)}
    judged = [monitor for monitor in MONITORS if any(name.split("/")[1] == monitor for name in lines)]
    if not judged or alarms(train):
        return ""
    others = [monitor.replace("_", " ") for monitor in MONITORS if monitor not in judged]
    rest = f" Too little evidence, or nothing of the kind in this task: {', '.join(others)}." if others else ""
    return f"No monitor of training fired. Judged: {', '.join(judged).replace('_', ' ')}.{rest}"


def _of_run(seed: int, rows: Sequence[Row]) -> list[str]:
    found = []
    for name in dict.fromkeys(name for row in rows for name in row if _monitor(name)):
        judged = [(int(row["step"]), row[name] == 1.0) for row in rows if name in row]
        firing = [step for step, fires in judged if fires]
        if not firing:
            continue
        monitor, _, subject = name.removeprefix("monitors/").partition("/")
        later = [step for step, fires in judged if step > firing[0] and not fires]
        recovered = f"it stopped after {_updates(later[0] - firing[0])}" if later else "it never stopped"
        again = f" and fired in {_updates(len(firing))} in all" if later and firing[-1] > later[0] else ""
        about = f"{monitor} ({subject})" if subject else monitor
        about = about.replace("_", " ")
        found.append(
            f"Seed {seed}, {about}: fired first at update {firing[0]} ({MONITORS[monitor].about}); {recovered}{again}. "
            f"{MONITORS[monitor].advice}"
        )
    return found


def _monitor(name: str) -> bool:
    """Return whether a metric is the line of a monitor."""
    return name.startswith("monitors/") and name.split("/")[1] in MONITORS


def _updates(number: int) -> str:
    return "1 update" if number == 1 else f"{number} updates"
