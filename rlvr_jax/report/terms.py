"""Terms of the report: linked where a reader meets them first, explained at the end."""

import dataclasses
import re

import markupsafe


@dataclasses.dataclass(frozen=True, kw_only=True)
class Term:
    """A term, the pattern of its mentions, and its explanation."""

    name: str
    pattern: str
    meaning: str

    @property
    def anchor(self) -> str:
        """Returns the id of its entry on the page."""
        return "term-" + re.sub(r"\W+", "-", self.name.lower()).strip("-")


TERMS = (
    Term(
        name="pass@k",
        pattern=r"pass@(?:\d+|k)",
        meaning="The chance that at least one of k samples is correct; an unbiased "
        "estimate from all samples of a problem.",
    ),
    Term(
        name="maj@k",
        pattern=r"maj@(?:\d+|k)",
        meaning="The chance that the most frequent answer among k samples is correct.",
    ),
    Term(
        name="95 % interval",
        pattern=r"95[ \u00a0]%(?: intervals?)?",
        meaning="The range of scores with other problems of the same kind: a bootstrap "
        "over problems, with an extra problem at the bound. A single problem has none.",
    ),
    Term(
        name="band",
        pattern=r"\bbands?\b",
        meaning="Problems of similar difficulty for one policy, by the share of its "
        "samples that are correct: hard (almost none), medium, easy (almost all).",
    ),
    Term(
        name="posterior",
        pattern=r"\bposterior\b",
        meaning="What all rollouts of a problem so far say about its pass rate; recent "
        "rollouts count more, because the policy changes.",
    ),
    Term(
        name="signal",
        pattern=r"\bsignal\b",
        meaning="A group of completions of one problem has a signal if their rewards "
        "differ. Without one, the group's advantages are 0 and it teaches nothing.",
    ),
    Term(
        name="advantage mass",
        pattern=r"\badvantage mass\b",
        meaning="The sum of the absolute advantages of some completions: how strongly "
        "the update pushes them up or down.",
    ),
    Term(
        name="entropy",
        pattern=r"\bentropy\b",
        meaning="How undecided the policy is about the next token, in nats; 0 if it "
        "always writes the same.",
    ),
    Term(
        name="latent",
        pattern=r"\blatents?\b",
        meaning="One direction of the autoencoder's dictionary, which is active on few "
        "tokens. A feature is a latent with a known property.",
    ),
    Term(
        name="FVE",
        pattern=r"\bFVE\b",
        meaning="Fraction of variance explained: how much of the activations' variance "
        "the autoencoder reconstructs; 1 is all.",
    ),
)


class TermLinker:
    """Links the first mention of each term on a page to the term's entry."""

    def __init__(self) -> None:
        self.met: list[Term] = []

    def __call__(self, text: str) -> markupsafe.Markup:
        """Returns the escaped text, with links for terms not met before."""
        mentions = []
        for term in TERMS:
            found = re.search(term.pattern, text, re.IGNORECASE)
            if found and term not in self.met:
                mentions.append((*found.span(), term))
        linked, done = markupsafe.Markup(), 0
        for start, end, term in sorted(mentions, key=lambda mention: mention[0]):
            if start >= done:  # else it lies within another term's mention
                self.met.append(term)
                linked += text[done:start]
                linked += markupsafe.Markup('<a href="#{}">{}</a>').format(
                    term.anchor, text[start:end]
                )
                done = end
        return linked + text[done:]
