"""The sandbox in which a chat template runs: what it gives is a function of its arguments, and of nothing else in the process.

Jinja's own sandbox keeps a template from files and from Python's insides. It lets it print functions, methods and iterators, and
Python prints these by their place in memory, "<built-in method join of str object at 0x7f...>". That place hangs on all that the
process did before: a template that asks for one bit of it writes each conversation by the ones before it, so one unit would change
the tokens of all others. Here such an object can be called, or walked through, and has no text: who asks for one gets an error.

The same holds of sets: the order of one hangs on addresses, and of strings on a number that each process draws. What draws at
random, tells the time, or compares by identity is not there. Products and powers have a largest size: how much memory is left is the
process's doing too.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, ItemsView, Iterator, KeysView, ValuesView
from typing import Any, NoReturn

import jinja2
import jinja2.ext
import jinja2.runtime
import jinja2.sandbox
import jinja2.utils

__all__ = ["TemplateSandbox"]

_HAVE_TEXT = (
    str,
    int,
    float,
    complex,
    bytes,
    type(None),
    list,
    tuple,
    dict,
    range,
    KeysView,
    ValuesView,
    ItemsView,
    jinja2.Undefined,
    jinja2.utils.Namespace,
    jinja2.runtime.LoopContext,
    jinja2.runtime.Macro,
)
"""Kinds of values whose text is made of what is in them; bool is an int, and Markup a str."""

_LARGEST = 1 << 20

_GLOBALS = ("range", "dict", "namespace")


class TemplateSandbox(jinja2.sandbox.ImmutableSandboxedEnvironment):
    """A sandbox as transformers' (utils/chat_template_utils.py, 5.x), for templates that are functions of their arguments alone."""

    intercepted_binops = frozenset({"+", "-", "*", "/", "//", "%", "**"})

    def __init__(self, extensions: list[str | type[jinja2.ext.Extension]]) -> None:
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=extensions)
        self.globals = {name: _SilentCall(self.globals[name]) for name in _GLOBALS}
        del self.filters["random"], self.filters["pprint"]  # which sorts by place where keys do not compare
        self.filters = {name: _silencing(function) for name, function in self.filters.items()}
        self.tests["sameas"] = _is_same_constant

    def add_global(self, name: str, function: Callable[..., Any]) -> None:
        """A function that templates may call."""
        self.globals[name] = _SilentCall(function)

    def call_binop(self, context: jinja2.runtime.Context, operator: str, left: Any, right: Any) -> Any:
        """What an operator gives; of two views of keys it is a set, which has no order of its own."""
        if _size_of(operator, left, right) > _LARGEST:
            raise jinja2.TemplateRuntimeError("a product or a power is too large for a template")
        return _silent(super().call_binop(context, operator, left, right))

    def getattr(self, obj: Any, attribute: str) -> Any:
        """A method of a value can be called, and has no text."""
        return _silent(super().getattr(obj, attribute))

    def getitem(self, obj: Any, argument: Any) -> Any:
        """An item of a value, made silent as by `getattr`, which Jinja falls back to."""
        return _silent(super().getitem(obj, argument))

    def call(self, context: jinja2.runtime.Context, function: Any, /, *args: Any, **named: Any) -> Any:
        """What a call gives may be an iterator."""
        return _silent(super().call(context, function, *args, **named))


class _Silent:
    """Stands for an object without a text of its own."""

    __hash__ = None  # pyright: ignore[reportAssignmentType] - Python's own way to say that it has none

    def __init__(self, value: Any) -> None:
        self._value = value

    def _refuse(self, *args: object) -> NoReturn:
        raise jinja2.TemplateRuntimeError(
            "a function, a method or an iterator has no text: its place in memory is no part of one"
        )

    __repr__ = __str__ = __format__ = __bytes__ = __eq__ = __ne__ = _refuse  # pyright: ignore[reportAssignmentType]


class _SilentCall(_Silent):
    def __call__(self, *args: Any, **named: Any) -> Any:
        return _silent(self._value(*args, **named))


class _SilentIterator(_Silent):
    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        return _silent(next(self._value))


def _size_of(operator: str, left: Any, right: Any) -> int:
    """About how many bytes the result takes."""
    if operator == "**":
        return left.bit_length() * abs(right) // 8 if isinstance(left, int) and isinstance(right, int) else 0
    for text, times in ((left, right), (right, left)):
        if isinstance(text, str | bytes | list | tuple) and isinstance(times, int):
            return len(text) * times
    return 0


def _silent(value: Any) -> Any:
    """The value, or what stands for it where its text would tell where it lies."""
    if isinstance(value, (*_HAVE_TEXT, _Silent)):
        return value
    if isinstance(value, Iterator):
        return _SilentIterator(value)
    return _SilentCall(value) if callable(value) else _Silent(value)


def _silencing(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)  # it carries what Jinja passes to it
    def silencing(*args: Any, **named: Any) -> Any:
        return _silent(function(*args, **named))

    return silencing


def _is_same_constant(value: object, other: object) -> bool:
    """Identity of two equal strings is the process's doing; that of these is not."""
    if not (other is None or isinstance(other, bool)):
        raise jinja2.TemplateRuntimeError("sameas compares with true, false and none alone")
    return value is other
