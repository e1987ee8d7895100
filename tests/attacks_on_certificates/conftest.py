from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch


@pytest.fixture
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    """So many threads of torch; two where no number is asked for."""
    before = torch.get_num_threads()
    number = getattr(request, "param", 2)
    torch.set_num_threads(number)
    yield number
    torch.set_num_threads(before)
