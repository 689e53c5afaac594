"""What every stage will hold in memory at its peak: from the settings and each model's config.json, before any work.

With P numbers in a model, d bytes for one of them (4 for float32, 2 for bfloat16), a stage needs at once

    libraries + weights + adapters + optimiser + the largest of sampling, critic, update and saving

* weights: P d for every base that frozen agents and adapters share, 4 P for every policy that is trained as a whole,
  P r more for every policy that the engine must copy (r bytes for ``rollouts.dtype``), and 4 P for each that a KL term
  compares with, and for the one that a critic reads with;
* adapters: 4 numbers' bytes for each of the A = sum over layers of rank (in + out) of every policy, and the engine's
  own copy, in which the matrices of all agents lie side by side;
* optimiser: two moments of 4 bytes for each trained number;
* first logits: vocabulary x 4 bytes of every prompt of an evaluation, or of a training step (`FIRST_LOGITS_BYTES`);
* sampling: the cache, rows x tokens x 2 x layers x (kv heads x head size) x r; the prompts that are read in one pass
  (`PREFILL_TOKENS`); and rows x vocabulary x 4 bytes, `DRAW_COPIES` times; in bfloat16 on a CPU the actions of a
  prompt share its part of the cache, and a base that adapters share has its matrices a second time if there is room
  (`PACKED_FROM`);
* update, of one policy after the other: its gradients (4 bytes for each trained number); the activations of one
  micro-batch of T tokens, which are T (4 inner + 4 width + 4 query) numbers for each layer, or with
  ``gradient_checkpointing`` T width for each layer and those of one; the logits of one chunk (`LOGITS_CHUNK`); and on
  a CPU the products that a large model keeps all the same (`KEPT_PRODUCTS`), and what is free and not yet given back to
  the system (`HELD_AT_MOST`); for adapters on an architecture of the fast decoder the shapes are those of
  `pipeline_lib.training.fused_layers`;
* critic: what the hidden states of `CRITIC_TOKENS` tokens take in one layer, or of fewer if texts have fewer;
* kernels: on a CPU those of oneDNN, which compiles one for each size of a product (`_kernels`); where a small model is
  trained, or one in bfloat16, they fill torch's cache as well (`FULL_CACHES`);
* sandbox: its own processes, for each program that may run at the same time;
* saving: a copy of one policy's moments; on a GPU the moments are copied to main memory, and the optimiser's step
  needs as much again as the gradients.

With several processes (``train.processes``) all of it is needed that many times, on a GPU on each.

Shapes follow from the code.  Only the constants below are measured, on a CPU: for sampling and an update of
SmolLM2-135M with adapters, for an update of the embedded model, and for the libraries.  Nothing here was ever compared
with a GPU.
"""

import math
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pipeline_lib.environment_api.registry import find
from pipeline_lib.memory import (
    CRITIC_TOKENS,
    FIRST_LOGITS_BYTES,
    HELD_AT_MOST,
    KEPT_KERNELS,
    KEPT_PRODUCTS,
    LOGITS_CHUNK,
    MOST_ROWS,
    PACKED_FROM,
    PASS_TOKENS,
    PREFILL_TOKENS,
    SMALL_MODEL,
    SOFTMAX_PARTS,
    WARM_START_TOKENS,
)
from pipeline_lib.policies.model_config import converted_already, needs_conversion
from pipeline_lib.policies.policy import is_frozen, section_of
from pipeline_lib.policies.sizes import Sizes
from pipeline_lib.sandbox.jobs import SLOTS_PER_CORE
from pipeline_lib.settings import Params
from pipeline_lib.settings.environment import Tools
from pipeline_lib.settings.policy import AgentPolicy, PretrainedPolicy
from pipeline_lib.settings.policy import Policy as PolicySettings
from pipeline_lib.settings.train import LEARNED

