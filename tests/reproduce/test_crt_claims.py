"""Each judge of the claims of Zhao et al. 2022 is given a result that must pass, one that must fail, and one without power."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from tacit.reproduce.crt.claims import judge
from tacit.reproduce.crt.panel import Arms, PanelResults, panels_of

AMPLIFIED = {"paper": 0.16, "ours": 0.3, "ours_context": 1.5}
LEVEL = 0.01
SEEDS, DIALOGUES = 5, 40


def texts(perplexity: float, seed: int) -> dict[str, Any]:
    """Dialogues of this perplexity, with a little noise of the seed and more of the dialogue."""
    generator = np.random.default_rng(7)  # dialogues are the same for all models
    tokens = generator.integers(50, 150, DIALOGUES)
    dialogue = 1 + 0.1 * generator.standard_normal(DIALOGUES)
    own = 1 + 0.002 * np.random.default_rng([seed, int(1000 * perplexity)]).standard_normal()
    nats = math.log(perplexity) * own * dialogue * tokens * tokens.sum() / (dialogue * tokens).sum()
    found = {"nats": nats.tolist(), "tokens": tokens.tolist(), "perplexity": math.exp(nats.sum() / tokens.sum())}
    return dict.fromkeys(("redacted", "raw", "without_secrets"), found)


def accuracy(value: float, members: int, seed: int) -> dict[str, Any]:
    off = 0.004 * np.random.default_rng([seed, members]).standard_normal()
    return {"members": members, "accuracy": {"value": value + off}}


def cell(
    arm: str,
    gamma: float,
    seed: int,
    perplexity: float,
    bits: float = 1.4,
    p_value: float = 0.5,
    found: float | None = 0.5,
    members: int = 2000,
    blind: float = 0.5,
    group: float | None = None,
    shadow: float = 0.5,
    shadow_members: int = 2000,
) -> dict[str, Any]:
    own_group = found if group is None else group
    membership = None
    if found is not None and own_group is not None:
        membership = {
            "single": accuracy(found, members, seed),
            "group": accuracy(own_group, members, seed + 100),
            "shadow": {
                "single": accuracy(shadow, shadow_members, seed + 300),
                "group": accuracy(shadow, shadow_members, seed + 400),
            },
            "twins": {"value": accuracy(found, members, seed + 200)["accuracy"]["value"]},
            "single_blind": {"accuracy": {"value": blind}},
            "group_blind": {"accuracy": {"value": blind}},
        }
    return {
        "cell": {"corpus": "c", "model": "m", "arm": arm, "gamma": gamma, "copies": 20, "seed": seed},
        "rounds": [{"texts": texts(2 * perplexity, seed)}, {"texts": texts(perplexity, seed)}],
        "exposure": {"max_bits": bits + 3, "mean_bits": bits + 0.05 * seed, "mean_p_value": p_value},
        "membership": membership,
    }


def panel(arms: dict[str, dict[str, Any]], seeds: int = SEEDS, trunk: float = 60.0) -> PanelResults:
    """Arms by name and gamma (``crt 0.1``), with what is not usual of them; perplexity 10 where nothing is said."""
    cells = []
    for name, values in arms.items():
        arm, gamma = name.split()
        cells += [cell(arm, float(gamma), seed, **{"perplexity": 10.0, **values}) for seed in range(seeds)]
    return PanelResults("c", "m", cells, {"texts": texts(trunk, 0)})


def verdict(arms: dict[str, dict[str, Any]], text: str, seeds: int = SEEDS, trunk: float = 60.0) -> str:
    claims = judge([panel(arms, seeds, trunk)], [], AMPLIFIED, LEVEL)
    [claim] = [claim for claim in claims if text in claim.text]
    return claim.verdict


EXPOSED = {"bits": 12.0, "p_value": 1e-9}
BROAD = {"crt 0.1": {}, "redacted 0.1": {}}


def test_close_to_the_non_private_model() -> None:
    text = "within 10 %"
    arms = {"crt 0.1": {"perplexity": 10.5}, "redacted 0.1": {}, "public-lines 0.1": {"perplexity": 14.0}}
    assert verdict(arms, text) == "holds"
    assert verdict(arms | {"crt 0.1": {"perplexity": 12.0}}, text) == "does not hold"
    assert verdict(arms, text, seeds=1) == "undecided"
    # who never met a line with noise, or no private line at all, is as near
    alone = arms | {"public-lines 0.1": {"perplexity": 10.5}}
    assert verdict(alone, text) == "says nothing, since training on its public lines alone passes too"
    assert verdict(arms, text, trunk=10.4) == "says nothing, since the public model passes too"


def test_better_than_dp_sgd() -> None:
    text = "below DP-SGD's"
    arms = {"crt 0.1": {"perplexity": 9.0}, "dp-sgd 0": {}, "public-lines 0.1": {"perplexity": 11.0}}
    assert verdict(arms, text) == "holds"
    assert verdict(arms | {"crt 0.1": {"perplexity": 11.0}}, text) == "does not hold"
    assert verdict(arms | {"crt 0.1": {"perplexity": 9.99}}, text) == "undecided"
    alone = arms | {"public-lines 0.1": {"perplexity": 9.5}}
    assert verdict(alone, text) == "says nothing, since training on its public lines alone passes too"


def test_the_private_lines_teach_something() -> None:
    text = "private lines teach"
    arms = {"crt 0.1": {"perplexity": 9.0}, "public-lines 0.1": {}}
    assert verdict(arms, text) == "holds"
    assert verdict(arms | {"crt 0.1": {"perplexity": 10.5}}, text) == "does not hold"
    assert verdict(arms, text, seeds=1) == "undecided"


def test_crt_is_unexposed_beside_a_control() -> None:
    text = "CRT's canaries are at their null"
    arms = {"crt 0": {}, "crt 0.5": {}, "raw 0": EXPOSED, "redacted 0": {}, "redacted 0.5": EXPOSED}
    assert verdict(arms, text) == "holds"
    assert verdict(arms | {"crt 0.5": EXPOSED}, text) == "does not hold"
    assert verdict(arms | {"redacted 0.5": {}}, text) == "undecided"  # where nobody is exposed, nothing was tried
    assert verdict(arms | {"raw 0": {}}, text) == "undecided"


def test_redaction_alone_is_unexposed_at_gamma_0() -> None:
    text = "redaction alone keeps canaries"
    arms = {"raw 0": EXPOSED, "redacted 0": {}}
    assert verdict(arms, text) == "holds"
    assert verdict(arms | {"redacted 0": EXPOSED}, text) == "does not hold"
    assert verdict(arms | {"raw 0": {}}, text) == "undecided"


@pytest.mark.parametrize(("arm", "name"), [("redacted", "redaction alone"), ("s-dp", "S-DP")])
def test_exposed_for_every_gamma(arm: str, name: str) -> None:
    """That a canary is not told from its null is no proof that it is safe: never "does not hold"."""
    text = f"{name} exposes canaries for every gamma"
    arms = {f"{arm} 0": {}, f"{arm} 0.1": EXPOSED, f"{arm} 0.5": EXPOSED}
    assert verdict(arms, text) == "holds"
    assert verdict(arms | {f"{arm} 0.5": {"p_value": 0.1}}, text) == "undecided"


def test_selective_dp_exposes_like_redaction_alone() -> None:
    text = "like redaction alone"
    arms = {"s-dp 0.5": {"bits": 12.0}, "redacted 0.5": {"bits": 12.0}}
    assert verdict(arms, text) == "holds"
    assert verdict(arms | {"s-dp 0.5": {"bits": 6.0}}, text) == "does not hold"
    assert verdict(arms, text, seeds=1) == "undecided"


@pytest.mark.parametrize("attack", ["figure 4: membership", "figure 5: group membership", "(ours): twin membership"])
def test_crt_is_at_chance_beside_a_control(attack: str) -> None:
    text = f"{attack} accuracy against CRT"
    arms = {"crt 0": {"found": None}, "crt 0.5": {}, "redacted 0.5": {"found": 0.65}}
    assert verdict(arms, text) == "holds"
    assert verdict(arms | {"crt 0.5": {"found": 0.65}}, text) == "does not hold"
    assert verdict(arms | {"redacted 0.5": {}}, text) == "undecided"
    assert verdict(arms | {"crt 0.5": {"members": 20}}, text) == "undecided"  # too few to see the control's effect
    assert not [
        claim for claim in judge([panel({"crt 0": {"found": None}})], [], AMPLIFIED, LEVEL) if text in claim.text
    ]


@pytest.mark.parametrize("attack", ["figure 4: membership", "figure 5: group membership"])
def test_crt_is_at_chance_by_both_attacks(attack: str) -> None:
    """Each has power alone; what either finds is found; and the stronger one must be at its null."""
    text = f"{attack} accuracy against CRT"
    arms = {"crt 0.5": {}, "redacted 0.5": {"shadow": 0.65}}
    assert verdict(arms, text) == "holds"
    assert verdict(arms | {"crt 0.5": {"shadow": 0.65}}, text) == "does not hold"
    assert verdict(arms | {"redacted 0.5": {}}, text) == "undecided"
    by_losses = arms | {"redacted 0.5": {"found": 0.65, "shadow": 0.8}}
    assert verdict(by_losses, text) == "holds"
    # Known wrong: the losses alone, which have power and are at their null.
    assert verdict(by_losses | {"crt 0.5": {"shadow_members": 10}}, text) == "undecided"
    assert verdict(by_losses | {"crt 0.5": {"shadow": 0.65}}, text) == "does not hold"
    # One of the two finds something by luck twice as often as one alone.
    [claim] = [claim for claim in judge([panel(arms)], [], AMPLIFIED, LEVEL) if text in claim.text]
    wanted = panel(arms).accuracy(Arms("crt", 0.5), "shadow_single" if "4" in attack else "shadow_group", LEVEL / 2)
    assert wanted is not None
    assert f"against shadow models {wanted.value:.3f} ({wanted.low:.3f} to {wanted.high:.3f})" in claim.numbers


@pytest.mark.parametrize(("arm", "name"), [("redacted", "redaction alone"), ("s-dp", "S-DP")])
def test_membership_is_found_at_the_highest_gamma(arm: str, name: str) -> None:
    text = f"figure 4: membership accuracy against {name} is above chance"
    assert verdict({f"{arm} 0.5": {"found": 0.65}}, text) == "holds"
    assert verdict({f"{arm} 0.5": {"shadow": 0.65}}, text) == "holds"  # one of the two is enough
    assert verdict({f"{arm} 0.5": {"found": 0.4, "shadow": 0.4}}, text) == "does not hold"
    assert verdict({f"{arm} 0.5": {"found": 0.4}}, text) == "undecided"
    assert verdict({f"{arm} 0.5": {}}, text) == "undecided"
    seen = {f"{arm} 0.5": {"found": 0.65, "blind": 0.6}}
    assert verdict(seen, text) == "says nothing, since one who has no model passes too"


def test_groups_are_easier_than_single_texts() -> None:
    text = "redaction alone gives more away to the group attack"
    assert verdict({"redacted 0.5": {"found": 0.55, "group": 0.8}}, text) == "holds"
    assert verdict({"redacted 0.5": {"found": 0.8, "group": 0.55}}, text) == "does not hold"
    assert verdict({"redacted 0.5": {"found": 0.55, "group": 0.56, "members": 50}}, text) == "undecided"


def two(customersim: float, multiwoz: float, model: str = "lstm") -> list[PanelResults]:
    return [
        PanelResults(corpus, model, panel({"crt 0.1": {"perplexity": value}, "dp-sgd 0": {"perplexity": value}}).cells)
        for corpus, value in (("customersim", customersim), ("multiwoz", multiwoz))
    ]


def test_an_easier_corpus_is_easier_for_counting_words_too() -> None:
    text = "models of CustomerSim have lower"

    def found(panels: list[PanelResults], unigrams: tuple[float, float]) -> str:
        rows = [
            {"corpus": corpus, "model": "unigram", "redacted": value}
            for corpus, value in zip(("customersim", "multiwoz"), unigrams, strict=True)
        ]
        [claim] = [claim for claim in judge(panels, rows, AMPLIFIED, LEVEL) if text in claim.text]
        return claim.verdict

    assert found(two(2.0, 9.0), (50, 150)) == "says nothing, since counting words passes too"
    assert found(two(2.0, 9.0), (150, 50)) == "holds"
    assert found(two(9.0, 2.0), (50, 150)) == "does not hold"


def test_gpt2_is_compared_with_the_lstm_of_its_corpus() -> None:
    def found(gpt2: float) -> list[str]:
        panels = [two(value, 9.0, model)[0] for model, value in (("lstm", 5.0), ("gpt2", gpt2))]
        claims = judge(panels, [], AMPLIFIED, LEVEL)
        return [claim.verdict for claim in claims if "GPT-2" in claim.text]

    assert found(4.0) == ["holds"] * 2
    assert found(6.0) == ["does not hold"] * 2
    assert found(5.0) == ["undecided"] * 2


def test_amplification_is_computed() -> None:
    [claim] = [claim for claim in judge([], [], AMPLIFIED, LEVEL) if "figure 6" in claim.text]
    assert claim.verdict == "does not hold"
    [claim] = [claim for claim in judge([], [], {**AMPLIFIED, "ours_context": 0.1}, LEVEL) if "figure 6" in claim.text]
    assert claim.verdict == "holds"


def test_p_values_of_seeds_are_combined_by_fishers_rule() -> None:
    """Two seeds at p: their product is at most p^2 with probability p^2 (1 - ln p^2)."""
    found = panel({"crt 0.1": {"p_value": 0.02}}, seeds=2).exposure(Arms("crt", 0.1))
    assert found == pytest.approx(0.02**2 * (1 - math.log(0.02**2)), rel=1e-9)


def test_ratios_are_paired_by_seed() -> None:
    """A seed that one side alone has is left out."""
    both = panel({"crt 0.1": {"perplexity": 9.0}, "redacted 0.1": {}})
    fewer = PanelResults(
        "c", "m", [one for one in both.cells if one["cell"]["seed"] < 2 or one["cell"]["arm"] == "crt"]
    )
    found = fewer.ratio(Arms("crt", 0.1), Arms("redacted", 0.1), "redacted", LEVEL)
    first = panel({"crt 0.1": {"perplexity": 9.0}, "redacted 0.1": {}}, seeds=2)
    assert found == first.ratio(Arms("crt", 0.1), Arms("redacted", 0.1), "redacted", LEVEL)
    assert fewer.ratio(Arms("crt", 0.1), Arms("dp-sgd"), "redacted", LEVEL) is None


def test_panels_have_their_trunk() -> None:
    own = panel({"crt 0.1": {}}, seeds=1).cells[0]
    found = panels_of({"a": own, "t": {"trunk": {"corpus": "c", "model": "m"}, "texts": {}}})
    assert [(one.name, one.trunk is not None) for one in found] == [("c, m", True)]


def test_what_counts_is_the_last_rounds_model() -> None:
    """Known wrong: of the first round, perplexities are twice as large, and all ratios the same."""
    found = panel({"crt 0.1": {"perplexity": 9.0}})
    assert found.perplexity(Arms("crt", 0.1), "redacted") == pytest.approx(9.0, rel=0.02)
