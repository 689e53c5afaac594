"""The judge's side of a channel, against a program that writes what it likes."""

import json
import resource
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline_lib.sandbox import time_limits
from pipeline_lib.sandbox.calls import CallFailed
from pipeline_lib.sandbox.inside import messages
from pipeline_lib.sandbox.jobs import Job, Limits, Status, Verdict
from pipeline_lib.sandbox.proxy import Program
from pipeline_lib.sandbox.runner import run_plan, verdict_of
from pipeline_lib.sandbox.tests_source import Planned, plan_job
from pipeline_lib.sandbox.worker import Load, Usage

LIMITS = Limits(cpu_s=60.0, call_cpu_s=60.0, wall_s=60.0, reply_kb=64)  # nothing here waits for the end of them
BRIEF = Limits(cpu_s=0.05, call_cpu_s=0.02, wall_s=0.08, reply_kb=64)
TESTS = "def check(candidate):\n" + "".join(f"    assert candidate({n}) == {n * 7919 + 13}\n" for n in range(4))
JOB = plan_job(Job("fuzz", "", TESTS, "f"))


@pytest.fixture(autouse=True)
def _own_limit() -> Iterator[None]:
    """`run_plan` leaves its limit in force, as its process ends soon; this one goes on to other tests."""
    limit = resource.getrlimit(resource.RLIMIT_CPU)
    yield
    resource.setrlimit(resource.RLIMIT_CPU, limit)


class Scripted:
    """A worker whose programs are threads that follow a script, so that many can be tried in a second."""

    def __init__(self, script: Callable[[socket.socket], None]) -> None:
        self.script = script
        self.threads: list[threading.Thread] = []
        self.modules: Sequence[str] = ()

    def take(self) -> socket.socket:
        ours, theirs = socket.socketpair()
        self.threads.append(threading.Thread(target=self._play, args=(theirs,), daemon=True))
        self.threads[-1].start()
        return ours

    def _play(self, channel: socket.socket) -> None:
        with channel:
            try:
                self.script(channel)
            except OSError:
                return

    def load(self) -> Load:
        return Load(cpu_s=0.0, entries=0, scratch_mb=0.0)

    def finish(self, gone: bool = False) -> Usage:
        return Usage(signal=9, forced=True, exit_code=0, cpu_s=0.0, peak_mb=1.0)

    def waited(self) -> None:
        return None

    def killed(self) -> None:
        raise AssertionError


def judge(planned: Planned, limits: Limits, worker: Scripted, name: str) -> Verdict:
    return verdict_of(planned, run_plan(planned, limits, worker), limits, name, 0.0)


def frame(data: bytes) -> bytes:
    return struct.pack("!I", len(data)) + data


LOADED = frame(b'[0,"loaded"]')
KINDS = st.sampled_from(["value", "raised", "bad", "loaded", "load_error", "results", "probe", ""])
FORMS = st.recursive(
    st.none() | st.booleans() | st.integers(-10, 10) | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["tuple", "set", "x"]), inner, max_size=1)
    ),
    max_leaves=6,
)
REPLIES = st.tuples(st.integers(0, 6), KINDS).flatmap(
    lambda head: st.lists(FORMS, max_size=3).map(lambda rest: frame(json.dumps([*head, *rest]).encode()))
)
NOISE = (
    st.binary(max_size=40)
    | st.binary(max_size=40).map(frame)
    | REPLIES
    | FORMS.map(lambda form: frame(json.dumps(form).encode()))
)


@given(st.lists(NOISE, max_size=12), st.booleans(), st.booleans())
@settings(max_examples=80)
def test_no_reply_stalls_or_confuses_the_judge(noise: list[bytes], loads: bool, closes: bool) -> None:
    def script(channel: socket.socket) -> None:
        channel.recv(1 << 20)
        channel.sendall((LOADED if loads else b"") + b"".join(noise))
        while not closes and channel.recv(1 << 20):
            pass

    verdict = judge(JOB, BRIEF, Scripted(script), "slot-0")
    assert verdict.status is not Status.PASSED
    assert verdict.passed == 0
    assert verdict.total == len(verdict.cases) == 4
    assert all(case.result in ("ok", "fail", "error", "timeout", "skipped") for case in verdict.cases)
    assert len(verdict.error) <= LIMITS.error_kb << 10


def answering(channel: socket.socket) -> Iterator[tuple[int, list[object]]]:
    """Yield number and arguments of every call."""
    buffer = b""
    first = True
    while part := channel.recv(1 << 20):
        buffer += part
        while len(buffer) >= 4 and len(buffer) >= 4 + (length := struct.unpack_from("!I", buffer)[0]):
            message, buffer = buffer[4 : 4 + length], buffer[4 + length :]
            if first:
                first = False
                channel.sendall(LOADED)
                continue
            number, _, _, args, _ = messages.read_request(message)
            yield number, args


def test_right_answers_pass_whoever_gives_them_and_however_they_are_cut() -> None:
    def script(channel: socket.socket) -> None:
        for number, (n,) in answering(channel):
            reply = frame(json.dumps([number, "value", n * 7919 + 13]).encode())  # type: ignore[operator]
            for at in range(len(reply)):
                channel.sendall(reply[at : at + 1])

    assert judge(JOB, LIMITS, Scripted(script), "slot-0").status is Status.PASSED


