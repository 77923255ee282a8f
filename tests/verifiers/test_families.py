"""Ways to write one answer, by family, each with near misses that must stay wrong."""

import pytest

from rlvr_jax.metrics.statistics import majority_at_k
from rlvr_jax.types import Problem
from rlvr_jax.verifiers.answers.statements import extract_answer
from rlvr_jax.verifiers.base import get_verifier

# family -> (gold, completion) pairs that are right, and pairs that are not
FAMILIES = {
    "line breaks and headings": (
        [
            ("42", "Therefore, the final answer is:\n\n$$42$$"),
            ("42", "The final answer is\n$42$."),
            ("42", "The answer is:\n\\[\n42\n\\]\nI checked 3 times."),
            ("42", "####\n42"),
            ("42", "#### Final Answer\n\n42 apples"),
            ("42", "**Final Answer**\n\n42\n\nThis follows from 6 * 7."),
            ("42", "## Answer:\n**42** because of 6 rows with 7."),
            ("42", "Final answer: 42, because 40 + 2 is right."),
            ("1/2", "The answer is:\n\n\\(\\frac{1}{2}\\)"),
            ("42", "The answer is:\n- 42"),
            ("42", "The answer is:\n\n  \u2022 42"),
            ("-42", "The answer is:\n-42"),
            ("-42", "The answer is: - 42"),
            ("42", "#### Step 3: add\n40 + 2 = 42\n\nThe result is 42."),
            ("42", "##### Step 2\nThen 40 + 2 = 42."),
            ("42", "#### **Conclusion**\nAnn has 42 pears."),
            ("42", "#### Step 1\n40 + 1 = 41\n#### 42"),
            ("42", "#### 42 steps"),
        ],
        [
            ("42", "The answer is:\n\n$$43$$"),
            ("42", "The answer is:\n41\n42"),
            ("42", "**Final Answer**\n\n41\n\n42 would be too large."),
            ("6", "Final answer: 42, because 7 * 6 is right."),
            ("42", "####\n4\n2"),
            ("-42", "The answer is:\n- 42"),
            ("42", "The answer is:\n-42"),
            ("3", "#### Step 3\nWe get 42."),
            ("3", "#### **Part 3**\nWe get 42."),
            ("42", "#### 41\nIn all 42."),
        ],
    ),
    "emphasis": (
        [
            ("73", "39 + 34 = **73**"),
            ("73", "So the total is 39 + 34 = **73**."),
            ("73", "The total is *73*."),
            ("73", "The total is __73__, as 39 + 34 = __73__."),
            ("73", "39 + 34 = `73`"),
            ("73", r"\boxed{**73**}"),
            ("73", r"\boxed{\textbf{73}}"),
            ("73", r"\boxed{\mathbf{73}}"),
            ("73", r"\boxed{\emph{73}}"),
            ("73", "<answer>**73**</answer>"),
            ("73", "<answer>`73`</answer>"),
            ("73", "<answer>\n```\n73\n```\n</answer>"),
            ("73", "x = ***73***"),
            ("73", "The answer is <b>73</b>."),
            (r"\mathbf{A}", r"\boxed{A}"),
            ("x+1", r"**Answer:** `x + 1`"),
        ],
        [
            ("73", "39 + 34 = **74**"),
            ("73", r"\boxed{**7**3}"),
            ("8", r"\boxed{2*4*3}"),
            ("24", r"\boxed{2**4**3}"),
            ("73", r"\boxed{\mathbf{37}}"),
            ("73", "<answer>`73` or `74`</answer>"),
            ("4x^3", r"\boxed{4**x**3}"),
        ],
    ),
    "words as operands": (
        [
            ("11", "Six + 5 = 11"),
            ("11", "So six + 5 = 11."),
            ("42", "six * 7 = 42 apples"),
            ("42", r"six \times 7 = 42"),
        ],
        [
            ("7", "apples + 7"),
            ("7", "apples * 7"),
            ("11", "six + 5 = eleven - 2"),
            ("5", "Six + 5 = 11"),
            ("12", "Six + 5 = 11"),
        ],
    ),
    "results in brackets": (
        [
            ("105", "so we get 35 + 70 (= 105)."),
            ("12", "That is 3 * 4 (= 12)"),
        ],
        [
            ("70", "so we get 35 + 70 (= 105)."),
            ("5", "so we get 35 + 70 (= 105)."),
            ("105", "so we get (= 106)."),
        ],
    ),
    "fractions and binomials without braces": (
        [
            (r"\frac{1}{2}", r"\boxed{\frac 1 2}"),
            (r"\frac{3}{4}", r"\boxed{\dfrac 3 4}"),
            (r"\frac{3}{4}", r"\boxed{\tfrac34}"),
            (r"\frac{3}{4}", r"\boxed{\frac{3}4}"),
            (r"\frac{3}{4}", r"\boxed{\frac3{4}}"),
            (r"\frac{\pi}{2}", r"\boxed{\frac\pi2}"),
            (r"\frac{\pi}{2}", r"\boxed{\frac \pi 2}"),
            (r"\frac{a}{b}", r"\boxed{\frac ab}"),
            (r"\frac{\sqrt{3}}{2}", r"\boxed{\frac{\sqrt 3}2}"),
            (r"\frac{\sqrt{3}}{2}", r"\boxed{\frac{\sqrt3}{2}}"),
            (r"-\frac{1}{2}", r"\boxed{-\cfrac 1 2}"),
            ("10", r"\boxed{\binom 5 2}"),
            ("10", r"\boxed{\binom52}"),
            ("10", r"\boxed{\dbinom{5}2}"),
            ("10", r"\boxed{{5 \choose 2}}"),
            ("1/2", r"\boxed{{1 \over 2}}"),
        ],
        [
            (r"\frac{1}{2}", r"\boxed{\frac 2 1}"),
            (r"\frac{1}{2}", r"\boxed{\frac 1 3}"),
            (r"\frac{1}{2}", r"\boxed{1 2}"),
            (r"\frac{\pi}{2}", r"\boxed{\frac2\pi}"),
            ("10", r"\boxed{\binom 5 1}"),
            ("10", r"\boxed{\binom 2 5}"),
            ("1/2", r"\boxed{{2 \over 1}}"),
        ],
    ),
    "style and spacing": (
        [
            ("5", r"\boxed{\large 5}"),
            ("5", r"\boxed{\,5\,}"),
            ("5", r"\boxed{\displaystyle 5}"),
            ("5", r"\boxed{\quad 5 \quad}"),
            ("5", r"\boxed{\; 5 \!}"),
            ("5", r"\boxed{~5~}"),
            ("5", r"\boxed{\Large{5}}"),
            ("5", r"\boxed{\color{red} 5}"),
            ("5", r"\boxed{\hspace{1cm} 5}"),
            ("5", r"\boxed{\phantom{0}5}"),
            ("12345", r"\boxed{12\,345}"),
            ("x+1", r"\boxed{x \, + \, 1}"),
            (r"\frac{1}{2}", r"\boxed{\displaystyle\frac{1}{2}}"),
            ("(1,2)", r"\boxed{\bigl(1,\,2\bigr)}"),
        ],
        [
            ("5", r"\boxed{\large 6}"),
            ("5", r"\boxed{\,-5\,}"),
            ("12", r"\boxed{1 \quad 2}"),
            ("5", r"\boxed{\phantom{5}6}"),
            ("3", r"\boxed{1 \, 2}"),
        ],
    ),
    "degrees": (
        [
            ("60", r"\boxed{60\degree}"),
            ("60", r"\boxed{60^\circ}"),
            ("60", r"\boxed{60^{\circ}}"),
            ("60", r"\boxed{60 \,^\circ}"),
            ("60", r"\boxed{60^o}"),
            ("60", r"\boxed{60\text{ degrees}}"),
            ("60", r"\boxed{60 degrees}"),
            (r"60^\circ", r"\boxed{60\degree}"),
            (r"60^\circ", "The angle is 60\u00b0."),
            ("25", r"\boxed{25^\circ\text{C}}"),
            ("25", "\\boxed{25\u00b0C}"),
        ],
        [
            ("60", r"\boxed{61\degree}"),
            (r"60^\circ", r"\boxed{-60\degree}"),
            (r"25^\circ\text{C}", r"\boxed{25^\circ\text{F}}"),
            (r"60^\circ", r"\boxed{60\text{ radians}}"),
        ],
    ),
    "units with per": (
        [
            ("20", "the final answer is: $20/month"),
            ("20", r"\boxed{20/\text{month}}"),
            ("20", r"\boxed{20 per month}"),
            ("20", r"\boxed{20 \text{ per month}}"),
            ("20", r"\boxed{\$20 \text{ per month}}"),
            (r"\$20", r"\boxed{\$20/month}"),
            ("20", r"\boxed{20 dollars/month}"),
            ("5", r"\boxed{5 \text{ m}/\text{s}}"),
            (r"5\text{ m/s}", r"\boxed{5 \frac{\text{m}}{\text{s}}}"),
            ("30", "<answer>30 students per class</answer>"),
        ],
        [
            ("20", "the final answer is: $21/month"),
            (r"\$20\text{ per month}", r"\boxed{\$20/week}"),
            (r"20\text{ per month}", r"\boxed{20\text{ per week}}"),
            (r"5\text{ m/s}", r"\boxed{5 \frac{\text{m}}{\text{min}}}"),
            ("20", r"\boxed{20/m}"),
            ("20", r"\boxed{20/xy}"),
        ],
    ),
    "plain-text mathematics": (
        [
            (r"\frac{\pi}{2}", r"\boxed{pi/2}"),
            ("4x^3", r"\boxed{4*x**3}"),
            (r"2\sqrt{3}", r"\boxed{2*sqrt(3)}"),
            (r"2\sqrt{3}", r"\boxed{2sqrt3}"),
            (r"\sqrt[3]{2}", r"\boxed{cbrt(2)}"),
            (r"x^{12}", r"\boxed{x**12}"),
            (r"x^{\frac{1}{2}}", r"\boxed{x^(1/2)}"),
            (r"e^{2x}", r"\boxed{exp(2*x)}"),
            (r"\sin(x)", r"\boxed{sin(x)}"),
            (r"[0,\infty)", r"\boxed{[0, infinity)}"),
            (r"(-\infty,\infty)", r"\boxed{(-inf, inf)}"),
            (r"x \le 3", r"\boxed{x <= 3}"),
            (r"3\pi", "The answer is 3*pi."),
            ("x^{-1}", r"\boxed{x^-1}"),
            (r"2\theta", r"\boxed{2*theta}"),
        ],
        [
            (r"\frac{\pi}{2}", r"\boxed{2/pi}"),
            ("4x^3", r"\boxed{4*x*3}"),
            ("4x^3", r"\boxed{(4*x)**3}"),
            (r"2\sqrt{3}", r"\boxed{sqrt(2*3)}"),
            (r"\sqrt{2}", r"\boxed{cbrt(2)}"),
            (r"x \le 3", r"\boxed{x >= 3}"),
            (r"x \le 3", r"\boxed{x < 3}"),
            (r"[0,\infty)", r"\boxed{(0, infinity)}"),
            (r"\pi", r"\boxed{pie}"),
            ("x^{12}", r"\boxed{x**1*2}"),
        ],
    ),
    "intervals and inequalities": (
        [
            (r"(-\infty,-1)\cup(1,\infty)", r"\boxed{x<-1 \text{ or } x>1}"),
            (r"(-\infty,-1)\cup(1,\infty)", r"\boxed{x > 1 or x < -1}"),
            (r"x<-1 \text{ or } x>1", r"\boxed{(-\infty,-1)\cup(1,\infty)}"),
            (r"x<-1 \text{ or } x>1", r"\boxed{x>1 \text{ or } x<-1}"),
            ("[1,2)", r"\boxed{1 \le x < 2}"),
            (r"1 \le x < 2", r"\boxed{[1,2)}"),
            ("[1,2)", r"\boxed{2 > x \ge 1}"),
            (r"(3,\infty)", r"\boxed{x > 3}"),
            (r"(3,\infty)", r"\boxed{3 < x}"),
            ("y \\ge 3", r"\boxed{[3, \infty)}"),
            (r"[-2,7]", r"\boxed{x \in [-2,7]}"),
            (r"x \in [-2,7]", r"\boxed{-2 \leq x \leq 7}"),
            (r"(1,3)", r"\boxed{x > 1 \text{ and } x < 3}"),
            (r"(-\infty,2)\cup(2,\infty)", r"\boxed{x \ne 2}"),
            (r"(-\infty,2)\cup(2,\infty)", r"\boxed{\mathbb{R} \setminus \{2\}}"),
            (r"(3,\infty)", r"\boxed{\{x \mid x > 3\}}"),
            (r"(3,\infty)", r"\boxed{\{x \in \mathbb{R} : x > 3\}}"),
            (r"(-\infty,\infty)", r"\boxed{\mathbb{R}}"),
            (r"(-\infty,-1)\cup(1,\infty)", r"\boxed{(-oo,-1) U (1,oo)}"),
            (r"\left(\frac12,\sqrt{2}\right]", r"\boxed{\frac{1}{2}<x\leqslant\sqrt2}"),
        ],
        [
            (r"(-\infty,-1)\cup(1,\infty)", r"\boxed{x<-1 \text{ or } x\ge 1}"),
            (r"(-\infty,-1)\cup(1,\infty)", r"\boxed{x<-1 \text{ and } x>1}"),
            (r"(-\infty,-1)\cup(1,\infty)", r"\boxed{-1<x<1}"),
            (r"(-\infty,-1)\cup(1,\infty)", r"\boxed{x<-1}"),
            ("[1,2)", r"\boxed{1 < x \le 2}"),
            (r"1 \le x < 2", r"\boxed{[1,2]}"),
            (r"(3,\infty)", r"\boxed{x < 3}"),
            (r"(3,\infty)", r"\boxed{3 > x}"),
            ("x < 3", r"\boxed{y < 3}"),
            (r"x<-1 \text{ or } x>1", r"\boxed{y<-1 \text{ or } y>1}"),
            (r"(-\infty,2)\cup(2,\infty)", r"\boxed{x \ne 3}"),
            (r"(-\infty,\infty)", r"\boxed{\mathbb{R} \setminus \{2\}}"),
        ],
    ),
    "the empty set": (
        [
            (r"\emptyset", r"\boxed{\varnothing}"),
            (r"\emptyset", "\\boxed{\u2205}"),
            (r"\emptyset", r"\boxed{\{\}}"),
            (r"\emptyset", r"\boxed{\{ \}}"),
            (r"\varnothing", r"\boxed{\emptyset}"),
            (r"\emptyset", "\\boxed{\u00d8}"),
            (r"\emptyset", r"\boxed{\text{the empty set}}"),
        ],
        [
            (r"\emptyset", r"\boxed{0}"),
            (r"\emptyset", r"\boxed{\{0\}}"),
            (r"\emptyset", r"\boxed{\phi}"),
            (r"\emptyset", r"\boxed{\{\emptyset\}}"),
            ("0", r"\boxed{\varnothing}"),
        ],
    ),
    "characters": (
        [
            ("42", "The answer is 42\u3002"),
            ("42", "\u7b54\u6848\u662f 42\u3002\u5b8c"),
            ("1,2,3", "\\boxed{1\u30012\u30013}"),
            ("-5", "The answer is \u20135."),
            ("-5", "\\boxed{\u20145}"),
            ("-5", "\\boxed{\u20105}"),
            ("x-1", "\\boxed{x \u2013 1}"),
            ("42", "The answer is 42 \u2013 as we hoped."),
            ("42", "we get 42\u2014the total"),
            ("42", "The answer is 4\u200b2."),
            ("42", "\\boxed{\ufeff42\u200b}"),
            ("42", "\\boxed{4\u20602}"),
        ],
        [
            ("5", "The answer is \u20135."),
            ("-1", "The answer is 5\u20136."),
            ("5", "\\boxed{5\u20136}"),
            ("42", "The answer is 4\u30022"),
            ("x+1", "\\boxed{x \u2013 1}"),
        ],
    ),
    "a leading plus": (
        [
            ("7", r"\boxed{+7}"),
            (r"\frac{1}{2}", r"\boxed{+\frac12}"),
            ("(1,2)", r"\boxed{(+1, +2)}"),
            ("7", r"\boxed{x = +7}"),
        ],
        [
            ("7", r"\boxed{-7}"),
            ("7", r"\boxed{\pm 7}"),
            ("37", r"\boxed{3+7}"),
            ("(1,2)", r"\boxed{(+1, -2)}"),
        ],
    ),
    "prose in a tag": (
        [
            ("5", "<answer>The answer is 5.</answer>"),
            ("5", "<answer>It takes 5 hours.</answer>"),
            ("5", "<answer>Final answer: $5$</answer>"),
            ("5", r"<answer>So x is \boxed{5}.</answer>"),
            ("Room 5", "<answer>Room 5</answer>"),
            (r"5\text{ hours}", "<answer>It takes 5 hours.</answer>"),
        ],
        [
            ("5", "<answer>The answer is 6.</answer>"),
            ("5", "<answer>The answer is 5 or 6.</answer>"),
            ("5", "<answer>It may be 5, or perhaps it is 6.</answer>"),
            ("5", "<answer>The answer is not 5.</answer>"),
            (r"5\text{ hours}", "<answer>It takes 5 minutes.</answer>"),
            ("5", "<answer>It takes 5 million years.</answer>"),
        ],
    ),
    "end marks": (
        [
            ("42", "The answer is 42<|im_end|>"),
            ("42", "The answer is 42</s>"),
            ("42", "#### 42<eos>"),
            ("42", "so it is 42<|eot_id|><|end_of_text|>"),
            ("42", "so it is 42<end_of_turn>"),
            ("42", "The answer is 42<\uff5cend\u2581of\u2581sentence\uff5c>"),
            ("x+1", "x+1<|endoftext|>"),
            ("42", r"\boxed{42</s>}"),
        ],
        [
            ("42", "The answer is 4<|im_end|>2"),
            ("42", "The answer is 4</s>2"),
            ("42", "The answer is 43<|im_end|>"),
        ],
    ),
    "roots of both signs": (
        [
            (r"\frac{1}{\sqrt{n}}", r"\boxed{\sqrt{1/n}}"),
            (r"\sqrt{\frac{a}{b}}", r"\boxed{\frac{\sqrt{a}}{\sqrt{b}}}"),
            (r"2\ln x", r"\boxed{\ln(x^2)}"),
        ],
        [
            (r"\frac{1}{\sqrt{n}}", r"\boxed{\sqrt{n}}"),
            ("x", r"\boxed{\sqrt{x^2}}"),
            ("1-x", r"\boxed{|x-1|}"),
            (r"\sqrt{a+b}", r"\boxed{\sqrt{a}+\sqrt{b}}"),
        ],
    ),
    "variables of the other case": (
        [
            ("2x", r"\boxed{2x}"),
            ("2X", r"\boxed{2X}"),
            (r"\text{Evelyn}", r"\boxed{evelyn}"),
            ("3+4i", r"\boxed{3+4i}"),
            (r"5\text{ L}", r"\boxed{5\text{ l}}"),
        ],
        [
            ("2x", r"\boxed{2X}"),
            ("x^2+1", r"\boxed{X^2+1}"),
            ("n(n+1)", r"\boxed{N(N+1)}"),
            ("2xy", r"\boxed{2xY}"),
            (r"\frac{a}{2}", r"\boxed{\frac{A}{2}}"),
            ("y=2x", r"\boxed{Y=2X}"),
        ],
    ),
    "false equations": (
        [
            ("42", r"\boxed{42=42}"),
            ("42", r"\boxed{40+2=42}"),
            ("42", r"\boxed{x=42}"),
            ("3.33", r"\boxed{\frac{10}{3}=3.33}"),
            ("42", r"\boxed{x = 6 \cdot 7 = 42}"),
            ("10", r"\boxed{\binom{5}{2} = 10}"),
        ],
        [
            ("42", r"\boxed{43=42}"),
            ("42", "so 43 = 42"),
            ("42", r"\boxed{x=43=42}"),
            ("42", r"\boxed{40+3=42}"),
            ("42", r"\boxed{\frac{84}{3}=42}"),
        ],
    ),
    "sets and pairs": (
        [
            ("(1,2)", r"\boxed{(1,2)}"),
            (r"\{1,2\}", r"\boxed{\{2,1\}}"),
            (r"\{1,2\}", r"\boxed{1,2}"),
        ],
        [
            ("(1,2)", r"\boxed{\{1,2\}}"),
            ("(1,2,3)", r"\boxed{\{1,2,3\}}"),
            (r"\{1,2\}", r"\boxed{(1,2)}"),
            ("(1,2)", r"\boxed{\left\{2,1\right\}}"),
        ],
    ),
}
NUMERIC = (
    [
        ("7", "The answer is +7"),
        ("7", r"\boxed{\(7\)}"),
        ("7", r"\boxed{$7$}"),
        ("7", r"The answer is \[7\]"),
        ("7", "The answer is $$7$$"),
        ("-7", r"\boxed{\(-7\)}"),
        ("7", "= **7**"),
        ("7", r"\boxed{\large 7}"),
        ("0.5", r"\boxed{\frac 1 2}"),
        ("7", "The answer is 7</s>"),
        ("60", r"\boxed{60\degree}"),
        ("20", "the answer is $20/month"),
        ("7", "<answer>The answer is 7.</answer>"),
    ],
    [
        ("7", "The answer is -7"),
        ("7", r"\boxed{3+7}"),
        ("7", r"\boxed{x + 7}"),
        ("-7", r"\boxed{x - 7}"),
        ("7", r"\boxed{\(7\) or \(8\)}"),
        ("42", r"\boxed{43=42}"),
        ("0.5", r"\boxed{\frac 2 1}"),
        ("7", r"\boxed{7^{+7}}"),
    ],
)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_is_right_in_all_its_forms(others, family):
    assert others(FAMILIES[family][0], "correct") == []


