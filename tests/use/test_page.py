"""The page on which a team plays: what it tells is what happened, text of agents stays text, strangers are refused."""

import http.client
import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from pipeline_lib.environments.coding.datasets import typed_problem
from pipeline_lib.environments.coding.runtime import CodingEnvironment
from pipeline_lib.environments.coding.settings import CodingSettings
from pipeline_lib.environments.coding.task import METRICS
from pipeline_lib.play import Player
from pipeline_lib.report.text import coloured
from pipeline_lib.rollouts.engine import Action, Request
from pipeline_lib.rollouts.transformers_engine import TransformersEngine
from pipeline_lib.sandbox.executor import make_executor
from pipeline_lib.settings.sandbox import ProcessSandbox
from tasks.use.choosing import ChoiceError
from tasks.use.local_server import listen
from tasks.use.page import EpisodeRequest, PageShow, SendEvent, make_page
from tasks.use.playing import play
from tests.flows.browser import Browser, browser
from tests.play.engines import Scripted
from tests.served import served
from tests.training.conftest import SAMPLING, TOYS, Agree, make_team

KEY = "a-key-of-this-test"
EVIL = "<img src=x onerror=\"document.title='taken'\">"
TYPED = 'def double(x):\n    """Return twice x."""\n\nassert double(2) == 4\nassert double(3) == 7\n'


class Writers(Scripted):
    """Writes a helper that works, and a main function with markup and a control character in a string."""

    def actions(self, request: Request) -> list[Action]:
        text = (
            "def aux(x):\n    return 2 * x"
            if request.policy == "helper"
            else f"def double(x):\n    '''{EVIL}\x1b'''\n    return aux(x)"
        )
        return [Action((8,), (-1.0,), text, "stop")] * request.n


def coding(wanted: EpisodeRequest, tell: SendEvent) -> None:
    """Play what was typed with two teams."""
    if not wanted.typed:
        raise ChoiceError("nothing was typed")
    problem = typed_problem(wanted.typed)
    for side, title in enumerate(filter(None, (wanted.team, wanted.beside))):
        tell({"kind": "team", "side": side, "title": title, "problem": problem.id})
        environment = CodingEnvironment(CodingSettings(), lambda: make_executor(ProcessSandbox()))
        try:
            player = Player(environment, make_team(("helper", "main")), Writers(), SAMPLING)
            play(player, title, problem, wanted.seed, PageShow(side, METRICS, tell))
        finally:
            environment.close()


def offered() -> dict[str, Any]:
    return {"teams": [["selected", EVIL], ["base", "the base"]], "problems": [], "missing": ["no champion yet"]}


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with served(make_page(KEY, coding, offered)) as port:
        yield port


