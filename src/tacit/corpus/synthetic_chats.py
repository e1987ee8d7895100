"""Made-up chats of customers with a shop's support, for the packaged recipes: each has a name, an order and an address of its own.

Like `tacit.corpus.synthetic` this is test data with a plain seed, and nobody in it exists.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tacit.corpus.synthetic import expand, write_json_lines
from tacit.corpus.wordlists.people import FIRST_NAMES, LAST_NAMES, STREET_KINDS, STREETS
from tacit.errors import UsageError

__all__ = ["SyntheticChats", "write_chats"]

_GRAMMAR: dict[str, tuple[str, ...]] = {
    "greeting": ("Hello, how can I help you today?", "Good {morning|afternoon}, what can I do for you?"),
    "thing": ("{phone|lamp|kettle|printer|jacket|tent|radio|mixer|chair|desk}",),
    "colour": ("{black|white|green|blue|red|grey}",),
    "trouble": (
        "The {colour} {thing} that I ordered {has not come|came broken|is too small|is not the right one}.",
        "I want to {return|exchange|cancel} the {thing}, it {does not work|is too loud|is not what I wanted}.",
        "My {thing} stopped working after {2-9} {days|weeks}.",
    ),
    "ask": (
        "May I have your {full name|name} and the order number, please?",
        "Can you tell me your name and order number?",
    ),
    "wait": ("Thank you, one moment please.", "Let me look that up for you."),
    "answer": (
        "We will send a new {thing} within {2-9} {days|working days}.",
        "The money will be back on your account in {2-9} days.",
        "Please send the {thing} back to us, the label is in the box.",
    ),
    "where": ("Where should we send it?", "Can you tell me the address?"),
    "thanks": ("Thank you for your help.", "Great, thank you.", "That is all, thanks."),
    "end": ("Is there anything else that I can do for you?", "You are welcome. Have a nice day."),
}


@dataclass(frozen=True, slots=True)
class SyntheticChats:
    """How many chats to make.

    Args:
        customers: customer i is the same however many there are.
        chats_per_customer: fewest and most, inclusive.
        seed: equal options give equal bytes.

    Raises:
        UsageError: a number is out of range.
    """

    customers: int = 1500
    chats_per_customer: tuple[int, int] = (1, 3)
    seed: int = 2

    def __post_init__(self) -> None:
        fewest, most = self.chats_per_customer
        if self.customers < 1 or not 1 <= fewest <= most:
            raise UsageError(
                "customers must be at least 1, and chats_per_customer (fewest, most) with 1 <= fewest <= most"
            )


def write_chats(path: Path, options: SyntheticChats) -> None:
    """Write chats as JSON lines {"id", "customer_id", "text"}, a turn a line of the text, all of it or nothing."""
    write_json_lines(path, (chat for number in range(options.customers) for chat in _chats(number, options)))


def _chats(number: int, options: SyntheticChats) -> Iterator[dict[str, str]]:
    rng = random.Random(f"{options.seed} customer {number}")
    name = f"{rng.choice(FIRST_NAMES[rng.choice('fm')])} {rng.choice(LAST_NAMES)}"
    address = f"{rng.randint(1, 400)} {rng.choice(STREETS)} {rng.choice(STREET_KINDS)}"
    for chat in range(rng.randint(*options.chats_per_customer)):
        order = f"{rng.randint(100, 999)}-{rng.randint(1000000, 9999999)}"
        yield {
            "id": f"c{number}-{chat}",
            "customer_id": f"customer-{number}",
            "text": "\n".join(_turns(name, address, order, rng)),
        }


def _turns(name: str, address: str, order: str, rng: random.Random) -> Iterator[str]:
    def said(template: str) -> str:
        return expand(template, _GRAMMAR, rng)

    yield said("SYS: {greeting}")
    yield said("USR: {trouble}")
    yield said("SYS: {ask}")
    yield f"USR: My name is {name}, and the order is {order}."
    yield said("SYS: {wait}")
    if rng.random() < 0.5:
        yield said("SYS: {where}")
        yield f"USR: To {address}, please."
    yield said("SYS: {answer}")
    yield said("USR: {thanks}")
    yield said("SYS: {end}")
