"""A task for Inspect: a run's held-out problems, and a model directory from `to-hf`.

    inspect eval examples/inspect_run.py -T workdir=runs/mine -T export=out/mine

transformers answers, and the run's own verifier grades: docs/use/outside_evaluation.md.
"""

import dataclasses
import pathlib

import jax
from inspect_ai import Task, task
from inspect_ai.dataset import Sample
from inspect_ai.model import GenerateConfig, get_model
from inspect_ai.scorer import Score, Scorer, Target, accuracy, scorer, stderr
from inspect_ai.solver import TaskState

from job_jax.command import load_config
from job_jax.mesh import start_jax
from rlvr_jax.config import Config, MeshConfig, SamplerConfig
from rlvr_jax.run.setup import RunSetup, open_setup


@scorer(metrics=[accuracy(), stderr()])
def verdict(setup: RunSetup, by_id: dict) -> Scorer:
    """Grades like the run, and keeps the answer that was read and the reason."""

    async def score(state: TaskState, target: Target) -> Score:
        problem, text = by_id[state.sample_id], state.output.completion
        (found,) = setup.verifier([problem], [text])
        right = float(found.status == "correct")
        return Score(value=right, answer=found.answer, explanation=found.reason)

    return score


@task
def held_out(workdir: str, export: str, temperature: float = 0.0) -> Task:
    """Returns the problems that `rlvr_jax.evaluate` uses; temperature 0 is greedy."""
    jax.config.update("jax_platforms", "cpu")  # an accelerator is for transformers
    run = load_config(pathlib.Path(workdir) / "config.json", Config)
    run = dataclasses.replace(run, mesh=MeshConfig(), sampler=SamplerConfig())
    start_jax(run.mesh)
    setup = open_setup(run, pathlib.Path(workdir), stages=("eval",))
    problems = {p.id: p for p in setup.problems("eval", run.eval.num_problems)}
    asked = [Sample(id=p.id, input=p.prompt, target=p.gold) for p in problems.values()]
    policy = get_model(
        "hf/local",
        model_path=export,
        do_sample=temperature > 0,
        chat_template="{{ messages[0].content }}",  # prompts are complete
        tokenizer_call_args={"add_special_tokens": not run.task.applies_chat_template},
        config=GenerateConfig(
            temperature=temperature,
            max_tokens=run.eval.sampling.max_new_tokens,
            stop_seqs=list(run.tokenizer.stop_strings) or None,
        ),
    )
    return Task(dataset=asked, scorer=verdict(setup, problems), model=policy)
