"""Tokenizers of Hugging Face checkpoints, through transformers.

tokenizer.json is read directly: for some architectures `AutoTokenizer` would rebuild
the tokenizer by its own rules, and its ids could differ from the ids that a checkpoint
was trained on. Nothing is downloaded, and no code of a checkpoint is run.

transformers is imported when it is first needed, because it takes seconds.
"""

import functools
import json
import math
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from job_jax.schema import ConfigError
from rlvr_jax.tokenizer.base import Spans
from rlvr_jax.tokenizer.control_tokens import (
    TextEncoder,
    find_role_tokens,
    is_framed,
    is_tag,
)

TOKENIZER, SETTINGS = "tokenizer.json", "tokenizer_config.json"
GENERATION, TEMPLATE = "generation_config.json", "chat_template.jinja"
# Files that may say which tokens end a completion; the first one that does decides.
_EOS_FILES = (GENERATION, "config.json")
_NAMED = ("bos_token", "eos_token", "pad_token", "unk_token")


def import_transformers() -> Any:
    """Returns the module `transformers`, without its advice about missing PyTorch."""
    os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")
    import transformers  # noqa: PLC0415

    transformers.logging.set_verbosity_error()
    return transformers


class HuggingFaceTokenizer:
    """A fast tokenizer of a Hugging Face directory, and the tokens that end a text.

    A completion ends at the tokenizer's eos_token, at the eos_token_id of
    generation_config.json (or else config.json), and at the `stop` strings that are
    special tokens, such as <|im_end|>; other stop strings are found in its text. A
    prompt begins with the beginning-of-sequence token if the tokenizer adds one, unless
    its chat template writes it (`has_chat_template`).
    """

    def __init__(
        self,
        directory: Path,
        *,
        stop: tuple[str, ...] = (),
        has_chat_template: bool = False,
        template: str = "",
    ):
        """Raises ConfigError on files that are missing, damaged or contradictory.

        `template` is the chat template whose roles are control tokens, "" for the
        tokenizer's own.
        """
        self.directory = directory
        self._tokenizer = _read_tokenizer(directory)
        self._given_template = template
        ids = self._tokenizer.get_vocab()
        self.vocab_size = 1 + max(ids.values())
        self.special_ids = frozenset(
            number
            for number, token in self._tokenizer.added_tokens_decoder.items()
            if token.special
        )
        special = {
            token.content for token in self._tokenizer.added_tokens_decoder.values()
        }
        eos_token = self._tokenizer.eos_token
        own_ids = [ids[eos_token]] if eos_token in ids else []
        stop_ids = [ids[text] for text in stop if text in special]
        generation_ids = _generation_eos_ids(directory)
        self.eos_ids = tuple(dict.fromkeys([*own_ids, *generation_ids, *stop_ids]))
        self._end_ids = {*own_ids, *generation_ids}
        self._stop_ids = set(stop_ids)
        if not self.eos_ids:
            raise ConfigError(
                f"{directory} names no end-of-sequence token, neither as eos_token in "
                f"{SETTINGS} nor as eos_token_id in {_EOS_FILES[0]}; add it, or name "
                "an added token in tokenizer.stop_strings"
            )
        self.eos_id = self.eos_ids[0]
        self.stop_strings = tuple(text for text in stop if text not in special)
        self._prompt_prefix = [] if has_chat_template else self._bos_ids(directory)

    @functools.cached_property
    def control_tokens(self) -> dict[str, int]:
        """Returns the tokens that carry no text, with their ids.

        They are the tokens named beginning, end, padding and unknown, the added tokens
        that end a completion, and the roles of the chat template (`find_role_tokens`).
        A tag that ends completions, such as </answer> in `stop`, is text.
        """
        added, ids = self._added_tokens, self._tokenizer.get_vocab()
        named = [self._tokenizer.special_tokens_map.get(name) for name in _NAMED]
        candidates = [
            token
            for token in added
            if (added[token].special or is_framed(token)) and not self._is_tag(token)
        ]
        names = {
            *(token for token in named if token in ids),
            *(token for token in added if ids[token] in self._end_ids),
            *(token for token in candidates if ids[token] in self._stop_ids),
            *find_role_tokens(candidates, self._template),
        }
        return {token: ids[token] for token in sorted(names)}

    @functools.cached_property
    def _control_ids(self) -> frozenset[int]:
        return frozenset(self.control_tokens.values())

    @functools.cached_property
    def _text_encoder(self) -> TextEncoder:
        """Returns the encoder that recognizes only tags among special tokens."""
        added = self._added_tokens
        spelled_out = {
            token: self._tokenizer.get_vocab()[token]
            for token in added
            if token in self.control_tokens
            or (added[token].special and not self._is_tag(token))
        }
        return TextEncoder(self._tokenizer.backend_tokenizer, spelled_out)

    @functools.cached_property
    def _added_tokens(self) -> dict[str, Any]:
        added = self._tokenizer.added_tokens_decoder.values()
        return {token.content: token for token in added}

    @functools.cached_property
    def _template(self) -> str:
        return self._given_template or _own_template(self._tokenizer) or ""

    def _is_tag(self, token: str) -> bool:
        return is_tag(token, self._added_tokens, self._template)

    def encode(self, text: str, *, literal: Spans = ()) -> list[int]:
        """Returns the ids of `text`; a special token spelled out in it is one id.

        Within the `literal` character ranges control tokens stay text. Ranges without a
        spelled-out control token do not change the ids.
        """
        if literal and self._text_encoder.spelled_out(text, literal):
            return self._text_encoder.encode(text, literal)
        return self._tokenizer.encode(text, add_special_tokens=False)

    def encode_prompt(self, text: str, *, literal: Spans = ()) -> list[int]:
        """Returns the ids of `text` after the beginning-of-sequence token, if any."""
        return [*self._prompt_prefix, *self.encode(text, literal=literal)]

    def decode(self, ids: Sequence[int]) -> str:
        """Returns the text of `ids`; bytes that are not UTF-8 become U+FFFD.

        Control tokens, and ids that the tokenizer does not know, are left out. Other
        special tokens are spelled out: a mark such as <think> is part of the text.
        """
        return self._tokenizer.decode(
            [number for number in map(int, ids) if number not in self._control_ids],
            skip_special_tokens=False,
            clean_up_tokenization_spaces=False,
        )

    def show(self, ids: Sequence[int]) -> str:
        """Returns the text of `ids` with special tokens spelled out, for people."""
        return self._tokenizer.decode(
            list(map(int, ids)),
            skip_special_tokens=False,
            clean_up_tokenization_spaces=False,
        )

    def token_texts(self) -> list[str]:
        """Returns the text of each id as it appears within a text.

        Each is decoded after another token, since decoders drop the space at the start
        of a text. Special tokens are spelled out; ids that the tokenizer does not know
        are "<5>".
        """
        backend = self._tokenizer.backend_tokenizer
        before = self.encode("a")[-1:]
        start = len(backend.decode(before))
        texts = backend.decode_batch([[*before, i] for i in range(self.vocab_size)])
        added = self._tokenizer.added_tokens_decoder
        return [
            added[i].content if i in added else text[start:] or f"<{i}>"
            for i, text in enumerate(texts)
        ]

    def _bos_ids(self, directory: Path) -> list[int]:
        """Returns the id of the beginning-of-sequence token if texts begin with it.

        `add_bos_token` in tokenizer_config.json decides, or else tokenizer.json.
        """
        bos = self._tokenizer.bos_token_id
        if bos is None:
            return []
        begins = _read_json(directory / SETTINGS).get("add_bos_token")
        if begins is None:
            begins = self._tokenizer.encode("x")[:1] == [bos]
        return [bos] if begins else []


