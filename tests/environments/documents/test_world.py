"""Generated worlds: everything about them is known, and nobody can answer alone."""

from collections import Counter

import pytest
from pydantic import ValidationError

from pipeline_lib.environments.documents.problem import DocumentsProblem, generate
from pipeline_lib.environments.documents.settings import GeneratedWorlds
from tests.environments.documents.help import SIZES, answers, questions


@pytest.mark.parametrize("agents", [2, 3, 4])
def test_all_documents_together_have_one_answer_and_those_of_no_agent_have_any(agents: int) -> None:
    for problem in questions(agents)["train"]:
        texts = [fact.text for fact in problem.facts]
        assert answers(texts, problem.path) == {problem.answer}
        assert len({tuple(text.split()[:2]) for text in texts}) == len(texts), "every relation has one value"
        holders = {problem.facts[number].holder for number in problem.support}
        assert holders != {0} and (len(problem.support) == 1 or len(holders) > 1)
        for agent in range(agents):
            own = [problem.facts[number].text for number in problem.held(agent)]
            # Whoever alone holds the only fact of one hop is not told the question.
            assert not answers(own, problem.path) or (len(problem.support) == 1 and agent > 0)


def test_the_support_is_needed_whole_and_in_the_order_of_the_hops() -> None:
    for problem in questions()["train"]:
        texts = [fact.text for fact in problem.facts]
        for number in problem.support:
            assert not answers(texts[:number] + texts[number + 1 :], problem.path)
        for hops in range(1, len(problem.path)):
            chain = [texts[number] for number in problem.support[:hops]]
            assert len(answers(chain, problem.path[: hops + 1])) == 1
    assert Counter(len(problem.support) for problem in questions()["train"]) == {1: 40, 2: 40, 3: 40}


def test_documents_are_dealt_out_whole_and_equally() -> None:
    for problem in questions(4)["test"]:
        for agent in range(4):
            dealt = problem.documents(problem.held(agent))
            assert [len(document) for document in dealt] == [2, 2]
            assert all(len({fact.text.split()[0] for fact in document}) == 1 for document in dealt)
        assert problem == DocumentsProblem.from_json(problem.to_json())


def test_the_same_settings_give_the_same_splits_and_no_support_is_in_two_of_them() -> None:
    found = questions()
    assert found == generate(GeneratedWorlds(sizes=SIZES)) != generate(GeneratedWorlds(sizes=SIZES, seed=8))
    families = [{problem.family for problem in found[split]} for split in SIZES]
    assert not families[0] & families[1] and not families[0] & families[2] and not families[1] & families[2]
    apart = generate(GeneratedWorlds(sizes=SIZES, seed=1, apart_from=7))
    assert not {p.family for problems in apart.values() for p in problems} & (families[1] | families[2])


def test_too_many_hops_for_the_documents_are_refused() -> None:
    with pytest.raises(ValidationError, match="2 agents with 1 each have fewer"):
        GeneratedWorlds(agents=2, documents=1, hops=(3,))
    for problem in generate(GeneratedWorlds(agents=2, documents=2, hops=(3,), facts=1, sizes=SIZES))["test"]:
        assert len(problem.facts) == 4
