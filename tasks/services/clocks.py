"""The clock of this machine beside those of the servers that it shares with others.

Prefect compares times that workers send with its own: by a clock that is wrong, runs wait for an hour or begin too
early, and whether they live is not seen.  S3 refuses whoever is more than 15 minutes off.  Every answer over HTTP says
when it was sent, to the second.
"""

import time
import urllib.error
import urllib.request
from email.utils import parsedate_to_datetime
from http.client import HTTPException

from tasks.services.causes import causes

ALLOWED_S = 10.0
"""More than this is told: heartbeats come each 30 s, and count as missed 50 s after the time that the last one has."""
_STORE_S = 800.0  # S3 allows a quarter of an hour


def ahead_s(date: str, asked: float, answered: float) -> float:
    """Return by how many seconds this clock is ahead of the one that wrote ``date``; negative: behind.

    It is 0 if both may show the same time, and if ``date`` cannot be read.

    Args:
        date: the header of an answer.
        asked: when it was asked for, by this clock.
        answered: when the answer was there.
    """
    try:
        there = parsedate_to_datetime(date).timestamp()
    except ValueError:
        return 0.0
    return max(0.0, asked - there - 1.0) or min(0.0, answered - there)


def of_server(url: str, whose: str) -> str:
    """Return what is to be said if this clock and that of the server at ``url`` differ; else, or unanswered, empty."""
    asked = time.time()
    try:
        with urllib.request.urlopen(url, timeout=10.0) as reply:
            date = reply.headers.get("Date", "")
    except urllib.error.HTTPError as error:
        date = error.headers.get("Date", "")
        error.close()
    except (OSError, HTTPException):
        return ""
    return in_words(ahead_s(date, asked, time.time()), whose)


def of_error(error: BaseException, whose: str) -> str:
    """Return the same of the answer that an error of S3 has, or an error behind it, which has just come.

    Only of a difference for which S3 refuses what is asked of it.
    """
    now = time.time()
    for cause in causes(error):
        if isinstance(response := getattr(cause, "response", None), dict):
            date = response.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("date", "")
            return in_words(ahead_s(date, now, now), whose, _STORE_S)
    return ""


def in_words(ahead: float, whose: str, allowed_s: float = ALLOWED_S) -> str:
    """Return a sentence, or nothing for a difference that does no harm."""
    if abs(ahead) <= allowed_s:
        return ""
    amount = f"{abs(ahead):.0f} s" if abs(ahead) < 100 else f"{abs(ahead) / 60:.0f} min"
    side = "ahead of" if ahead > 0 else "behind"
    return f"the clock of this machine is {amount} {side} that of {whose}; set the wrong one"
