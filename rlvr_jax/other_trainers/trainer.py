"""A trainer as the doctor knows it: the names of its metrics and of its options."""

import dataclasses
import re
from collections.abc import Collection, Mapping, Sequence

# What the doctor reads, by the names that a trainer's table uses.
QUANTITIES = (
    "reward",  # mean over the completions of a step
    "reward_low",  # the smallest and the largest of a step
    "reward_high",
    "reward_std",
    "same_reward",  # share of groups whose completions all earn the same
    "solved_none",  # share of groups without a right answer; with right ones only
    "solved_all",
    "advantage_low",  # the smallest and the largest of a step
    "advantage_high",
    "length",  # mean number of tokens of a completion
    "truncated",  # share of completions that reach the length limit
    "entropy",  # mean, nats per token
    "loss",
    "learning_rate",  # written with every update
    "grad_norm",
    "logprob_mismatch",  # sampler and trainer: mean |log p - log q|, in nats
    "prob_mismatch",  # mean |difference| of probabilities
    "sampler_kl",  # mean KL divergence, nats per token
)
SHARES = ("same_reward", "solved_none", "solved_all", "truncated")
STEP_NAMES = ("step", "_step", "global_step", "training/global_step")

# The advice for each code, with the options of a trainer in braces. After "no_signal"
# comes the cause, if the log shows one.
_ADVICE = {
    "no_ending": "Check that prompts go through the model's chat template "
    "({chat_template}) and that the model's end token stops generation ({end_token}). "
    "A base model may need a few steps of SFT. Raise {max_length} only after that.",
    "truncation": "Raise {max_length}. Read some completions first: if they repeat "
    "themselves, lower {learning_rate} instead.",
    "no_signal": "Read one group's completions with their rewards. If completions "
    "differ and rewards do not, fix the reward function. If completions are alike, "
    "raise {temperature} or {group_size}.",
    "no_signal/all_correct": "The problems are too easy by now: train on harder ones, "
    "or leave out the problems that are mastered ({filter}).",
    "no_signal/all_incorrect": "First call the reward function by hand on a right "
    "answer: it must pay. Then train on easier problems, or raise {group_size}.",
    "no_signal/truncated": "Completions end before they answer: raise {max_length}, "
    "or see why they do not end ({chat_template}).",
    "rare_gradient": "Train on problems whose completions earn different rewards "
    "({filter}), raise {group_size}, or lower {learning_rate}.",
    "length_collapse": "Read the short completions: do they earn the reward without "
    "reasoning? The reward tends to fall next.",
    "entropy_collapse": "Lower {learning_rate}, raise {clip_high}, or set {entropy}.",
    "reward_collapse": "Go back to a checkpoint from before the fall. Lower "
    "{learning_rate}, or keep the policy close to its reference with {kl}.",
    "logprob_mismatch": "Use the same precision on both sides; {mismatch}.",
    "nonfinite": "Go back to a checkpoint from before this step, and lower "
    "{learning_rate} or {grad_clip}. Check the precision, and rewards that are not "
    "finite.",
}
ADVICE_CODES = frozenset(_ADVICE)
OPTIONS = frozenset(
    name for text in _ADVICE.values() for name in re.findall(r"{(\w+)}", text)
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Trainer:
    """The names of a trainer's metrics and options.

    `names` maps a quantity to names in the log, the newest version's first; `*`
    replaces one part between slashes. A log is recognized by `signature`, metrics that
    only this trainer has. `options` fill the advice, and `how_to_log` says how to get a
    quantity that a log does not have.
    """

    name: str
    names: Mapping[str, Sequence[str]]
    signature: Sequence[str]
    options: Mapping[str, str]
    how_to_log: Mapping[str, str] = dataclasses.field(default_factory=dict)
    null_is_nonfinite: bool = False  # it writes NaN as null
    drops_nonfinite: bool = False  # it leaves NaN out of its lines

    def advise(self, code: str, cause: str = "") -> str:
        """Returns the advice for a finding, in the trainer's own option names."""
        key = f"{code}/{cause}" if cause else code
        return _ADVICE[key].format(**self.options)

    def count_signature(self, names: Collection[str]) -> int:
        """Returns how many of a log's names are the trainer's own."""
        patterns = [_pattern(name) for name in self.signature]
        return sum(any(p.fullmatch(name) for p in patterns) for name in names)

    def find_names(self, names: Collection[str]) -> dict[str, list[str]]:
        """Returns each quantity's names in a log; several for a name with `*`."""
        located = {}
        for quantity, alternatives in self.names.items():
            for pattern in map(_pattern, alternatives):
                if matches := [name for name in names if pattern.fullmatch(name)]:
                    located[quantity] = matches
                    break
        return located


def _pattern(name: str) -> re.Pattern[str]:
    return re.compile(re.escape(name).replace(r"\*", "[^/]+"))
