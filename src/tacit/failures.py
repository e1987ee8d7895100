"""What an error that a library did not mean to raise stands for: memory that was refused, or a panic of one written in Rust."""

from __future__ import annotations

import re

__all__ = ["is_out_of_memory", "is_panic"]

_MEMORY_WORDS = re.compile(
    r"((CUDA|CUDA error:|CUDA driver error:|MPS backend) out of memory|CUDA error: CUBLAS_STATUS_(ALLOC_FAILED|NOT_INITIALIZED)"
    r"|cuDNN error: CUDNN_STATUS_(ALLOC_FAILED|INTERNAL_ERROR_(DEVICE|HOST)_ALLOCATION_FAILED)|std::bad_alloc"
    r"|can't start new thread|\[enforce fail at (alloc_cpu|CPUAllocator)\.cpp:\d+\]|Could not allocate memory "
    r"|unable to mmap \d+ bytes from file <[^<>]*>: Cannot allocate memory)"
)
"""How the errors of torch and of threads begin, which are RuntimeErrors. Behind that they may quote a text, as any error."""

_NO_POOL = "The global thread pool has not been initialized.: ThreadPoolBuildError"
"""How Rust's thread pools panic. Nothing but the beginning of a panic's words is looked at: behind it they may quote a text."""

_NO_PRIMITIVE = ("could not create a primitive", "could not execute a primitive")
"""All that oneDNN says when it gets no memory for its code or its buffers; what it cannot do has more words."""


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error, or one that it came from, means that memory was refused."""
    known: BaseException | None = error
    while known is not None:
        words = str(known)
        if isinstance(known, MemoryError):
            return True
        if isinstance(known, RuntimeError) and words in _NO_PRIMITIVE:
            return True
        if isinstance(known, RuntimeError) and (
            type(known).__name__ == "OutOfMemoryError" or _MEMORY_WORDS.match(words)
        ):
            return True
        if is_panic(known) and words.startswith(_NO_POOL):
            return True
        known = known.__cause__ or known.__context__
    return False


def is_panic(error: BaseException) -> bool:
    """Whether a library written in Rust gave up; its exception is no `Exception`, and cannot be imported."""
    return type(error).__module__ == "pyo3_runtime"
