"""From a question to the text that the policy reads."""

from collections.abc import Sequence

from job_jax.schema import ConfigError
from rlvr_jax.config.task import AUTO
from rlvr_jax.tasks.records.layout import RECORD_CHAT_TEMPLATE, RecordConfig
from rlvr_jax.tokenizer import Spans, write_literal
from rlvr_jax.tokenizer.chat import ChatTemplateError, render_chat

# Ours: what a question is followed by where a confidence is asked for.
CONFIDENCE_REQUEST = (
    "After the answer, state the probability that it is correct, from 0 to 1, as "
    "<confidence>probability</confidence>."
)


def fill_chat_template(
    template: str, messages: Sequence[dict[str, str]], *, field: str
) -> str:
    """Returns the messages as the template writes them, ready for an answer.

    Raises ConfigError, with the config's `field`, on a template that fails.
    """
    try:
        return render_chat(template, messages)
    except ChatTemplateError as error:
        raise ConfigError(
            f"{field}: {error}; give the Jinja text of a template that works, or '' "
            "for none"
        ) from error


class PromptFormatter:
    """Fills the prompt template, and the chat template around it if there is one.

    With `ask_confidence` the question is followed by CONFIDENCE_REQUEST. A
    chat_template that is still "auto" is none: which one it means depends on the run
    (`run.checkpoint_settings`).
    A chat template is the Jinja text that Hugging Face's tokenizers carry; transformers
    renders it, in its sandbox (`rlvr_jax.tokenizer.chat.render_chat`).
    """

    def __init__(
        self, config: RecordConfig, *, chat_template_field: str = RECORD_CHAT_TEMPLATE
    ):
        """Raises ConfigError, with the field's name, on a template that fails."""
        self._config = config
        self._chat_template_field = chat_template_field
        is_open = config.prompt_template == AUTO
        self._prompt_template = (
            config.default_prompt_template if is_open else config.prompt_template
        )
        if config.is_chat:
            self.format_prompt("?")

    def write_prompt(self, question: str) -> tuple[str, Spans]:
        """Returns the prompt of a question, and where the question stands in it."""
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
