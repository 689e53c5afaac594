"""Trains with a public trainer, in its own environment; benchmarks/training.py starts this and gives the rewards.

    .venv-peers/bin/python -P benchmarks/peers.py comlrl|trl FILE-DESCRIPTOR

The connection on the file descriptor first brings what to do, then answers joint actions with rewards, and at last
takes one row per update: process CPU seconds and wall seconds since training began (waiting for rewards taken off the
latter) and the mean reward.  Nothing here imports the project, which pins other versions.
"""

import sys
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback, set_seed


def most_memory() -> int:
    """Return the most bytes that this process held; `getrusage` would count its parent's, too."""
    lines = Path("/proc/self/status").read_text().splitlines()
    line = next(line for line in lines if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


class Referee:
    """Asks for rewards, and notes time and mean reward of every update."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.rows: list[dict[str, float]] = []
        self.rewards: list[float] = []
        self.waited = 0.0

    def start(self) -> None:
        """Start the clocks."""
        self.cpu, self.wall = time.process_time(), time.perf_counter()

    def judge(self, problems: list[int], joint_actions: list[list[str]]) -> list[float]:
        """Return the rewards of joint actions."""
        asked = time.perf_counter()
        self.connection.send((problems, joint_actions))
        found: list[float] = self.connection.recv()
        self.waited += time.perf_counter() - asked
        self.rewards += found
        return found

    def updated(self) -> None:
        """Note that an update is done."""
        wall = time.perf_counter() - self.wall - self.waited
        mean = sum(self.rewards) / len(self.rewards)
        row = {"cpu": time.process_time() - self.cpu, "wall": wall, "reward": mean}
        self.rows.append(row | {"memory": most_memory()})
        self.rewards.clear()


def load(task: dict[str, Any]) -> tuple[Any, Any]:
    """Return a fresh model and tokenizer, which must encode prompts as the project does."""
    model: Any = AutoModelForCausalLM.from_pretrained(task["base"], dtype=torch.float32, attn_implementation="sdpa")
    tokenizer = AutoTokenizer.from_pretrained(task["base"], padding_side="left")
    for prompts, ids in zip(task["prompts"], task["ids"], strict=True):
        if [tuple(tokenizer(prompt)["input_ids"]) for prompt in prompts] != ids:
            raise SystemExit("the tokenizer gives other ids here than in the project")
    if "lora" in task:
        model = get_peft_model(model, LoraConfig(task_type="CAUSAL_LM", **task["lora"]))
    return model, tokenizer


def comlrl(task: dict[str, Any], referee: Referee) -> None:
    """Train a team with CoMLRL's MAGRPO; an update is one buffer of all prompts of a step, in one batch."""
    from comlrl.trainers.reinforce import MAGRPOConfig, MAGRPOTrainer

    agents = [load(task) for _ in task["prompts"][0]]
    items = [{"problem": number, "prompts": prompts} for number, prompts in enumerate(task["prompts"])]

    def reward(helper: list[str], main: list[str], *, batch_items: list[dict[str, Any]]) -> list[float]:
        return referee.judge([item["problem"] for item in batch_items], [[helper[0], main[0]]])

    arguments = MAGRPOConfig(
        num_train_epochs=1,
        agent_learning_rate=task["learning_rate"],
        num_agents=len(agents),
        num_generations=task["group"],
        max_new_tokens=task["longest"],
        temperature=1.0,
        top_p=1.0,
        top_k=0,
        num_turns=1,
        eval_interval=0,
        rollout_buffer_size=task["problems"],
        train_batch_size=task["problems"],
        early_termination_threshold=None,
    )
    trainer = MAGRPOTrainer(
        agents=[model for model, _ in agents],
        tokenizer=[tokenizer for _, tokenizer in agents],
        train_dataset=Dataset.from_list(items),
        reward_func=reward,
        formatters=[lambda item, agent=agent: item["prompts"][agent] for agent in range(len(agents))],
        args=arguments,
    )
    process, last = trainer._process_buffer, len(agents) - 1

    def noted(agent: int, buffer: Any) -> Any:
        result = process(agent, buffer)
        if agent == last:
            referee.updated()
        return result

    trainer._process_buffer = noted
    trainer.verbose = False
    referee.start()
    trainer.train()


def trl(task: dict[str, Any], referee: Referee) -> None:
    """Train one agent with TRL's GRPO."""
    from trl import GRPOConfig, GRPOTrainer

    class Note(TrainerCallback):
        def on_step_end(self, *given: Any, **more: Any) -> None:
            referee.updated()

    def reward(completions: list[str], problem: list[int], **more: Any) -> list[float]:
        return referee.judge(problem, [[completion] for completion in completions])

    model, tokenizer = load(task)
    actions = task["problems"] * task["group"]
    micro_batch = task.get("micro_batch", actions)
    items = [{"problem": number, "prompt": prompts[0]} for number, prompts in enumerate(task["prompts"])]
    arguments = GRPOConfig(
        output_dir=task["folder"],
        learning_rate=task["learning_rate"],
        lr_scheduler_type="constant",
        adam_beta2=0.98,
        max_steps=task["updates"],
        per_device_train_batch_size=micro_batch,
        gradient_accumulation_steps=actions // micro_batch,
        num_generations=task["group"],
        max_completion_length=task["longest"],
        temperature=1.0,
        top_k=0,
        gradient_checkpointing=False,  # faster than its default
        scale_rewards="none",
        bf16=False,
        use_cpu=True,
        report_to="none",
        save_strategy="no",
        disable_tqdm=True,
        seed=task["seed"],
    )
    trainer = GRPOTrainer(
        model=model,
        processing_class=tokenizer,
        reward_funcs=reward,
        args=arguments,
        train_dataset=Dataset.from_list(items),
        callbacks=[Note()],
    )
    referee.start()
    trainer.train()


if __name__ == "__main__":
    connection = Connection(int(sys.argv[2]))
    task = connection.recv()
    torch.set_num_threads(task["threads"])
    set_seed(task["seed"])
    referee = Referee(connection)
    {"comlrl": comlrl, "trl": trl}[sys.argv[1]](task, referee)
    connection.send(referee.rows)
