r"""Finds the answer that a completion (or a marked gold) states.

The answer is, in this order of preference:

  1. the contents of the last complete <answer>...</answer>, or of the last complete box
     in it;
  2. the contents of the last complete \boxed{...}, or of the last boxes if they form a
     list ("\boxed{2} and \boxed{3}": `boxes`);
  3. the text after the last "####" (not a heading such as "#### Step 3"), "answer is"
     or "final answer:", or after a line with only "Answer", up to the end of the line
     or sentence (a line break right after the mark does not count); if it contains
     prose ("18 dollars"), its first formula;
  4. the last formula, or the whole text if it is one formula without prose.

A formula is the text between words of prose: 3/4, $18, x = 5, \sqrt{7}. If it is a
calculation, 3 + 4 = 7 eggs, the answer is its result. "5 or 6" is one formula, so that
a list is not correct because of one item. A formula with words as operands ("apples +
7") is not an answer. If there are several statements, only the last complete one
counts. The format "tagged" only uses 1, and the format "boxed" only uses 2.

A box may be in mid-text, before a different end. If "final answer is" or "final
answer:" follows the last box, and a formula follows at once, this statement wins: its
writer calls it final, and it comes last. Other marks after a box do not win over it.

A tag with a sentence ("<answer>The answer is 5.</answer>") is read like a text, but
only if it has a mark, or a single formula with prose before it.
"""

import re
from collections.abc import Iterator
from typing import Literal

from rlvr_jax.verifiers.answers.boxes import extract_boxed
from rlvr_jax.verifiers.answers.calculations import (
    FUNCTIONS,
    VALUE_CHANGING_WORDS,
    is_calculation,
    is_false_calculation,
    is_numeral,
    read_result,
)

# How a text marks its answer, as above: <answer>, a box, "####" or "answer is".
Mark = Literal["tagged", "boxed", "hashes", "statement"]

_NAMES = FUNCTIONS | {"infinity", "theta"}
# "than" keeps "less than 14" from being read as 14, and "36 ou 37" is a list too.
JOINING_WORDS = VALUE_CHANGING_WORDS | _NAMES | {"and", "or", "pi", "than", "quarter"}
JOINING_WORDS |= {
    "et",
    "ou",
    "oder",
    "und",
    "\u6216",
    "\u6216\u8005",
    "\u548c",
    "\u53ca",
}

