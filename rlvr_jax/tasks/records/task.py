"""The tasks `files` and `hub`: word problems read from records."""

import dataclasses
from collections.abc import Mapping
from typing import ClassVar, Self

from job_jax.schema import check, read_other_names
from rlvr_jax.config.task import AUTO, Stage, Task
from rlvr_jax.tasks.records.files import load_file_source
from rlvr_jax.tasks.records.hub import load_hub_source
from rlvr_jax.tasks.records.layout import (
    RECORD_CHAT_TEMPLATE,
    RECORD_PROMPT_TEMPLATE,
    RecordConfig,
)
from rlvr_jax.tasks.records.records import RecordSource


@dataclasses.dataclass(frozen=True, kw_only=True)
class RecordTask(Task):
    """Base of the tasks that read their problems from records of a data set."""

    chat_template_field: ClassVar[str] = RECORD_CHAT_TEMPLATE

    record: RecordConfig = RecordConfig()

    @property
    def applies_chat_template(self) -> bool:
        """Returns whether a chat template goes around each prompt."""
        return self.record.is_chat

    @property
    def template_text(self) -> str:
        """Returns the chat template, or "tokenizer" for the tokenizer's own."""
        return self.record.chat_template

    @property
    def needs_tokenizer_template(self) -> bool:
        """Returns whether `record.chat_template` means the tokenizer's own."""
        return self.record.chat_template == "tokenizer"

    def with_chat_template(self, template: str) -> Self:
        """Returns the task with the template instead of the word "tokenizer"."""
        if not self.needs_tokenizer_template:
            return self
        record = dataclasses.replace(self.record, chat_template=template)
        return dataclasses.replace(self, record=record)

    def automatic_values(self, *, tokenizer_has_template: bool) -> dict[str, str]:
        """Returns the templates that "auto" means in `record`."""
        record, values = self.record, {}
        if record.chat_template == AUTO:
            template = "tokenizer" if tokenizer_has_template else ""
            values[RECORD_CHAT_TEMPLATE] = template
            if template:
                record = dataclasses.replace(record, chat_template=template)
        if record.prompt_template == AUTO:
            values[RECORD_PROMPT_TEMPLATE] = record.default_prompt_template
        return values


@dataclasses.dataclass(frozen=True, kw_only=True)
class FilesTask(RecordTask):
    """Word problems from files: JSON lines, a JSON array (.json), .parquet, .csv."""

    other_names: ClassVar[Mapping[str, str]] = read_other_names(
        train_path="train_files train_file train_data prompt_data data_path data file",
        eval_path=(
            "val_files test_files eval_files eval_file val_path test_path eval_data"
        ),
    )

    train_path: str = ""  # also the source of worked solutions for stage sft
    eval_path: str = ""  # held-out problems

    def problems(self, stage: Stage, *, seed: int) -> RecordSource:
        """Returns the problems of the stage's file."""
        side = "eval" if stage == "eval" else "train"
        path = self.eval_path if side == "eval" else self.train_path
        what = "held-out problems" if side == "eval" else "problems"
        check(bool(path), f"task.{side}_path is empty; name a file of {what}")
        return load_file_source(self.record, path)

    def describe(self) -> str:
        """Returns a phrase that names the file of train problems."""
        return f"problems of {self.train_path}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class HubTask(RecordTask):
    """Word problems from Hugging Face `datasets`, from the hub or a local folder."""

    other_names: ClassVar[Mapping[str, str]] = read_other_names(
        path="dataset dataset_name dataset_path",
        subset="dataset_config dataset_config_name",
        train_split="dataset_train_split split",
        eval_split="dataset_test_split test_split",
    )

    path: str = ""  # name on the hub, or a folder
    subset: str = ""  # configuration of a data set that has several; "": the only one
    revision: str = ""  # commit or tag of the repository on the hub; "": the newest
    train_split: str = "train"  # also the source of worked solutions
    eval_split: str = "test"  # held-out problems

    def problems(self, stage: Stage, *, seed: int) -> RecordSource:
        """Returns the problems of the stage's split."""
        split = self.eval_split if stage == "eval" else self.train_split
        return load_hub_source(self, split)

    def describe(self) -> str:
        """Returns a phrase that names the data set."""
        return f"problems of {self.path}"
