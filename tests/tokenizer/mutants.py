"""One-line mutants of rlvr_jax/tokenizer/; CONTRIBUTING.md says how to add one."""

from tests.mutants.mutant import rows

MUTANTS = [
    *rows(
        "rlvr_jax/tokenizer/chat.py",
        ("tests/tokenizer/test_chat.py",),
        keeps_who_owes=(
            "self._worker = None  # after",
            "self._worker = worker  # after",
        ),
    ),
    *rows(
        "rlvr_jax/tokenizer/chat_worker.py",
        ("tests/tokenizer/test_chat.py",),
        any_memory=("_MEMORY_BYTES = 1 << 30", "_MEMORY_BYTES = 1 << 40"),
        any_length=("if len(text) > _MAX_CHARACTERS:", "if False:"),
    ),
    *rows(
        "rlvr_jax/tokenizer/control_tokens.py",
        ("tests/tokenizer/test_control_tokens.py",),
        searches_the_source=('"".join(renderings) or template', "template"),
        new_names_keep_new_ids=("self._ids.get(number, number)", "number"),
    ),
    *rows(
        "rlvr_jax/tokenizer/huggingface.py",
        ("tests/tokenizer/test_huggingface.py",),
        any_of_several=('one.get("name") == "default"', "True"),
        greedy_is_a_temperature=(
            '"temperature": lambda value: value > 0',
            '"temperature": lambda value: value >= 0',
        ),
    ),
    *rows(
        "rlvr_jax/tokenizer/huggingface.py",
        ("tests/tokenizer/test_control_tokens.py",),
        drops_all_special=(
            "not in self._control_ids],\n            skip_special_tokens=False",
            "not in self._control_ids],\n            skip_special_tokens=True",
        ),
        marks_are_roles=(
            "is_framed(token)) and not self._is_tag(token)",
            "is_framed(token))",
        ),
        reads_every_token_in_data=(
            "if literal and self._text_encoder",
            "if not literal and self._text_encoder",
        ),
    ),
    *rows(
        "rlvr_jax/tokenizer/literal_text.py",
        ("tests/tokenizer/test_control_tokens.py",),
        trusts_every_template=('_MARK.sub("", written) != plain', "False"),
    ),
]
