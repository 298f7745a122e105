"""With which backends the candidates of a reduction are compiled."""

from __future__ import annotations

from dataclasses import dataclass

from reprokit.core.experiments.ablation import EAGER, CompileVariant, ProgramAblation
from reprokit.core.judge import same_failure


@dataclass
class CompileWays:
    """How each candidate is compiled, and the backends with which it must do as the original."""

    candidates: CompileVariant | None = None
    """How candidates are compiled instead of as they say: the cheapest way that fails as the
    original does.
    """
    must_pass: CompileVariant | None = None
    """A backend with which each candidate must pass, because the original does."""
    must_fail: CompileVariant | None = None
    """A backend with which each candidate must fail too, because the original does."""

    @property
    def names(self) -> list[str | None]:
        """The names of the backends; the answers of candidates hold for these."""
        ways = (self.must_pass, self.must_fail, self.candidates)
        return [way.name if way is not None else None for way in ways]

    def keep_profile(self, variant: CompileVariant | None, profile: ProgramAblation) -> bool:
        """Require of each candidate that it fails with a backend if the original does, and passes
        if the original does. Return False if a backend was required before in this way.
        """
        is_known = variant in (self.must_pass, self.must_fail) or self.must_fail is not None
        if variant is None or variant == EAGER or is_known:
            return False
        if profile.answer_of(variant.name) == same_failure.SAME:
            self.must_fail = variant
        else:
            self.must_pass = variant
        return True
