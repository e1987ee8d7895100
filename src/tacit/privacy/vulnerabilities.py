"""What was wrong in earlier versions, and which certificates it concerns: docs/known-vulnerabilities.md, for `tacit verify`.

An entry never goes away. A certificate says in ``version`` which form it has, and from the second one on in ``tacit_version`` what
made it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["VULNERABILITIES", "Vulnerability", "concerning"]

_Values = Mapping[str, Any]


@dataclass(frozen=True)
class Vulnerability:
    """One entry.

    Args:
        code: as in the page.
        title: what was wrong, in a line.
        certificates: the newest form of certificate that it concerns.
        concerns: whether a release may be concerned, by its certificate and its configuration (empty where that is not at hand).
    """

    code: str
    title: str
    certificates: int
    concerns: Callable[[_Values, _Values], bool]


def _events(certificate: _Values) -> set[str]:
    return {spend["event"]["kind"] for spend in certificate["spends"]}


def _started(certificate: _Values, config: _Values) -> bool:
    """It began with something that may have been made from private text; without the configuration nobody can tell."""
    vocabulary, model = config.get("vocabulary", {}), config.get("model", {})
    adaptive = config.get("adaptive") or {}
    named = model.get("folder"), vocabulary.get("path"), vocabulary.get("public_words"), adaptive.get("scorer")
    return not config or any(named)


def _bands_after_vocabulary(certificate: _Values, config: _Values) -> bool:
    return "banded-poisson-gaussian" in _events(certificate) and len(_events(certificate)) > 1


def _banded(certificate: _Values, config: _Values) -> bool:
    return "banded-poisson-gaussian" in _events(certificate)


def _of_several_weights(certificate: _Values, config: _Values) -> bool:
    events = [spend["event"] for spend in certificate["spends"]]
    banded = [event["weights"] for event in events if event["kind"] == "banded-poisson-gaussian"]
    return any(len({weight for weight in weights if weight}) > 1 for weights in banded)


def _groups(certificate: _Values, config: _Values) -> bool:
    screening = config.get("screening") or {}
    return "confidentiality" in certificate and (not config or bool(screening.get("group")))


def _screened(certificate: _Values, config: _Values) -> bool:
    return "confidentiality" in certificate


def _bayesian(certificate: _Values, config: _Values) -> bool:
    return (certificate.get("confidentiality") or {}).get("bayesian") is not None


def _fine_tuned_together(certificate: _Values, config: _Values) -> bool:
    facts = certificate.get("fine_tuning") or {}
    return bool(facts.get("with_dp")) and bool(facts.get("same_people")) and facts.get("pretraining") is not None


def _fine_tuned(certificate: _Values, config: _Values) -> bool:
    return bool((certificate.get("fine_tuning") or {}).get("with_dp"))


def _attacked(certificate: _Values, config: _Values) -> bool:
    return not config or bool((config.get("audit") or {}).get("membership"))


def _planted_or_given(certificate: _Values, config: _Values) -> bool:
    """Canaries of a causal model were among its documents, or the tokenizer was given."""
    model = config.get("model") or {}
    planted = config.get("audit") and model.get("kind", "bert") != "bert"
    given = (config.get("vocabulary") or {}).get("method") == "given"
    return not config or bool(planted or given or model.get("folder"))


def _marked_by_policies(certificate: _Values, config: _Values) -> bool:
    stated = [config.get(section) or {} for section in ("screening", "marking")]
    return not config or any(options.get(role) for options in stated for role in ("balanced", "conservative"))


def _marked(certificate: _Values, config: _Values) -> bool:
    return not config or bool(config.get("marking"))


def _controlled(certificate: _Values, config: _Values) -> bool:
    return not config or bool((config.get("audit") or {}).get("control"))


def _in_bfloat16(certificate: _Values, config: _Values) -> bool:
    return not config or (config.get("compute") or {}).get("precision") == "bf16"


def _marked_by_line(certificate: _Values, config: _Values) -> bool:
    return not config or (config.get("marking") or {}).get("data_point") == "line"


def _from_folder(certificate: _Values, config: _Values) -> bool:
    return not config or bool((config.get("model") or {}).get("folder"))


def _marked_with_given(certificate: _Values, config: _Values) -> bool:
    given = (config.get("vocabulary") or {}).get("method") == "given"
    return not config or (given and bool(config.get("marking")))


def _with_given(certificate: _Values, config: _Values) -> bool:
    return _from_folder(certificate, config) or (config.get("vocabulary") or {}).get("method") == "given"


def _with_chats(certificate: _Values, config: _Values) -> bool:
    private = config.get("private") or {}
    is_chat = private.get("format") == "chat" or bool(private.get("messages_field"))
    return _with_given(certificate, config) and (not config or is_chat)


def _with_given_or_policies(certificate: _Values, config: _Values) -> bool:
    return _with_given(certificate, config) or _marked_by_policies(certificate, config)


def _off_cpu(certificate: _Values, config: _Values) -> bool:
    return not config or (config.get("compute") or {}).get("device", "cpu") != "cpu"


def _given_off_cpu(certificate: _Values, config: _Values) -> bool:
    return _from_folder(certificate, config) and _off_cpu(certificate, config)


def _causal_off_cpu(certificate: _Values, config: _Values) -> bool:
    kind = (config.get("model") or {}).get("kind")
    return _off_cpu(certificate, config) and (not config or kind != "bert" or _from_folder(certificate, config))


def _any(certificate: _Values, config: _Values) -> bool:
    return True


VULNERABILITIES = (
    Vulnerability("TACIT-1", "what had been spent on a run's start was not counted", 1, _started),
    Vulnerability("TACIT-2", "two releases with one key had the same noise", 1, _any),
    Vulnerability(
        "TACIT-3", "bands chosen by a released vocabulary were charged too little", 1, _bands_after_vocabulary
    ),
    Vulnerability("TACIT-4", "the number of texts to attack decided whether there is a release", 1, _attacked),
    Vulnerability("TACIT-5", "a public key was accepted as a secret one", 1, _any),
    Vulnerability("TACIT-6", "no reserve for rounding in the account of groups under replacement", 1, _groups),
    Vulnerability("TACIT-7", "only the model's files and a part of the certificate were verified", 1, _any),
    Vulnerability("TACIT-8", "typed numbers were called measured", 1, _screened),
    Vulnerability(
        "TACIT-9",
        "a fine-tuning and its pre-training had different units under one name",
        1,
        _fine_tuned_together,
    ),
    Vulnerability(
        "TACIT-10",
        "one document's id, or one character, decided whether there is a release",
        1,
        _planted_or_given,
    ),
    Vulnerability("TACIT-11", "an average over records was stated for every record", 1, _bayesian),
    Vulnerability("TACIT-12", "the private corpus was accepted as public under another path", 1, _any),
    Vulnerability("TACIT-13", "the origin of a screening policy's model was not checked", 1, _marked_by_policies),
    Vulnerability("TACIT-14", "a control that diverged decided whether there is a release", 1, _controlled),
    Vulnerability("TACIT-15", "precomputed spans of one record were applied to its copies", 1, _marked_by_policies),
    Vulnerability("TACIT-16", "one text that a library cannot read decided whether there is a release", 1, _any),
    # Found in 0.2.0 before its release: nobody has looked whether 0.1 had them, so its certificates are told.
    Vulnerability("TACIT-17", "two releases from copies of one run counted as one under adaptive DP", 1, _banded),
    Vulnerability("TACIT-18", "a reused folder kept the evaluation and audit of an earlier model", 1, _any),
    Vulnerability("TACIT-19", "a reused folder skipped a refusal or lost a ledger", 1, _any),
    Vulnerability("TACIT-20", "rounding moved a sum of very many units by more than the clip norm", 1, _any),
    Vulnerability("TACIT-21", "a mark on a part of a word left the rest of the word public", 1, _marked),
    Vulnerability("TACIT-22", "other units in a batch changed how a unit was clipped", 1, _any),
    Vulnerability("TACIT-23", "two releases of one key drew the same units, but counted as independent", 1, _started),
    Vulnerability("TACIT-24", "other units in a batch changed how a held-out unit was scored", 1, _started),
    Vulnerability("TACIT-25", "a unit's place in its micro-batch changed its rounding", 1, _started),
    Vulnerability("TACIT-26", "a checkpoint of several ranks lost a rank's sum", 1, _any),
    Vulnerability("TACIT-27", "one record changed how others in its file were read", 1, _any),
    Vulnerability("TACIT-28", "one document decided the exit code of a fine-tuning", 1, _fine_tuned),
    Vulnerability("TACIT-29", "in bfloat16 one record decided whether there is a release", 1, _in_bfloat16),
    Vulnerability("TACIT-30", "in bfloat16 padding of one row changed how others were computed", 1, _in_bfloat16),
    Vulnerability("TACIT-31", "selective DP's statement said record where it counted lines", 1, _marked_by_line),
    Vulnerability("TACIT-32", "a model's error at one record decided whether there is a release", 1, _from_folder),
    Vulnerability("TACIT-33", "with a given tokenizer private characters decided public tokens", 1, _marked_with_given),
    Vulnerability("TACIT-34", "on a GPU a model that reads the whole batch lost all units but one", 1, _given_off_cpu),
    Vulnerability("TACIT-35", "the mend of TACIT-30 left out fine-tunings", 1, _fine_tuned),
    Vulnerability("TACIT-36", "a model that changes itself passed the check that was to refuse it", 1, _from_folder),
    Vulnerability("TACIT-37", "beside newer punctuation private characters decided public tokens", 1, _marked),
    Vulnerability(
        "TACIT-38", "what put a model back made one held-out unit decide the loss of others", 1, _from_folder
    ),
    Vulnerability("TACIT-39", "a chat template decided at one conversation whether there is a release", 1, _with_chats),
    Vulnerability("TACIT-40", "a given tokenizer decided at one text whether there is a release", 1, _with_given),
    Vulnerability(
        "TACIT-41", "behind a given tokenizer's model private characters lost their marks", 1, _marked_with_given
    ),
    Vulnerability("TACIT-42", "one conversation changed the order of sets in a chat template", 1, _with_chats),
    Vulnerability("TACIT-43", "a detector that remembers changed the marks of other records", 1, _marked_by_policies),
    Vulnerability("TACIT-44", "the mend of TACIT-40 left other ways, and detectors out", 1, _with_given_or_policies),
    Vulnerability("TACIT-45", "the last digits of a published noisy sum told what had been summed", 1, _any),
    Vulnerability("TACIT-46", "a limit that only larger private text met decided whether there is a release", 1, _any),
    Vulnerability("TACIT-47", "one unit more changed who scored, how a file was read, or what was printed", 1, _any),
    Vulnerability("TACIT-48", "other units decided how a unit's gradient was added up", 1, _any),
    Vulnerability("TACIT-49", "one unit decided whether a run ends, or who shares a random number", 1, _any),
    Vulnerability("TACIT-50", "a run went on from a release of its own key, and names of files decided", 1, _any),
    Vulnerability("TACIT-51", "a unit whose positions nearly cancel added many clip norms", 1, _any),
    Vulnerability("TACIT-52", "in a loop of one's own a unit's place decided bits, and those a ReLU", 1, _any),
    Vulnerability("TACIT-53", "on a GPU other units' labels decided how a causal head is rounded", 1, _causal_off_cpu),
    Vulnerability("TACIT-54", "a model that seldom draws passed the check that was to refuse it", 1, _from_folder),
    Vulnerability("TACIT-55", "several processes on unlike machines counted units twice or not at all", 1, _any),
    Vulnerability("TACIT-56", "on a GPU a variable of the environment rounded products below torch", 1, _off_cpu),
    Vulnerability("TACIT-57", "what the engine computes behind a loop's backward was not tried", 1, _any),
    Vulnerability(
        "TACIT-58", "beside larger clip weights a small one's unit moved a sum too far", 1, _of_several_weights
    ),
    Vulnerability("TACIT-59", "the time on a release's pages told how long the run had taken", 1, _any),
    Vulnerability("TACIT-60", "of two certificates of one release the last one read counted", 1, _started),
)


def concerning(certificate: _Values, config: _Values) -> list[Vulnerability]:
    """The entries that may concern a release.

    Args:
        certificate: with ``version`` and ``spends``.
        config: run/config.json; empty where it is not at hand, and then whatever it would rule out stays in.
    """
    return [
        entry
        for entry in VULNERABILITIES
        if certificate["version"] <= entry.certificates and entry.concerns(certificate, config)
    ]
