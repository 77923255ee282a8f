"""Turns a question into the prompt that the policy reads."""

from collections.abc import Sequence

from job_jax.schema import ConfigError
from rlvr_jax.config.task import AUTO
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

    def write_prompt(self, question: str) -> tuple[str, Spans]:
        """Returns the prompt of a question, and the question's spans in it."""
        return write_literal(lambda texts: self.format_prompt(texts[0]), [question])

    def format_prompt(self, question: str) -> str:
        """Returns the prompt of a question."""
        if self._config.ask_confidence:
            question = f"{question}\n{CONFIDENCE_REQUEST}"
        prompt = self._prompt_template.replace("{prompt}", question)
        if not self._config.is_chat:
            return prompt
        messages = [{"role": "user", "content": prompt}]
        if self._config.system_prompt:
            system = {"role": "system", "content": self._config.system_prompt}
            messages = [system, *messages]
        return fill_chat_template(
            self._config.chat_template, messages, field=self._chat_template_field
        )
