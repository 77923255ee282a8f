"""Turns a question into the prompt that the policy reads."""

from collections.abc import Sequence

from job_jax.schema import ConfigError
from rlvr_jax.config.task import AUTO
from rlvr_jax.tasks.records.conversation import Turn
from rlvr_jax.tasks.records.layout import RECORD_CHAT_TEMPLATE, RecordConfig
from rlvr_jax.tokenizer import Spans, write_literal
from rlvr_jax.tokenizer.chat import ChatTemplateError, render_chat

# The request after a question if `ask_confidence` is set. The wording is ours.
CONFIDENCE_REQUEST = (
    "After the answer, state the probability that it is correct, from 0 to 1, as "
    "<confidence>probability</confidence>."
)


def fill_chat_template(
    template: str, messages: Sequence[dict[str, str]], *, field: str
) -> str:
    """Returns the messages in the template's format, ready for an answer.

    Raises ConfigError, which names the config's `field`, if the template fails.
    """
    try:
        return render_chat(template, messages)
    except ChatTemplateError as error:
        raise ConfigError(
            f"{field}: {error}; give the Jinja text of a working template, or '' for "
            "none"
        ) from error


class PromptFormatter:
    """Fills the prompt template, and the chat template around it if there is one.

    With `ask_confidence`, CONFIDENCE_REQUEST follows the question. A chat_template that
    is still "auto" counts as none, because its meaning depends on the run
    (`run.checkpoint_settings`).
    A chat template is the Jinja text that Hugging Face's tokenizers carry; transformers
    renders it, in its sandbox (`rlvr_jax.tokenizer.chat.render_chat`).
    """

    def __init__(
        self, config: RecordConfig, *, chat_template_field: str = RECORD_CHAT_TEMPLATE
    ):
        """Raises ConfigError, which names the field, if the template fails."""
        self._config = config
        self._chat_template_field = chat_template_field
        is_open = config.prompt_template == AUTO
        self._prompt_template = (
            config.default_prompt_template if is_open else config.prompt_template
        )
        if config.is_chat:
            self.format_prompt("?")

    def write_prompt(
        self, question: str, earlier: Sequence[Turn] = ()
    ) -> tuple[str, Spans]:
        """Returns the prompt of a question, and the spans of the data's texts in it."""
        roles = [role for role, _ in earlier]

        def write(texts: Sequence[str]) -> str:
            turns = list(zip(roles, texts[1:], strict=True))
            return self.format_prompt(texts[0], turns)

        return write_literal(write, [question, *(text for _, text in earlier)])

    def format_prompt(self, question: str, earlier: Sequence[Turn] = ()) -> str:
        """Returns the prompt of a question after the turns before it.

        Only the question is put into the prompt template. A system message of the data
        takes the place of `system_prompt`. Without a chat template, the earlier turns
        come first, each a paragraph.
        """
        if self._config.ask_confidence:
            question = f"{question}\n{CONFIDENCE_REQUEST}"
        prompt = self._prompt_template.replace("{prompt}", question)
        if not self._config.is_chat:
            return "\n\n".join([*(text for _, text in earlier), prompt])
        turns = [*earlier, ("user", prompt)]
        if self._config.system_prompt and turns[0][0] != "system":
            turns = [("system", self._config.system_prompt), *turns]
        messages = [{"role": role, "content": text} for role, text in turns]
        return fill_chat_template(
            self._config.chat_template, messages, field=self._chat_template_field
        )