def has_chat_template(directory: Path) -> bool:
    """Returns whether the tokenizer of a directory has a chat template to use.

    If there are several, one must be named default, as `chat_template` requires. Only
    the two files that hold templates are read.
    """
    if (directory / TEMPLATE).is_file():
        return True
    template = _read_json(directory / SETTINGS).get("chat_template")
    if isinstance(template, list):
        return any(one.get("name") == "default" for one in template)
    return bool(template)


def sampling_defaults(directory: Path) -> dict[str, float | int]:
    """Returns temperature, top_p and top_k of generation_config.json, if it has any.

    Values that do not describe sampling are left out: temperature 0, top_p outside
    (0, 1], and a top_k that is not a whole number above 0.
    """
    settings = _read_json(directory / GENERATION)
    accepted: dict[str, Callable[[float], bool]] = {
        "temperature": lambda value: value > 0,
        "top_p": lambda value: 0 < value <= 1,
        "top_k": lambda value: value > 0 and value == int(value),
    }
    found = {name: settings.get(name) for name in accepted}
    return {
        name: int(value) if name == "top_k" else float(value)
        for name, value in found.items()
        if isinstance(value, int | float)
        and not isinstance(value, bool)
        and math.isfinite(value)
        and accepted[name](value)
    }


def chat_template(directory: Path, *, field: str) -> str:
    """Returns the tokenizer's chat template, with its bos_token and eos_token set.

    If it has several, the one named default is used. Raises ConfigError if there is
    none, with the config's `field` that requires it.
    """
    template = _own_template(_read_tokenizer(directory))
    if template is None:
        raise ConfigError(
            f"{field}=tokenizer, but {directory} has none, neither "
            f"{TEMPLATE} nor in {SETTINGS}; give the Jinja text, or '' for "
            "none"
        )
    return template