# A separate line may mark the answer in the next line: "**Final answer**".
_HEADING = r"^[ \t#>*_]{0,9}(?:the )?(?:final )?answer[ \t:*_]{0,9}$"
# A heading of Markdown, unlike GSM8K's mark: "#### Step 3", "#### Conclusion".
_TITLES = (
    "(?:steps?|part|case|method|approach|solution|explanation|verif|check|conclu|given"
    "|note|example|summary|understand|problem|question|calculat|analy)"
)
# "Answer: 42" at the start of a line, and the same in other languages.
_LINE_START = r"^[ \t#>*_]{0,9}(?:answer|r[\u00e9e]ponse|respuesta|antwort)[ \t]*:"
_ANSWER_WORD = re.compile(
    "answer|r[\u00e9e]ponse|respuesta|antwort|\u7b54\u6848|option|choice", re.IGNORECASE
)
_MARK = re.compile(
    rf"{_HEADING}|####(?![#*_ \t]{{0,20}}{_TITLES})|answer is(?!n['\u2019]t)"
    rf"|final answer[ \t]*:|{_LINE_START}|\u7b54\u6848\s*[\u662f\u4e3a\u70ba:]"
    r"|(?P<choice>(?:answer[ \t]*:|(?:option|choice) is))",
    re.IGNORECASE | re.MULTILINE,
)
# The letter of a choice after a mark: "Answer: (C)", "The answer is C because ...".
_CHOICE = re.compile(
    r"\(?([A-J])\)?(?=[ \t]*[.,;]?(?:\s*$|[ \t]*\n|\s+(?:because|since|as|it|so)\b))"
)
# A statement after the last box wins over it if it calls itself final.
_FINAL = re.compile(r"final answer(?: is|[ \t]*:)", re.IGNORECASE)
_BEFORE_STATEMENT = " \t\r\n:=*"
# The mark of a list at the start of a line; a minus sign has no space after it.
_BULLET = re.compile(r"[ \t\r:=*]*\n\s*[-\u2022]\s+(?=\S)")
_MAX_AHEAD = 1200  # characters after a mark in which a formula must begin
_DISPLAY = re.compile(
    r"\$\$.{1,500}?\$\$|\\\[.{1,500}?\\\]|\\\(.{1,500}?\\\)", re.DOTALL
)
_RESULT_IN_BRACKETS = re.compile(r"\(\s*=\s*([^()=]{1,80})\)")
_IN_BRACKETS = re.compile(r"\s*\(([^()]{1,200}=[^()]{1,80})\)[\s.,!]*")  # (3 + 4 = 7)
_PAUSE = (
    r"(?<!\\)[.!?](?=\s|$)|(?<!\\);(?=\s*(?:[^-+\d$\\(\s]|$))"  # "5; 6" is one list
)
_SENTENCE_END = re.compile(rf"\n|{_PAUSE}")
_LETTER = r"[^\W\d_]"
# Words in brackets after a number, 42 (see above), unless they may change it or be a
# part of it: (million), (no, 43), (mod 7), (= 105).
_NO_NOTE = VALUE_CHANGING_WORDS | _NAMES | {"or", "mod", "base", "no", "but"}
_NO_NOTE |= {"actually", "incorrect", "instead", "rather", "wrong", "false"}
_NOTE = (
    r"(?<=[\d}$%])\s+\((?!\s*=|[^()]{0,200}(?:\\|(?<![A-Za-z])"
    rf"(?i:{'|'.join(sorted(_NO_NOTE))})(?![A-Za-z])))"
    r"(?=[^()]{0,200}(?<![A-Za-z])[A-Za-z]{3})[^()]{1,200}\)"
)
_TOKEN = re.compile(
    r"(?P<formula>\$\$.{1,500}?\$\$|\\\[.{1,500}?\\\]|\\\(.{1,500}?\\\)"
    r"|(?<![\\\d])\$(?=\S)[^$\n]{1,500}?(?<=\S)\$(?!\d))"
    rf"|(?P<note>{_NOTE})"
    r"|(?P<joining>\\text\s*\{\s*(?:and|or)\s*\})"
    r"|(?P<text>\\(?:text|mbox)\s*\{[^{}\d]{0,500}\}(?:\s*\^\s*(?:\d|\{\d\}))?)"
    "|(?P<currency>(?<=\\d)\\s?(?:\\\\?\\$|[\u20ac\u00a3\u00a5])(?=\\s))"
    rf"|(?P<end>\n|{_PAUSE}|</?(?!answer)[A-Za-z_]{{3,20}}>|:(?=[\s*]|$)|\\(?:implies|Rightarrow|therefore)\b)"
    rf"|(?P<foreign>(?<!{_LETTER}){_LETTER}*[^\W\d_A-Za-z]{_LETTER}*)"
    r"|(?P<word>(?<![^\s\"'(*,])[A-Za-z]{2,}(?:['/-][A-Za-z]+)*(?![^\s\"')*,.;:!?]))",
    re.DOTALL,
)
_MATHEMATICS = re.compile(r"[0-9]|\\[A-Za-z]|\$.+\$", re.DOTALL)
_LEADING_PROSE = re.compile(  # joins a formula to the prose before it
    r"(?:[\s,;:!?=\"'`]|and\b|or\b|[aAI]\s+(?=[$\d.]))+"
)
# Matches only where a run starts; else each of a thousand dots would scan to the end.
_TRAILING_PROSE = re.compile(
    r"(?<![\s,;:!?.\"'`])(?<!(?<!\*)\*\*)"
    r"(?:[\s,;:!?.\"'`]|(?<!\*)(?:\*\*)++|\band|\bor)++$"
)
_OPERATOR = r"\\(?:times|cdot|div|pm|cup|cap|le|ge|ne|in)(?![A-Za-z])"
_LEADING_OPERATOR = re.compile(rf"[*/^_&<>]|{_OPERATOR}")
_AFTER_OPERAND = re.compile(rf"[-+]\s|[*/]\s*\d|{_OPERATOR}")
_TRAILING_OPERATOR = re.compile(rf"(?:[-+*/^_=<>&]|{_OPERATOR}\s*)$")
_ANNOTATION = re.compile(r"<<[^<>\n]{0,500}>>")  # a calculator's, in GSM8K's solutions
_DELIMITER = re.compile(r"(?<!\\)(?:\$|\\[()\[\]])")
_BETWEEN_DIGITS = re.compile(rf"(?<=\d)(?:{_DELIMITER.pattern}\s*)+(?=\d)")
_LAST_BACKSLASH = re.compile(r"\s*\\+$")  # 5\\ and what is left of "5\ "
_BRACKET = re.compile(r"\\left\s*\(|\\right\s*\)|\\.|[{}()]", re.DOTALL)


def extract_answer(text: str, answer_format: str = "any") -> str:
    """Returns the answer that `text` states by the rule above, "" for none."""
    stated = extract_marked_answer(text, answer_format)
    if stated and answer_format != "boxed":
        tagged = _last_tagged(text)
        if tagged is not None and tagged.strip() == stated:
            return _read_sentence(stated)
    if stated is not None or answer_format != "any":
        return stated or ""
    text = _ANNOTATION.sub("", text)
    pieces = list(_split_formulas(text))
    last = next((p for p in reversed(pieces) if _MATHEMATICS.search(p[0])), None)
    if last is None:
        return text.strip() if pieces == [(text, False)] else ""
    return _trim_formula(*last)