@pytest.mark.parametrize("family", FAMILIES)
def test_near_misses_of_a_family_are_wrong(others, family):
    assert others(FAMILIES[family][1], "incorrect") == []


def test_numbers_are_read_in_their_delimiters_and_styles(others):
    right, wrong = NUMERIC
    assert others(right, "correct", "numeric") == []
    assert others(wrong, "incorrect", "numeric") == []


@pytest.mark.parametrize(
    ("text", "form", "answer"),
    [
        (r"\boxed{255} in all. The final answer is $10455$.", "any", "$10455$"),
        (r"\boxed{255} in all. Final answer: 10455", "any", "10455"),
        (r"The final answer is 10455, so \boxed{255}.", "any", "255"),
        (r"\boxed{255} in all. The final answer is in the box.", "any", "255"),
        (r"\boxed{255}. The answer is 7. #### 8", "any", "255"),
        (r"\boxed{255} in all. The final answer is $10455$.", "boxed", "255"),
        (r"<answer>255</answer> The final answer is 7.", "any", "255"),
    ],
)
def test_a_final_statement_after_a_box_wins_and_no_other_mark(text, form, answer):
    assert extract_answer(text, form) == answer


def test_answers_are_counted_by_value():
    problem = Problem(id="p", prompt="", gold="0.5", verifier="math", source="t")
    verifier = get_verifier("math")
    values = []
    for text in ("1/2", "0.5", r"\frac12", "3", "3.0", "none at all"):
        verdict = verifier.grade(problem, text)
        values.append(verifier.answer_value(problem, verdict))
    assert values == ["1/2", "1/2", "1/2", "3", "3", None]
    right = [value == "1/2" for value in values[:5]]
    assert majority_at_k(values[:5], right, 5) == 1.0
    wrong = Problem(id="p", prompt="", gold="7", verifier="math", source="t")
    graded = [verifier.grade(wrong, text) for text in ("1/2", "0.50", "x = 1/2")]
    assert {verifier.answer_value(wrong, one) for one in graded} == {"1/2"}
