"""How a vocabulary is made: `METHODS`, one file a method and one line here.

A method says which options it takes, what it spends, how it is shown, and which releases it asks for. It sees no text: the room of
the configuration imports nothing that reads or counts, and all that a method gets comes from a `WordSource`, which charges first.

method.py   what every method is, and what it may ask of a run's text
rounds.py   choosing words and counting them as releases of their own, for the methods that do
"""

from tacit.config.vocabulary_methods.given import Given
from tacit.config.vocabulary_methods.histogram import Histogram
from tacit.config.vocabulary_methods.hoory import Hoory
from tacit.config.vocabulary_methods.method import VocabularyMethod
from tacit.config.vocabulary_methods.public import Public
from tacit.config.vocabulary_methods.sips import Sips
from tacit.config.vocabulary_methods.weighted import Weighted

__all__ = ["METHODS"]

METHODS: dict[str, VocabularyMethod] = {
    "histogram": Histogram(),
    "weighted": Weighted(),
    "sips": Sips(),
    "hoory": Hoory(),
    "public": Public(),
    "given": Given(),
}
"""By the word that `vocabulary.method` has. tests/contracts/test_vocabulary_methods.py tests each of them."""
