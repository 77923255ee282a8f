"""An invented record in each public layout, with the expected result of reading it.

(data set, record as published, problem, gold, solution, level, type, id)
"""

DAPO_BEFORE = (
    "Solve the following math problem step by step. The last line of your response "
    "should be of the form Answer: $Answer (without quotes) where $Answer is the "
    "answer to the problem.\n\n"
)
DAPO_BEHIND = '\n\nRemember to put your answer on its own line after "Answer:".'

RECORDS = [
    (
        "math",
        {
            "problem": "What is $3 \\cdot 14$?",
            "level": "Level 2",
            "type": "Prealgebra",
            "solution": "First \\boxed{3}, no: it is $\\boxed{\\frac{84}{2}}$.",
        },
        ("What is $3 \\cdot 14$?", "\\frac{84}{2}", 2, "Prealgebra", None),
    ),
    (
        "gsm8k",
        {"question": "Ann has 2 and 3. Sum?", "answer": "2+3=<<2+3=5>>5\n#### 5"},
        ("Ann has 2 and 3. Sum?", "5", None, "", None),
    ),
    (
        "deepscaler",
        {"problem": "One more than 6?", "answer": "7", "solution": ""},
        ("One more than 6?", "7", None, "", None),
    ),
    (
        "deepscaler",
        {"problem": "One more than 6?", "answer": "7", "level": 4, "id": "19"},
        ("One more than 6?", "7", 4, "", "19"),
    ),
    (
        "dapo",
        {
            "data_source": "math_dapo",
            "prompt": [
                {
                    "content": f"{DAPO_BEFORE}Half of 68?{DAPO_BEHIND}",
                    "role": "user",
                }
            ],
            "ability": "MATH",
            "reward_model": {"ground_truth": "34", "style": "rule-lighteval/MATH_v2"},
            "extra_info": {"index": "9a9b6eb4"},
        },
        ("Half of 68?", "34", None, "", "9a9b6eb4"),
    ),
    (
        "dapo",
        {
            "prompt": "Half of 68?",
            "solution": "34",
            "data_source": "math_dapo",
            "source_prompt": [{"content": "Solve ... Half of 68?", "role": "user"}],
            "ability": "MATH",
            "reward_model": {"ground_truth": "34", "style": "rule"},
            "extra_info": {"index": "9a9b6eb4"},
        },
        ("Half of 68?", "34", None, "", "9a9b6eb4"),
    ),
    (
        "orz",
        [
            {"from": "human", "value": "Twice 21?"},
            {"from": "assistant", "ground_truth": {"value": "42"}},
        ],
        ("Twice 21?", "42", None, "", None),
    ),
    (
        "orz",
        {
            "0": {"from": "human", "value": "Twice 21?", "ground_truth": None},
            "1": {"from": "assistant", "value": None, "ground_truth": {"value": "42"}},
        },
        ("Twice 21?", "42", None, "", None),
    ),
    (
        "orz",
        [
            {"from": "human", "value": "Twice 21?\n"},
            {
                "from": "assistant",
                "ground_truth": {"value": "42", "pass_at_n": 0.75},
            },
        ],
        ("Twice 21?", "42", None, "", None),
    ),
    (
        "big-math",
        {
            "problem": "Roots of $x^2 = 4$?",
            "answer": "-2, 2",
            "source": "cn_k12",
            "domain": ["Mathematics -> Algebra -> Other"],
            "llama8b_solve_rate": 0.375,
        },
        ("Roots of $x^2 = 4$?", "-2, 2", None, "Mathematics -> Algebra -> Other", None),
    ),
    (
        "deepmath",
        {
            "question": "Limit of $1/n$?",
            "final_answer": "0",
            "difficulty": 5.5,
            "topic": "Mathematics -> Calculus",
            "r1_solution_1": "Long.",
        },
        ("Limit of $1/n$?", "0", None, "Mathematics -> Calculus", None),
    ),
    (
        "polaris",
        {"problem": "Sum of 1 to 4?", "answer": "10", "difficulty": "3/8"},
        ("Sum of 1 to 4?", "10", None, "", None),
    ),
    (
        "math500",
        {
            "problem": "A quarter of 6?",
            "solution": "It is $\\boxed{\\frac32}$.",
            "answer": "\\frac{3}{2}",
            "subject": "Algebra",
            "level": 1,
            "unique_id": "test/algebra/1.json",
        },
        ("A quarter of 6?", "\\frac{3}{2}", 1, "Algebra", "test/algebra/1.json"),
    ),
    (
        "aime24",
        {
            "id": 60,
            "problem": "Find $m+n$.",
            "solution": "so $\\boxed{204}$ not \\boxed{999}",
            "answer": "204",
            "url": "https://example.org",
            "year": "2024",
        },
        ("Find $m+n$.", "204", None, "", "60"),
    ),
    (
        "aime24",
        {"ID": "2024-I-1", "Problem": "Find it.", "Solution": "..", "Answer": 33},
        ("Find it.", "33", None, "", "2024-I-1"),
    ),
    (
        "aime24",
        {"id": 3, "problem": "Find it.", "solution": "\\boxed{025}", "url": ""},
        ("Find it.", "025", None, "", "3"),
    ),
    (
        "aime24",
        {"id": 7, "question": "Find it.", "solution": "$\\boxed{25}$", "url": ""},
        ("Find it.", "25", None, "", "7"),
    ),
    (
        "aime24",
        {
            "data_source": "math_dapo",
            "prompt": [
                {"content": f"{DAPO_BEFORE}Find it.{DAPO_BEHIND}", "role": "user"}
            ],
            "reward_model": {"ground_truth": "33", "style": "rule"},
            "extra_info": {"index": 0, "split": "val"},
        },
        ("Find it.", "33", None, "", "0"),
    ),
    (
        "aime25",
        {"problem": "Find it.", "answer": 70, "id": "0"},
        ("Find it.", "70", None, "", "0"),
    ),
    (
        "aime25",
        {"question": "Find it.", "answer": "70"},
        ("Find it.", "70", None, "", None),
    ),
    (
        "amc",
        {"id": 0, "problem": "How many?", "answer": 142.0, "url": ""},
        ("How many?", "142", None, "", "0"),
    ),
    (
        "amc",
        {
            "data_source": "amc",
            "prompt": [
                {"content": "Think in tags.", "role": "system"},
                {"content": "How many?", "role": "user"},
            ],
            "ability": "math",
            "reward_model": {"ground_truth": "142.0", "style": "rule"},
            "extra_info": {"index": 0, "split": "default"},
            "__index_level_0__": 1415,
        },
        ("How many?", "142.0", None, "", "0"),
    ),
    (
        "amc",
        {"id": 4, "question": "How many?", "answer": "27.0", "url": ""},
        ("How many?", "27.0", None, "", "4"),
    ),
    (
        "minerva",
        {"question": "Mass in grams?", "answer": "4.5e33"},
        ("Mass in grams?", "4.5e33", None, "", None),
    ),
    (
        "minerva",
        {"problem": "Mass in grams?", "answer": "4.5e33"},
        ("Mass in grams?", "4.5e33", None, "", None),
    ),
    (
        "minerva",
        {
            "problem": "Mass?",
            "solution": "M = \\boxed{2}",
            "type": "Astronomy",
            "idx": 5,
        },
        ("Mass?", "2", None, "Astronomy", "5"),
    ),
    (
        "olympiadbench",
        {
            "id": 1606,
            "question": "Which $n$?",
            "solution": ["First so.", "Or so."],
            "final_answer": ["$2$", "7"],
            "is_multiple_answer": True,
            "answer_type": "Numerical",
            "subfield": "Algebra",
            "context": None,
        },
        ("Which $n$?", "$2$, 7", None, "Algebra", "1606"),
    ),
    (
        "olympiadbench",
        {"problem": "Which $n$?", "answer": "$2$,7"},
        ("Which $n$?", "$2$,7", None, "", None),
    ),
]
