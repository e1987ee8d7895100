"""Members and non-members of any corpus: who qualifies by brute force, one law on both sides, and what a wrong choice would find."""

from __future__ import annotations

import functools
import re
import unicodedata
from collections.abc import Iterable, Sequence

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from tokenizers import Tokenizer
from tokenizers.models import BPE

from tacit.audit import pairs
from tacit.audit.inference import Attack, attack_scores
from tacit.audit.membership import mean_nll, measure_membership
from tacit.audit.pairs import draw_pairs, secret_spelling
from tacit.corpus.units import Unit, split_held_out
from tacit.models.lstm import LstmConfig, LstmForCausalLM
from tacit.randomness import KeyedRandomness
from tacit.reproduce.crt.customersim import MembershipSamples

torch.set_num_threads(1)

ALARM = 1e-6
STREAMS = KeyedRandomness(bytes(range(32)))
HELD_OUT = 0.4


def marked(texts: Sequence[str]) -> list[list[tuple[int, int]]]:
    """A policy for tests: what stands behind a #, and all digits."""
    return [[match.span(match.lastindex or 0) for match in re.finditer(r"#(\S+)|(\d+)", text)] for text in texts]


# what a secret is, and where it occurs -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text", ["(415) 555-0100", "415.555.0100", "4155550100", "415\u200b555\n0100", "４１５-555-0100", "4155 550100"]
)
def test_spellings_of_one_secret(text: str) -> None:
    assert secret_spelling(text, 0, len(text)) == "4155550100"


def test_a_secret_is_whole_words() -> None:
    assert secret_spelling("My name is Ann-Marie O'Neill.", 11, 28) == "annmarieoneill"
    assert secret_spelling("order xy12 please", 8, 10) == "xy12"  # the span ends inside the word
    assert secret_spelling("call ... now", 5, 8) == ""


def folded(text: str) -> str:
    return "".join(unicodedata.normalize("NFKC", character).casefold() for character in text)


def word_wise(text: str, start: int, end: int) -> str:
    """The letters of a span, widened to whole words character by character."""
    while start > 0 and text[start - 1].isalnum() and text[start].isalnum():
        start -= 1
    while end < len(text) and text[end].isalnum() and text[end - 1].isalnum():
        end += 1
    return "".join(character for character in folded(text[start:end]) if character.isalnum())


def occurs(secret: str, text: str) -> bool:
    """Brute force: the letters one after the other, whatever stands between them, from the start of a word to the end of one."""
    between = r"[\W_]*".join(map(re.escape, secret))
    return re.search(rf"(?<![^\W_]){between}(?![^\W_])", folded(text)) is not None


def secrets_in(text: str) -> set[str]:
    return {word_wise(text, *span) for span in marked([text])[0]} - {""}


def qualifies(unit: Unit, corpus: Sequence[Unit]) -> bool:
    """For units of one text."""
    others = [text for other in corpus if other is not unit for text in other.texts]
    own = secrets_in(unit.texts[0])
    return bool(own) and not any(occurs(secret, text) for secret in own for text in others)


def as_units(texts: Iterable[str]) -> list[Unit]:
    return [Unit(f"u{number}", (text,)) for number, text in enumerate(texts)]


@settings(max_examples=400, deadline=None)
@given(st.lists(st.text(alphabet="ab1é１ -#_\u200b\n", max_size=14), min_size=1, max_size=6), st.integers(1, 3))
def test_who_qualifies_by_brute_force(texts: list[str], at_most: int) -> None:
    units = as_units(texts)
    expected = {unit.texts[0] for unit in units if qualifies(unit, units)}
    assert set(pairs._own_texts(units, units, marked, 100, STREAMS)) == expected
    few = pairs._own_texts(units, units, marked, at_most, STREAMS)  # in several batches
    assert len(few) == min(at_most, len(expected))
    assert set(few) <= expected


def test_brute_force_sees_a_search_for_marks_alone() -> None:
    """The known-wrong search: a secret that stands elsewhere unmarked, or within a longer one, is not seen."""
    units = as_units(["I am #ann", "ask ann please", "#bob-smith", "#bob", "#eve"])
    assert [unit.texts[0] for unit in units if qualifies(unit, units)] == ["#bob-smith", "#eve"]
    by_marks = [unit for unit in units if sum(secrets_in(unit.texts[0]) <= secrets_in(o.texts[0]) for o in units) == 1]
    assert {unit.texts[0] for unit in by_marks} >= {"I am #ann", "#bob"}


def test_a_text_with_a_secret_of_a_page_does_not_qualify() -> None:
    """All runs of words of all texts were put together to its length: one text of 24,000 letters took a minute, longer ones hours."""
    page, fits = ("#" + number * "w" for number in (pairs._LONGEST + 1, pairs._LONGEST))
    units = as_units([f"{page} and #ann", fits, "#eve", 20_000 * "v "])
    assert sorted(pairs._own_texts(units, units, marked, 100, STREAMS)) == ["#eve", fits]


