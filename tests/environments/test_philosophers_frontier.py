"""The frontier protocol against a small server of our own: cost first, resumable, everything counted."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from benchmarks.philosophers_frontier import main


class Answers(BaseHTTPRequestHandler):
    """Answers chat requests: seat 1 takes right first, the others left first; the model ``mute`` says nothing."""

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked.append(body["model"])
        prompt = body["messages"][-1]["content"]
        hand, other = ("RIGHT", "LEFT") if "P1" in prompt.split("\n")[0] else ("LEFT", "RIGHT")
        held = f"{hand.title()} fork: in your hand" in prompt
        text = "" if body["model"] == "mute" else f"THINKING: hm\nACTION: GRAB_{other if held else hand}"
        choices = [
            {"index": i, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
            for i in range(body.get("n", 1))
        ]
        reply = json.dumps({"choices": choices, "usage": {"prompt_tokens": 100, "completion_tokens": 10}}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(reply)))
        self.end_headers()
        self.wfile.write(reply)

    def log_message(self, *_: object) -> None:
        """Stay quiet."""


@pytest.fixture
def server() -> Iterator[ThreadingHTTPServer]:
    made = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    made.asked = []
    thread = threading.Thread(target=made.serve_forever, daemon=True)
    thread.start()
    yield made
    made.shutdown()
    made.server_close()
    thread.join()


def test_cells_are_estimated_played_kept_and_rebuilt(server, tmp_path, capsys):
    command = [
        "--url", f"http://127.0.0.1:{server.server_address[1]}/v1", "--models", "clever", "mute", "--sizes", "2",
        "--episodes", "1", "--key-variable", "", "--price-prompt", "1", "--price-action", "2",
        "--folder", str(tmp_path),
    ]  # fmt: skip
    assert main(command) == 1, "the cost has to be confirmed"
    assert server.asked == []
    told = capsys.readouterr().out
    assert "at most 120 calls" in told and "--yes" in told

    assert main([*command, "--yes"]) == 0
    told = capsys.readouterr().out
    # Two models, one episode, two philosophers, thirty steps; whoever eats (ten times) is not asked.
    assert len(server.asked) == 110
    assert "cost in all: 0.01" in told, "110 x (100 + 2 x 10) / 10^6"
    rows = [line for line in told.splitlines() if line.startswith(("| clever", "| mute"))]
    assert "| 0% [0%, 79%] | 10.0 | 100% |" in rows[0]
    assert "100.0%" in rows[1], "a model that answers nothing is unreadable, it does not wait"

    assert main([*command, "--yes"]) == 0
    assert len(server.asked) == 110, "finished cells are not asked again"
    assert "2 of them finished" in capsys.readouterr().out

    for path in tmp_path.glob("clever-*.json"):
        path.unlink()
    assert main([*command, "--yes"]) == 0
    assert len(server.asked) == 110, "a lost cell is rebuilt from actions already paid for"
