"""Each judge of the claims of Zhao et al. 2022 is given a result that must pass, one that must fail, and one without power."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest

from tacit.reproduce.crt.claims import judge
from tacit.reproduce.crt.page import results_page
from tacit.reproduce.crt.panel import Arms, PanelResults, panels_of
from tacit.reproduce.crt.scale import SCALES

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
    blind_group: float | None = None,
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
            "group_blind": {"accuracy": {"value": blind if blind_group is None else blind_group}},
        }
    return {
        "cell": {"corpus": "c", "model": "m", "arm": arm, "gamma": gamma, "copies": 20, "seed": seed},
        "rounds": [{"texts": texts(2 * perplexity, seed)}, {"texts": texts(perplexity, seed)}],
        "exposure": {
            "max_bits": bits + 3,
            "mean_bits": bits + 0.05 * seed,
            "mean_p_value": p_value,
            "null_mean_bits": 1.44,
        },
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


def test_a_control_that_was_not_run_decides_nothing() -> None:
    """Known wrong: a claim that holds because nobody has tried who else passes."""
    arms = {"crt 0.1": {"perplexity": 10.5}, "redacted 0.1": {}, "public-lines 0.1": {"perplexity": 14.0}}
    of_one = [cell for cell in panel(arms).cells if cell["cell"]["arm"] != "public-lines" or cell["cell"]["seed"] == 0]
    without = [cell for cell in of_one if cell["cell"]["arm"] != "public-lines"]
    trunk, planned = {"texts": texts(60.0, 0)}, frozenset({Arms("public-lines", 0.1)})
    doubts = {
        "the public model": PanelResults("c", "m", panel(arms).cells),
        "training on its public lines alone": PanelResults("c", "m", of_one, trunk),
        "its public lines alone": PanelResults("c", "m", without, trunk, planned),
    }
    for name, results in doubts.items():
        [claim] = [one for one in judge([results], [], AMPLIFIED, LEVEL) if "within 10 %" in one.text]
        assert claim.verdict == "undecided"
        assert "not told whether" in claim.numbers
        assert name in claim.numbers
    assert verdict(arms, "within 10 %") == "holds"


def test_better_than_dp_sgd() -> None:
    text = "below DP-SGD's"
    arms = {"crt 0.1": {"perplexity": 9.0}, "dp-sgd 0": {}, "public-lines 0.1": {"perplexity": 11.0}}
    assert verdict(arms, text) == "holds"
    assert verdict(arms | {"crt 0.1": {"perplexity": 11.0}}, text) == "does not hold"
    assert verdict(arms | {"crt 0.1": {"perplexity": 9.99}}, text) == "undecided"
    alone = arms | {"public-lines 0.1": {"perplexity": 9.5}}
    assert verdict(alone, text) == "says nothing, since training on its public lines alone passes too"
    assert verdict(arms, text, trunk=9.5) == "says nothing, since the public model passes too"  # DP-SGD only harmed


def test_better_than_selective_dp() -> None:
    text = "below that of S-DP"
    arms = {"crt 0.1": {"perplexity": 9.0}, "s-dp 0": {}, "public-lines 0.1": {"perplexity": 11.0}}
    assert verdict(arms, text) == "holds"
    assert verdict(arms | {"crt 0.1": {"perplexity": 11.0}}, text) == "does not hold"
    assert verdict(arms, text, seeds=1) == "undecided"
    assert verdict(arms, text, trunk=9.5) == "says nothing, since the public model passes too"
    # Known wrong: S-DP whose policy misses secrets, of which the paper says that it has no epsilon.
    assert verdict(arms | {"s-dp 0": {"perplexity": 8.0}, "s-dp 0.1": {"perplexity": 20.0}}, text) == "does not hold"


@pytest.mark.parametrize("read", ["redacted text", "lines without secrets"])
def test_the_private_lines_teach_something(read: str) -> None:
    text = f"private lines teach something: CRT's perplexity of {read} is below"
    arms = {"crt 0.1": {"perplexity": 9.0}, "public-lines 0.1": {}}
    assert verdict(arms, text) == "holds"
    assert verdict(arms | {"crt 0.1": {"perplexity": 10.5}}, text) == "does not hold"
    assert verdict(arms, text, seeds=1) == "undecided"
    assert (
        verdict(arms, text, trunk=9.0) == "says nothing, since the public model passes too"
    )  # those lines only harmed


def test_crt_is_unexposed_beside_a_control() -> None:
    text = "CRT's canaries are at their null"
    arms = {"crt 0": {}, "crt 0.5": {}, "raw 0": EXPOSED, "redacted 0": {}, "redacted 0.5": EXPOSED}
    assert verdict(arms, text) == "holds"
    assert verdict(arms | {"crt 0.5": EXPOSED}, text) == "does not hold"
    assert verdict(arms | {"redacted 0.5": {}}, text) == "undecided"  # where nobody is exposed, nothing was tried
    assert verdict(arms | {"raw 0": {}}, text) == "undecided"
    # told alone, though not among so many claims; and no less exposed than the control
    assert verdict(arms | {"crt 0.5": {"p_value": 0.12, "bits": 2.9}}, text) == "undecided"
    assert verdict(arms | {"crt 0.5": {"p_value": math.nan}}, text) == "undecided"
    as_much = {"redacted 0.5": {"bits": 3.0, "p_value": 2e-5}, "crt 0.5": {"bits": 3.0, "p_value": 0.3}}
    assert verdict(arms | as_much, text) == "undecided"
    assert verdict(arms | {"crt 0.5": {"perplexity": 60.0}}, text) == "undecided"  # at one gamma it learned nothing
    assert verdict(arms | {"crt 0.5": EXPOSED | {"perplexity": 60.0}}, text) == "does not hold"
    assert verdict(arms, text, trunk=9.0) == "undecided"


def test_redaction_alone_is_unexposed_at_gamma_0() -> None:
    text = "redaction alone keeps canaries"
    arms = {"raw 0": EXPOSED, "redacted 0": {}}
    assert verdict(arms, text) == "holds"
    assert verdict(arms | {"redacted 0": EXPOSED}, text) == "does not hold"
    assert verdict(arms | {"raw 0": {}}, text) == "undecided"
    assert verdict(arms, text, trunk=9.0) == "undecided"


@pytest.mark.parametrize(("arm", "name"), [("redacted", "redaction alone"), ("s-dp", "S-DP")])
def test_exposed_for_every_gamma(arm: str, name: str) -> None:
    """That a canary is not told from its null is no proof that it is safe: never "does not hold"."""
    text = f"{name} exposes canaries for every gamma"
    arms = {f"{arm} 0": {}, f"{arm} 0.1": EXPOSED, f"{arm} 0.5": EXPOSED}
    assert verdict(arms, text) == "holds"
    assert verdict(arms | {f"{arm} 0.5": {"p_value": 0.1}}, text) == "undecided"
    assert verdict(arms, text, seeds=2) == "undecided"  # one model may be, by its own luck
    part = dataclasses.replace(panel(arms), planned=frozenset({Arms(arm, 0.2)}))
    [claim] = [claim for claim in judge([part], [], AMPLIFIED, LEVEL) if text in claim.text]
    assert (claim.verdict, claim.numbers.endswith("; not run at γ 0.2")) == ("undecided", True)


def test_selective_dp_exposes_like_redaction_alone() -> None:
    text = "like redaction alone"
    arms = {"s-dp 0.5": {"bits": 12.0}, "redacted 0.5": {"bits": 12.0}}
    assert verdict(arms, text) == "holds"
    assert verdict(arms | {"s-dp 0.5": {"bits": 6.0}}, text) == "does not hold"
    assert verdict(arms, text, seeds=1) == "undecided"
    # Known wrong: where redaction alone exposes nothing, "no bit less" is passed by who exposes nothing.
    assert verdict({"s-dp 0.5": {"bits": 1.4}, "redacted 0.5": {"bits": 1.4}}, text) == "undecided"


@pytest.mark.parametrize("attack", ["figure 4: membership", "figure 5: group membership", "(ours): twin membership"])
def test_crt_is_at_chance_beside_a_control(attack: str) -> None:
    text = f"{attack} accuracy against CRT"
    arms = {"crt 0": {"found": None}, "crt 0.5": {}, "redacted 0.5": {"found": 0.65}}
    assert verdict(arms, text) == "holds"
    assert verdict(arms | {"crt 0.5": {"found": 0.65}}, text) == "does not hold"
    assert verdict(arms | {"redacted 0.5": {}}, text) == "undecided"
    assert verdict(arms | {"crt 0.5": {"members": 20}}, text) == "undecided"  # too few to see the control's effect
    assert verdict(arms, text, trunk=9.0) == "undecided"  # who learned nothing gives nobody away
    assert verdict(arms | {"crt 0.5": {"found": 0.65, "perplexity": 60.0}}, text) == "does not hold"
    [nobody] = [
        claim for claim in judge([panel({"crt 0": {"found": None}})], [], AMPLIFIED, LEVEL) if text in claim.text
    ]
    assert (nobody.verdict, nobody.numbers) == ("undecided", "not run yet")


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


BOTH = pytest.mark.parametrize(("arm", "name"), [("redacted", "redaction alone"), ("s-dp", "S-DP")])


@BOTH
@pytest.mark.parametrize("attack", ["figure 4: membership", "figure 5: group membership"])
def test_membership_is_found_at_the_highest_gamma(attack: str, arm: str, name: str) -> None:
    text = f"{attack} accuracy against {name} is above chance"
    assert verdict({f"{arm} 0.5": {"found": 0.65}}, text) == "holds"
    assert verdict({f"{arm} 0.5": {"shadow": 0.65}}, text) == "holds"  # one of the two is enough
    assert verdict({f"{arm} 0.5": {"found": 0.4, "shadow": 0.4}}, text) == "does not hold"
    assert verdict({f"{arm} 0.5": {"found": 0.4}}, text) == "undecided"
    assert verdict({f"{arm} 0.5": {}}, text) == "undecided"
    assert verdict({f"{arm} 0.1": {"found": 0.65}, f"{arm} 0.5": {}}, text) == "undecided"  # at the highest
    seen = {f"{arm} 0.5": {"found": 0.65, "blind": 0.6}}
    assert verdict(seen, text) == "says nothing, since one who has no model passes too"
    # Known wrong: above chance, as one without a model is not told to be, and no better than that one.
    assert verdict({f"{arm} 0.5": {"found": 0.58, "blind": 0.54, "members": 400}}, text) == "undecided"


@BOTH
def test_twins_are_told_apart_at_the_highest_gamma(arm: str, name: str) -> None:
    text = f"(ours): twin membership accuracy against {name} is above chance"
    assert verdict({f"{arm} 0.5": {"found": 0.65}}, text) == "holds"
    assert verdict({f"{arm} 0.5": {"found": 0.4}}, text) == "does not hold"
    assert verdict({f"{arm} 0.5": {}}, text) == "undecided"
    assert verdict({f"{arm} 0.5": {"shadow": 0.65}}, text) == "undecided"  # no shadow model is asked


@BOTH
def test_groups_are_easier_than_single_texts(arm: str, name: str) -> None:
    text = f"figure 5: {name} gives more away to the group attack"
    assert verdict({f"{arm} 0.5": {"found": 0.55, "group": 0.8}}, text) == "holds"
    assert verdict({f"{arm} 0.5": {"found": 0.8, "group": 0.55}}, text) == "does not hold"
    assert verdict({f"{arm} 0.5": {"found": 0.55, "group": 0.56, "members": 50}}, text) == "undecided"
    seen = {f"{arm} 0.5": {"found": 0.55, "group": 0.8, "blind_group": 0.7}}
    assert verdict(seen, text) == "says nothing, since one who has no model passes too"


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
    [claim] = [claim for claim in judge(two(2.0, 9.0), [], AMPLIFIED, LEVEL) if text in claim.text]
    assert claim.verdict == "undecided"  # nobody has counted words


ALIKE = "figure 2: GPT-2 has a lower perplexity than the LSTM"
OTHERS = "figure 2: GPT-2 with CRT or DP-SGD"


def of_models(gpt2: float, trunks: tuple[float, float] = (60.0, 60.0)) -> dict[str, list[str]]:
    """Verdicts by the claim, where the LSTM's perplexity is 5; the public models' are of GPT-2 and the LSTM."""
    arms = ("crt 0.1", "dp-sgd 0", "s-dp 0")
    panels = [
        PanelResults(
            "customersim", model, panel({arm: {"perplexity": value} for arm in own}).cells, {"texts": texts(trunk, 0)}
        )
        for model, value, trunk, own in (("gpt2", gpt2, trunks[0], arms[:2]), ("lstm", 5.0, trunks[1], arms))
    ]
    claims = judge(panels, [], AMPLIFIED, LEVEL)
    return {text: [claim.verdict for claim in claims if text in claim.text] for text in (ALIKE, OTHERS)}


def test_gpt2_is_compared_with_the_lstm_of_its_corpus() -> None:
    """With its own training, and with each other one: DP-SGD and S-DP against CRT, CRT and S-DP against DP-SGD."""
    assert of_models(4.0) == {ALIKE: ["holds"] * 2, OTHERS: ["holds"] * 4}
    assert of_models(6.0) == {ALIKE: ["does not hold"] * 2, OTHERS: ["does not hold"] * 4}
    assert of_models(5.0) == {ALIKE: ["undecided"] * 2, OTHERS: ["undecided"] * 4}


def test_what_the_public_gpt2_passes_says_nothing() -> None:
    better = "says nothing, since the public GPT-2, beside the public LSTM, passes too"
    assert of_models(4.0, (50.0, 60.0)) == {ALIKE: [better] * 2, OTHERS: [better] * 4}
    alone = "says nothing, since the public GPT-2 passes too"
    assert of_models(4.0, (4.5, 4.5)) == {ALIKE: [alone] * 2, OTHERS: [alone] * 4}


def test_where_nothing_was_run_every_claim_has_a_row() -> None:
    """Known wrong: no row, so that a claim that was not run is not missed."""
    arms = {f"{arm} {gamma}": {} for arm in ("crt", "redacted", "s-dp") for gamma in (0, 0.1)}
    everything = panel(arms | {"raw 0": {}, "dp-sgd 0": {}, "public-lines 0.1": {}}).cells
    run = judge([PanelResults("customersim", model, everything) for model in ("lstm", "gpt2")], [], AMPLIFIED, LEVEL)
    for panels in ([], panels_of({}, SCALES["laptop"])):
        claims = judge(panels, [], AMPLIFIED, LEVEL)
        assert {claim.text for claim in claims} == {claim.text for claim in run}
        rest = [claim for claim in claims if not claim.computed]
        assert {(claim.verdict, claim.numbers) for claim in rest} == {("undecided", "not run yet")}
    rows = [(claim.text, claim.panel) for claim in claims]
    assert len(set(rows)) == len(rows)
    # S-DP is of an LSTM, and at this scale of one corpus
    assert [panel for text, panel in rows if "S-DP exposes canaries for every" in text] == ["customersim, lstm"]
    assert [panel for text, panel in rows if "within 10 %" in text] == [
        "customersim, lstm",
        "customersim, gpt2",
        "multiwoz, lstm",
    ]


def test_membership_has_no_row_where_nobody_is_attacked() -> None:
    claims = judge(panels_of({}, SCALES["night"]), [], AMPLIFIED, LEVEL)
    of_sgd = [claim.text for claim in claims if claim.panel == "sgd, lstm"]
    assert any("canaries" in text for text in of_sgd)
    assert not any("membership" in text for text in of_sgd)


def test_amplification_is_computed() -> None:
    text = "of definition 4 of 0.12"
    [claim] = [claim for claim in judge([], [], AMPLIFIED, LEVEL) if text in claim.text]
    assert (claim.verdict, claim.computed) == ("does not hold", True)
    [claim] = [claim for claim in judge([], [], {**AMPLIFIED, "ours_context": 0.1}, LEVEL) if text in claim.text]
    assert claim.verdict == "holds"


def test_numbered_statements_are_judged() -> None:
    """Known wrong: a paper without any."""
    sources = {claim.text.split(":")[0] for claim in judge([], [], AMPLIFIED, LEVEL) if claim.computed}
    assert {"proposition 5", "proposition 6", "proposition 7", "theorem 8.1", "theorem 8.2", "theorem 8.3"} <= sources


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
    own["cell"] |= {"corpus": "customersim", "model": "gpt2"}
    results = {"a": own, "t": {"trunk": {"corpus": "customersim", "model": "gpt2"}, "texts": {}}}
    found = {one.name: (len(one.cells), one.trunk is not None) for one in panels_of(results, SCALES["laptop"])}
    assert found == {"customersim, lstm": (0, False), "customersim, gpt2": (1, True), "multiwoz, lstm": (0, False)}


def test_what_counts_is_the_last_rounds_model() -> None:
    """Known wrong: of the first round, perplexities are twice as large, and all ratios the same."""
    found = panel({"crt 0.1": {"perplexity": 9.0}})
    assert found.perplexity(Arms("crt", 0.1), "redacted") == pytest.approx(9.0, rel=0.02)


def test_the_page_says_what_training_with_noise_adds() -> None:
    arms = {"crt 0.1": {"perplexity": 12.0}, "redacted 0.1": {}, "noiseless 0.1": {"perplexity": 10.5}}
    tables: dict[str, list[Any]] = {name: [] for name in ("figure2", "figures3-5", "figure6", "baselines")}
    scale = dataclasses.replace(SCALES["laptop"], ablation=False)

    def shown(own: dict[str, dict[str, Any]]) -> list[str]:
        page = results_page(scale, tables, [panel(own)], 0.0)
        table = page.sections["Perplexity of redacted text above redaction alone's"]
        [line] = [line for line in table.splitlines() if "c, m" in line]
        return [cell.strip().split(" %")[0] for cell in line.strip("|").split("|")[1:]]

    assert [float(percent) for percent in shown(arms)] == pytest.approx([20.0, 5.0, 14.3], abs=1.0)
    del arms["noiseless 0.1"]
    assert shown(arms)[1:] == ["", ""]
