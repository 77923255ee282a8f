"""Where an answer is, how it is written, and which number it is."""

import pytest

from rlvr_jax.verifiers.answers.notation import normalize_notation
from rlvr_jax.verifiers.answers.statements import (
    extract_answer,
    find_mark,
    strip_delimiters,
)
from rlvr_jax.verifiers.math_pool import Item, MathPool


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (r"\boxed{1}, no: \boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        (r"\boxed{\{1,2\}} #### 7, the answer is 8", r"\{1,2\}"),
        (r"\boxed{3}, so \boxed{4", "3"),
        (r"\boxed{\boxed{5}}", "5"),
        (r"\boxed {\}}", r"\}"),
        (r"\boxed{1} and \boxed{2}", "1, 2"),
        (r"\boxed{1}, $\boxed{2}$, and \(\boxed{3}\).", "1, 2, 3"),
        (r"\boxed{1}\boxed{2}", "1, 2"),
        (r"\boxed{1} \boxed{2}", "2"),
        (r"\boxed{4} and \boxed{4}", "4"),
        (r"\boxed{3}. \boxed{1} \quad \text{ or } \quad \boxed{2}", "1, 2"),
        (r"\boxed{(3,3)} \text{ for part (a) and } \boxed{(1,1)}", "(3,3), (1,1)"),
        (r"$y_1 = \boxed{x^2}$ and $y_2 = \boxed{x}$", "y_1 = x^2, y_2 = x"),
        (r"\boxed{\boxed{1}, \boxed{2}}", "1, 2"),
        (r"<answer>\boxed{1}; \boxed{2}</answer>", "1, 2"),
        (r"\boxed{1} no no no no \boxed{2}", "2"),
        (r"the area is 5\text{ cm}^2", "5"),
        ("it costs 2,74 $ a piece", "2,74"),
        (r"{ \boxed{3 and \boxed{4}", "4"),
        (r"\boxed{" * 2000 + "7", ""),
        ("48/2 = 24\n#### 72", "72"),
        ("#### 1\n#### 2\nQuestion: what is 7?", "2"),
        ("#### 1 The answer is 2", "2"),
        ("The answer is 3.5. It took 4 steps", "3.5"),
        ("The answer is: **$18**.", "$18"),
        ("The final ANSWER IS 42 apples and 3 pears", "42"),
        (r"the answer is $\frac{1}{2}$.", r"$\frac{1}{2}$"),
        (r"the answer is 5\text{ cm}", "5"),
        ("the answer is that Tom has 3 apples", "3"),
        ("the answer is Paris", "Paris"),
        ("so 3 + 4 = 7 apples.", "7"),
        ("7 puppies / 20 puppies * 100% = 35%", "35%"),
        ("60-26=$34 a month", "$34"),
        ("$1500/month * 12 months/year = $18,000/year", "$18,000"),
        ("in all 4 + 12 + 6 = 22 times.", "22"),
        ("48+24 = <<48+24=72>>72 clips", "72"),
        ("2.5 * 2 = 5 million", "5 million"),
        ("x = 5 or x = 6", "x = 5 or x = 6"),
        ("so the line is 2x + 3y = 7", "2x + 3y = 7"),
        ("Therefore, 13 x $10 = $130 for two weeks", "$130"),
        ("10-5", "10-5"),
        ("x = -5", "-5"),
        ("x = 3 + 4 = 7", "7"),
        ("$5 + $6 = $11", "$11"),
        ("so the total = 3/4", "3/4"),
        (r"Final answer: \sqrt{7}", r"\sqrt{7}"),
        (r"we get $x^2 + 1$ apples.", "$x^2 + 1$"),
        ("so we find\n\\[\nx = 5\n\\]\n", "\\[\nx = 5\n\\]"),
        ("It costs $18 and then $20", "$20"),
        ("(about 5)", "5"),
        ("**Answer:** 7", "7"),
        ("the total is **7**", "7"),
        ("a 5 and an 8", "8"),
        ("apples + 7", ""),
        ("7 + apples", ""),
        ("2xy", "2xy"),
        ("abc", ""),
        ("A", "A"),
        ("it is 5 or 6", "5 or 6"),
        (r"5\text{ or }6", r"5\text{ or }6"),
        ("#### 5 or 6", "5 or 6"),
        ("1; 2; 3", "1; 2; 3"),
        (r"we get 11,\! 111", r"11,\! 111"),
        ("the answer is about x^2 apples", "x^2"),
        ("the answer is not 5, surely", "not 5"),
        ("5\u043a \u044f\u0431\u043b\u043e\u043a", "5"),
        ("he paid $1,234.50!", "$1,234.50"),
        ("one in two, or 1/2 of it", "1/2"),
        ("about 50% of", "50%"),
        ("The answer is 7. The answer isn't 5.", "7"),
        ("The answer is 7. The answer isn\u2019t 5.", "7"),
        ("The answer is 5 and a quarter.", "5 and a quarter"),
        ("The answer is 3 tenths", "3 tenths"),
        ("costs .75", ".75"),
        ("in 1,2,3", "1,2,3"),
        ("#### ", ""),
        ("no numbers", ""),
        ("<answer>1</answer> no: <answer> 2\n</answer> or 3", "2"),
        (r"<answer>so \boxed{4}</answer> \boxed{5}", "4"),
        ("<answer>6</answer> <answer>7", "6"),
        ("</answer> <answer>8", ""),
        ("<answer>" * 2000 + "9</answer>", "9"),
        ("", ""),
    ],
)
def test_the_last_tag_then_box_then_mark_then_formula(text, answer):
    assert extract_answer(text) == answer


