"""One process that renders chat templates: reads [template, messages], writes texts.

`tokenizer.chat` runs it as a script and does not import it. It imports nothing from
this package, because it must not load JAX.
"""

import contextlib
import json
import resource
import signal
import socket
import sys
from typing import Any

from transformers.utils.chat_template_utils import render_jinja_template

_MEMORY_BYTES = 1 << 30  # of address space; transformers needs a third of it
_MAX_CHARACTERS = 1 << 24  # of one text: no prompt is longer
_MAX_REASON = 500  # characters of a template's error message


def _render(template: str, messages: list[dict[str, str]]) -> tuple[bool, str]:
    """Returns (True, text), or (False, the reason why there is no text)."""
    try:
        texts: Any = render_jinja_template(  # with positions; typed as a string
            conversations=[messages],
            chat_template=template,
            add_generation_prompt=True,
            bos_token="",
            eos_token="",
        )
    except MemoryError:
        return False, f"it takes more than {_MEMORY_BYTES >> 20} MiB of memory"
    except Exception as error:  # jinja2's, or one that its expressions raise
        reason = str(error) or type(error).__name__
        return False, reason[:_MAX_REASON]
    text = texts[0][0]
    if len(text) > _MAX_CHARACTERS:
        return False, f"it writes {len(text):,} characters for one prompt"
    return True, text


def main(limit_s: float) -> None:
    """Serves the socket on file descriptor 0 until the other end closes it."""
    with contextlib.suppress(ValueError, OSError):  # macOS does not grant this limit
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    channel = socket.socket(fileno=0)
    requests, replies = channel.makefile("r"), channel.makefile("w")
    replies.write("ready\n")
    replies.flush()
    for line in requests:
        # The parent enforces the limit; this ends a process whose parent was killed.
        signal.setitimer(signal.ITIMER_REAL, 2 * limit_s + 1)
        reply = _render(*json.loads(line))
        signal.setitimer(signal.ITIMER_REAL, 0)
        replies.write(json.dumps(reply) + "\n")
        replies.flush()


if __name__ == "__main__":
    main(float(sys.argv[1]))
