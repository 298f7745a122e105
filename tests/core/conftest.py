"""What the tests of the rules share."""

from __future__ import annotations

import functools
from collections.abc import Iterator

import pytest

from reprokit.core.redaction.rules import table


@pytest.fixture(scope="module", autouse=True)
def made_once() -> Iterator[None]:
    """Make the redaction rules once for equal names. They have no state, and to make them takes
    longer than to redact a short text.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(table, "make_rules", functools.cache(table.make_rules))
        yield
