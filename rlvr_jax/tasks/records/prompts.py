"""From a question to the text that the policy reads."""

import jinja2

from job_jax.schema import ConfigError
from rlvr_jax.tasks.records.layout import RecordConfig
from rlvr_jax.tokenizer.huggingface import render_chat

# Ours: what a question is followed by where a confidence is asked for.
CONFIDENCE_REQUEST = (
    "After the answer, state the probability that it is correct, from 0 to 1, as "
    "<confidence>probability</confidence>."
)


class PromptFormatter:
    """Fills the prompt template, and the chat template around it if there is one.

    With `ask_confidence` the question is followed by CONFIDENCE_REQUEST.
    A chat template is the Jinja text that Hugging Face's tokenizers carry; transformers
    renders it, in its sandbox (`rlvr_jax.tokenizer.huggingface.render_chat`).
    """

    def __init__(self, config: RecordConfig):
        """Raises ConfigError if the chat template cannot be rendered."""
        self._config = config
        if config.chat_template:
            self.format_prompt("?")

    def format_prompt(self, question: str) -> str:
        """Returns the prompt of a question."""
        if self._config.ask_confidence:
            question = f"{question}\n{CONFIDENCE_REQUEST}"
        prompt = self._config.prompt_template.replace("{prompt}", question)
        if not self._config.chat_template:
            return prompt
        messages = [{"role": "user", "content": prompt}]
        if self._config.system_prompt:
            system = {"role": "system", "content": self._config.system_prompt}
            messages = [system, *messages]
        try:
            return render_chat(self._config.chat_template, messages)
        except (jinja2.TemplateError, TypeError) as error:
            raise ConfigError(
                f"task.record.chat_template: {error}; give the Jinja text of the "
                "model's chat_template"
            ) from error
