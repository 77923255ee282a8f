"""Base of the tasks that write their own prompts around plain questions."""

import dataclasses

from job_jax.schema import check
from rlvr_jax.config.task import ChatTask
from rlvr_jax.tasks.records.layout import RecordConfig
from rlvr_jax.tasks.records.prompts import PromptFormatter


@dataclasses.dataclass(frozen=True, kw_only=True)
class PromptedTask(ChatTask):
    """A task that puts each question into a prompt template, then a chat template.

    `formatter` fills both.
    """

    prompt_template: str = "{prompt}"  # text around the question
    system_prompt: str = ""  # first message of a chat; "": none

    def __post_init__(self) -> None:
        """Refuses templates that would drop the question or the system prompt."""
        super().__post_init__()
        check(
            "{prompt}" in self.prompt_template,
            f"prompt_template={self.prompt_template!r} has no place for the question; "
            "write {prompt} in it",
        )
        check(
            bool(self.chat_template) or not self.system_prompt,
            f"system_prompt={self.system_prompt!r} needs a chat_template; set one, or "
            "put this text into prompt_template",
        )

    def formatter(self) -> PromptFormatter:
        """Returns the formatter that turns a question into a prompt."""
        return PromptFormatter(
            RecordConfig(
                prompt_template=self.prompt_template,
                chat_template=self.chat_template,
                system_prompt=self.system_prompt,
            ),
            chat_template_field=self.chat_template_field,
        )
