"""The attack on the audit's coins: which examples were trained on, and what that says of epsilon (`tacit.audit.bounds`).

It reads keyed examples and coins, and of the released model what anybody can ask it: it costs the text no privacy, and is public.
One score and one bound count, which the ledger has since before the training; all others are exploratory.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from tokenizers import Tokenizer

from tacit.audit.attack import (
    RELEASED,
    SHARE,
    Answer,
    Attack,
    AttackRow,
    Estimated,
    Given,
    Measure,
    UndecidedError,
)
from tacit.audit.blind import blind_baseline
from tacit.audit.bounds.bound import LowerBound
from tacit.audit.bounds.evidence import Scores
from tacit.audit.bounds.guessing import right_guesses
from tacit.audit.bounds.verdict import Claim, Verdict, judge
from tacit.audit.coin_scores import SCORES, Seen, TokenNats
from tacit.audit.coins_plan import COIN_BOUNDS
from tacit.audit.inference import clopper_pearson
from tacit.config import CoinOptions, RunConfig
from tacit.corpus.coins import Coins
from tacit.privacy.rounded import lower, upper
from tacit.randomness import KeyedRandomness

if TYPE_CHECKING:
    from transformers import PreTrainedModel

__all__ = [
    "COINS",
    "LOWER_BOUND_TERMS",
    "audit_coins",
    "blind_guesses",
    "bounds_of",
    "coin_rows",
    "coin_texts",
    "coins_in_words",
    "known_beforehand",
    "verdict_of",
]

_NO_EPSILON = "infinity"


def _options(config: RunConfig) -> CoinOptions:
    assert config.audit is not None
    assert config.audit.coins is not None
    return config.audit.coins


def _prepare(given: Given) -> Measure:
    from tacit.audit.token_nats import token_nats  # it imports torch, which no report needs

    coins, special = given.coins(), given.special
    masking = None if given.config.model.is_causal else given.masking()
    sides = _sides(coins)

    def asked(model: PreTrainedModel) -> list[TokenNats]:
        return [token_nats(model, ids_mT, coins.length, special.size, masking) for ids_mT in sides]

    before, texts = asked(given.model_before()), coin_texts(given.tokenizer, coins)
    known = known_beforehand(given, texts)

    def measure(model: PreTrainedModel) -> dict[str, Any]:
        seen = [Seen(*parts) for parts in zip(asked(model), before, texts, strict=True)]
        return {**known, **audit_coins(given.config, coins, seen)}

    return measure


def _sides(coins: Coins) -> list[np.ndarray]:
    """The examples and, under replace-one, their substitutes."""
    return [coins.ids_mT] if coins.others_mT is None else [coins.ids_mT, coins.others_mT]


def coin_texts(tokenizer: Tokenizer, coins: Coins) -> list[tuple[str, ...]]:
    """The examples of each side as text."""
    return [
        tuple(tokenizer.decode_batch(ids_mT[:, 1 : coins.length - 1].tolist(), skip_special_tokens=False))
        for ids_mT in _sides(coins)
    ]


def known_beforehand(given: Given, texts: list[tuple[str, ...]]) -> dict[str, Any]:
    """What is the same for every model, as plain values: the epsilon that is tested, and what the examples' text alone gives away."""
    proven = given.proven()
    blind = blind_guesses(given.coins(), texts, given.streams)
    return {"proven": _NO_EPSILON if math.isinf(proven) else proven, "blind": dataclasses.asdict(blind)}


def blind_guesses(coins: Coins, texts: list[tuple[str, ...]], streams: KeyedRandomness) -> Estimated:
    """How often coins are guessed from the examples' text alone; as many of those that are out as of those that are in."""
    if len(texts) == 2:  # of two examples, which one is in
        pairs = list(zip(coins.included_m, *texts, strict=True))
        into, out = (
            [one if coin else other for coin, one, other in pairs],
            [other if coin else one for coin, one, other in pairs],
        )
    else:
        into = [texts[0][number] for number in coins.order_m if coins.included_m[number]]
        out = [texts[0][number] for number in coins.order_m if not coins.included_m[number]]
    fewer = min(len(into), len(out))
    if fewer < 4:
        raise UndecidedError("too few coins fell on one side")
    found = blind_baseline([[text] for text in into[:fewer]], [[text] for text in out[:fewer]], streams).accuracy
    return Estimated(found.value, found.low, found.high)


