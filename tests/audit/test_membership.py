"""Membership inference: known AUCs, coverage of the intervals, an accuracy of 1/2 at the null, true non-members."""

from __future__ import annotations

import csv
import dataclasses
import functools
import gzip
import itertools
import json
import math
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

import numpy as np
import pytest
import torch
from scipy import stats
from tokenizers import Tokenizer
from tokenizers.models import BPE
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import GPT2Config, GPT2LMHeadModel

from tacit.audit import inference
from tacit.audit.blind import blind_baseline
from tacit.audit.inference import attack_scores, delong_auc, grouped, tpr_at_fpr, twin_accuracy
from tacit.audit.membership import mean_nll, measure_membership
from tacit.audit.samples import MembershipSamples, alphanumeric
from tacit.audit.trie import plain_tokenizer
from tacit.errors import DataError, TacitError, UsageError
from tacit.models.lstm import LstmConfig, LstmForCausalLM
from tacit.randomness import KeyedRandomness
from tacit.reproduce.crt.customersim import CustomerKind, customersim_samples
from tacit.vocabulary.tokenizer import PUBLIC_ALPHABET, SPECIAL_TOKENS, TokenizerOptions, build_tokenizer

torch.set_num_threads(1)

ALARM = 1e-6
STREAMS = KeyedRandomness(bytes(range(32)))


