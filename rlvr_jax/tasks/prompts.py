"""From a question to the text that the policy reads."""

import datetime

import jinja2
import jinja2.sandbox

from job_jax.schema import ConfigError
from rlvr_jax.config import RecordConfig


class PromptWriter:
    """Fills the prompt template, and the chat template around it where there is one.

    A chat template is the Jinja text that Hugging Face's tokenizers carry, under the
    same settings (sandboxed, immutable, blocks trimmed) and with the same names:
    `messages`, `add_generation_prompt`, `bos_token`, `eos_token`, `raise_exception`,
    `strftime_now`. The two tokens are empty: encoding a prompt adds none.
    """

    def __init__(self, config: RecordConfig):
        """Raises ConfigError where the chat template is no Jinja."""
        self._config = config
        self._chat: jinja2.Template | None = None
        if config.chat_template:
            environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
                trim_blocks=True,
                lstrip_blocks=True,
                extensions=["jinja2.ext.loopcontrols"],
            )
            environment.globals |= {
                "raise_exception": _refuse,
                "strftime_now": _strftime_now,
            }
            try:
                self._chat = environment.from_string(config.chat_template)
            except jinja2.TemplateError as error:
                raise _bad_template(error) from error

    def write(self, question: str) -> str:
        """Returns the prompt of a question."""
        prompt = self._config.prompt_template.replace("{prompt}", question)
        if self._chat is None:
            return prompt
        messages = [{"role": "user", "content": prompt}]
        if self._config.system_prompt:
            system = {"role": "system", "content": self._config.system_prompt}
            messages = [system, *messages]
        try:
            return self._chat.render(
                messages=messages,
                add_generation_prompt=True,
                bos_token="",
                eos_token="",
            )
        except (jinja2.TemplateError, TypeError) as error:
            raise _bad_template(error) from error


def _refuse(message: str) -> None:
    """Raises what a template says of messages that it does not take."""
    raise jinja2.TemplateError(message)


def _strftime_now(form: str) -> str:
    """Returns a fixed day, so that a run repeated later asks the same questions."""
    return datetime.datetime(2026, 1, 1).strftime(form)


def _bad_template(error: Exception) -> ConfigError:
    return ConfigError(
        f"task.record.chat_template: {error}; give the Jinja text of the model's "
        "chat_template"
    )