def audit_coins(config: RunConfig, coins: Coins, seen: list[Seen]) -> dict[str, Any]:
    """What the coins show, as plain values: how many are guessed, and every lower bound, the one that counts first.

    Args:
        seen: of the examples; under replacement also of those that stand in their places.

    Raises:
        UndecidedError: a score is no number, as of a model that diverged.
    """
    counts = _options(config).score
    names = [counts, *(score for score in SCORES if score != counts)]
    scores = {name: SCORES[name](seen[0]) - (SCORES[name](seen[1]) if len(seen) == 2 else 0) for name in names}
    return bounds_of(config, coins, scores)


def bounds_of(config: RunConfig, coins: Coins, scores: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """How many coins are guessed, and every lower bound, as plain values.

    Args:
        scores: (m,) each, by name, larger for members; the first one counts, with the bound of the options.

    Raises:
        UndecidedError: a score is no number.
    """
    options, privacy = _options(config), config.privacy
    if not all(np.isfinite(scores_m).all() for scores_m in scores.values()):
        raise UndecidedError("a score is no finite number")
    evidence = {
        name: Scores(scores_m, coins.included_m, coins.order_m, privacy.relation) for name, scores_m in scores.items()
    }
    counts, *others = scores
    pairs = [
        (counts, options.bound),
        *((counts, bound) for bound in COIN_BOUNDS if bound != options.bound),
        *((score, options.bound) for score in others),
    ]
    bounds = [
        (score, COIN_BOUNDS[bound]().lower_bound(evidence[score], privacy.budget.delta, options.confidence))
        for score, bound in pairs
    ]
    return {
        "right": right_guesses(evidence[counts], options.examples),
        "bounds": [{"score": score, **dataclasses.asdict(bound)} for score, bound in bounds],
    }


def verdict_of(config: RunConfig, found: Mapping[str, Any]) -> Verdict:
    """What the pair that counts says of the proven epsilon.

    The attack has power where its bound is above 0: on the control, or on the released model itself.

    Args:
        found: by model, of those that the reader may see.
    """
    privacy, released = config.privacy, found[RELEASED]
    claim = Claim(float(released["proven"]), privacy.budget.delta, privacy.relation)
    return judge(_counts(released), claim, powerful=any(_counts(values).epsilon > 0 for values in found.values()))


def _counts(values: Mapping[str, Any]) -> LowerBound:
    """The lower bound of the pair that counts."""
    own = dict(values["bounds"][0])
    del own["score"]
    return LowerBound(**own)


def _refuted(config: RunConfig, values: Mapping[str, Any]) -> str | None:
    if verdict_of(config, {RELEASED: values}) is not Verdict.VIOLATED:
        return None
    bound = _counts(values)
    return (
        f"the lower bound on epsilon by coins, {lower(bound.epsilon, '.3g')} ({100 * bound.confidence:g} %), is above the proven "
        f"{upper(float(values['proven']), '.3g')} at delta {bound.delta:g}, so the certificate is contradicted"
    )


def _answer(config: RunConfig, found: Mapping[str, Any]) -> Answer:
    who = "An attacker who knows all examples guesses the coins from the model."
    return Answer(coin_rows(config, found, "With"), (f"{coins_in_words(config)} {who}",), _NOTE)


def coins_in_words(config: RunConfig) -> str:
    """A sentence: how many examples there are, of which kind, and what a coin decided of each."""
    options = _options(config)
    which = "which of two was trained on" if config.privacy.relation == "replace" else "whether it was trained on"
    return f"For each of {options.examples:,} made-up examples ({options.kind}) a fair coin decided {which}."


def coin_rows(config: RunConfig, found: Mapping[str, Any], seen: str) -> tuple[AttackRow, ...]:
    """How many coins of each model are guessed, and every bound with the verdict on the one that counts.

    Args:
        found: as `bounds_of` and `known_beforehand`, by model.
        seen: begins the sentence on a model: by what coins are guessed.
    """
    verdict = str(verdict_of(config, found)) if RELEASED in found else ""
    has_control = any(model != RELEASED for model in found)
    return tuple(
        row for model, values in found.items() for row in _rows(model, values, config, verdict, has_control, seen)
    )


def _rows(
    model: str, values: Mapping[str, Any], config: RunConfig, verdict: str, has_control: bool, seen: str
) -> Iterator[AttackRow]:
    options = _options(config)
    guessed = clopper_pearson(values["right"], options.examples)
    yield AttackRow(
        model=model,
        name=f"coins guessed right, {values['bounds'][0]['score']}",
        value=guessed.value,
        unit=SHARE,
        null=0.5,
        interval=(guessed.low, guessed.high),
        ceiling=1.0,
        baseline=Estimated(**values["blind"]),
        parameters={"examples": options.examples},
        words=f"{seen} the {model}, of {options.examples:,} coins {100 * guessed.value:.1f} % are guessed right (95 % interval "
        f"{100 * guessed.low:.1f} to {100 * guessed.high:.1f})",
    )
    proven = float(values["proven"])
    for number, bound in enumerate(values["bounds"] if model == RELEASED else values["bounds"][:1]):
        is_judged = number == 0 and model == RELEASED
        yield AttackRow(
            model=model,
            name=f"lower bound, {bound['bound']}{' (model-based)' if bound['model_based'] else ''}, {bound['score']}",
            value=bound["epsilon"],
            unit="epsilon",
            null=0.0,
            ceiling=max(bound["capacity"], bound["epsilon"]),
            judged=False,
            parameters={
                "examples": options.examples,
                "proven epsilon": _NO_EPSILON if math.isinf(proven) else upper(proven),
                "verdict": verdict if is_judged else "positive control" if number == 0 else "exploratory",
            },
            words=_bound_words(
                bound,
                proven,
                _verdict_words(verdict, has_control, bound["assumes"] if bound["epsilon"] > proven else ""),
                config,
            )
            if is_judged
            else "",
            assumes=bound["assumes"],
        )


def _bound_words(bound: Mapping[str, Any], proven: float, verdict: str, config: RunConfig) -> str:
    """The bound and the verdict of the pair that counts, in words."""
    of = "" if config.screening is None else " of the phases with noise"
    claim = "no epsilon is proved" if math.isinf(proven) else f"{upper(proven, '.3g')} is proved{of}"
    least, capacity = lower(bound["epsilon"], ".3g"), lower(bound["capacity"], ".3g")
    return (
        f"So epsilon is at least {least} at delta {bound['delta']:g} ({100 * bound['confidence']:g} % confidence, {bound['bound']}, "
        f"{bound['score']}); a perfect attack could at best show {capacity}, and {claim}: "
        f"{verdict}"
    )


def _verdict_words(verdict: str, has_control: bool, assumes: str) -> str:
    """The verdict in words, with what a bound above the claim assumes."""
    why = "nothing is found in the control either" if has_control else "a positive control is the curator’s alone"
    words = {
        Verdict.NOT_CONTRADICTED: "NOT CONTRADICTED",
        Verdict.INCONCLUSIVE: f"INCONCLUSIVE, since the bound assumes that {assumes}"
        if assumes
        else "INCONCLUSIVE, since this audit could not have contradicted it",
        Verdict.VIOLATED: "VIOLATED",
        Verdict.UNDECIDED: f"UNDECIDED: no power is shown, for {why}",
    }
    return words[Verdict(verdict)]


_NOTE = (
    "Lower bound: with the stated confidence no smaller epsilon is true (docs/audit-bounds.md). Ceiling: its capacity, more than "
    "which no attack on as many coins can show. The score and the bound that count were written in the ledger before training; "
    "the others are exploratory. Not contradicted is no proof: a better attack may exist. Without a model: coins guessed from the "
    "examples’ characters alone."
)

LOWER_BOUND_TERMS = (
    (
        "Lower bound on epsilon",
        "What an attack shows epsilon to be at least. It stands below the proved epsilon, which is an upper bound.",
    ),
)

COINS = Attack(
    name="coins",
    title="Lower bound on epsilon by coins",
    public=True,
    prepare=_prepare,
    answer=_answer,
    refuted=_refuted,
    subject="the coins of its audit examples",
    counted="comparison",
    asked=lambda config: config.audit is not None and config.audit.coins is not None,
    terms=LOWER_BOUND_TERMS,
    remedy="in a new run, raise audit.coins.examples, or choose another score",
)
"""Whether the coins contradict the certificate."""