def test_a_line_break_inside_a_secret_hides_nothing() -> None:
    home, other = Unit("a", ("it is #ann-smith",)), Unit("b", ("so says ann", "smith of old"))
    assert pairs._own_texts([home], [home, other], marked, 9, STREAMS) == []
    assert pairs._own_texts([home], [home], marked, 9, STREAMS) == ["it is #ann-smith"]


# a corpus ------------------------------------------------------------------------------------------------------------

COMMON = ("#ann a a a a a a a", "#bob a a a a a a a", "#eve a a a a a a a")


@functools.cache
def corpus(size: int = 240) -> tuple[Unit, ...]:
    """Half of the units hold a name that many share, in a text unlike the others; all hold one of their own; some hold more."""
    generator = np.random.default_rng(7)
    units = []
    for number in range(size):
        own = "".join(generator.choice(list("bcdfghjklmnp"), 9))
        texts = [f"it is #{own}{number}", "thank you"]
        if number % 3 == 0:
            texts.append(f"again #{own}{number}, yes")
        if number % 2 == 0:
            texts.append(str(generator.choice(list(COMMON))))
        if number % 6 < 2:
            texts.append(f"we two #{number // 6}pair")  # shared with one other unit, perhaps of the other part
        units.append(Unit(f"d{number}", tuple(texts)))
    return tuple(units)


def parts(streams: KeyedRandomness) -> tuple[list[Unit], list[Unit]]:
    return split_held_out(list(corpus()), HELD_OUT, streams)


def unit_of(text: str) -> Unit:
    return next(unit for unit in corpus() if text in unit.texts)


def check_true_non_members(samples: MembershipSamples, training: Sequence[Unit]) -> None:
    """Members are of the training part, non-members are not, and no secret of theirs occurs there; one text a unit."""
    trained = [text for unit in training for text in unit.texts]
    assert all(text in trained for text in samples.members)
    assert not any(text in trained for text in samples.non_members)
    for text in samples.non_members:
        assert secrets_in(text)
        assert not any(occurs(secret, other) for secret in secrets_in(text) for other in trained)
    texts = (*samples.members, *samples.non_members)
    assert len({unit_of(text).unit_id for text in texts}) == len(texts)


def test_non_members_are_true_ones() -> None:
    training, held_out = parts(STREAMS)
    samples = draw_pairs(training, held_out, marked, 60, STREAMS)
    assert len(samples.members) == len(samples.non_members) == 60
    check_true_non_members(samples, training)
    assert "it is" in " ".join(samples.members)
    assert "again" in " ".join(samples.members)  # a unit with two texts gives either


def any_with_a_secret(training: Sequence[Unit], held_out: Sequence[Unit], at_most: int) -> MembershipSamples:
    """The known-wrong choice: any held-out text with a secret is a non-member."""
    sides = [[text for unit in side for text in unit.texts if secrets_in(text)] for side in (training, held_out)]
    return MembershipSamples(*(tuple(dict.fromkeys(side))[:at_most] for side in sides))


def test_wrong_non_members_are_caught() -> None:
    training, held_out = parts(STREAMS)
    with pytest.raises(AssertionError):
        check_true_non_members(any_with_a_secret(training, held_out, 60), training)
    # Another rule of what is held out, such as another key: training records are among the non-members.
    other_training, other_held_out = parts(STREAMS.child("other"))
    wrong = draw_pairs(other_training, other_held_out, marked, 60, STREAMS)
    check_true_non_members(wrong, other_training)
    with pytest.raises(AssertionError):
        check_true_non_members(wrong, training)


def test_what_is_planted_is_nobodys_own() -> None:
    training, held_out = parts(STREAMS)
    taken = draw_pairs(training, held_out, marked, 60, STREAMS).non_members[0]
    secret = next(iter(secrets_in(taken)))
    again = draw_pairs(training, held_out, marked, 200, STREAMS, [Unit("canary", (f"my id is {secret}",))])
    assert taken not in again.non_members
    assert all(secret not in secrets_in(text) for text in again.non_members)


# one law on both sides -----------------------------------------------------------------------------------------------


def test_the_two_sides_can_be_exchanged() -> None:
    """Who is chosen does not depend on the side: the exchange of the parts exchanges the names and nothing else."""
    training, held_out = parts(STREAMS)
    samples = draw_pairs(training, held_out, marked, 60, STREAMS)
    exchanged = draw_pairs(held_out, training, marked, 60, STREAMS)
    assert exchanged == MembershipSamples(samples.non_members, samples.members)


def test_the_draw_is_keyed_and_knows_no_order() -> None:
    training, held_out = parts(STREAMS)
    samples = draw_pairs(training, held_out, marked, 40, STREAMS)
    assert draw_pairs(training[::-1], held_out[::-1], marked, 40, STREAMS) == samples
    assert draw_pairs(training, held_out, marked, 40, STREAMS.child("other")) != samples
    fewer = draw_pairs(training, held_out, marked, 10, STREAMS)
    assert (fewer.members, fewer.non_members) == (samples.members[:10], samples.non_members[:10])
    assert draw_pairs(training, [], marked, 10, STREAMS) == MembershipSamples((), ())


