"""Small tokenizers as in GGUF files: a byte-level and a sentencepiece one.

Their merges and pieces are in gguf_tokens.json, from make_gguf_tokens.py.
"""

import io
import json
import pathlib

import sentencepiece

GOLDEN = json.loads(pathlib.Path(__file__).with_name("gguf_tokens.json").read_text())
ROWS = 640  # of the embedding: more than the number of tokens
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
DEFINED = [
    "\u2581\u2581",
    "\u2581\u2581\u2581",
    "\u2581\u2581\u2581\u2581",
    "\n\n",
    "<b>",
]
CHAT_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def byte_letters() -> list[str]:
    """Returns GPT-2's letter for each byte.

    Printable Latin-1 bytes are themselves; the others follow Latin-1, in order.
    """
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    return [chr(b if b in printable else next(others)) for b in range(256)]


def add_byte_level(pre: str) -> dict[str, object]:
    """Returns the settings of a byte-level tokenizer with this pre-tokenizer."""
    merges = GOLDEN["merges"]
    tokens = [*byte_letters(), *(merge.replace(" ", "") for merge in merges)]
    types = [NORMAL] * len(tokens)
    ends = len(tokens)
    tokens += ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>"]
    types += [CONTROL] * 3 + [USER_DEFINED]
    padding = range(len(tokens), ROWS)
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": pre,
        "tokenizer.ggml.tokens": tokens + [f"[PAD{i}]" for i in padding],
        "tokenizer.ggml.token_type": types + [UNUSED] * len(padding),
        "tokenizer.ggml.merges": merges,
        "tokenizer.ggml.bos_token_id": ends,
        "tokenizer.ggml.eos_token_id": ends + 2,
        "tokenizer.ggml.eot_token_id": ends,
        "tokenizer.ggml.padding_token_id": ends,
        "tokenizer.ggml.add_bos_token": False,
        "tokenizer.chat_template": CHAT_TEMPLATE,
    }


def add_sentencepiece(kind: str = "llama", *, pieces=None) -> dict[str, object]:
    """Returns the settings of a sentencepiece tokenizer of the kind llama or gemma.

    Llama's puts a space before texts; Gemma's does not, and has user-defined tokens.
    `pieces` are its tokens with scores and types; the default is the golden ones.
    """
    if pieces is None:
        pieces = GOLDEN["pieces"][kind]
    tokens, scores, types = map(list, zip(*pieces, strict=True))
    # llama.cpp's converter writes spaces into user-defined tokens.
    tokens = [
        token.replace("\u2581", " ") if kind == USER_DEFINED else token
        for token, kind in zip(tokens, types, strict=True)
    ]
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.pre": "default",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.scores": [float(score) for score in scores],
        "tokenizer.ggml.token_type": types,
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 0,
        "tokenizer.ggml.add_bos_token": True,
        "tokenizer.ggml.add_space_prefix": kind == "llama",
    }


def train_sentencepiece(
    kind: str, lines: list[str], *, vocab_size: int
) -> sentencepiece.SentencePieceProcessor:
    """Returns a sentencepiece tokenizer like Llama's or Gemma's, trained on lines."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines),
        model_writer=model,
        vocab_size=vocab_size,
        model_type="bpe",
        byte_fallback=True,
        split_digits=True,
        minloglevel=2,
        num_threads=1,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        add_dummy_prefix=kind == "llama",
        user_defined_symbols=DEFINED if kind == "gemma" else [],
    )
    return sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())


def pieces_of(
    model: sentencepiece.SentencePieceProcessor,
) -> list[tuple[str, float, int]]:
    """Returns text, score and type of each token, as llama.cpp's converter does."""
    pieces = []
    for i in range(model.vocab_size()):
        piece, score, kind = model.id_to_piece(i), model.get_score(i), NORMAL
        if model.is_unknown(i):
            kind = UNKNOWN
        elif model.is_control(i):
            kind = CONTROL
        elif model.is_byte(i):
            kind = BYTE
        elif piece in DEFINED:
            kind, score = USER_DEFINED, -1000.0
        pieces.append((piece, score, kind))
    return pieces
