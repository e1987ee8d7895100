"""Chat templates in a process of their own, so that what one asks for at a conversation ends no run.

A template is code. Its sandbox keeps it from files, and from what other conversations did. It does not keep it from asking for more
memory than there is, from hashing a tuple that is nested so deep that the stack ends, or from going on for ever. Here that ends a
child: the conversation has no text, and no other one is touched.

A child lives on from one conversation to the next, unless one took much of its memory, or ended it. Then that one is rendered again
by a child that has done nothing else, and what that says counts. So what a conversation's text is hangs on itself alone, but for one
that takes just about the time that there is. Memory and time are bounded where the system can do it (Linux; time on macOS too).

The child is this module as a program: a line of JSON the template, then a line a request, and one a reply.
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from tacit.errors import UsageError
from tacit.vocabulary.chat_template import ChatTemplate

__all__ = ["RenderedApart", "rendered_apart"]

_MEMORY = 1 << 30
"""Bytes that a child may take beside what it has when it begins."""
_MUCH = 1 << 28
"""Who took more is rendered again, alone."""
_SECONDS = 10.0
"""Of a processor, for one rendering of a conversation."""
_TIMES, _MORE = 16, 1 << 20
"""A text has at most so many characters for each one of the messages, and so many more."""
_TOOK_MUCH = "!"
_READY = "ready\n"


class RenderedApart:
    """Renders as `ChatTemplate.render` does, in a child.

    Args:
        template: that compiles here, so that it does there.
    """

    def __init__(self, template: ChatTemplate) -> None:
        self._template = template
        self._child: subprocess.Popen[str] | None = None
        self._owner = 0
        atexit.register(self.close)

    @property
    def marks_generation(self) -> bool:
        """Whether the template says itself what a model generates."""
        return self._template.marks_generation

    def render(self, messages: Sequence[Mapping[str, str]], tokens: Mapping[str, str]) -> str | None:
        """The conversation as text; None where the template gives up on it, or asks for too much.

        Args:
            messages: objects with ``role`` and ``content``.
            tokens: the tokenizer's special tokens by role.

        Raises:
            UsageError: there is no child; it hangs on no message.
        """
        request = json.dumps([[dict(message) for message in messages], dict(tokens)])
        reply = self._ask(request)
        if not _is_plain(reply):  # also where the child was new, which the conversation before decided
            reply = self._ask(request)
        return json.loads(reply.removeprefix(_TOOK_MUCH)) if reply else None

    def close(self) -> None:
        """End the child, if it is this process's own."""
        child, self._child = self._child, None
        if child is not None and self._owner == os.getpid():
            child.kill()
            child.communicate()

    def _ask(self, request: str) -> str:
        """A child's reply, empty where it ended; it lives on where that is plain."""
        if self._child is None or self._owner != os.getpid():
            self._child, self._owner = self._begun(), os.getpid()
        reply = ""
        try:
            reply = _said(self._child, request)
        finally:  # interrupted, it would give this reply to the next request
            if not _is_plain(reply):
                self.close()
        return reply

    def _begun(self) -> subprocess.Popen[str]:
        pipe = subprocess.PIPE
        command = [sys.executable, "-m", __name__]
        places = os.pathsep.join(filter(None, sys.path))  # where this process has the package from
        with _silent_fork():
            child = subprocess.Popen(
                command,
                stdin=pipe,
                stdout=pipe,
                stderr=subprocess.DEVNULL,
                text=True,
                encoding="utf-8",
                env={**os.environ, "PYTHONPATH": places, "PYTHONHASHSEED": "0"},
            )
        if _said(child, json.dumps(self._template.source)) != _READY:
            child.kill()
            child.communicate()
            raise UsageError(
                "the process that renders the chat template did not start; look at its template and the memory left"
            )
        return child


@contextmanager
def _silent_fork() -> Iterator[None]:
    """Keep tokenizers silent on macOS, where `subprocess` forks: a line that it prints at each fork would count the children.

    It prints none where this variable is set, which is for as short as can be: it also lets tokenizers go on with its threads in a
    process that somebody else forks.
    """
    name = "TOKENIZERS_PARALLELISM"
    if sys.platform != "darwin" or name in os.environ:
        yield
        return
    os.environ[name] = "true"
    try:
        yield
    finally:
        del os.environ[name]


def _is_plain(reply: str) -> bool:
    return reply != "" and not reply.startswith(_TOOK_MUCH)


def _said(child: subprocess.Popen[str], request: str) -> str:
    """A whole line, or nothing."""
    assert child.stdin is not None
    assert child.stdout is not None
    try:
        child.stdin.write(f"{request}\n")
        child.stdin.flush()
    except BrokenPipeError:
        return ""
    reply = child.stdout.readline()
    return reply if reply.endswith("\n") else ""


@functools.lru_cache(maxsize=4)
def rendered_apart(source: str, place: str) -> RenderedApart:
    """A template that is rendered in a child; one child a template and process.

    Raises:
        DataError: as `ChatTemplate`.
    """
    return RenderedApart(ChatTemplate(source, place))


# the child -------------------------------------------------------------------------------------------------------------


def _serve() -> None:
    template = ChatTemplate(json.loads(sys.stdin.readline()), "the chat template")
    begun = _bound_memory()
    sys.stdout.write(_READY)
    sys.stdout.flush()
    for line in sys.stdin:
        messages, tokens = json.loads(line)
        _bound_time(_SECONDS)
        reply, took_much = _reply(template, messages, tokens)
        _bound_time(0)
        took_much = took_much or _peak() - begun > _MUCH
        sys.stdout.write(f"{_TOOK_MUCH if took_much else ''}{reply}\n")
        sys.stdout.flush()


def _reply(template: ChatTemplate, messages: list[dict[str, str]], tokens: dict[str, str]) -> tuple[str, bool]:
    """The text in JSON, and whether there was no memory for it."""
    most = _TIMES * sum(len(message["content"]) for message in messages) + _MORE
    try:
        written = template.render(messages, tokens)
        return json.dumps(written if written is not None and len(written) <= most else None), False
    except MemoryError:
        return json.dumps(None), True


if sys.platform == "win32":

    def _bound_memory() -> int:
        return 0

    def _bound_time(seconds: float) -> None:
        del seconds

    def _peak() -> int:
        return 0

else:  # what only such systems have is imported by the child alone

    def _bound_memory() -> int:
        """The most that was taken so far."""
        import resource
        import signal

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # what ends here is written nowhere
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent; its end is that of the requests
        if sys.platform == "linux":
            with open("/proc/self/statm", encoding="ascii") as file:
                mapped = int(file.read().split()[0]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_AS, (mapped + _MEMORY, mapped + _MEMORY))
        return _peak()

    def _bound_time(seconds: float) -> None:
        """The system ends this process then."""
        import signal

        signal.setitimer(signal.ITIMER_PROF, seconds)

    def _peak() -> int:
        """Bytes of memory; where the system does not say it of this program alone, also of what started it."""
        import resource

        if sys.platform == "linux":
            with open("/proc/self/status", encoding="ascii") as file:
                return next(1024 * int(line.split()[1]) for line in file if line.startswith("VmHWM"))
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


if __name__ == "__main__":
    _serve()
