import contextlib
import logging
import weakref
from collections.abc import Iterator
from typing import Any, ClassVar

import pytest
import torch

from pipeline_lib.rollouts import Request, Sampling
from pipeline_lib.rollouts.cuda_graphs import StepGraphs, round_up
from pipeline_lib.rollouts.decoder_weights import Shape
from pipeline_lib.rollouts.slot_cache import SlotCache
from pipeline_lib.rollouts.transformers_engine import TransformersEngine
from tests.needs import needs
from tests.rollouts.tiny import policy, reference_logprobs


def test_few_sizes_are_enough_and_never_too_small() -> None:
    sizes = [round_up(n, 300) for n in range(1, 301)]
    assert all(n <= size <= 300 for n, size in enumerate(sizes, start=1))
    assert sorted(set(sizes)) == [1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 300]
    assert round_up(1, 4096, least=64) == 64 and round_up(65, 4096, least=64) == 96


def test_what_a_captured_step_reads_stays_where_it_is_until_the_layout_changes() -> None:
    shape = Shape.of(policy("qwen3").model.config)
    cache = SlotCache(shape, torch.device("meta"), torch.bfloat16)
    cache.reserve(8, 100)
    before = (cache.layout, cache._starts, cache._ramp, cache._vectors[0])
    for slots, length in ((8, 100), (3, 128), (8, 1)):
        cache.reserve(slots, length)
        after = (cache.layout, cache._starts, cache._ramp, cache._vectors[0])
        assert all(one is other for one, other in zip(before, after, strict=True)) and cache.slots == 8
    for slots, length in ((9, 100), (9, 129)):
        cache.reserve(slots, length)
        assert cache.layout > before[0] and cache._starts is not before[1] and cache.slots == 9
        before = (cache.layout, cache._starts, cache._ramp, cache._vectors[0])


class _Graph:
    """What the allocator of torch 2.11 asks of captured graphs, where there is no GPU.

    A pool of memory belongs to the graphs that use it; when the last one is gone, its handle is refused.
    """

    alive: ClassVar[weakref.WeakSet["_Graph"]] = weakref.WeakSet()

    def pool(self) -> object:
        return self.handle

    def replay(self) -> None:
        pass


@contextlib.contextmanager
def _capture(graph: _Graph, pool: object | None) -> Iterator[None]:
    if pool is not None and pool not in {one.handle for one in _Graph.alive}:
        raise RuntimeError("use_count > 0 INTERNAL ASSERT FAILED")
    graph.handle = pool or object()
    _Graph.alive.add(graph)
    yield


def test_steps_are_captured_again_after_every_layout_of_the_cache(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Stream:
        def wait_stream(self, other: Any) -> None:
            pass

    for name, fake in (("Stream", Stream), ("current_stream", Stream), ("CUDAGraph", _Graph), ("graph", _capture)):
        monkeypatch.setattr(torch.cuda, name, fake)
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: contextlib.nullcontext())
    graphs = StepGraphs(lambda tokens, positions, columns: torch.zeros(len(tokens), 4))
    with caplog.at_level(logging.WARNING):
        for layout in (1, 1, 2, 3, 3):
            for rows in (1, 5):
                graphs(torch.zeros(rows, dtype=torch.long), torch.zeros(rows, dtype=torch.long), 64, 8, 128, layout)
    assert not caplog.text and len(_Graph.alive) == 2


@needs("GPU")
@pytest.mark.parametrize("graphs", [True, False])
def test_gpu_draws_what_the_distribution_says(graphs: bool, caplog: pytest.LogCaptureFixture) -> None:
    team = policy("qwen3")
    engine = TransformersEngine(rows=32, graphs=graphs)
    team.model.to("cuda")
    engine.load({"team": team})
    three = [Request("team", tuple(range(40, 40 + n)), 6, n) for n in (3, 17, 9)]
    more = [Request("team", tuple(range(40, 40 + n)), 6, n) for n in range(5, 35, 5)]
    for wanted in (three, three[1:2], more, three):  # the cache grows, and is used in part
        found = engine.generate(wanted, Sampling(max_new_tokens=40))
        team.model.to("cpu")
        for request, actions in zip(wanted, found, strict=True):
            for action in actions:
                exact = reference_logprobs(team, request.prompt, action, Sampling())
                assert torch.allclose(torch.tensor(action.logprobs).double(), exact, atol=1e-3)
        with torch.no_grad():
            for parameter in team.model.parameters():
                parameter.add_(0.05 * torch.randn_like(parameter))
        team.model.to("cuda")
        team.version += 1
        engine.update(team)
    assert "CUDA graphs are not used" not in caplog.text


@needs("GPU")
def test_graphs_change_nothing() -> None:
    team = policy("qwen3")
    team.model.to("cuda")
    wanted = [Request("team", tuple(range(40, 40 + n)), 6, n) for n in (3, 17, 9)]
    found = []
    for graphs in (True, False):
        engine = TransformersEngine(rows=32, graphs=graphs)
        engine.load({"team": team})
        found.append([[a.ids for a in acts] for acts in engine.generate(wanted, Sampling(max_new_tokens=40))])
    assert found[0] == found[1]