def test_stale_and_early_answers_are_not_taken() -> None:
    def script(channel: socket.socket) -> None:
        for number, _ in answering(channel):
            channel.sendall(frame(json.dumps([number - 1, "value", 13]).encode()))

    verdict = judge(JOB, LIMITS, Scripted(script), "slot-0")
    assert (verdict.status, verdict.passed) == (Status.OUTPUT_LIMIT, 0)


def test_calls_that_are_foreseen_arrive_with_the_program_and_are_asked_for_one_by_one() -> None:
    arrived: list[bytes] = []

    def script(channel: socket.socket) -> None:
        arrived.append(channel.recv(1 << 20))
        channel.sendall(LOADED + b"".join(frame(json.dumps([n, "value", n]).encode()) for n in (1, 2)))
        channel.sendall(frame(b'[4, "value", 4]'))
        channel.recv(1 << 20)

    tests = "def check(candidate):\n" + "".join(f"    assert candidate({n}) == {n}\n" for n in range(1, 5))
    verdict = judge(plan_job(Job("ahead", "", tests, "f")), LIMITS, Scripted(script), "slot-0")
    assert plan_job(Job("ahead", "", tests, "f")).plan.foreseen[3][1] in arrived[0]
    assert [case.result for case in verdict.cases][:3] == ["ok", "ok", "error"]  # 4 was no answer to 3
    assert verdict.status is Status.OUTPUT_LIMIT
    assert arrived[1].count(b"load") == 1  # the program was started again, with the rest of the calls
    assert plan_job(Job("ahead", "", tests, "f")).plan.foreseen[2][1] not in arrived[1]


def test_a_program_starts_afresh_when_the_tests_call_what_was_not_foreseen() -> None:
    worker = Scripted(
        lambda channel: (
            [channel.sendall(frame(json.dumps([n, "value", a[0]]).encode())) for n, a in answering(channel)] and None
        )
    )
    program = Program(JOB, LIMITS, worker)
    assert program.load()
    assert [program.candidate(0), program.candidate(5), program.candidate(2)] == [0, 5, 2]
    assert len(worker.threads) == 2
    assert program.events == []


def test_a_program_is_given_up_after_three_restarts() -> None:
    worker = Scripted(lambda channel: next(answering(channel)) and None)
    program = Program(JOB, LIMITS, worker)
    assert program.load()
    for n in range(6):
        with pytest.raises(CallFailed):
            program.candidate(n)
    assert len(worker.threads) == 4


def test_arguments_larger_than_every_buffer_arrive() -> None:
    seen = []

    def script(channel: socket.socket) -> None:
        for number, (text,) in answering(channel):
            seen.append(len(str(text)))
            channel.sendall(frame(json.dumps([number, "value", 1]).encode()))

    tests = f"def check(candidate):\n    assert candidate('a' * {1 << 22}) == 1\n"
    verdict = judge(plan_job(Job("large", "", tests, "f")), LIMITS, Scripted(script), "slot-0")
    assert (verdict.status, seen) == (Status.PASSED, [1 << 22])


def test_a_program_that_never_reads_is_late() -> None:
    judged = threading.Event()

    def script(channel: socket.socket) -> None:
        channel.recv(1 << 10)
        channel.sendall(LOADED)
        judged.wait()

    tests = f"def check(candidate):\n    assert candidate('a' * {1 << 24}) == 1\n"
    verdict = judge(plan_job(Job("deaf", "", tests, "f")), BRIEF, Scripted(script), "slot-0")
    judged.set()
    assert verdict.status is Status.TIMEOUT


class Clock:
    """A clock that goes on by an hour between two readings: as if the machine had stood still."""

    def __init__(self, still_before: int) -> None:
        self.still_before = still_before
        self.readings = 0
        self.clock_gettime = time.clock_gettime

    def monotonic(self) -> float:
        self.readings += 1
        return time.monotonic() + (3600.0 if self.readings >= self.still_before else 0.0)


def test_a_machine_that_stands_still_makes_no_program_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whenever it does: the program gets the time that it had left before."""
    monkeypatch.setattr(time_limits, "_FIRST_CHECK_S", 0.01)
    monkeypatch.setattr(time_limits, "_MAX_POLL_S", 0.01)
    clocks = []
    for still_before in range(1, 40):
        clocks.append(clock := Clock(still_before))

        def script(channel: socket.socket, clock: Clock = clock) -> None:
            for number, (n,) in answering(channel):
                wanted = min(clock.readings + 8, 40)
                while clock.readings < wanted:  # some looks before each answer
                    time.sleep(0.001)
                channel.sendall(frame(json.dumps([number, "value", n * 7919 + 13]).encode()))  # type: ignore[operator]

        monkeypatch.setattr(time_limits, "time", clock)
        verdict = judge(JOB, LIMITS, Scripted(script), "slot-0")
        assert verdict.status is Status.PASSED, (still_before, verdict)
    assert all(clock.readings >= clock.still_before for clock in clocks[:20])


def test_descriptors_do_not_leak() -> None:
    judge(JOB, LIMITS, Scripted(lambda channel: None), "slot-0")
    before = len(list(Path("/proc/self/fd").iterdir()))
    worker = Scripted(lambda channel: None)
    for _ in range(20):
        judge(JOB, LIMITS, worker, "slot-0")
    for thread in worker.threads:
        thread.join()
    assert len(list(Path("/proc/self/fd").iterdir())) <= before
