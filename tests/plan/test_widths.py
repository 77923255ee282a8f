"""The widths of a run's batches, from its data or from its limits."""

import dataclasses
import json
from pathlib import Path

from rlvr_jax.plan.widths import Widths
from rlvr_jax.run.setup import open_setup
from tests.support.checkpoints import word_config, write_checkpoint


def test_widths_are_those_of_the_longest_problem_read(tmp_path):
    """Of 300 problems every third is read; number 150 is the only long one."""
    start, path = write_checkpoint(tmp_path / "hf"), tmp_path / "problems.jsonl"
    rows = [
        {"question": "What is " + "1 plus " * (15 * (i == 150)) + f"{i} plus 1?"}
        | {"answer": f"#### {i + 1}"}
        for i in range(300)
    ]
    path.write_text("\n".join(map(json.dumps, rows)))
    config = word_config(start, path, prompt_pad_multiple=16)
    setup = open_setup(config, Path(tmp_path / "tokenizer.model"))
    widths, limits = Widths.from_setup(setup), Widths.from_config(setup.config)
    lengths = [
        len(setup.tokenizer.encode_prompt(setup.problems("train", 300)[i].prompt))
        for i in (0, 150)
    ]
    multiple = config.prompt_pad_multiple
    padded = [-(-length // multiple) * multiple for length in lengths]
    assert padded[0] < widths.prompts["train"] == padded[1] < limits.prompts["train"]
    assert widths.completion == limits.completion
    longest = dataclasses.replace(config.model, max_seq_len=1 << 14)
    wide = Widths.from_config(dataclasses.replace(config, model=longest))
    assert (
        wide.prompts["eval"]
        == ((1 << 14) - config.eval.sampling.max_new_tokens + multiple - 1)
        // multiple
        * multiple
    )