STAGES = ("warm_start", "audit", "train", "sweep", "test")
GIB = 2**30
#: Layers whose matrices the fast decoder joins.
JOINED = (("q_proj", "k_proj", "v_proj"), ("o_proj",), ("gate_proj", "up_proj"), ("down_proj",))
#: Python with torch, transformers, peft, Prefect and MLflow, as a stage loads them; on a GPU: torch's context there.
LIBRARIES, GPU_CONTEXT = 600 * 2**20, 600 * 2**20
#: Processes of the sandbox, and those of each slot: without and with packages, which texts of pretrained models import.
SANDBOX, SLOT, SLOT_WITH_PACKAGES = 24 * 2**20, 24 * 2**20, 64 * 2**20
#: How many actions stand in a prompt at most, by protocol.
READ = {"decentralised": 0, "naive_concatenation": 0, "sequential_pipeline": 1, "one_round_discussion": 2}
#: Tokens of a prompt where no prepared problem says more.
PROMPT_TOKENS = 512
#: Characters of a prompt for one token (a low number, so that estimates are high), and tokens of a chat template.
CHARACTERS, TEMPLATE_TOKENS = 3.2, 32
#: Logits, probabilities, their sums, and what is chosen from them.
DRAW_COPIES = 4
#: Bytes of a compiled kernel of oneDNN, and for how many products of a layer and the head there is one.
KERNEL, PRODUCTS = 0.54 * 2**20, 5
#: Copies as float32 of a part of a chunk of logits below a frozen head, and of a chunk below a trained one or alone.
FROZEN_COPIES, TRAINED_COPIES = 1, 5
#: Further copies of logits with top-k or top-p, which sort them.
FILTER_COPIES = 7
#: Prompts up to this length keep the scores of their attention on the CPU.
PLAIN_ATTENTION = 256
#: What the backward pass of a layer needs besides what its forward pass kept, as a share of that.
BACKWARD = 0.75
#: The C library's own share of all that was allocated.
ALLOCATOR = 0.03
#: Parts of which the library has no share: they are not allocated, or in other processes.
_OTHERS = ("libraries", "sandbox")
#: Bytes for each number of a model while its GGUF file is converted.
CONVERTED = 6.0
#: What the update of a large model leaves in gaps on a CPU until the trainer gives it back: share of the activations of
#: all layers.
GAPS = 0.15
#: What the trainer of a small model never gives back, since new pages would take longer than its work; and what is left
#: where a call samples more actions than there are rows.
SMALL_GAPS = 100 * 2**20
#: How many caches of kernels are full in the training of a small model, or of one in bfloat16: torch's beside that of
#: oneDNN.
FULL_CACHES = 2


@dataclass(slots=True)
class Need:
    """Bytes that a stage needs."""

    lasting: dict[str, float] = field(default_factory=dict)  #: by name, what is held all the time
    #: By name of a phase, by name, what is held in it only.
    phases: dict[str, dict[str, float]] = field(default_factory=dict)
    rows: int = 0  #: actions that are sampled at the same time
    tokens: int = 0  #: of the longest prompt with its action

    @property
    def parts(self) -> dict[str, float]:
        """Return what is held at the peak, by name."""
        largest = max(self.phases.values(), key=lambda phase: sum(phase.values()), default={})
        peak = self.lasting | largest
        return peak | {"allocator": ALLOCATOR * sum(value for name, value in peak.items() if name not in _OTHERS)}

    @property
    def total(self) -> int:
        """Return the peak."""
        return int(sum(self.parts.values()))


@dataclass(frozen=True, slots=True)
class _Held:
    """A policy: how it is trained (``whole``, ``lora``, ``frozen``), and what it is made of.

    Policies on one base have the same object as their sizes.
    """

    kind: str
    sizes: Sizes
    trained: int
    rank: int
    targets: tuple[str, ...]

    def copied(self, same_type: bool) -> bool:
        """Return whether an engine in this process needs a copy of its weights."""
        if self.kind == "whole" or not same_type:
            return True
        return self.sizes.parameters <= SMALL_MODEL if self.sizes.fused else self.kind == "frozen"


def policy_names(params: Params) -> tuple[str, ...]:
    """Return the names of the policies of a team; where the environment does not say, of as many as models, or two."""
    if params.policy.parameters == "shared":
        return ("team",)
    agents = find(params.environment.kind).agent_names(params)
    models = params.policy.models if params.policy.kind == "pretrained" else ()
    return tuple(agents or (f"agent {number}" for number in range(1, max(2, len(models)) + 1)))