@pytest.mark.parametrize(
    ("form", "text", "answer"),
    [
        ("boxed", r"\boxed{1} \boxed{2} #### 3", "2"),
        ("boxed", r"<answer>1</answer>, that is \boxed{2}", "2"),
        ("boxed", "#### 3", ""),
        ("tagged", r"<answer>1</answer> \boxed{2}", "1"),
        ("tagged", r"\boxed{2} #### 3", ""),
    ],
)
def test_a_form_is_the_only_place_that_is_looked_at(form, text, answer):
    assert extract_answer(text, form) == answer


@pytest.mark.parametrize(
    ("form", "text", "mark"),
    [
        ("any", r"<answer>1</answer>, so \boxed{2}", "tagged"),
        ("tagged", r"<answer>1</answer>, so \boxed{2}", "tagged"),
        ("boxed", r"<answer>1</answer>, so \boxed{2}", "boxed"),
        ("boxed", "<answer>1</answer>", "tagged"),
        ("any", r"<answer>1, so \boxed{2}", "boxed"),
        ("any", r"so \boxed{2 #### 3", "hashes"),
        ("any", "The answer is 3 #### 4", "hashes"),
        ("tagged", "#### 3, so the Answer is 4", "statement"),
        ("any", "#### ", "hashes"),
        ("any", "so x = 4. ## 5, answer: 6", None),
        ("any", "", None),
    ],
)
def test_the_mark_is_the_one_that_the_answer_is_read_from(form, text, mark):
    assert find_mark(text, form) == mark


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("x\u00b2 - y\u00b9\u2070", "x^{2} - y^{10}"),
        ("10\u207b\u00b3", "10^{-3}"),
        ("x\u2081", "x_{1}"),
        ("1\u00bd", r"1\frac{1}{2}"),
        ("1 1/2", r"1\frac{1}{2}"),
        ("1 1/2/3", "1 1/2/3"),
        ("5m\u00b2", r"5\text{ m}^2"),
        ("5x\u00b2", "5x^{2}"),
        (r"2\mathrm{e}", "2e"),
        ("\u221a(x+1)", r"\sqrt{(x+1)}"),
        ("\u221b8", r"\sqrt[3]{8}"),
        ("2\u03c0", r"2\pi "),
        ("\uff15\uff10\uff05", "50%"),
        ("\u22125", "-5"),
        ("-1.5e-3.", r"-1.5\times 10^{-3}."),
        ("1e3x, 1/1e3, 2^1e3, e5, 1e9999", "1e3x, 1/1e3, 2^1e3, e5, 1e9999"),
        (r"0.\overline{3}", r"\frac{3}{9}"),
        (r"0.1\bar6", r"\frac{15}{90}"),
        (r"1.2\overline{34}", r"\frac{1222}{990}"),
        ("caf\u00e9 \u6771\u4eac \ud800", "caf\u00e9 \u6771\u4eac \ud800"),
    ],
)
def test_many_notations_become_one(text, same):
    assert normalize_notation(text) == same
    assert normalize_notation(same) == same


