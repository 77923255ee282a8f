"""GGUF files (llama.cpp's format) -> Hugging Face directories, without torch.

`reader` parses the file, `config` reads the model's settings, `weights` the tensors,
`tokenizer` the vocabulary, and `convert` writes the directory.
"""

from rlvr_jax.models.gguf.convert import convert_gguf

__all__ = ["convert_gguf"]
