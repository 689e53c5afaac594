"""The documents environment's implementation of `Task`, and what it measures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pipeline_lib.environment_api.metrics import Metric, behaviour
from pipeline_lib.environment_api.task import Task, check_steps
from pipeline_lib.environment_kit.dialogue import talk_metrics
from pipeline_lib.environments.documents.audit import DocumentsExaminer
from pipeline_lib.environments.documents.demonstrations import demonstrate
from pipeline_lib.environments.documents.problem import AGENTS, SINGLE, DocumentsProblem, generate
from pipeline_lib.environments.documents.published import read_dataset
from pipeline_lib.environments.documents.rewards import TERMS
from pipeline_lib.environments.documents.runtime import DocumentsEnvironment
from pipeline_lib.environments.documents.settings import (
    MOST_TOKENS,
    MOST_TURNS,
    DocumentsSettings,
    GeneratedWorlds,
    PublishedDocuments,
)
from pipeline_lib.problems.splitting import split_problems

if TYPE_CHECKING:
    from pipeline_lib.environment_api.task import Demonstration

METRICS = {
    "proven": Metric(
        "answers with their support",
        "the answer is right, times the share of its support among all facts that are named or needed",
        share=True,
        over_checkpoints=True,
        at_k="accuracy",
    ),
    "all_proven": Metric(
        "right answers with exactly their support",
        "the answer is right, and the facts that prove it are named and no others",
        share=True,
        over_checkpoints=True,
        solves=True,
    ),
    "right_answer": Metric("right answers", "the answer is the right one", share=True, over_checkpoints=True),
    "support_share": Metric(
        "support", "facts that are named and prove the answer, as a share of all that are named or needed", share=True
    ),
    "answered": behaviour("questions answered", "the asker answers, rightly or not", over_checkpoints=True),
    "contradicted": behaviour(
        "support that documents contradict", "share of the named facts that documents contradict", better="lower"
    ),
    "invented": behaviour(
        "support that is invented", "share of the named facts about which no document says anything", better="lower"
    ),
    "not_read": behaviour(
        "support that was not read", "share of the named facts that are true and unknown to the asker", better="lower"
    ),
    **talk_metrics(
        AGENTS,
        turns="turns until the answer",
        useless="share of the messages' tokens with which nobody told, or asked for, a fact that was still needed",
        most_tokens=MOST_TOKENS,
        most_turns=MOST_TURNS,
    ),
}


class DocumentsTask(Task):
    """Agents with different documents answer a question that only the first of them is told."""

    settings = DocumentsSettings
    problems = (GeneratedWorlds, PublishedDocuments)
    problem = DocumentsProblem
    measures = METRICS
    primary = "proven"
    examiner = DocumentsExaminer
    meanings = TERMS
    demonstrate = staticmethod(demonstrate)
    chosen_by = "answer"
    rewarded_in = "pipeline_lib.environments.documents.runtime:DocumentsEnvironment"  # it depends on how texts are read
    guards = ({"metric": "answered", "better": "higher", "slack": 0.1},)

    def make_problems(self, settings: GeneratedWorlds | PublishedDocuments) -> Mapping[str, Sequence[DocumentsProblem]]:
        if settings.kind == "worlds":
            return generate(settings)
        return split_problems(read_dataset(settings), settings.validation, settings.test, settings.seed)

    def prompts(self, problems: Sequence[DocumentsProblem]) -> list[str]:
        found = []
        for team in ("team", SINGLE):
            environment = DocumentsEnvironment(DocumentsSettings(team=team))
            for problem in problems:
                state = environment.start(problem)
                found += [environment.observe(state, agent) for agent in range(len(environment.agents(problem)))]
        return found

    def has_later_turns(self, params: Any) -> bool:
        tools = getattr(params.environment, "tools", None)  # identities also ask about settings of another kind
        return tools is not None and params.policy.warm_start is not None

    def demonstrate_later(
        self,
        problems: Sequence[DocumentsProblem],
        count: int,
        mistakes: float,
        seed: int,
        settings: DocumentsSettings,
        executor: Callable[[], Any],
    ) -> Sequence[Demonstration]:
        return demonstrate(problems, count, mistakes, seed, settings.tools)

    def make(self, settings: DocumentsSettings, executor: Callable[[], Any]) -> DocumentsEnvironment:
        return DocumentsEnvironment(settings)

    def single_agent(self, settings: DocumentsSettings) -> DocumentsSettings:
        return settings.model_copy(update={"team": SINGLE})

    def most_turns(self, params: Any) -> int:
        return 1 if params.environment.team == SINGLE else int(params.environment.turns)

    def unsuitable(self, protocol: str, settings: DocumentsSettings) -> str:
        return "the agents of environment.kind documents read each other's messages already"

    def agent_names(self, params: Any) -> Sequence[str]:
        return (SINGLE,) if params.environment.team == SINGLE else AGENTS[: params.problems.agents]

    def check(self, params: Any) -> None:
        if params.problems.kind != "worlds":
            return
        check_steps(params)
        tools, hops = params.environment.tools, max(params.problems.hops)
        if tools is not None and tools.calls < hops:
            raise ValueError(
                f"environment.tools.calls ({tools.calls}) is fewer than the facts that may have to be looked up for an "
                f"answer; set it to {hops}, or problems.hops to at most {tools.calls}"
            )
