"""The critic: before agents act again, each agent's own untrained base answers what the agent would be shown.

Nobody trains the critic, and it sees nothing that the agent itself does not see.  The environment decides what agents
are told of its answers (`Environment.criticised`).  Answers are greedy, so that they depend neither on a seed nor on
the batch; equal questions of a turn are asked once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pipeline_lib.environment_api.environment import Environment, Outcome
from pipeline_lib.play.prompts import Prompts, fit
from pipeline_lib.policies.policy import Team
from pipeline_lib.rollouts.engine import Engine, Request, Sampling

#: What is counted, for the first episode with a question: questions, and tokens read and written for them.
COSTS = ("critic_requests", "critic_prompt_tokens", "critic_completion_tokens")

#: A base's name, and the token ids of what it is asked.
_Question = tuple[str, tuple[int, ...]]


def criticise(
    environment: Environment[Any, Any],
    team: Team,
    engine: Engine,
    max_new_tokens: int,
    prompts: Prompts,
    outcomes: Sequence[tuple[Sequence[str], Outcome[Any]]],
) -> list[Outcome[Any]]:
    """Return the outcomes with the critic's answers in their states, where the episode goes on; all count the costs.

    Args:
        environment: has a critic.
        team: has bases.
        engine: holds rollout copies of them.
        max_new_tokens: of an answer.
        prompts: the cache of token ids.
        outcomes: of the sampled joint actions of a turn, each with the names of the agents.

    Raises:
        PolicyError: an agent has no base.
    """
    asked = [_questions(environment, team, max_new_tokens, prompts, *one) for one in outcomes]
    different = list(dict.fromkeys(question for own in asked for question in own.values()))
    requests = [Request(policy, prompt, 1, seed=0) for policy, prompt in different]
    greedy = Sampling(temperature=0.0, max_new_tokens=max_new_tokens)
    found = engine.generate(requests, greedy) if requests else []
    answers = {question: actions[0] for question, actions in zip(different, found, strict=True)}
    unpaid = set(different)
    results = []
    for (_, outcome), own in zip(outcomes, asked, strict=True):
        new = unpaid & set(own.values())
        unpaid -= new
        amounts = (
            float(len(new)),
            float(sum(len(prompt) for _, prompt in new)),
            float(sum(len(answers[question].ids) for question in new)),
        )
        costs = {**outcome.details.get("costs", {}), **dict(zip(COSTS, amounts, strict=True))}
        state = outcome.state
        if own:
            state = environment.criticised(state, {agent: answers[question].text for agent, question in own.items()})
        results.append(replace(outcome, state=state, details={**outcome.details, "costs": costs}))
    return results


def _questions(
    environment: Environment[Any, Any],
    team: Team,
    max_new_tokens: int,
    prompts: Prompts,
    names: Sequence[str],
    outcome: Outcome[Any],
) -> dict[int, _Question]:
    """Return by number of the agent what its base is asked after an outcome; nothing if the episode has ended."""
    if outcome.done or outcome.reward is None:
        return {}
    acting = environment.acting(outcome.state)
    found = {}
    for agent in range(len(names)) if acting is None else acting:
        base = team.base_of(names[agent])
        text = fit(environment, outcome.state, agent, base, max_new_tokens, prompts).text
        found[agent] = base.name, prompts.ids(base, text)
    return found