def extract_marked_answer(text: str, answer_format: str = "any") -> str | None:
    """Returns the part of `text` that is marked as its answer, None without a mark."""
    if answer_format != "boxed" and (tagged := _last_tagged(text)) is not None:
        inner = extract_boxed(tagged)
        return (tagged if inner is None else inner).strip()
    if answer_format == "tagged":
        return None
    boxed = extract_boxed(text)
    if boxed is not None:
        final = None if answer_format == "boxed" else _final_statement(text)
        return final or boxed.strip()
    if answer_format == "boxed":
        return None
    mark = _last_mark(text)
    return None if mark is None else _read_statement(text[mark.end() :])


def read_whole_statement(text: str) -> str:
    """Returns all the text after the last mark, "" without one or with a box or tag."""
    if (
        find_mark(text) not in ("hashes", "statement")
        or extract_boxed(text) is not None
    ):
        return ""
    mark = _last_mark(text)
    return text[mark.end() :].strip(_BEFORE_STATEMENT + ".") if mark else ""


def find_mark(text: str, answer_format: str = "any") -> Mark | None:
    """Returns the mark that the rule above uses first, None without one.

    Any mark counts, for any answer format and even around an empty text. But for the
    format "boxed", a box comes before a tag.
    """
    has_box = extract_boxed(text) is not None
    if _last_tagged(text) is not None and not (has_box and answer_format == "boxed"):
        return "tagged"
    if has_box:
        is_boxed = answer_format == "boxed" or not _final_statement(text)
        return "boxed" if is_boxed else "statement"
    mark = _last_mark(text)
    if mark is None:
        return None
    return "hashes" if mark[0] == "####" else "statement"


def _last_mark(text: str) -> re.Match[str] | None:
    """Returns the last "####" or "answer is", or a heading right before a formula."""
    if "####" not in text and not _ANSWER_WORD.search(text):
        return None  # the pattern is slow
    for mark in reversed(list(_MARK.finditer(text))):
        if mark[0] == "####" or mark[0].lower() == "answer is":
            return mark
        if mark["choice"]:
            if _CHOICE.match(text[mark.end() :].lstrip(_BEFORE_STATEMENT)):
                return mark
        elif _starts_with_formula(text[mark.end() : mark.end() + _MAX_AHEAD]):
            return mark
    return None


def _starts_with_formula(text: str) -> bool:
    """Returns whether a formula or a choice follows, perhaps after a line break."""
    rest = text.lstrip(_BEFORE_STATEMENT)
    if _CHOICE.match(rest):
        return True
    piece, after_word = next(_split_formulas(rest), ("", False))
    is_first = not after_word and rest.startswith(piece)
    return is_first and bool(_MATHEMATICS.search(piece))


def _read_statement(text: str) -> str:
    """Returns the answer in the text after a mark, perhaps after line breaks."""
    rest = _BULLET.sub("", text, count=1) if _BULLET.match(text) else text
    rest = rest.lstrip(_BEFORE_STATEMENT)
    if choice := _CHOICE.match(rest):
        return choice[1]
    display = _DISPLAY.match(rest)
    end = _SENTENCE_END.search(rest, display.end() if display else 0)
    span = rest[: end.start() if end else None].rstrip(" \t.,:*")
    pieces = list(_split_formulas(span))
    first = next((p for p in pieces if _MATHEMATICS.search(p[0])), None)
    return span if first in (None, (span, False)) else _trim_formula(*first)


def _final_statement(text: str) -> str | None:
    """Returns the answer that is called final after the last box, None without one.

    A formula must follow at once: "the final answer is in the box" states nothing.
    """
    marks = list(_FINAL.finditer(text))
    if not marks or extract_boxed(text[marks[-1].start() :]) is not None:
        return None
    rest = text[marks[-1].end() :]
    if not _starts_with_formula(rest[:_MAX_AHEAD]):
        return None
    stated = _read_statement(rest)
    return None if stated.count("$") % 2 else stated or None


def _read_sentence(text: str) -> str:
    """Returns the answer in a tag that holds a sentence; otherwise the whole text."""
    if mark := _last_mark(text):
        return _read_statement(text[mark.end() :]) or text
    formulas = [p for p in _split_formulas(text) if _MATHEMATICS.search(p[0])]
    if len(formulas) != 1:
        return text
    start = text.index(formulas[0][0].strip())
    return text[start:].strip(" \t\n.,:;!?") if start else text


