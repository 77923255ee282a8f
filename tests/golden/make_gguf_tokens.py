"""Writes gguf_tokens.json: two small tokenizers, and llama.cpp's ids of TEXTS in them.

    pip install gguf sentencepiece tokenizers
    npm install node-llama-cpp@3.21.1           # llama.cpp itself, with its tokenizers
    python -m tests.golden.make_gguf_tokens NODE_FOLDER \
        [SmolLM2-135M-Instruct.Q4_1.gguf ../shared/data/gsm8k/test.jsonl]

The byte-level tokenizer learns its merges from lines, not words. So its ids depend on
the pre-tokenizer: a merge across a cut never happens. `smollm2` has the ids from the
tokenizer of a real file, SmolLM2-135M-Instruct, and a digest of the ids of GSM8K's
1,319 test questions.
"""

import hashlib
import json
import pathlib
import subprocess
import sys
import tempfile

from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from tests.golden.gguf_models import write_gguf
from tests.golden.gguf_tokens import (
    GOLDEN,
    add_byte_level,
    add_sentencepiece,
    pieces_of,
    train_sentencepiece,
)

HERE = pathlib.Path(__file__).parent
OUT = HERE / "gguf_tokens.json"
PRE_TOKENIZERS = ("gpt-2", "smollm", "llama-bpe", "qwen2", "tekken")
_LINES = [
    "1234 5678 2024 1999 100000 3.14 12,345 7/8 x1 y22 z333",
    "don't can't I'll we've DON'T I'LL it's 's 're they're",
    "one\n\ntwo\n\n\nthree \n four\r\n\r\nfive",
    "a  b   c    d\te\t\tf",
    "foo_bar(x1, y2) == [3, 4]; // ok... really?!",
    "na\u00efve caf\u00e9 \u00fcber \u65e5\u672c\u8a9e \u4e2d\u6587 \U0001f642",
    "CamelCase camelCase HTTPServer iPhone",
]
_TRAINING = 30 * _LINES + [(HERE.parents[1] / "LICENSE").read_text()[:6000]]
TEXTS = [
    "Janet has 16 eggs and 1234567 ducks.",
    "3.14159 + 2,718 = 12/7",
    "12ab34 cd 5e6",
    "1 2 3",
    "don't DON'T we'll WE'LL it's",
    "a  b   c    d",
    "  two",
    "trailing  ",
    "one\n\ntwo",
    "x \n y\r\n\r\nz",
    "\t\ttab",
    "foo_bar(x1, y2) == [3]; // ok...",
    "HTTPServer camelCase",
    "na\u00efve caf\u00e9",
    "caf\u00e9",
    "cafe\u0301",
    "\u65e5\u672c\u8a9e\u4e2d\u6587",
    "\U0001f642\U0001f642",
    "\u0663\u0664\u0665 \u00bc",
    "?!...!!",
    "end.\n",
    " ",
    "x",
    "<|im_start|>user\nHi 42<|im_end|>\n",
    "a<think>b</think>",
    "<b>bold</b>  <b>",
    "don\u2019t \u201cquote\u201d",
    "the License shall mean the terms",
]


def byte_level_merges() -> list[str]:
    """Returns the merges of a byte-level tokenizer that does not split words."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(
        add_prefix_space=False, use_regex=False
    )
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=256 + 360, initial_alphabet=alphabet, show_progress=False
    )
    pieces = [text[i : i + 24] for text in _TRAINING for i in range(0, len(text), 24)]
    tokenizer.train_from_iterator(pieces, trainer)
    return [" ".join(m) for m in json.loads(tokenizer.to_str())["model"]["merges"]]


def llama_cpp_ids(node: str, model: pathlib.Path, texts: list[str]) -> list[list[int]]:
    """Returns llama.cpp's ids of each text; special tokens in it are parsed."""
    with tempfile.TemporaryDirectory() as folder:
        paths = [pathlib.Path(folder) / name for name in ("texts.json", "ids.json")]
        paths[0].write_text(json.dumps(texts))
        script = pathlib.Path(node) / "gguf_tokens.mjs"
        script.write_text((HERE / "gguf_tokens.mjs").read_text())
        command = ["node", script.name, str(model.resolve()), *map(str, paths)]
        subprocess.run(command, cwd=node, check=True)
        return json.loads(paths[1].read_text())


def main() -> None:
    """Writes the tokenizers first, then the ids that llama.cpp reads with them."""
    node, *real = sys.argv[1:]
    lines = [line for text in _TRAINING for line in text.split("\n") if line]
    pieces = {
        kind: pieces_of(train_sentencepiece(kind, lines, vocab_size=480))
        for kind in ("llama", "gemma")
    }
    golden = {"merges": byte_level_merges(), "pieces": pieces}
    GOLDEN.clear()
    GOLDEN.update(golden)
    cases = {pre: add_byte_level(pre) for pre in PRE_TOKENIZERS}
    cases |= {kind: add_sentencepiece(kind) for kind in pieces}
    golden |= {"texts": TEXTS, "ids": {}}
    for name, settings in cases.items():
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "vocabulary.gguf"
            write_gguf(path, "llama", tokens=settings)
            golden["ids"][name] = llama_cpp_ids(node, path, TEXTS)
    if real:
        file, gsm8k = map(pathlib.Path, real)
        records = map(json.loads, gsm8k.read_text().splitlines())
        ids = llama_cpp_ids(node, file, [record["question"] for record in records])
        digest = hashlib.sha256(json.dumps(ids).encode()).hexdigest()
        golden["smollm2"] = {"ids": llama_cpp_ids(node, file, TEXTS), "gsm8k": digest}
    text = json.dumps(golden, separators=(",", ":"), ensure_ascii=False)
    OUT.write_text(text.replace('],"', '],\n"').replace("]],", "]],\n") + "\n")
    print(f"{OUT.name}: {OUT.stat().st_size} bytes")


if __name__ == "__main__":
    main()