def _own_template(tokenizer: Any) -> str | None:
    """Returns the chat template with its bos_token and eos_token set, or None."""
    try:
        template = tokenizer.get_chat_template()
    except ValueError:
        return None
    tokens = {"bos_token": tokenizer.bos_token, "eos_token": tokenizer.eos_token}
    return (
        "".join(
            f"{{%- set {name} = {json.dumps(text or '')} -%}}"
            for name, text in tokens.items()
        )
        + template
    )


def _read_tokenizer(directory: Path) -> Any:
    """Returns transformers' fast tokenizer. Raises ConfigError."""
    path = directory / TOKENIZER
    if not path.is_file():
        hint = "give the directory of a fast tokenizer"
        if (directory / "tokenizer.model").is_file():
            hint = "for its tokenizer.model set tokenizer.kind=sentencepiece and path"
        raise ConfigError(f"no {path}; {hint}")
    settings = _read_json(directory / SETTINGS)
    try:
        tokenizer = import_transformers().PreTrainedTokenizerFast.from_pretrained(
            directory, local_files_only=True
        )
    except Exception as error:  # tokenizers raises nothing narrower
        raise ConfigError(f"{path} is not a fast tokenizer: {error}") from error
    _check_added_tokens(tokenizer, settings, directory)
    return tokenizer


def _check_added_tokens(
    tokenizer: Any, settings: dict[str, Any], directory: Path
) -> None:
    """Raises ConfigError if the two files disagree on added tokens."""
    for number, token in settings.get("added_tokens_decoder", {}).items():
        if tokenizer.get_vocab().get(token["content"]) != int(number):
            raise ConfigError(
                f"{directory}: {SETTINGS} has {token['content']!r} as token "
                f"{number}, {TOKENIZER} does not; save both again with "
                "transformers' save_pretrained"
            )


def _generation_eos_ids(directory: Path) -> list[int]:
    """Returns the ids at which transformers' generation would end."""
    for name in _EOS_FILES:
        ids = _read_json(directory / name).get("eos_token_id")
        if ids is not None:
            return ids if isinstance(ids, list) else [ids]
    return []


def _read_json(path: Path) -> dict[str, Any]:
    """Returns the JSON object in a file, {} if there is no file."""
    if not path.is_file():
        return {}
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path} is not JSON ({error})") from error
    if not isinstance(value, dict):
        raise ConfigError(f"{path} holds no JSON object")
    return value