def test_no_more_texts_are_judged_than_it_takes() -> None:
    asked: list[str] = []

    def counted(texts: Sequence[str]) -> list[list[tuple[int, int]]]:
        asked.extend(texts)
        return marked(texts)

    draw_pairs(*parts(STREAMS), counted, 5, STREAMS)
    assert 20 <= len(asked) < 100


# the null: a model that saw nothing -----------------------------------------------------------------------------------


@functools.cache
def letters() -> Tokenizer:
    pieces = ["<s>", "</s>", *map(chr, range(32, 127))]
    return Tokenizer(BPE({piece: number for number, piece in enumerate(pieces)}, []))


def untrained() -> LstmForCausalLM:
    torch.manual_seed(6)
    model = LstmForCausalLM(LstmConfig(vocab_size=letters().get_vocab_size(), embedding_size=48, hidden_size=48))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(0.5 * torch.randn_like(parameter))
    return model


@functools.cache
def nats() -> dict[str, float]:
    """Of every text of the corpus under a model that saw none."""
    texts = list(dict.fromkeys(text for unit in corpus() for text in unit.texts))
    return dict(zip(texts, mean_nll(untrained(), letters(), texts, [0], [1]).tolist(), strict=True))


def attack(samples: MembershipSamples, streams: KeyedRandomness) -> Attack:
    sides = (np.array([nats()[text] for text in side]) for side in (samples.members, samples.non_members))
    return attack_scores(*sides, streams)


KEYS = [STREAMS.child("key", number) for number in range(200)]


def at_least(hits: int, trials: int, share: float) -> bool:
    """Whether so few hits do not contradict a probability of at least ``share``."""
    return bool(stats.binom.cdf(hits, trials, share) > ALARM)


def check_null(found: list[Attack]) -> None:
    """At the stated rates over keys: the accuracy's interval holds 1/2, and so does the AUC's; the mean accuracy is 1/2."""
    accuracies = [row.accuracy.value for row in found]
    assert at_least(sum(row.at_chance for row in found), len(found), 0.95)
    assert at_least(sum(row.auc.holds(0.5) for row in found), len(found), 0.93)
    assert abs(np.mean(accuracies) - 0.5) < 5 * np.std(accuracies) / np.sqrt(len(found))


@pytest.mark.slow
def test_a_model_that_saw_nothing_is_at_chance_over_keys() -> None:
    check_null([attack(draw_pairs(*parts(key), marked, 60, key), key) for key in KEYS])


@pytest.mark.slow
def test_a_condition_on_one_side_alone_is_caught() -> None:
    """The known-wrong law: non-members have secrets of their own, members any, as in A.5 without its common sentences."""

    def one_sided(key: KeyedRandomness) -> MembershipSamples:
        training, held_out = parts(key)
        right = draw_pairs(training, held_out, marked, 60, key)
        generator = key.generator("one-sided")
        every = [str(generator.choice([text for text in unit.texts if secrets_in(text)])) for unit in training]
        return MembershipSamples(tuple(every[: len(right.non_members)]), right.non_members)

    with pytest.raises(AssertionError):
        check_null([attack(one_sided(key), key) for key in KEYS[:60]])


@pytest.mark.slow
def test_several_texts_of_one_unit_are_caught() -> None:
    """The known-wrong interval: texts of one unit, here copies, are taken for independent ones."""

    def copied(key: KeyedRandomness) -> MembershipSamples:
        few = draw_pairs(*parts(key), marked, 15, key)
        return MembershipSamples(few.members * 4, few.non_members * 4)

    with pytest.raises(AssertionError):
        check_null([attack(copied(key), key) for key in KEYS])


# memory --------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_model_that_learned_its_training_part_by_heart() -> None:
    """It is found; were the held-out rule another one, with training records among the non-members, it would not be."""
    training, held_out = split_held_out(list(corpus()[:120]), HELD_OUT, STREAMS)
    samples = draw_pairs(training, held_out, marked, 40, STREAMS)
    model = untrained()
    before = measure_membership(model, letters(), samples, [0], STREAMS, 5, [1])
    rows = [[0, *letters().encode(text).ids, 1] for unit in training for text in unit.texts]
    longest = max(map(len, rows))
    ids = torch.tensor([row + [0] * (longest - len(row)) for row in rows])
    labels = torch.tensor([row + [-100] * (longest - len(row)) for row in rows])
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    model.train()
    for _ in range(200):
        optimizer.zero_grad()
        model(input_ids=ids, labels=labels).loss.backward()
        optimizer.step()
    after = measure_membership(model, letters(), samples, [0], STREAMS, 5, [1])
    assert before.single.accuracy.value < 0.7
    assert after.single.accuracy.low > 0.7
    assert after.single_blind.at_chance
    mixed = draw_pairs(*split_held_out(list(corpus()[:120]), HELD_OUT, STREAMS.child("other")), marked, 40, STREAMS)
    wrong = measure_membership(model, letters(), mixed, [0], STREAMS, 5, [1])
    assert wrong.single.accuracy.high < after.single.accuracy.low