def send(port: int, path: str, body: Any = None, **headers: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    usual = {"Authorization": f"Bearer {KEY}", **({"Content-Type": "application/json"} if body is not None else {})}
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request(
        "GET" if body is None else "POST", path, None if body is None else json.dumps(body), usual | named
    )
    reply = connection.getresponse()
    return reply.status, reply.read().decode()


def events(text: str) -> list[dict[str, Any]]:
    return [json.loads(part.removeprefix("data: ")) for part in text.split("\n\n") if part]


def test_an_episode_is_told_to_its_end_with_each_tests_verdict_and_each_term_of_the_reward(port: int):
    status, text = send(port, "/play", {"team": "selected", "beside": "base", "typed": TYPED})
    found = events(text)
    assert status == 200
    one_side = ["team", *["prompted", "wrote", "finished"] * 2, "turned", "ended"]
    assert [told["kind"] for told in found] == one_side * 2
    assert [told["side"] for told in found] == [0] * len(one_side) + [1] * len(one_side)
    turned = found[len(one_side) - 2]
    assert turned["checks"] == [
        ["assert candidate(2) == 4", True, ""],
        ["assert candidate(3) == 7", False, "got 6, expected 7"],
    ]
    assert sum(value for _, value in turned["terms"]) == pytest.approx(turned["reward"])
    assert ["hidden tests passed", "50.0 %"] in turned["metrics"]
    assert "".join(piece for _, piece in turned["result"]).count(EVIL) == 1
    assert any(colour for colour, _ in turned["result"]), "code has colours"
    assert "\\u001b" not in text, "no control character"


def test_tokens_are_told_as_they_come():
    team = make_team()
    engine = TransformersEngine(rows=8)
    engine.load(team.policies)
    heard: list[dict[str, Any]] = []
    player = Player(Agree(), team, engine, replace(SAMPLING, max_new_tokens=8))
    played = play(player, "a team", TOYS[0], 3, PageShow(0, {}, heard.append))
    wrote = [told["text"] for told in heard if told["kind"] == "wrote"]
    assert len(wrote) > 2, "a piece for each word"
    assert "".join(wrote) == "".join(said.text for said in played.turns[0].said)


def test_colours_lose_no_letter_of_the_text_and_unknown_languages_have_none():
    text = "\n  def f():\r\treturn '<b>'  # é\n\n"
    assert "".join(piece for _, piece in coloured(text, "python")) == text.replace("\r", "�")
    assert coloured("x <b>", "no such language") == [("", "x <b>")]


def test_whoever_has_no_key_or_is_another_page_is_refused_and_plays_nothing(port: int):
    wanted = {"typed": TYPED}
    for headers, status in (
        ({"Authorization": "Bearer another"}, 401),
        ({"Host": "evil.example"}, 400),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Content_Type": "text/plain"}, 415),
    ):
        assert send(port, "/play", wanted, **headers)[0] == status, headers
    assert send(port, "/offers", Authorization="")[0] == 401
    assert send(port, "/play", {**wanted, "shell": "x"})[0] == 400, "what it does not know"
    assert send(port, "/play", {"typed": "x" * 1024 * 1024})[0] == 413
    assert send(port, "/", Authorization="")[0] == 200, "the page itself holds nothing"
    assert send(port, "/play", wanted, Origin=f"http://127.0.0.1:{port}")[0] == 200


def test_a_port_in_use_is_told_with_what_to_do():
    with listen(0) as first, pytest.raises(OSError, match=r"^port \d+ is in use; --port names another one"):
        listen(first.getsockname()[1])


def test_what_cannot_be_played_is_told_with_its_reason_and_the_next_episode_plays(port: int):
    assert events(send(port, "/play", {})[1]) == [{"kind": "failed", "message": "nothing was typed"}]
    assert events(send(port, "/play", {"typed": TYPED})[1])[-1]["kind"] == "ended"


def test_a_fault_of_the_program_is_told_without_its_words_which_stand_in_the_log(caplog: pytest.LogCaptureFixture):
    def faulty(wanted: EpisodeRequest, tell: SendEvent) -> None:
        raise RuntimeError("a secret path")

    with served(make_page(KEY, faulty, offered)) as port:
        assert events(send(port, "/play", {})[1]) == [
            {"kind": "failed", "message": "RuntimeError, see the server's log"}
        ]
    assert "a secret path" in caplog.text


def test_one_episode_at_a_time_and_a_page_that_is_closed_ends_its_own():
    entered, ended = threading.Event(), threading.Event()

    def endless(wanted: EpisodeRequest, tell: SendEvent) -> None:
        entered.set()
        try:
            while not ended.wait(0.01):
                tell({"kind": "wrote", "side": 0, "text": "x"})
        finally:
            ended.set()

    with served(make_page(KEY, endless, offered)) as port:
        watching = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        headers = {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"}
        watching.request("POST", "/play", "{}", headers)
        reply = watching.getresponse()
        assert entered.wait(60) and reply.read(6) == b"data: "
        status, text = send(port, "/play", {})
        assert status == 429 and "being played already" in text
        reply.close()
        watching.close()
        assert ended.wait(60), "nobody listens any more"


ENDLESS = f"""
import sys, time
from tasks.use.local_server import address, listen, run
from tasks.use.page import make_page

def endless(wanted, tell):
    while True:
        tell({{"kind": "wrote", "side": 0, "text": "x"}})
        time.sleep(0.1)

with listen(0) as listening:
    print(listening.getsockname()[1], flush=True)
    run(make_page("{KEY}", endless, dict), listening)
"""


def test_a_page_that_is_ended_while_a_team_plays_says_nothing():
    page = subprocess.Popen([sys.executable, "-c", ENDLESS], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert page.stdout
    watching = http.client.HTTPConnection("127.0.0.1", int(page.stdout.readline()), timeout=60)
    headers = {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"}
    watching.request("POST", "/play", "{}", headers)
    assert watching.getresponse().read(6) == b"data: "
    page.send_signal(signal.SIGINT)
    _, said = page.communicate(timeout=60)
    watching.close()
    assert (page.returncode, said) == (0, "")


def test_a_page_on_which_nobody_plays_has_loaded_no_torch():
    code = "import sys, tasks.use.page, tasks.use.choosing; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_page_takes_nothing_for_markup_and_loads_nothing(port: int):
    _, page = send(port, "/")
    assert not {word for word in ("innerHTML", "insertAdjacent", "document.write", "eval(", "https://") if word in page}


@pytest.fixture(scope="module")
def window(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """One browser; every test leaves the page of the test before first."""
    with browser(tmp_path_factory.mktemp("browser")) as window:
        yield window


@pytest.mark.service
@pytest.mark.parametrize("width", [390, 1280])
def test_in_a_browser_a_typed_problem_is_played_side_by_side_and_markup_stays_text(
    port: int, width: int, window: Browser
):
    window.open("about:blank")
    window.driver.get_log("browser")  # what other tests have left is gone then
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 640}
    window.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    window.open(f"http://127.0.0.1:{port}/#{KEY}")
    window.see("no champion yet", timeout_s=60)
    window.fill(window.find("//textarea"), TYPED)
    window.click("//button")
    window.see("Done.", timeout_s=60)
    window.wait(lambda: window.find("//button[not(@disabled)]"), "both teams have played", 60)
    text = window.text()
    assert text.count("50.0 %") == 2, "both sides"
    assert text.count(EVIL) > 4, "in what it wrote and together, twice, and in the names of the teams"
    assert text.count("got 6, expected 7") >= 2 and text.count("cooperation") >= 4
    assert window.driver.title == "Symposium: play"
    wide, images, keywords = window.driver.execute_script(
        "return [document.documentElement.scrollWidth, document.images.length, "
        "document.querySelectorAll('pre.code span.k').length]"
    )
    assert wide <= width and images == 0 and keywords >= 8
    assert [entry for entry in window.driver.get_log("browser") if entry["level"] == "SEVERE"] == []


@pytest.mark.service
def test_without_the_key_the_page_says_what_to_do(port: int, window: Browser):
    window.open("about:blank")
    window.open(f"http://127.0.0.1:{port}/")
    window.see("open the address that was printed", timeout_s=60)
    window.open("about:blank")
    window.open(f"http://127.0.0.1:{port}/#wrong")
    window.see("the key is missing or wrong", timeout_s=60)
