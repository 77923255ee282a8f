r"""The published data sets that are known by name, one constant each.

The fields are from the data sets' pages on the Hugging Face hub, as of 2025, and from
copies that are about as common.
"""

from rlvr_jax.tasks.public.layout import DataSet, FieldLayout

# The text that DAPO's set has around every question.
_DAPO_PROMPT = (
    "Solve the following math problem step by step. The last line of your response "
    "should be of the form Answer: $Answer (without quotes) where $Answer is the "
    "answer to the problem.",
    'Remember to put your answer on its own line after "Answer:".',
)

# verl's layout, which many sets use: the last message holds the question.
_VERL_LAYOUT = FieldLayout(
    problem="prompt.-1.content",
    gold="reward_model.ground_truth",
    id="extra_info.index",
    source="data_source",
    around=_DAPO_PROMPT,
)
# Many copies of evaluation sets have these fields, even if the original does not.
_COPIES = (
    FieldLayout(problem="problem", gold="answer", id="id"),
    FieldLayout(problem="question", gold="answer", id="id"),
    _VERL_LAYOUT,
)

# Training.
MATH = DataSet(
    title="MATH",
    hub="EleutherAI/hendrycks_math",
    license="MIT",
    subsets=(
        "algebra",
        "counting_and_probability",
        "geometry",
        "intermediate_algebra",
        "number_theory",
        "prealgebra",
        "precalculus",
    ),
    train_split="train",
    eval_split="test",
    size=5000,
    layouts=(
        FieldLayout(
            problem="problem",
            gold="solution",
            gold_form="boxed",
            level="level",  # "Level 5"
            type="type",
        ),
    ),
)
GSM8K = DataSet(
    title="GSM8K",
    hub="openai/gsm8k",
    license="MIT",
    subsets=("main",),
    train_split="train",
    eval_split="test",
    size=1319,
    verifier="numeric",
    layouts=(FieldLayout(problem="question", gold="answer", gold_form="hashes"),),
)
DEEPSCALER = DataSet(
    title="DeepScaleR-Preview",
    hub="agentica-org/DeepScaleR-Preview-Dataset",
    license="MIT",
    train_split="train",
    layouts=(
        FieldLayout(
            problem="problem",
            gold="answer",
            solution="solution",
            level="level",  # in samples with measured levels
            id="id",
        ),
    ),
)
DAPO = DataSet(
    title="DAPO-Math-17k",
    hub="BytedTsinghua-SIA/DAPO-Math-17k",  # each problem about a hundred times
    license="Apache-2.0",
    train_split="train",
    layouts=(
        _VERL_LAYOUT,
        FieldLayout(  # open-r1/DAPO-Math-17k-Processed
            problem="prompt",
            gold="solution",
            id="extra_info.index",
            source="data_source",
            around=_DAPO_PROMPT,
        ),
    ),
)
ORZ = DataSet(
    title="Open-Reasoner-Zero 57k",
    hub="Open-Reasoner-Zero/orz_math_57k_collection",
    license="MIT",
    train_split="train",
    # A record is a pair of turns: a list in the file, columns 0 and 1 from the hub.
    layouts=(
        FieldLayout(
            problem="0.value",
            gold="1.ground_truth.value",
            difficulty="1.ground_truth.pass_at_n",  # in some records
        ),
    ),
)
BIG_MATH = DataSet(
    title="Big-Math",
    hub="SynthLabsAI/Big-Math-RL-Verified",  # needs a login and accepted terms
    license="Apache-2.0",
    train_split="train",
    layouts=(
        FieldLayout(
            problem="problem",
            gold="answer",
            difficulty="llama8b_solve_rate",
            type="domain.0",
            source="source",
        ),
    ),
)
DEEPMATH = DataSet(
    title="DeepMath-103K",
    hub="zwhe99/DeepMath-103K",
    license="MIT",
    train_split="train",
    layouts=(
        FieldLayout(
            problem="question",
            gold="final_answer",
            difficulty="difficulty",
            type="topic",
        ),
    ),
)
POLARIS = DataSet(
    title="Polaris 53K",
    hub="POLARIS-Project/Polaris-Dataset-53K",
    license="Apache-2.0",
    train_split="train",
    layouts=(FieldLayout(problem="problem", gold="answer", difficulty="difficulty"),),
)

# Evaluation.
MATH500 = DataSet(
    title="MATH-500",
    hub="HuggingFaceH4/MATH-500",
    license="MIT",  # MATH's
    eval_split="test",
    size=500,
    layouts=(
        FieldLayout(
            problem="problem",
            gold="answer",
            solution="solution",
            level="level",
            type="subject",
            id="unique_id",
        ),
        _VERL_LAYOUT,
    ),
)
_AIME_LAYOUTS = (
    *_COPIES,
    FieldLayout(problem="Problem", gold="Answer", id="ID"),  # Maxwell-Jia/AIME_2024
    FieldLayout(  # math-ai/aime24
        problem="problem", gold="solution", gold_form="boxed", id="id"
    ),
    FieldLayout(problem="question", gold="solution", gold_form="boxed", id="id"),
)
AIME24 = DataSet(
    title="AIME 2024",
    hub="HuggingFaceH4/aime_2024",
    eval_split="train",
    size=30,
    verifier="numeric",
    layouts=_AIME_LAYOUTS,
)
AIME25 = DataSet(
    title="AIME 2025",
    hub="math-ai/aime25",
    license="Apache-2.0",
    eval_split="test",
    size=30,
    verifier="numeric",
    layouts=_AIME_LAYOUTS,
)
AMC = DataSet(
    title="AMC",
    hub="AI-MO/aimo-validation-amc",  # AMC 12 of 2022 and 2023
    license="Apache-2.0",
    eval_split="train",
    size=83,
    verifier="numeric",
    layouts=_COPIES,  # answers are floats; math-ai/amc23 (40) has `question`
)
MINERVA = DataSet(
    title="Minerva Math",
    hub="math-ai/minervamath",
    eval_split="test",
    size=272,
    layouts=(
        *_COPIES,
        FieldLayout(  # the copy in the Qwen2.5-Math evaluation
            problem="problem", gold="solution", gold_form="boxed", type="type", id="idx"
        ),
    ),
)
OLYMPIADBENCH = DataSet(
    title="OlympiadBench",
    hub="Hothan/OlympiadBench",
    license="Apache-2.0",
    subsets=("OE_TO_maths_en_COMP",),  # open questions, text only, English mathematics
    eval_split="train",
    size=674,
    layouts=(
        FieldLayout(
            problem="question",
            gold="final_answer",
            gold_form="list",
            solution="solution.0",
            type="subfield",
            id="id",
        ),
        *_COPIES,
    ),
)

# Suites: a name for several evaluation sets.
SUITES = {
    "math5": ("math500", "aime24", "amc", "minerva", "olympiadbench"),
    "aime": ("aime24", "aime25"),
}
