"""The fast tokenizers of Hugging Face checkpoints, read from their directories.

`tokenizers` reads tokenizer.json, the very file and library behind transformers' fast
tokenizers; what that file does not say (special tokens, chat template) stands beside it
in tokenizer_config.json. Nothing is downloaded, and no code of a checkpoint is run.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tokenizers

from job_jax.schema import ConfigError

TOKENIZER, SETTINGS = "tokenizer.json", "tokenizer_config.json"
TEMPLATE = "chat_template.jinja"
# What may say which ids end a completion, the first that does.
_GENERATION = ("generation_config.json", "config.json")


class HuggingFaceTokenizer:
    """tokenizer.json, and what its neighbours say of the ends of texts.

    A completion ends with the tokenizer's eos_token, with any eos_token_id of
    generation_config.json (else of config.json), and with those of `stop` that are
    added tokens, such as <|im_end|>; the other stop texts are looked for in its text.
    A prompt begins as the tokenizer has it; `templated` prompts begin with what their
    chat template wrote.
    """

    def __init__(
        self, directory: Path, *, stop: tuple[str, ...] = (), templated: bool = False
    ):
        """Raises ConfigError on files that are missing, damaged or at odds."""
        self._tokens = _read_tokenizer(directory)
        settings = _read(directory / SETTINGS)
        self._check_added(settings, directory)
        ids = self._tokens.get_vocab(with_added_tokens=True)
        self.vocab_size = 1 + max(ids.values())
        added = {t.content for t in self._tokens.get_added_tokens_decoder().values()}
        ends = [_token(settings, "eos_token")] if _token(settings, "eos_token") else []
        own = [ids[end] for end in ends if end in ids]
        asked = [ids[text] for text in stop if text in added]
        self.eos_ids = tuple(
            dict.fromkeys([*own, *_generation_ends(directory), *asked])
        )
        if not self.eos_ids:
            raise ConfigError(
                f"{directory} names no end-of-sequence token, neither as eos_token in "
                f"{SETTINGS} nor as eos_token_id in {_GENERATION[0]}; add it, or name "
                "an added token in tokenizer.stop"
            )
        self.eos_id = self.eos_ids[0]
        self.stop = tuple(text for text in stop if text not in added)
        self._before = [] if templated else self._first(settings)

    def encode(self, text: str) -> list[int]:
        """Returns the ids of `text`; a special token spelled out in it is one."""
        return self._tokens.encode(text, add_special_tokens=False).ids

    def encode_prompt(self, text: str) -> list[int]:
        """Returns the ids of `text` behind the beginning-of-sequence token, if any."""
        return [*self._before, *self.encode(text)]

    def decode(self, ids: Sequence[int]) -> str:
        """Returns the text of `ids`; bytes that are no UTF-8 read as U+FFFD.

        Special tokens, and ids that the tokenizer does not know, leave no text.
        """
        return self._tokens.decode(list(map(int, ids)), skip_special_tokens=True)

    def _first(self, settings: dict[str, Any]) -> list[int]:
        """Returns the id that texts begin with, if they do.

        `add_bos_token` decides; where it is not set, tokenizer.json's template does.
        """
        bos = self._tokens.token_to_id(_token(settings, "bos_token") or "")
        if bos is None:
            return []
        begins = settings.get("add_bos_token")
        if begins is None:
            begins = self._tokens.encode("x", add_special_tokens=True).ids[:1] == [bos]
        return [bos] if begins else []

    def _check_added(self, settings: dict[str, Any], directory: Path) -> None:
        """Raises ConfigError where the two files disagree on added tokens."""
        for number, token in settings.get("added_tokens_decoder", {}).items():
            if self._tokens.token_to_id(token["content"]) != int(number):
                raise ConfigError(
                    f"{directory}: {SETTINGS} has {token['content']!r} as token "
                    f"{number}, {TOKENIZER} does not; save both again with "
                    "transformers' save_pretrained"
                )


def chat_template(directory: Path) -> str:
    """Returns the tokenizer's Jinja, with the texts of bos_token and eos_token set.

    Of several the one called default counts. Raises ConfigError where there is none.
    """
    settings = _read(directory / SETTINGS)
    found = settings.get("chat_template")
    if isinstance(found, list):
        found = {each["name"]: each["template"] for each in found}.get("default")
    if (directory / TEMPLATE).is_file():
        found = (directory / TEMPLATE).read_text(encoding="utf-8")
    if not found:
        raise ConfigError(
            f"task.record.chat_template=tokenizer, and {directory} has none, neither "
            f"{TEMPLATE} nor in {SETTINGS}; give the Jinja text, or '' for none"
        )
    tokens = {name: _token(settings, name) or "" for name in ("bos_token", "eos_token")}
    told = (
        f"{{%- set {name} = {json.dumps(text)} -%}}" for name, text in tokens.items()
    )
    return "".join(told) + found


def _read_tokenizer(directory: Path) -> tokenizers.Tokenizer:
    path = directory / TOKENIZER
    if not path.is_file():
        mend = "give the directory of a fast tokenizer"
        if (directory / "tokenizer.model").is_file():
            mend = "for its tokenizer.model set tokenizer.kind=sentencepiece and path"
        raise ConfigError(f"no {path}; {mend}")
    try:
        found = tokenizers.Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises no narrower one
        raise ConfigError(f"{path} is no fast tokenizer: {error}") from error
    found.no_truncation()
    found.no_padding()
    return found


def _generation_ends(directory: Path) -> list[int]:
    """Returns the ids that generation would end at."""
    for name in _GENERATION:
        ids = _read(directory / name).get("eos_token_id")
        if ids is not None:
            return ids if isinstance(ids, list) else [ids]
    return []


def _token(settings: dict[str, Any], name: str) -> str | None:
    """Returns the text of a special token, which some files spell out as an object."""
    token = settings.get(name)
    return token["content"] if isinstance(token, dict) else token


def _read(path: Path) -> dict[str, Any]:
    """Returns a settings file, {} where there is none."""
    if not path.is_file():
        return {}
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ConfigError(f"{path} is not JSON ({error})") from error
    if not isinstance(value, dict):
        raise ConfigError(f"{path} holds no JSON object")
    return value
