r"""Removes marks that are not part of an answer: end marks, emphasis, odd dashes.

These rules apply to a whole completion, before the answer is looked for. They never
join two words or two numbers, and each pattern reads a bounded number of characters.
"""

import re

_SPECIAL_WORD = "end|eot|eos|eom|im_|pad|return|stop|start|bos|assistant|user|system"
# Left by a tokenizer that does not skip them: <|im_end|>, </s>, <eos>, <end_of_turn>.
_END_MARK = re.compile(
    rf"<[|\uff5c](?=[^|\uff5c<>\n]{{0,40}}(?:{_SPECIAL_WORD}))[^|\uff5c<>\n]{{2,40}}"
    r"[|\uff5c]>|</?s>|</?eo[sd]>|<(?:end_of_turn|end_of_text|endoftext|pad)>"
    r"|\[/?(?:EOS|INST)\]",
    re.IGNORECASE,
)
_HTML_EMPHASIS = re.compile(r"</?(?:b|i|u|em|strong|code)>")
_SPAN = r"[^*\n]{1,300}"
# 4*x**3 has no emphasis: an opening mark never follows an operand.
_NO_OPERAND = r"(?<![\w)\]}\\*])"
_BOLD = re.compile(
    rf"{_NO_OPERAND}\*{{2,3}}(?![\s*])({_SPAN})(?:(?<=:)|(?<!\s)(?=\*++(?!\w)))\*{{2,3}}"
    r"(?!\*)"
)
_ITALIC = re.compile(
    rf"{_NO_OPERAND}(?<![\d)\]}}]\s)(?<!(?<![A-Za-z])[A-Za-z]\s)\*(?![\s*])"
    rf"({_SPAN})(?<!\s)\*(?![\w*])"
)
_UNDERLINED = re.compile(
    r"(?<![\w)\]}\\$^])_{1,3}(?![\s_{])([^_\n{}\\]{1,300})(?<!\s)_{1,3}(?![\w{])"
)
_CODE = re.compile(r"(?<!`)(`{1,3})(?!`)([^`\n]{1,300})\1(?!`)")
_FENCE = re.compile(r"^[ \t]*```[A-Za-z]{0,10}[ \t]*$", re.MULTILINE)

# Zero-width and formatting characters, and soft hyphens.
_INVISIBLE = dict.fromkeys(
    [
        0xAD,
        0xFEFF,
        *range(0x200B, 0x2010),
        *range(0x202A, 0x202F),
        *range(0x2060, 0x206A),
    ]
)
_HYPHENS = dict.fromkeys((0x2010, 0x2011, 0x2012, 0x2043, 0xFE58, 0xFE63), "-")
_EAST_ASIAN = {
    0x3002: ". ",
    0xFF61: ". ",
    0x3001: ", ",
    **dict.fromkeys((0x300C, 0x300D, 0x300E, 0x300F, 0x3010, 0x3011), " "),
}
_CHARACTERS = _INVISIBLE | _HYPHENS | _EAST_ASIAN
_DASH = re.compile("[\u2013\u2014\u2015]")
_WORD_BEFORE = re.compile(r"(?<![\\A-Za-z])[A-Za-z]{2,}[.,:]?\s*$")
_WORD_AFTER = re.compile(r"\s*[A-Za-z]{2,}")
_CONTEXT = 24  # characters on each side of a dash that decide its meaning


def clean_text(text: str) -> str:
    r"""Returns a text without end marks, emphasis, zero-width and East Asian marks.

    >>> clean_text("so **7**<|im_end|>"), clean_text("4*x**3 and 2 * 3")
    ('so 7\n', '4*x**3 and 2 * 3')
    """
    if not text.isascii():
        text = _DASH.sub(_write_dash, text.translate(_CHARACTERS))
    if "<" in text or "[" in text:
        text = _HTML_EMPHASIS.sub("", strip_end_marks(text))
    if "`" in text:
        text = _FENCE.sub("", _CODE.sub(r"\2", text))
    if "*" in text:
        text = _ITALIC.sub(r"\1", _BOLD.sub(r"\1", text))
    return _UNDERLINED.sub(r"\1", text) if "_" in text else text


def strip_end_marks(text: str) -> str:
    """Returns a text with a line end instead of each end mark of a tokenizer."""
    return _END_MARK.sub("\n", text)


def _write_dash(found: re.Match[str]) -> str:
    """Returns a minus, a pause between words, or the dash itself in a range (5-6)."""
    text, start, end = found.string, found.start(), found.end()
    before, after = text[max(0, start - _CONTEXT) : start], text[end : end + _CONTEXT]
    if before[-1:].isdigit() and after[:1].isdigit():
        return found[0]
    if _WORD_AFTER.match(after) or (
        _WORD_BEFORE.search(before) and before[-1:].isspace() == after[:1].isspace()
    ):
        return "; "
    is_wide = before[-1:].isspace() and after[:1].isspace()
    return "; " if is_wide and found[0] != "\u2013" else "-"