def strip_delimiters(text: str) -> str:
    r"""Returns a formula without meaningless delimiters: $..$, \(..\), {{..}}, ((..)).

    If two texts are then equal, the answers are equal, and no parser is needed.
    """
    text = _BETWEEN_DIGITS.sub(" ", text)  # $2$7 is not 27
    text = _DELIMITER.sub("", text)
    text = " ".join(text.split()).lstrip(" ,")
    ended = text.rstrip(" .,")
    is_spacing = ended.endswith("\\") and len(ended) < len(text)  # 5\,
    text = text[: len(ended) + is_spacing]
    text = text if is_spacing else _LAST_BACKSLASH.sub("", text)
    tokens = list(_BRACKET.finditer(text))
    closing = _match_brackets(tokens)
    dropped = set()
    for first, last in closing.items():
        twice = closing.get(first - 1) == last + 1 and not (
            text[tokens[first - 1].end() : tokens[first].start()].strip()
            or text[tokens[last].end() : tokens[last + 1].start()].strip()
        )
        if twice and tokens[first - 1][0][-1] == tokens[first][0][-1]:
            dropped |= {first, last}
    whole = bool(tokens) and tokens[0].start() == 0 and tokens[-1].end() == len(text)
    if whole and closing.get(0) == len(tokens) - 1 and "," not in text:
        dropped |= {0, len(tokens) - 1}
    kept, start = [], 0
    for place in sorted(dropped):
        kept.append(text[start : tokens[place].start()])
        start = tokens[place].end()
    return " ".join(" ".join([*kept, text[start:]]).split())


def _match_brackets(tokens: list[re.Match[str]]) -> dict[int, int]:
    """Returns opening -> closing token number for each matched pair of brackets."""
    opened: list[int] = []
    closing = {}
    for place, token in enumerate(tokens):
        kind = token[0][-1]
        if token[0] in ("{", "(") or (token[0].startswith("\\left") and kind == "("):
            opened.append(place)
        elif token[0] in ("}", ")") or token[0].startswith("\\right"):
            if opened and tokens[opened[-1]][0][-1] == {"}": "{", ")": "("}[kind]:
                closing[opened.pop()] = place
            else:
                opened.clear()
    return closing


def _split_formulas(text: str) -> Iterator[tuple[str, bool]]:
    """Yields each text between prose, and whether a word of prose precedes it."""
    start, after_word = 0, False
    for found in _TOKEN.finditer(text):
        kind = found.lastgroup
        if kind in ("formula", "joining") or found[0].lower() in JOINING_WORDS:
            continue
        if text[start : found.start()].strip():
            yield text[start : found.start()], after_word
        start, after_word = found.end(), kind != "end"
    if text[start:].strip():
        yield text[start:], after_word


def _trim_formula(piece: str, after_word: bool) -> str:
    """Returns a formula without its joints to prose; "" for part of a formula."""
    piece = _RESULT_IN_BRACKETS.sub(r"= \1", piece)
    whole = _IN_BRACKETS.fullmatch(piece)
    if result := read_result(whole[1] if whole else piece):
        return result
    found = _LEADING_PROSE.match(piece)
    piece = _TRAILING_PROSE.sub("", piece[found.end() if found else 0 :])
    emphasis = r"\*+(?=\S)" if after_word else r"[*\s]+"
    piece = re.sub(f"^{emphasis}", "", piece)
    if piece.endswith("*") and not piece[-2:-1].isspace():
        piece = piece.rstrip("*")
    if piece.startswith("(") and _bracket_imbalance(piece) > 0:
        piece = piece[1:].lstrip()
    if piece.endswith(")") and _bracket_imbalance(piece) < 0:
        piece = piece[:-1].rstrip()
    left, equals, right = piece.rpartition("=")
    if after_word and _AFTER_OPERAND.match(piece):  # "six + 5 = 11", "apples + 7"
        result = right.strip()
        return result if equals and is_numeral(result) else ""
    if (
        _LEADING_OPERATOR.match(piece)
        or _TRAILING_OPERATOR.search(piece)
        or _bracket_imbalance(piece)
    ):
        return ""
    done = equals and re.search("[0-9]", left) and is_calculation(left)
    done = done and not is_false_calculation(left, right)
    return right.strip() if done else piece


def _bracket_imbalance(text: str) -> int:
    """Returns how many more brackets (if none, braces) open than close.

    [1, 2) is an interval, so a bracket may close one of another kind.
    """
    opened, closed = (sum(map(text.count, kinds)) for kinds in ("([", ")]"))
    return opened - closed or text.count("{") - text.count("}")


def _last_tagged(text: str) -> str | None:
    """Returns the contents of the last <answer>...</answer>, None without one."""
    opening, closing = "<answer>", "</answer>"
    start = text.rfind(opening, 0, max(0, text.rfind(closing)))
    if start < 0:
        return None
    start += len(opening)
    return text[start : text.index(closing, start)]
