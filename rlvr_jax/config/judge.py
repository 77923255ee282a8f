"""The settings of a judge: a language model behind an OpenAI-compatible endpoint."""

import dataclasses
from collections.abc import Mapping
from typing import ClassVar, Literal
from urllib.parse import urlsplit

from job_jax.schema import (
    ConfigSection,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    UnitInterval,
    check,
    read_other_names,
)

_PLACES = ("{question}", "{gold}", "{completion}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class JudgeConfig(ConfigSection):
    """A language model that grades: the reward and the verifier `judge`.

    The request is the template, followed by instructions for the form of the answer
    (`answer`). With yes_no the reward is 1 or 0; with score it is the judge's score
    from 0 to 10, divided by 10. As a verifier, the judge says correct if the reward is
    at least `min_correct`.
    """

    other_names: ClassVar[Mapping[str, str]] = read_other_names(
        url="base_url api_base judge_url endpoint",
        model="judge_model",
        api_key_env="api_key",
    )

    url: str = ""  # of the endpoint, such as http://localhost:8000/v1; "": no judge
    model: str = ""  # its name at the endpoint
    api_key_env: str = ""  # environment variable that holds the key; "": none is sent
    # The request; instructions for the form of the answer follow it
    template: str = (
        "Question:\n{question}\n\nReference answer:\n{gold}\n\n"
        "Answer to grade:\n{completion}\n\n"
        "Does the answer to grade agree with the reference answer?"
    )
    answer: Literal["yes_no", "score"] = "yes_no"  # score: 0 to 10
    min_correct: UnitInterval = 0.5  # least score / 10 for the verdict correct
    max_tokens: NonNegativeInt = 256  # of the judge's reply; 0: the endpoint decides
    send_temperature: bool = True  # send temperature 0; some models refuse the setting
    timeout_s: PositiveFloat = 60.0  # per item, retries included
    max_attempts: PositiveInt = 5  # after 429, 5xx and lost connections, with back-off
    concurrency: PositiveInt = 16  # requests at a time in each process

    def __post_init__(self) -> None:
        """Refuses an endpoint that cannot be called, and a key in the config."""
        super().__post_init__()
        missing = [place for place in _PLACES if place not in self.template]
        check(
            missing in ([], ["{gold}"]),
            f"template={self.template!r:.60} has no place for {', '.join(missing)}; "
            "write it in (only {gold} may be left out)",
        )
        check(
            self.answer == "score" or self.min_correct == 0.5,
            f"min_correct={self.min_correct} does nothing with answer=yes_no; set "
            "answer=score",
        )
        if not self.url:
            return
        parts = urlsplit(self.url)
        check(
            parts.scheme in ("http", "https") and bool(parts.hostname),
            f"url={self.url!r} is not an address; write it as http://host:port/v1",
        )
        check(
            parts.username is None and not parts.query,
            "url holds more than an address, and config.json would store it; put a key "
            "in an environment variable and name that in api_key_env",
        )
        check(
            not parts.path.endswith("/chat/completions"),
            f"url={self.url!r} names one of the endpoint's paths; leave out "
            "/chat/completions",
        )
        check(bool(self.model), f"url={self.url!r} needs a model; set judge.model")
        check(
            not self.api_key_env or self.api_key_env.isidentifier(),
            "api_key_env is the name of an environment variable, not the key; for "
            "example api_key_env=JUDGE_API_KEY",
        )