def longest_prompt(params: Params, problems: Sequence[Any], sizes: Mapping[str, Sizes] | None = None) -> int:
    """Return how many tokens the longest prompt has, from its characters; `PROMPT_TOKENS` if no problem is known.

    It leaves room for an action in the context of the models, if their ``sizes`` are given: history is cut to that.
    """
    texts = find(params.environment.kind).prompts(problems) if problems else []
    tokens = PROMPT_TOKENS
    if texts:
        tokens = TEMPLATE_TOKENS + round(max(map(len, texts)) / CHARACTERS)
    written = params.rollouts.max_new_tokens
    readers = READ[params.rollouts.protocol]
    tools = getattr(params.environment, "tools", None)
    called = tools.calls * (written + tools.tokens) if isinstance(tools, Tools) else 0
    found = tokens + written * (readers + 2 * (getattr(params.environment, "turns", 1) - 1)) + called
    return min([found, *(max(1, one.context - written) for one in (sizes or {}).values())])


def need(
    params: Params,
    stage: str,
    sizes: Mapping[str, Sizes],
    prompt: int,
    limit: float,
    on_gpu: bool = False,
    counts: Mapping[str, int] | None = None,
) -> Need:
    """Return what a stage needs; the module's text has the formulas.

    Args:
        params: the settings.
        stage: one of `STAGES`, or ``play`` for a single episode.
        sizes: by name of the policy.
        prompt: tokens of the longest prompt.
        limit: bytes that there are, which ``rollouts.rows: auto`` goes by.
        on_gpu: of a GPU, not of this process on a CPU.
        counts: number of prepared problems by split; where they are not known, those that the settings ask for.
    """
    policies = [held for name in sizes if (held := _held(params.policy, name, sizes[name])) is not None]
    needed = Need(lasting={"libraries": float(GPU_CONTEXT if on_gpu else LIBRARIES)})
    if not on_gpu and stage != "warm_start":
        needed.lasting["sandbox"] = _sandbox(params)
    if stage == "warm_start":
        return _warm_start(params, needed, policies, prompt, on_gpu)
    if not policies:
        return needed
    width = 4 if params.policy.kind == "embedded" or not _narrow(params.policy, on_gpu) else 2
    here = params.rollouts.kind == "transformers"
    rolled = {"auto": width, "float32": 4, "bfloat16": 2}[params.rollouts.dtype]
    whole = [held for held in policies if held.kind == "whole"]
    bases = {id(held.sizes): held.sizes.parameters for held in policies if held.kind != "whole"}
    weights = width * sum(bases.values()) + 4 * sum(held.sizes.parameters for held in whole)
    copies = [held for held in policies if held.copied(rolled == width)] if here else []
    copied = sum((4 if held.kind == "whole" and params.rollouts.dtype == "auto" else rolled) * held.sizes.parameters
                 for held in copies)  # fmt: skip
    needed.lasting |= {"weights": weights, "copies for sampling": copied}
    if stage == "train" and params.train.loss.kl > 0:
        needed.lasting["base for the KL term"] = sum(4 * held.sizes.parameters for held in whole)
    reader = next((held for held in policies if held.kind != "frozen"), None)
    learned = stage == "train" and params.train.advantage.baseline in LEARNED
    if learned and reader is not None and reader.kind == "whole":
        needed.lasting["base for the critic"] = 4.0 * reader.sizes.parameters
    adapters = [held for held in policies if held.kind == "lora"]
    shared = [held for held in adapters if held not in copies] if here else []
    reduce, expand = _side_by_side(shared)
    engines = (reduce + expand) * (width if on_gpu else 4)
    needed.lasting["adapters"] = 4 * sum(held.trained for held in adapters) + engines
    largest = max(policies, key=lambda held: held.sizes.parameters).sizes
    agents = max(len(policies), len(find(params.environment.kind).agent_names(params) or ()))
    prompt += params.rollouts.max_new_tokens * (_most_read(params, stage) - READ[params.rollouts.protocol])
    needed.tokens = min(prompt + params.rollouts.max_new_tokens, largest.context)
    if stage == "train":
        needed.lasting["optimiser"] = 8 * sum(held.trained for held in policies)
        needed.phases["update"] = _update(params, policies, needed.tokens, width, on_gpu)
        if learned and reader is not None:
            observed, acted = _actions(params, stage, agents, counts or {})
            texts = observed + (acted if params.train.advantage.baseline == "counterfactual" else 0)
            tokens = min(texts * needed.tokens, max(CRITIC_TOKENS, needed.tokens))
            needed.phases["critic"] = {"texts of a pass": tokens * _read_token(reader.sizes, width)}
        most = max(held.trained for held in policies)
        if on_gpu:
            needed.phases["step"] = {"gradients": 4.0 * most, "step of the optimiser": 4.0 * most}
        else:
            needed.phases["saving"] = {"copy of the moments": 8.0 * most}
    small = largest.parameters <= SMALL_MODEL and not on_gpu
    if here:
        prompts, actions = _actions(params, stage, agents, counts or {})
        if len(policies) == len(copies):  # each is sampled in a call of its own
            prompts, actions = (-(-number // len(policies)) for number in (prompts, actions))
        _sampling(params, (prompts, actions), needed, largest, rolled, limit, on_gpu)
        if small and actions > needed.rows:
            needed.phases["sampling"]["not yet given back"] = SMALL_GAPS
        packs = rolled == 2 and params.rollouts.max_new_tokens >= PACKED_FROM and any(h.sizes.fused for h in shared)
        if packs and not on_gpu:
            matrices = sum(math.prod(shape) for shapes in largest.linear.values() for shape in shapes)
            more = 2.0 * (matrices + largest.vocabulary * largest.width + expand)
            if needed.total + more <= limit:
                needed.phases["sampling"]["packed matrices"] = more
    if stage == "train" and not on_gpu and (small or (here and rolled == 2 and largest.fused)):
        needed.lasting["compiled kernels"] = FULL_CACHES * KERNEL * KEPT_KERNELS
    if not on_gpu and stage == "train" and params.train.processes > 1:
        needed.lasting["further processes"] = (params.train.processes - 1) * needed.total
    return needed


def _sandbox(params: Params) -> float:
    """Return what the processes hold in which programs of agents run, if they do so on this machine."""
    if params.sandbox.kind not in ("process", "auto", "docker") or not find(params.environment.kind).runs_programs:
        return 0.0
    slots = params.sandbox.slots or SLOTS_PER_CORE * len(os.sched_getaffinity(0))
    imported = params.policy.kind == "pretrained" and bool(getattr(params.sandbox, "packages", ()))
    return SANDBOX + slots * float(SLOT_WITH_PACKAGES if imported else SLOT)


def _held(policy: PolicySettings, name: str, sizes: Sizes) -> _Held | None:
    """Return a policy that is in memory; None for one on a server."""
    agent = policy.agents.get(name, AgentPolicy())
    if agent.server is not None:
        return None
    adapter = section_of(policy, name).adapter
    if is_frozen(agent):
        return _Held("frozen", sizes, 0, 0, ())
    if adapter.kind == "none":
        return _Held("whole", sizes, sizes.parameters, 0, ())
    targets = tuple(sizes.linear) if adapter.targets == "all-linear" else adapter.targets
    numbers = sum(sum(shape) for target in targets for shape in sizes.linear.get(target, ()))
    return _Held("lora", sizes, adapter.rank * numbers, adapter.rank, targets)


def _read_token(sizes: Sizes, width: int) -> float:
    """Return what a critic's base needs for a token that it reads: no gradients, and the last states as float32."""
    return width * (3.0 * sizes.inner + 8 * sizes.width) + 4 * 2 * sizes.width


def _side_by_side(policies: Sequence[_Held]) -> tuple[int, int]:
    """Return the numbers in the engine's copies of adapters, in front of and behind their columns.

    These are sides of joined matrices times the columns of all agents.
    """
    reduce = expand = 0
    for names in JOINED:
        columns = sum(held.rank for held in policies for name in names if name in held.targets)
        if columns:
            sizes = policies[0].sizes
            reduce += columns * sum(shape[0] for shape in sizes.linear.get(names[0], ()))
            expand += columns * sum(shape[1] for name in names for shape in sizes.linear.get(name, ()))
    return reduce, expand


def _sampling(
    params: Params, called: tuple[int, int], needed: Need, sizes: Sizes, width: int, limit: float, on_gpu: bool
) -> None:
    """Add the phase of sampling, of calls with so many prompts and actions."""
    prompt = needed.tokens - params.rollouts.max_new_tokens
    problems, actions = called
    each = 2 * sizes.depth * sizes.kv * width * (1 if sizes.fused else 2)
    read = min(PREFILL_TOKENS, problems * prompt)
    in_blocks = sizes.fused and sizes.parameters > SMALL_MODEL
    scores = 0 if on_gpu or in_blocks or prompt > PLAIN_ATTENTION else sizes.heads * prompt
    working = width * (4 * sizes.width + sizes.query + 2 * sizes.kv + 3.5 * sizes.inner) + 8 * scores
    prompts = read * (each + working)
    if params.rollouts.rows == "auto":
        free = limit - sum(needed.lasting.values()) - prompts
        rows = max(1, min(MOST_ROWS, int(free / 2 / (needed.tokens * each)))) if each else MOST_ROWS
    else:
        rows = int(params.rollouts.rows)
    needed.rows = min(rows, actions)
    turns = getattr(params.environment, "turns", 1)
    needed.lasting["first logits"] = min(float(FIRST_LOGITS_BYTES), 4.0 * sizes.vocabulary * problems * turns)
    if not on_gpu:
        needed.lasting["compiled kernels"] = _kernels(sizes, needed.rows, width)
    cached = needed.rows * needed.tokens
    if width == 2 and sizes.fused and not on_gpu:
        cached = needed.rows * params.rollouts.max_new_tokens + min(needed.rows, problems) * prompt
    needed.phases["sampling"] = {
        "cache": cached * each,
        "prompts": prompts,
        "logits of the draws": (DRAW_COPIES + _filters(params))
        * 4.0
        * sizes.vocabulary
        * max(needed.rows, read // max(1, prompt)),
    }


def _kernels(sizes: Sizes, rows: int, width: int) -> float:
    """Return the bytes of compiled kernels: a small model's rows are rounded to eight sizes for each power of two."""
    if width == 2:  # products of any shape have one, those of the update and of attention too
        return KERNEL * KEPT_KERNELS
    if not sizes.fused:
        return 0.0
    counts = float(rows)
    if sizes.parameters <= SMALL_MODEL:
        counts = min(8.0, rows / 8) + 4 * max(0.0, math.log2(rows / 64))
    return KERNEL * min(float(KEPT_KERNELS), PRODUCTS * counts)


def _actions(params: Params, stage: str, agents: int, counts: Mapping[str, int]) -> tuple[int, int]:
    """Return how many prompts, and how many actions, one call of the engine has at most.

    Behind a turn, the result of a tool or what another agent wrote, every episode has prompts of its own.
    """
    prompts, actions = _first_actions(params, stage, agents, counts)
    branching = stage == "train" and params.train.groups == "tree"  # whose prompts are counted already
    further = (getattr(params.environment, "turns", 1) > 1 and not branching) or _most_read(params, stage) > 0
    tools = isinstance(getattr(params.environment, "tools", None), Tools)
    return (actions if further or tools else prompts), actions


def _most_read(params: Params, stage: str) -> int:
    """Return how many actions stand in a prompt at most; the test plays other protocols, too."""
    baselines = params.evaluate.baselines if stage == "test" else ()
    return max(READ[name] for name in (params.rollouts.protocol, *baselines))


def _first_actions(params: Params, stage: str, agents: int, counts: Mapping[str, int]) -> tuple[int, int]:
    if stage == "play":
        return agents, agents
    if stage == "train":
        train = params.train
        deeper = getattr(params.environment, "turns", 1) - 1 if train.groups == "tree" else 0
        prompts = agents * train.problems_per_step * train.group_size**deeper
        return prompts, prompts * train.group_size
    if stage == "audit":
        return agents * params.audit.problems, agents * params.audit.problems * params.audit.group_size
    split = "test" if stage == "test" else "validation"
    asked = getattr(getattr(params.problems, "sizes", None), split, None)
    if (problems := counts.get(split, asked)) is None:
        return MOST_ROWS, sys.maxsize  # a dataset that is not prepared
    return agents * problems, agents * problems * getattr(params.evaluate, split).samples


def _filters(params: Params) -> int:
    """Return how many copies of logits the filters of the distribution take."""
    return FILTER_COPIES if params.rollouts.top_k > 0 or params.rollouts.top_p < 1 else 0


def _update(params: Params, policies: Sequence[_Held], tokens: int, width: int, on_gpu: bool) -> dict[str, float]:
    """Return the phase of the update, for the policy that needs most."""
    train, written, worst = params.train, params.rollouts.max_new_tokens, {"gradients": 0.0}
    eager = params.policy.kind == "embedded" or params.policy.attention == "eager"
    recomputed = params.policy.kind == "pretrained" and params.policy.gradient_checkpointing
    for held in (one for one in policies if one.kind != "frozen"):
        sizes = held.sizes
        tree = tokens + (train.group_size - 1) * written  # a prompt with all its actions
        slow = not on_gpu and sizes.parameters > SMALL_MODEL
        most = min(train.micro_batch_tokens, max(tree, PASS_TOKENS)) if slow else train.micro_batch_tokens
        batch = max(tokens, min(most, train.problems_per_step * tree))
        row = min(batch, tree)
        numbers = batch * (4 * sizes.inner + (4 if held.kind == "lora" else 5.5) * sizes.width + 4 * sizes.query)
        layer = numbers * (4 if width == 4 else 2.8)
        if eager:
            layer += 4 * batch * row * sizes.heads
        elif slow:  # attention keeps a weight for each token that another one sees (`tree_attention`)
            layer += width * batch * min(row, tokens) * sizes.heads
        kept = sizes.depth * batch * sizes.width * width if recomputed else (sizes.depth - 1) * layer
        if recomputed and slow and held.kind == "lora":
            attention = 0 if eager else sizes.query + min(row, tokens) * sizes.heads
            kept += _products(sizes, batch, width, attention)
        positions = batch if sizes.whole_logits else min(batch, train.problems_per_step * train.group_size * written)
        logits = 4.0 * positions * sizes.vocabulary
        chunks = not sizes.whole_logits and logits > 4.0 * LOGITS_CHUNK
        logits = 4.0 * LOGITS_CHUNK if chunks else logits
        if chunks and held.kind == "lora":
            logits *= width / 4 + (FROZEN_COPIES + _filters(params)) / SOFTMAX_PARTS
        else:
            logits *= TRAINED_COPIES + _filters(params)
        working = (1 + BACKWARD) * layer
        part = {
            "gradients": 4.0 * held.trained,
            "activations": kept + working + 5.0 * batch * row,
            "logits of the update": logits,
        }
        if slow and sizes.fused and held.kind == "lora" and not eager:
            part["activations"] = _layers(held, batch, min(row, tokens), width, recomputed) + batch * row
            if batch < train.problems_per_step * tree:  # several passes
                part["not yet given back"] = GAPS * part["activations"]
        elif slow:
            part["not yet given back"] = _gaps(sizes, layer, working + logits)
        elif not on_gpu:
            part["not yet given back"] = SMALL_GAPS
        worst = max(worst, part, key=lambda one: sum(one.values()))
    return worst


def _narrow(policy: PretrainedPolicy, on_gpu: bool) -> bool:
    """Return whether the model computes in bfloat16; ``auto`` counts as float32 on a CPU, where it is not known yet."""
    return policy.dtype == "bfloat16" or (policy.dtype == "auto" and on_gpu)


def _layers(held: _Held, tokens: int, seen: int, width: int, recomputed: bool) -> float:
    """Return what `pipeline_lib.training.fused_layers` holds for so many tokens, each of which sees ``seen``."""
    sizes = held.sizes
    each = 2 * (sizes.query + sizes.kv + sizes.inner) + sizes.width + sizes.heads * seen
    each += held.rank * len(held.targets)
    whole = sizes.depth * each
    kept = min(whole, KEPT_PRODUCTS / (tokens * width)) if recomputed else whole
    again = each if kept < whole else 0
    buffers = 5 * sizes.inner + 4 * sizes.width + 3 * sizes.query + 4 * sizes.kv
    float32 = 4 * sizes.width + 3 * sizes.query + 4 * sizes.kv
    held_tokens = tokens * (width * (sizes.depth * sizes.width + kept + again + buffers) + 4 * float32)
    return held_tokens + 4.0 * held.trained


def _gaps(sizes: Sizes, layer: float, reused: float) -> float:
    """Return what is free and not given back: a layer begins below the limit, and passes it by less than it needs."""
    return min(GAPS * sizes.depth * layer, max(0.0, HELD_AT_MOST + BACKWARD * layer - reused))


def _products(sizes: Sizes, tokens: int, width: int, attention: int = 0) -> float:
    """Return what layers keep under gradient checkpointing, with so many numbers of ``attention`` for each token."""
    numbers = sum(out for shapes in sizes.linear.values() for _, out in shapes) + sizes.depth * attention
    return min(KEPT_PRODUCTS, tokens * width * numbers)


def _imitation(policy: PretrainedPolicy, needed: Need, sizes: Sizes, prompt: int, written: int, on_gpu: bool) -> None:
    """Add the warm start of a pretrained model, which is trained once for all agents."""
    held = _held(policy.model_copy(update={"agents": {}}), "base", sizes)
    assert held is not None
    whole = held.kind == "whole"
    width = 4 if whole or not _narrow(policy, on_gpu) else 2
    needed.tokens = min(prompt + written, sizes.context)
    assert policy.warm_start is not None
    rows = policy.warm_start.batch
    if sizes.parameters > SMALL_MODEL:
        rows = min(rows, max(1, WARM_START_TOKENS // max(1, needed.tokens)))
    tokens, counted = rows * needed.tokens, rows * min(written, needed.tokens)
    layer = tokens * (4 * sizes.inner + (5.5 if whole else 4) * sizes.width + 4 * sizes.query)
    layer *= 2.8 if _narrow(policy, on_gpu) else 4
    if policy.attention == "eager":
        layer += 4 * tokens * needed.tokens * sizes.heads
    kept = sizes.depth * tokens * sizes.width * width if policy.gradient_checkpointing else (sizes.depth - 1) * layer
    if policy.gradient_checkpointing and not whole and not on_gpu and sizes.parameters > SMALL_MODEL:
        kept += _products(sizes, tokens, width)
    logits = 4.0 * (tokens if sizes.whole_logits else counted) * sizes.vocabulary * TRAINED_COPIES
    needed.phases["update"] = {
        "weights": width * sizes.parameters,
        "adapters": 0.0 if whole else 4.0 * held.trained,
        "optimiser": 8.0 * held.trained,
        "gradients": 4.0 * held.trained,
        "activations": kept + (1 + BACKWARD) * layer,
        "logits of the update": logits,
    }
    if not on_gpu and sizes.parameters > SMALL_MODEL:
        needed.phases["update"]["not yet given back"] = _gaps(sizes, layer, (1 + BACKWARD) * layer + logits)
    # Adapters are added to a copy of the weights, one of every matrix at the same time.
    needed.phases["saving"] = {
        "weights": width * sizes.parameters * (1 if whole else 2),
        "optimiser": 8.0 * held.trained,
    }


def _warm_start(params: Params, needed: Need, policies: Sequence[_Held], prompt: int, on_gpu: bool) -> Need:
    """Return what the warm start needs; of a pretrained model, a GGUF file is converted before it is loaded."""
    if params.policy.kind == "pretrained":
        converted = any(needs_conversion(model) and not converted_already(model) for model in params.policy.models)
        largest = max((held.sizes.parameters for held in policies), default=0)
        needed.phases["conversion"] = {"weights": CONVERTED * largest * converted}
        if params.policy.warm_start is not None and policies:
            _imitation(params.policy, needed, policies[0].sizes, prompt, params.rollouts.max_new_tokens, on_gpu)
        return needed
    if policies:
        made = max((held.sizes for held in policies), key=lambda sizes: sizes.parameters)
        rows, written = params.policy.warm_start.batch, params.rollouts.max_new_tokens
        needed.tokens = min(prompt + written, made.context)
        tokens = rows * needed.tokens
        layer = 4.0 * tokens * (4 * made.inner + 5.5 * made.width + 4 * made.query + made.heads * needed.tokens)
        needed.lasting |= {"weights": 4.0 * made.parameters, "optimiser": 8.0 * made.parameters}
        needed.lasting["compiled kernels"] = FULL_CACHES * KERNEL * KEPT_KERNELS
        needed.phases["update"] = {
            "gradients": 4.0 * made.parameters,
            "activations": (made.depth + BACKWARD) * layer,
            "logits of the update": 4.0 * rows * min(written, needed.tokens) * made.vocabulary * TRAINED_COPIES,
        }
    return needed
