"""No text of a model is run: not as Python, by a shell, or as a template.

Every parser of completions gets a text that would show if it were run: it would write a
file, and Python would report the code or the process to its audit hooks.
"""

import os
import subprocess
import sys

_READ = r"""
import sys

from rlvr_jax.verifiers.answers.arithmetic import evaluate_expression
from rlvr_jax.reformulate.backward import find_quantities
from rlvr_jax.verifiers import math_worker
from rlvr_jax.verifiers.confidence import parse_confidence, strip_confidence

canary = sys.argv[1]
CALLS = (
    f"open({canary!r}, 'w')",
    f"__import__('os').system('touch {canary}')",
    f"exec(\"open({canary!r}, 'w')\")",
    f"(lambda: open({canary!r}, 'w'))()",
    f"[].__class__.__base__.__subclasses__()[-1]({canary!r}, 'w')",
    f"$(touch {canary})",
    f"`touch {canary}`",
    f"; touch {canary} #",
    f"$(touch {canary}) 5",
    f"{{{{ cycler.__init__.__globals__.os.system('touch {canary}') }}}}",
    f"{{% for x in ().__class__.__base__.__subclasses__() %}}{{% endfor %}}",
    f"\\input{{|touch {canary}}} \\write18{{touch {canary}}}",
    f"!!python/object/apply:os.system ['touch {canary}']",
    f"cos\nsystem\n(S'touch {canary}'\ntR.",
)
FRAMES = ("%s", "\\boxed{%s}", "\\boxed{5+%s}", "\\boxed{\\text{%s}}", "#### %s")
FRAMES += ("<answer>%s</answer>", "the answer is $%s$.", "<confidence>%s</confidence>")
FRAMES += ("\\boxed{\\sqrt{%s}}", "\\boxed{f(%s)}", "5 <calculator>%s</calculator>")


def read(text):
    for kind in ("math", "numeric"):
        for gold in ("5", "\\frac{1}{2}", "x+1"):
            math_worker._grade_safely([gold, text, "any", kind])
        math_worker._grade_safely([text, "5", "any", kind])
    parse_confidence(text), strip_confidence(text)
    list(find_quantities(text))
    try:
        evaluate_expression(text)
    except ValueError:
        pass


seen = []


# What every one of CALLS holds some of. sympy evaluates code of its own making, and the
# digits of a number.
WORDS = (canary, "touch", "__import__", "subclasses", "cycler", "python/object")
STARTED = ("os.system", "os.exec", "os.fork", "os.posix_spawn", "subprocess.Popen")


def watch(event, arguments):
    text = repr(arguments)
    if event == "compile" and any(word in text for word in WORDS):
        seen.append(f"{event} {text:.200}")
    elif event in (*STARTED, "ctypes.dlopen", "pickle.find_class"):
        seen.append(f"{event} {text:.200}")


for warm in ("5", "\\boxed{\\frac{1}{2}}", "\\boxed{x^2+\\cos(x)}", "72 = 70 + 2"):
    read(warm)
sys.addaudithook(watch)
for call in CALLS:
    for frame in FRAMES:
        read(frame.replace("%s", call))
eval("'__import__'")  # what the hook is for
print(len(CALLS) * len(FRAMES), *seen, sep="\n")
"""


def test_a_models_text_is_read_and_never_run(tmp_path):
    """The hook sees only what the test itself runs at the end."""
    canary = tmp_path / "canary"
    done = subprocess.run(
        [sys.executable, "-c", _READ, str(canary)],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"JAX_PLATFORMS": "cpu"},
    )
    count, *seen = done.stdout.splitlines()
    assert int(count) == 14 * 11
    assert len(seen) == 1, seen
    assert seen[0].startswith("compile (b\"'__import__'\"")
    assert not canary.exists()
