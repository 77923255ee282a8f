"""A task of plain prompts, for `rlvr_jax.generate` when it has no recipe."""

import dataclasses
from typing import ClassVar

from rlvr_jax.config.task import ChatTask, Stage
from rlvr_jax.tasks.records.prompts import fill_chat_template
from rlvr_jax.types import Problem


@dataclasses.dataclass(frozen=True, kw_only=True)
class PromptsTask(ChatTask):
    """Texts for a policy to answer, each sent as a user message in `chat_template`.

    They have no golds, so nothing is graded.
    """

    checks_golds: ClassVar[bool] = False
    chat_template_field: ClassVar[str] = "--checkpoint"

    texts: tuple[str, ...] = ()

    def problems(self, stage: Stage, *, seed: int) -> list[Problem]:
        """Returns a problem for each text, in the same order."""
        return [
            Problem(
                id=f"prompt/{number}",
                prompt=self._fill_template(text),
                gold="",
                verifier="none",
                source="prompt",
            )
            for number, text in enumerate(self.texts)
        ]

    def _fill_template(self, text: str) -> str:
        if not self.applies_chat_template:
            return text
        message = {"role": "user", "content": text}
        return fill_chat_template(
            self.chat_template, [message], field=self.chat_template_field
        )

    def describe(self) -> str:
        """Returns how many prompts there are."""
        return f"{len(self.texts)} prompts"