def normal_scores(shift: float, size: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Members ``shift`` standard deviations lower: AUC Phi(shift / sqrt 2), best accuracy Phi(shift / 2)."""
    generator = np.random.default_rng(seed)
    return generator.normal(-shift, 1, size), generator.normal(0, 1, size)


def at_least(hits: int, trials: int, share: float) -> bool:
    """Whether so few hits do not contradict a probability of at least ``share``."""
    return bool(stats.binom.cdf(hits, trials, share) > ALARM)


def phi(x: float) -> float:
    """The normal distribution function."""
    return math.erfc(-x / math.sqrt(2)) / 2


# AUC -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("decimals", [0, 1, 8])
def test_auc_by_all_pairs(decimals: int) -> None:
    """Ties half; DeLong's variance from the placements of each score, counted one by one."""
    members, others = (np.round(side, decimals) for side in normal_scores(0.8, 40, 1))
    others = others[:31]
    wins = (members[:, None] < others).astype(float) + (members[:, None] == others) / 2
    auc, variance = delong_auc(members, others)
    assert auc == pytest.approx(wins.mean(), abs=1e-12)
    expected = wins.mean(axis=1).var(ddof=1) / 40 + wins.mean(axis=0).var(ddof=1) / 31
    assert variance == pytest.approx(expected, abs=1e-12)
    assert auc == pytest.approx(stats.mannwhitneyu(others, members).statistic / (40 * 31), abs=1e-12)


@pytest.mark.parametrize("shift", [0.0, 0.5, 1.5, 2.5])
def test_delong_covers_the_true_auc(shift: float) -> None:
    truth = phi(shift / math.sqrt(2))
    found = [attack_scores(*normal_scores(shift, 100, seed), STREAMS).auc for seed in range(400)]
    hits = sum(estimate.holds(truth) for estimate in found)
    assert at_least(hits, 400, 0.94)
    assert at_least(400 - hits, 400, 0.02)  # and the interval is not far too wide
    assert np.mean([estimate.value for estimate in found]) == pytest.approx(truth, abs=0.01)


def test_no_interval_without_width() -> None:
    below, above = np.arange(50.0), np.arange(50.0) + 100
    perfect, reverse = attack_scores(below, above, STREAMS), attack_scores(above, below, STREAMS)
    assert (perfect.auc.value, perfect.auc.high) == (1.0, 1.0)
    assert perfect.auc.low == pytest.approx(0.025 ** (1 / 50))
    assert (reverse.auc.value, reverse.auc.low) == (0.0, 0.0)
    tied = attack_scores(np.zeros(50), np.zeros(50), STREAMS)
    assert tied.auc.value == tied.accuracy.value == 0.5
    assert tied.auc.low < 0.35
    assert tied.at_chance


# accuracy ------------------------------------------------------------------------------------------------------------


def sentence_scores(generator: np.random.Generator, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Null scores of pairs: mostly the sentence's own, a little the secret's."""
    sentence = generator.normal(0, 1, size)
    return sentence + generator.normal(0, 0.3, size), sentence + generator.normal(0, 0.3, size)


def mean_over_all_swaps(accuracy: Any, size: int = 6) -> float:
    """Mean accuracy over all 2^n ways to call one of each pair the member: exactly the null."""
    one, other = sentence_scores(np.random.default_rng(3), size)
    swaps = np.array(list(itertools.product([False, True], repeat=size)))
    return float(np.mean([accuracy(np.where(s, one, other), np.where(s, other, one)) for s in swaps]))


def cross_fitted(members: np.ndarray, others: np.ndarray) -> float:
    return attack_scores(members, others, STREAMS).accuracy.value


def in_sample(members: np.ndarray, others: np.ndarray) -> float:
    return attack_scores(members, others, STREAMS).accuracy_in_sample


def test_the_accuracy_at_the_null_is_a_half_exactly() -> None:
    assert mean_over_all_swaps(cross_fitted) == pytest.approx(0.5, abs=1e-12)
    assert mean_over_all_swaps(in_sample) > 0.6


def torn(members: np.ndarray, others: np.ndarray) -> float:
    """A known-wrong version: the halves of the non-members are exchanged, so a pair is chosen on and judged at once."""
    (fit, judge), _ = inference.folds(len(members), STREAMS)
    correct = 0
    for one, two in ((fit, judge), (judge, fit)):
        threshold, _ = inference._best_threshold(members[one], others[two])
        correct += np.count_nonzero(members[two] < threshold) + np.count_nonzero(others[one] >= threshold)
    return correct / (2 * len(members))


def test_pairs_in_two_halves_are_caught() -> None:
    assert abs(mean_over_all_swaps(torn) - 0.5) > 0.01


def test_the_best_threshold_of_the_same_data_is_biased() -> None:
    found = [attack_scores(*normal_scores(0.0, 50, seed), STREAMS.child(seed)) for seed in range(300)]
    check_unbiased([row.accuracy.value for row in found])
    with pytest.raises(AssertionError):
        check_unbiased([row.accuracy_in_sample for row in found])
    assert np.mean([row.accuracy_in_sample for row in found]) > 0.55


def check_unbiased(accuracies: list[float]) -> None:
    assert abs(np.mean(accuracies) - 0.5) < 5 * np.std(accuracies) / math.sqrt(len(accuracies))


@pytest.mark.parametrize("size", [50, 500])
def test_the_verdict_at_the_null(size: int) -> None:
    """The folds judge each other's thresholds and are not quite independent: coverage is simulated."""
    hits = sum(attack_scores(*normal_scores(0.0, size, seed), STREAMS.child(seed)).at_chance for seed in range(600))
    assert at_least(hits, 600, 0.95)


@pytest.mark.parametrize("shift", [0.5, 1.5])
def test_the_interval_of_the_accuracy(shift: float) -> None:
    """It covers the accuracy that the two thresholds have on new data, and lies a little below the best one."""
    hits = 0
    for seed in range(400):
        members, others = normal_scores(shift, 200, seed)
        thresholds = [
            inference._best_threshold(members[fit], others[fit])[0] for fit, _ in inference.folds(200, STREAMS)
        ]
        truth = np.mean([(phi(t + shift) + phi(-t)) / 2 for t in thresholds])
        hits += attack_scores(members, others, STREAMS).accuracy.holds(float(truth))
        assert truth <= phi(shift / 2) + 1e-12
    assert at_least(hits, 400, 0.95)


def test_a_shift_is_seen() -> None:
    found = attack_scores(*normal_scores(0.5, 1000, 1), STREAMS)
    assert not found.at_chance
    assert found.accuracy.holds(phi(0.25))
    assert found.auc.holds(phi(0.5 / math.sqrt(2)))
    assert found.tpr is not None
    assert found.tpr.holds(phi(float(stats.norm.ppf(0.01)) + 0.5))
    lower_is_other = attack_scores(*normal_scores(-0.5, 1000, 1), STREAMS)
    assert lower_is_other.auc.high < 0.5  # high scores are never taken for members
    assert lower_is_other.accuracy.value < 0.52


# TPR -----------------------------------------------------------------------------------------------------------------


def test_tpr_by_hand() -> None:
    others = np.arange(200.0)
    found = tpr_at_fpr(np.array([-1.0, 1.5, 2.0, 2.5] * 25), others)
    assert found is not None
    assert found.value == 0.5  # 2 of 200 non-members lie below 2.0, and so do -1.0 and 1.5
    assert found.low < 0.25 < 0.9 < found.high
    assert tpr_at_fpr(np.arange(99.0), np.arange(99.0)) is None
    assert tpr_at_fpr(np.arange(100.0), np.arange(100.0)) is not None


@pytest.mark.parametrize("decimals", [1, 8])
@pytest.mark.parametrize("shift", [0.0, 1.0])
def test_the_interval_of_the_tpr_covers_for_any_law(shift: float, decimals: int) -> None:
    """Also with ties, where the true quantile is the largest t with P[non-member < t] at most 1 %."""
    quantile = stats.norm.ppf(0.01)  # below it are those that are rounded to less than itself
    if decimals == 1:
        edges = np.arange(-60, 60) / 10 - 0.05
        quantile = edges[stats.norm.cdf(edges) <= 0.01].max()
    truth = stats.norm.cdf(quantile + shift)
    hits, widths = 0, []
    for seed in range(400):
        members, others = (np.round(side, decimals) for side in normal_scores(shift, 300, seed))
        found = tpr_at_fpr(members, others)
        assert found is not None
        assert found.low <= found.value <= found.high
        hits += found.holds(float(truth))
        widths.append(found.high - found.low)
    assert at_least(hits, 400, 0.95)
    assert np.mean(widths) < 0.35


# groups --------------------------------------------------------------------------------------------------------------


def test_groups_are_disjoint() -> None:
    groups = grouped(1007, 20, STREAMS)
    assert groups.shape == (50, 20)
    assert len(set(groups.ravel().tolist())) == 1000
    assert np.array_equal(groups, grouped(1007, 20, STREAMS))
    assert not np.array_equal(groups, grouped(1007, 20, STREAMS.child("other")))
    for size, group in ((39, 20), (10, 0)):
        with pytest.raises(UsageError, match="fewer than 2 groups"):
            grouped(size, group, STREAMS)


def test_groups_are_easier() -> None:
    members, others = normal_scores(0.3, 1000, 2)
    groups = grouped(1000, 20, STREAMS)
    single = attack_scores(members, others, STREAMS)
    group = attack_scores(members[groups].mean(axis=1), others[groups].mean(axis=1), STREAMS)
    assert group.auc.holds(phi(0.3 * math.sqrt(20) / math.sqrt(2)))
    assert group.accuracy.value > single.accuracy.value + 0.1
    assert group.tpr is None


# the blind baseline --------------------------------------------------------------------------------------------------


def addresses(count: int, seed: int, town: str = "abcdefghij") -> list[list[str]]:
    generator = np.random.default_rng(seed)
    letters = list(town)
    return [
        [
            f"It is {generator.integers(1000)} {''.join(generator.choice(letters, 6))} St, {generator.integers(10**5):05d}."
        ]
        for _ in range(count)
    ]


@pytest.mark.slow
def test_blind_at_chance_where_there_is_no_difference() -> None:
    """The two halves' counts are nearly one number: their sum varies more than a binomial number."""
    found = [
        blind_baseline(addresses(40, seed), addresses(40, 1000 + seed), STREAMS.child(seed)) for seed in range(300)
    ]
    assert at_least(sum(row.at_chance for row in found), 300, 0.95)
    assert at_least(sum(row.auc.holds(0.5) for row in found), 300, 0.94)
    check_unbiased([row.accuracy.value for row in found])
    ratio = np.var([row.accuracy.value for row in found]) / (0.25 / 80)
    assert stats.chi2.sf(300 * ratio, 300) < ALARM


@pytest.mark.parametrize("others", ["letters", "length", "order"])
def test_blind_sees_another_distribution(others: str) -> None:
    members = addresses(200, 1)
    shifted = {
        "letters": addresses(200, 2, town="abcdefghijkl"),
        "length": [[text.replace(" St", "aceg St")] for (text,) in addresses(200, 2)],
        "order": [[text.replace(" St,", ", St")] for (text,) in addresses(200, 2)],
    }[others]
    found = blind_baseline(members, shifted, STREAMS)
    assert not found.at_chance
    assert found.accuracy.low > 0.5
    assert found.auc.low > 0.5


def test_blind_groups() -> None:
    members, others = addresses(400, 1), addresses(400, 2, town="abcdefghijk")
    groups = grouped(400, 10, STREAMS)
    single = blind_baseline(members, others, STREAMS)
    group_members, group_others = ([[side[i][0] for i in row] for row in groups] for side in (members, others))
    group = blind_baseline(group_members, group_others, STREAMS)
    assert group.accuracy.value > single.accuracy.value


# scores of a model ---------------------------------------------------------------------------------------------------


@functools.cache
def letters() -> Tokenizer:
    pieces = ["<s>", "</s>", *map(chr, range(32, 127)), "It", "is"]
    return Tokenizer(BPE({piece: number for number, piece in enumerate(pieces)}, [("I", "t"), ("i", "s")]))


@functools.cache
def tiny_gpt2() -> GPT2LMHeadModel:
    torch.manual_seed(4)
    config = GPT2Config(vocab_size=letters().get_vocab_size(), n_positions=64, n_embd=16, n_layer=1, n_head=2)
    model = GPT2LMHeadModel(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(0.5 * torch.randn_like(parameter))
    return model.double()


def nats_of(model: nn.Module, text: str, start: list[int], end: list[int]) -> float:
    return nats_of_row(model, start + letters().encode(text).ids + end, len(start))


@torch.no_grad()
def nats_of_row(model: nn.Module, row: list[int], start: int) -> float:
    """transformers' own loss of one row, its first tokens not scored."""
    ids = torch.tensor([row])
    labels = ids.clone()
    labels[:, :start] = -100
    logits = model(input_ids=ids, attention_mask=torch.ones_like(ids)).logits
    return float(F.cross_entropy(logits[0, :-1], labels[0, 1:], ignore_index=-100))


def sentences(count: int) -> list[str]:
    generator = np.random.default_rng(8)
    return ["It is " + "".join(generator.choice(list("abc 12"), generator.integers(0, 30))) for _ in range(count)]


@pytest.mark.parametrize("budget", [1, 100_000, 2**26])
@pytest.mark.parametrize(("start", "end"), [([0], []), ([0], [1]), ([0, 5, 6], [1])])
def test_nats_are_those_of_one_text_at_a_time(start: list[int], end: list[int], budget: int) -> None:
    texts = sentences(40)
    expected = [nats_of(tiny_gpt2().eval(), text, start, end) for text in texts]
    tiny_gpt2().train()  # dropout must be off all the same
    found = mean_nll(tiny_gpt2(), letters(), texts, start, end, budget)
    assert found == pytest.approx(expected, abs=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("length", [3, 8, 13, 64])
def test_a_long_text_is_several_rows_as_in_training(length: int) -> None:
    """Each row has its own start and end token; the text's mean is over the tokens of all its rows."""
    texts = [text * 4 for text in sentences(10)]
    assert max(len(letters().encode(text).ids) for text in texts) > 64  # more than the model's positions
    expected = []
    for text in texts:
        ids = letters().encode(text).ids
        rows = [[0, *ids[start : start + length - 2], 1] for start in range(0, len(ids), length - 2)]
        losses = [nats_of_row(tiny_gpt2().eval(), row, 1) * (len(row) - 1) for row in rows]
        expected.append(sum(losses) / sum(len(row) - 1 for row in rows))
    found = mean_nll(tiny_gpt2(), letters(), texts, [0], [1], length=length)
    assert found == pytest.approx(expected, abs=1e-9)


def test_a_row_has_a_place_for_text() -> None:
    raises(UsageError, lambda: mean_nll(tiny_gpt2(), letters(), ["SENTINEL"], [0], [1], length=2))


def test_special_tokens_in_a_text_are_text_as_in_training() -> None:
    """A copy of a tokenizer forgets that it reads them as text."""
    pieces = [*SPECIAL_TOKENS, *PUBLIC_ALPHABET.lower()]
    tokenizer = build_tokenizer(list(dict.fromkeys(pieces)), TokenizerOptions())
    tokenizer.encode_special_tokens = True
    text = "[MASK] [SEP]"
    expected = tokenizer.encode(text, add_special_tokens=False).ids
    assert plain_tokenizer(tokenizer).encode(text, add_special_tokens=False).ids == expected
    assert SPECIAL_TOKENS.index("[MASK]") not in expected


def test_wrong_nats_differ() -> None:
    """The sum instead of the mean orders the texts by length."""
    texts = sentences(40)
    found = mean_nll(tiny_gpt2(), letters(), texts, [0])
    totals = found * [len(letters().encode(text).ids) for text in texts]
    assert np.mean(np.argsort(found) != np.argsort(totals)) > 0.8
    padded = Tokenizer.from_str(letters().to_str())
    padded.enable_padding(length=50, pad_id=3)
    assert mean_nll(tiny_gpt2(), padded, texts, [0]) == pytest.approx(found, abs=1e-12)


@pytest.mark.slow
def test_a_model_that_learned_its_members_by_heart() -> None:
    members = [text for (text,) in addresses(60, 1)]
    others = [text for (text,) in addresses(60, 2)]
    samples = MembershipSamples(tuple(members), tuple(others))
    torch.manual_seed(6)
    model = LstmForCausalLM(LstmConfig(vocab_size=letters().get_vocab_size(), embedding_size=48, hidden_size=48))
    before = measure_membership(model, letters(), samples, [0], STREAMS, group_size=5)
    assert before.single.at_chance
    rows = [[0, *letters().encode(text).ids] for text in members]
    longest = max(map(len, rows))
    ids = torch.tensor([row + [0] * (longest - len(row)) for row in rows])
    labels = torch.tensor([row + [-100] * (longest - len(row)) for row in rows])
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    model.train()
    for _ in range(150):
        optimizer.zero_grad()
        model(input_ids=ids, labels=labels).loss.backward()
        optimizer.step()
    after = measure_membership(model, letters(), samples, [0], STREAMS, group_size=5)
    assert not after.single.at_chance
    assert after.single.accuracy.low > 0.7
    assert after.group.accuracy.value > after.single.accuracy.value
    assert after.single_blind == before.single_blind
    assert after.single_blind.at_chance
    assert all(isinstance(value, int | float | None) for value in leaves(dataclasses.asdict(after)))


def leaves(value: Any) -> list[Any]:
    """What stands in a nested dictionary that JSON can hold."""
    assert json.loads(json.dumps(value)) == value
    return [leaf for part in value.values() for leaf in leaves(part)] if isinstance(value, dict) else [value]


# CustomerSim ---------------------------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=1)
def train_text(folder: Path) -> str:
    with gzip.open(folder / "customersim.train.jsonl.gz", "rt", encoding="utf-8") as file:
        return "\n".join(json.loads(line)["text"] for line in file)


def check_true_non_members(secrets: Sequence[str], text: str) -> None:
    """None of them is in the training text, however it is written there."""
    squeezed = alphanumeric(text)
    assert not any(alphanumeric(secret) in squeezed for secret in secrets)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "count"), [("address", 1000), ("order_number", 100)])
def test_no_non_member_occurs_in_train(data_dir: Path, kind: CustomerKind, count: int) -> None:
    folder = data_dir / "customersim"
    samples = customersim_samples(folder, kind, count, STREAMS)
    text = train_text(folder)
    lines = set(text.split("\n"))
    with gzip.open(folder / "database_20000.csv.gz", "rt", encoding="utf-8") as file:
        table = {row[kind] for row in csv.DictReader(file)}
    assert all(member in lines for member in samples.members)
    assert len(set(samples.members)) == len(set(samples.non_members)) == count
    found = [next(run for run in runs_of(line) if run in table) for line in samples.non_members]
    assert len(set(found)) == count
    check_true_non_members(found, text)
    assert samples == customersim_samples(folder, kind, count, STREAMS)
    assert samples != customersim_samples(folder, kind, count, STREAMS.child("other"))


def runs_of(line: str) -> list[str]:
    """All runs of a line that begin and end at a word."""
    starts = [0, *(place + 1 for place, letter in enumerate(line) if letter == " ")]
    ends = [place for place in range(1, len(line) + 1) if not line[place:][:1].isalnum()]
    return [line[start:end] for start in starts for end in ends if end > start]


def test_secrets_of_the_test_dialogues_are_caught(data_dir: Path) -> None:
    """The known-wrong choice of non-members: 497 of them occur in train."""
    folder = data_dir / "customersim"
    with gzip.open(folder / "customersim.test.jsonl.gz", "rt", encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    secrets = sorted({row["text"][start:end] for row in rows for start, end, _ in row["spans"]})
    with pytest.raises(AssertionError):
        check_true_non_members(secrets, train_text(folder))


def test_addresses_are_told_apart_by_nothing_but_a_model(data_dir: Path) -> None:
    samples = customersim_samples(data_dir / "customersim", "address", 1000, STREAMS)
    found = blind_baseline([[text] for text in samples.members], [[text] for text in samples.non_members], STREAMS)
    assert found.at_chance


def write_tiny(folder: Path, lines: list[str]) -> None:
    with gzip.open(folder / "customersim.train.jsonl.gz", "wt", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")
    with gzip.open(folder / "database_20000.csv.gz", "wt", encoding="utf-8") as file:
        file.write(",".join(["", *get_args(CustomerKind)]) + "\n")
        file.write('0,Ann Poe,"1 A St",12.34,11-1\n1,Bo Fox,"2 B St",5678,22-2\n2,Cy Roe,"3 C St",9999,33-3\n')


def dialogue(text: str, secret: str, kind: str) -> str:
    start = text.index(secret)
    return json.dumps({"id": "d", "text": text, "spans": [[start, start + len(secret), kind]]})


def test_a_customer_is_out_when_any_field_is_in(tmp_path: Path) -> None:
    """Spelled otherwise, too: customer 0 by the phone number, customer 1 by the name."""
    write_tiny(
        tmp_path,
        [
            dialogue("SYS: ?\nUSR: call 1234 now\nSYS: ok", "1234", "phone_number"),
            dialogue("USR: I am BO FOX.", "BO FOX", "name"),
            dialogue("SYS: ?\nUSR: It is 7 X St.\nSYS: ok", "7 X St", "address"),
        ],
    )
    found = customersim_samples(tmp_path, "address", 1, STREAMS)
    assert found == MembershipSamples(("USR: It is 7 X St.",), ("USR: It is 3 C St.",))
    assert "St" not in repr(found)
    with pytest.raises(UsageError, match="1 pairs"):
        customersim_samples(tmp_path, "address", 2, STREAMS)


# errors --------------------------------------------------------------------------------------------------------------


def raises(error: type[TacitError], call: Any) -> None:
    with pytest.raises(error) as raised:
        call()
    assert "\n" not in str(raised.value)
    assert "SENTINEL" not in f"{raised.value}{raised.value.__context__}{raised.value.__cause__}"


def test_errors(tmp_path: Path) -> None:
    numbers = np.arange(10.0)
    raises(UsageError, lambda: attack_scores(numbers, numbers[:9], STREAMS))
    raises(UsageError, lambda: attack_scores(numbers[:1], numbers[:1], STREAMS))
    raises(DataError, lambda: attack_scores(numbers, np.where(numbers == 3, math.nan, numbers), STREAMS))
    raises(UsageError, lambda: blind_baseline([["SENTINEL"]] * 3, [["SENTINEL"]] * 3, STREAMS))
    raises(UsageError, lambda: mean_nll(tiny_gpt2(), letters(), ["SENTINEL"], []))
    raises(DataError, lambda: mean_nll(tiny_gpt2(), letters(), ["SENTINEL", ""], [0], [1]))
    raises(UsageError, lambda: customersim_samples(tmp_path, "tracking_number", 1, STREAMS))
    raises(DataError, lambda: customersim_samples(tmp_path, "name", 1, STREAMS))
    for bad in ['{"text": "SENTINEL", "spans": [[0, 1]]}', '{"SENTINEL', '["SENTINEL"]', '{"text": "SENTINEL"}']:
        write_tiny(tmp_path, [dialogue("USR: 7 X St", "7 X St", "address"), bad])
        raises(DataError, lambda: customersim_samples(tmp_path, "address", 1, STREAMS))
    write_tiny(tmp_path, [dialogue("USR: 7 X St", "7 X St", "address")])
    with gzip.open(tmp_path / "database_20000.csv.gz", "wt", encoding="utf-8") as file:
        file.write("SENTINEL,name\n")
    raises(DataError, lambda: customersim_samples(tmp_path, "address", 1, STREAMS))


def test_a_model_that_gives_no_numbers_is_an_error() -> None:
    class Broken(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.tensor(math.nan))

        def forward(self, input_ids: Tensor, attention_mask: Tensor) -> SimpleNamespace:
            return SimpleNamespace(logits=self.scale * torch.ones(*input_ids.shape, 100))

    samples = MembershipSamples(tuple(sentences(20)), tuple(sentences(20)))
    raises(DataError, lambda: measure_membership(Broken(), letters(), samples, [0], STREAMS, group_size=2))


def test_twins_are_told_apart_where_single_texts_are_not() -> None:
    """The sentence's cost is ten times what the secret adds; twins share it."""
    generator = np.random.default_rng(5)
    sentence = generator.normal(0, 10, 1000)
    member, other = sentence + generator.normal(-1, 1, 1000), sentence + generator.normal(0, 1, 1000)
    assert attack_scores(member, other, STREAMS).at_chance
    assert twin_accuracy(member, other).holds(phi(1 / math.sqrt(2)))
    assert twin_accuracy(member, other).low > 0.7
    tied = twin_accuracy(np.zeros(101), np.zeros(101))
    assert tied.value == 0.5
    assert tied.holds(0.5)
    hits = sum(twin_accuracy(*generator.normal(size=(2, 60))).holds(0.5) for _ in range(500))
    assert at_least(hits, 500, 0.95)