@pytest.mark.parametrize(
    ("text", "bare"),
    [
        ("$ x+1 $.", "x+1"),
        (r"\(x\)", "x"),
        ("((x))", "x"),
        ("{{{7}}}", "7"),
        (r"\left(\left( 7 \right)\right)", "7"),
        ("((1,2))", "( 1,2 )"),
        ("(x)(y)", "(x)(y)"),
        (r"\{7\}", r"\{7\}"),
        ("{(1,2)}", "{(1,2)}"),
        ("2^{{3}}", "2^{ 3 }"),
        ("((5", "((5"),
        (".75", ".75"),
    ],
)
def test_brackets_around_brackets_mean_nothing(text, bare):
    assert strip_delimiters(text) == bare


UNITS = [" and", "1 000 ", "ab ", "\\text{", "\\boxed{1}, ", "$", "\\["]


def test_no_text_exceeds_the_time_limit():
    """Texts are almost as long as what is read; dots and hashes once took 5 to 7 s."""
    texts = [unit * (16_000 // len(unit)) + " 5" for unit in (*".*#", "**.", *UNITS)]
    with MathPool(workers=2, timeout_s=2.0) as pool:
        verdicts = pool.grade_all([("5 cm", text) for text in texts])
    failed = zip(texts, verdicts, strict=True)
    assert [text[:9] for text, verdict in failed if verdict.failure] == []


NUMBERS = [
    ("72", "#### 72.0", "correct"),
    ("$1,234.50", "it is 1234.5 dollars", "correct"),
    ("18", r"\boxed{18\text{ dollars}}", "correct"),
    ("0.75", r"\boxed{\frac34}", "correct"),
    ("3/4", "<answer>75%</answer>", "correct"),
    ("-5", "the answer is \u22125", "correct"),
    ("72", "#### 73", "incorrect"),
    ("1/3", "0.333333", "incorrect"),
    ("72", r"\boxed{70 + 2}", "incorrect"),
    ("72", "none", "incorrect"),
    ("72", r"\boxed{x = 72}", "correct"),
    ("72", r"\boxed{x + 72}", "incorrect"),
    ("72", r"\boxed{\sqrt{72}}", "incorrect"),
    ("5", "\u0665", "incorrect"),  # an Arabic five
    ("5", r"\boxed{1/0}", "incorrect"),
    ("x + 1", "2", "unverified"),
    ("1/0", "1/0", "unverified"),
    ("7" * 599, "7" * 600, "incorrect"),
    ("7" * 600, "7" * 600, "correct"),
    ("7" * 19_999, "7" * 20_000, "incorrect"),
    ("7" * 16_384, "7" * 20_000, "incorrect"),
    ("1e3", "1000", "correct"),
    ("3", "1e3", "incorrect"),
    ("0.0015", "1.5e-3", "correct"),
    ("1500", r"\boxed{1.5\times 10^{3}}", "correct"),
    ("1000", "10^3", "correct"),
    ("3", "10^3", "incorrect"),
    ("1000.5", "10^3.5", "incorrect"),
    ("0.5", r"\frac{1}{2}", "correct"),
    ("2", r"\frac{1}{2}", "incorrect"),
    ("1/25", r"\boxed{\frac{1}{2}5}", "incorrect"),
    ("1.5", "1 1/2", "correct"),
    ("1/2", "1 1/2", "incorrect"),
    ("5/2", "2\u00bd", "correct"),
    ("-1.5", r"\boxed{-1\frac{1}{2}}", "correct"),
    ("5", "5 million", "incorrect"),
    ("5000000", r"\boxed{5\text{ million}}", "correct"),
    ("5", r"\boxed{5 and a half}", "incorrect"),
    ("5", r"\boxed{minus 5}", "incorrect"),
    ("5", r"\boxed{- 5}", "incorrect"),
    ("-5", r"\boxed{- 5}", "correct"),
    ("5", r"\boxed{5k}", "incorrect"),
    ("5", r"\boxed{x5}", "incorrect"),
    ("5", r"\boxed{5x}", "incorrect"),
    ("123", "\uff11\uff12\uff13", "correct"),
    ("24", "48/2 = 24", "correct"),
    ("12500", "12 500 people", "correct"),
]


def test_numeric_is_equality_of_single_numbers(verifier):
    items = [Item(gold, answer, verifier="numeric") for gold, answer, _ in NUMBERS]
    verdicts = verifier.grade_all(items)
    assert [v.status for v in verdicts] == [status for _, _, status in NUMBERS]
    assert verdicts[8].reason == "final answer is not a single number"
