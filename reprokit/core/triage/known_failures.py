"""Known failures: what an entry of the catalogue says, and which entries a failure matches.

An entry has the failures that its program showed with each version of torch. A failure with the
signature of one of them is the known one. Other failures are compared by their traits; the result
is a proposal.
"""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from reprokit.core.judge.responsible.parties import UPSTREAM
from reprokit.core.judge.stacks import frames as fr
from reprokit.core.records.finding import Signature, identity_of_title
from reprokit.core.records.verdict_kinds import NONDETERMINISTIC
from reprokit.core.shared.contract.serialize import from_json
from reprokit.core.triage import likeness
from reprokit.core.triage.likeness import Traits

How = Literal["same", "likely", "similar", "family"]
"""The same signature, traits that almost agree, traits of which many agree, and a signature that
failures of several causes have.
"""
SAME: Final = "same"
LIKELY: Final = "likely"
SIMILAR: Final = "similar"
FAMILY: Final = "family"
MAYBE: Final = (SIMILAR, FAMILY)
"""Matches that do not say that a failure is known."""
MIN_LIKELY_SCORE = 0.9
WITHOUT_OPERATOR = 0.1
"""What the score of an entry loses whose program differs first at a different operator. It gains
half of that if the operator is the same.
"""
SHARED_SCORE = 0.95
"""The likeness of failures that share a signature with a failure that is known too."""
VAGUE_SCORE = 0.8
"""The likeness of failures whose common signature many bugs have."""
GENERIC_OPERATORS = frozenset(
    "add sub mul div neg pow where copy copy_ clone empty full to convert_element_type cat stack"
    " view reshape permute expand squeeze unsqueeze select slice index sum mean amax mm bmm addmm"
    " any all constant_pad_nd".split()
)
"""Operators in most graphs: that a result is wrong there does not show one cause."""
MAX_MATCHES = 5
MIN_WORD_SCORE = 0.5
FAILS, PASSES = "fails", "passes"
WORKS = "works"
_ISSUE = re.compile(r"(?P<repository>[\w.-]+/[\w.-]+)?#?(?P<number>\d{3,7})")
_NAME = re.compile(r"[\w.-]+(?:/[\w.-]+)?#\d{1,7}")
"""An issue on GitHub, or a bug of a ledger: ``ledger#12``."""
_GENERATED = ("<generated>", "torch/_inductor/runtime/runtime_utils.py:assert_")
"""Generated code, and the functions with which it checks sizes and strides since torch 2.14."""
_WORD = re.compile(r"[a-z0-9_]{3,}")


@dataclass(frozen=True)
class ProvedRun:
    """How the program of an entry ended with one version of torch."""

    torch: str
    answer: str
    """``fails``, ``passes``, or ``different: TITLE``."""
    date: str = ""
    python: str = ""
    algorithm: int = 0
    """Of the signature; 0 where nothing failed."""
    signature: str = ""
    title: str = ""
    frames: tuple[str, ...] = ()
    """``file:function`` of the compiler's frames, innermost first."""
    kernel: str = ""
    """The generated kernel that ran; empty if the failure is not in one."""
    workaround: str = ""
    """Whether the workaround avoids the failure: ``works``, ``fails``, or empty if not tried."""

    def traits(self) -> Traits:
        """Return the traits that are compared with those of a failure."""
        shown = traits_of_title(self.title, self.frames)
        return dataclasses.replace(shown, kernel=self.kernel)


@dataclass(frozen=True)
class KnownFailure:
    """One entry of a catalogue."""

    issue: str
    """``OWNER/REPOSITORY#NUMBER``, or ``NAME#NUMBER`` for a bug that has no public issue."""
    title: str
    """What fails, in words."""
    kind: str
    component: str
    """The part of the compiler that is responsible."""
    program: str = ""
    state: str = "unknown"
    """``open``, ``closed`` or ``unknown``: of the issue when the entry was written."""
    conditions: str = ""
    """What the failure needs, in words; empty for a CPU without requirements."""
    gpu: str = ""
    """The name of a GPU to simulate; empty for the CPU."""
    workaround: str = ""
    """What avoids the failure: lines of Python that begin the program, or words."""
    workaround_program: str = ""
    """The program with the workaround, where that is no code that begins the program."""
    workaround_cost: str = ""
    first_operator: str = ""
    """The first operator of the program, as Dynamo names it, whose result differs from eager; empty
    if it is not known. It tells wrong results with one signature apart.
    """
    runs: tuple[ProvedRun, ...] = ()
    origin: str = ""
    """The catalogue; empty for the one of reprokit."""

    @property
    def url(self) -> str:
        """The address of the issue on GitHub; empty if there is none."""
        repository, _, number = self.issue.partition("#")
        return f"https://github.com/{repository}/issues/{number}" if "/" in repository else ""

    @property
    def failing(self) -> tuple[ProvedRun, ...]:
        """The runs that showed the failure, the oldest version of torch first."""
        return self._sorted(FAILS)

    @property
    def first_bad(self) -> str:
        """The oldest version that was tried and fails; empty if none does."""
        return self.failing[0].torch if self.failing else ""

    @property
    def last_good(self) -> str:
        """The newest version below ``first_bad`` that passes; empty if none does."""
        first = version_key(self.first_bad)
        older = [run for run in self._sorted(PASSES) if version_key(run.torch) < first]
        return older[-1].torch if older else ""

    @property
    def fixed_in(self) -> str:
        """The oldest version above all failing ones that passes; empty if none does."""
        if not self.failing:
            return ""
        last = version_key(self.failing[-1].torch)
        newer = [run for run in self._sorted(PASSES) if version_key(run.torch) > last]
        return newer[0].torch if newer else ""

    @property
    def workaround_proved(self) -> str:
        """The newest version with which the workaround was seen to avoid the failure, or empty."""
        works = [run.torch for run in self.failing if run.workaround == WORKS]
        return works[-1] if works else ""

    @property
    def versions(self) -> str:
        """The versions of torch that fail, in words; empty if none was proved."""
        if not self.failing:
            return ""
        since = f"since {self.first_bad}" if self.last_good else f"with {self.first_bad}"
        last = self.failing[-1].torch
        until = f", fixed in {self.fixed_in}" if self.fixed_in else ""
        if not until and last != self.first_bad:
            passes = {version_key(run.torch) for run in self._sorted(PASSES)}
            first, end = version_key(self.first_bad), version_key(last)
            is_gap = any(first < one < end for one in passes)
            until = f", also with {last}" if is_gap else f" to {last}"
        return f"fails {since}{until}"

    def _sorted(self, answer: str) -> tuple[ProvedRun, ...]:
        runs = (run for run in self.runs if run.answer == answer)
        return tuple(sorted(runs, key=lambda run: version_key(run.torch)))


@dataclass(frozen=True)
class KnownMatch:
    """An entry that a failure matches."""

    entry: KnownFailure
    how: How
    score: float
    shared: tuple[str, ...] = ()
    """What both have in common, in words."""
    differs: tuple[str, ...] = ()
    """What differs, in words."""

    @property
    def sentence(self) -> str:
        """The entry in one line."""
        entry = self.entry
        facts = [entry.state] if entry.state != "unknown" else []
        facts += [text for text in (entry.versions, entry.component) if text]
        if self.how == FAMILY:
            facts = list(filter(None, (entry.versions, entry.component, *self.shared[1:])))
            return (
                f"one of a family: {self.shared[0]}, as in {entry.issue} ({'; '.join(facts)}):"
                f" {entry.title}"
            )
        head = {SAME: "known", LIKELY: "probably known", SIMILAR: "similar"}[self.how]
        workaround = "; ".join(entry.workaround.splitlines())
        proof = f"works with {entry.workaround_proved}" if entry.workaround_proved else ""
        cost = f"cost: {entry.workaround_cost}" if entry.workaround_cost else ""
        more = f" ({'; '.join(filter(None, (proof, cost)))})" if proof or cost else ""
        avoid = f" To avoid it: {workaround}{more}" if workaround else ""
        return f"{head}: {entry.issue} ({'; '.join(facts)}): {entry.title}.{avoid}"

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object of a match."""
        entry = self.entry
        return {
            "issue": entry.issue,
            "url": entry.url,
            "title": entry.title,
            "how": self.how,
            "score": self.score,
            "shared": list(self.shared),
            "differs": list(self.differs),
            "state": entry.state,
            "component": entry.component,
            "conditions": entry.conditions,
            "first_bad": entry.first_bad,
            "fixed_in": entry.fixed_in,
            "workaround": entry.workaround,
            "workaround_cost": entry.workaround_cost,
            "workaround_proved": entry.workaround_proved,
            "origin": entry.origin,
        }


def traits_of_title(title: str, frames: tuple[str, ...] = ()) -> Traits:
    """Return the traits that the title of a signature shows."""
    parts = identity_of_title(title)
    is_silent = parts.kind in ("wrong-result", "hang", "slow-compile", NONDETERMINISTIC)
    return Traits(
        parts.kind,
        parts.phase,
        message="" if is_silent else parts.what,
        frames=frames or tuple(frame for frame in parts.place.split(" < ") if ":" in frame),
        operator=parts.place if parts.kind == "wrong-result" else "",
    )


def read_known_failure(document: object, origin: str = "") -> KnownFailure:
    """Return the entry of a TOML document; raises ValueError for a damaged one."""
    entry: KnownFailure = from_json(KnownFailure, document)
    if not _NAME.fullmatch(entry.issue):
        raise ValueError(f"issue = {entry.issue!a} is not OWNER/REPOSITORY#NUMBER")
    if not entry.title or not entry.kind:
        raise ValueError("it has no title or no kind")
    return KnownFailure(**{**vars(entry), "origin": origin})


def find_known_failures(
    signature: Signature, traits: Traits, entries: Iterable[KnownFailure]
) -> list[KnownMatch]:
    """Return the entries that a failure matches, the best first, at most ``MAX_MATCHES``.

    What is the user's own, or the machine's, is looked up in the catalogues of the user only. A
    recompile that a value of the program causes is a limit of Dynamo, which is known with what
    avoids it.
    """
    matches = []
    is_limit = traits.kind in ("recompile-limit", "recompile-storm")
    is_own = traits.responsible not in (*UPSTREAM, "unknown", "") and not is_limit
    for entry in entries:
        if is_own and not entry.origin:
            continue
        best = max(
            (_match(entry, run, signature, traits) for run in entry.failing),
            key=lambda match: match.score,
            default=None,
        )
        if best is not None and best.score >= likeness.MIN_PROPOSED_SCORE:
            matches.append(best)
    found = _by_users_operator(_without_ambiguity(matches), traits.users_operator)
    return sorted(found, key=lambda match: -match.score)[:MAX_MATCHES]


def issues_of_best(matches: Sequence[KnownMatch]) -> tuple[str, ...]:
    """Return the issues of the matches that are as good as the first one."""
    best = matches[0]
    return tuple(m.entry.issue for m in matches if (m.how, m.score) == (best.how, best.score))


def _match(entry: KnownFailure, run: ProvedRun, signature: Signature, traits: Traits) -> KnownMatch:
    of_run = run.traits()
    is_other = is_vague(run.title) and likeness.is_of_other_kernel(traits, of_run)
    # the runs of the catalogue have no sanitizers
    is_same = (
        run.signature == signature.id
        or (bool(signature.parts.site) and run.title == signature.parts.title_without_site)
        or (
            fr.USER in run.title
            and fr.without_modules(run.title) == fr.without_modules(signature.title)
        )
    )
    if is_same and run.algorithm == signature.algorithm and not is_other:
        return _of_signature(entry, run, traits)
    alike = likeness.compare_traits(traits, of_run)
    has_frames = bool(traits.frames and of_run.frames) and not is_vague(run.title)
    family = _family_of(traits)
    if family and of_run.operator == traits.operator and alike.score:
        return KnownMatch(entry, FAMILY, min(alike.score, VAGUE_SCORE), (family,))
    how: How = LIKELY if alike.score >= MIN_LIKELY_SCORE and has_frames else SIMILAR
    differs = tuple(
        f"{name}: {ours} here, {theirs} there"
        for name, ours, theirs in (
            ("phase", traits.phase, of_run.phase),
            ("operator", traits.operator, of_run.operator),
        )
        if ours and theirs and ours != theirs
    )
    return KnownMatch(entry, how, min(alike.score, 0.999), alike.shared, differs)


def _of_signature(entry: KnownFailure, run: ProvedRun, traits: Traits) -> KnownMatch:
    """Return the match of an entry with the same signature."""
    if family := _family_of(traits):
        return KnownMatch(entry, FAMILY, VAGUE_SCORE, (family,))
    if is_vague(run.title):
        return KnownMatch(entry, SIMILAR, VAGUE_SCORE, ("the signature, which many bugs have",))
    return KnownMatch(entry, SAME, 1.0, ("the signature",))


def _family_of(traits: Traits) -> str:
    """Return the name of the failures that have the signature of a wrong result in common; empty
    if its operator is so rare that they have one cause.

    All wrong results of one pass, or of one operator in most graphs, have the same signature.
    """
    if traits.kind != "wrong-result" or not traits.operator:
        return ""
    if traits.subsystem == "lowerings" and traits.operator not in GENERIC_OPERATORS:
        return ""
    what = "operator" if traits.operator in GENERIC_OPERATORS else "pass"
    if not traits.subsystem:
        what = "operator or the pass"
    return f"wrong results of the {what} {traits.operator}"


def _by_users_operator(matches: list[KnownMatch], operator: str) -> list[KnownMatch]:
    """Return matches that say little with those first whose program differs from eager first at
    the same operator of the program. If all or none of them do, it does not tell them apart.
    """
    has = [m.how in MAYBE and m.entry.first_operator == operator for m in matches]
    if not operator or not any(has):
        return matches
    found = []
    for match, is_there in zip(matches, has, strict=True):
        theirs = match.entry.first_operator
        if is_there:
            shared = (*match.shared, f"the first operator that differs, {operator}")
            score = min(round(match.score + WITHOUT_OPERATOR / 2, 3), 0.999)
            match = dataclasses.replace(match, score=score, shared=shared)
        elif match.how in MAYBE and theirs:
            score = max(round(match.score - WITHOUT_OPERATOR, 3), likeness.MIN_PROPOSED_SCORE)
            row = f"first operator that differs: {operator} here, {theirs} there"
            match = dataclasses.replace(match, score=score, differs=(*match.differs, row))
        found.append(match)
    return found


def _without_ambiguity(matches: list[KnownMatch]) -> list[KnownMatch]:
    """Return matches with the same signature; of several, none is called the same failure."""
    same = [match for match in matches if match.how == SAME]
    if len(same) < 2:
        return same or matches
    return [dataclasses.replace(m, how=LIKELY, score=SHARED_SCORE) for m in same]


def is_vague(title: str) -> bool:
    """Return whether many bugs have this signature: it names no place in the compiler or in the
    program, or only generated code and the checks that it calls.
    """
    parts = identity_of_title(title)
    places = [place for place in parts.place.split(" < ") if place]
    return all(place.startswith(_GENERATED) for place in places)


def search_known_failures(text: str, entries: Sequence[KnownFailure]) -> list[KnownMatch]:
    """Return the entries that a text names: a signature, the number of an issue, or words."""
    wanted = text.strip()
    if exact := [entry for entry in entries if entry.issue == wanted]:
        return [KnownMatch(entry, SAME, 1.0, ("the issue",)) for entry in exact]
    if named := _ISSUE.fullmatch(wanted.removeprefix("pytorch#")):
        found = [
            entry
            for entry in entries
            if entry.issue.endswith(f"#{named['number']}")
            and named["repository"] in (None, entry.issue.partition("#")[0])
        ]
        if found:
            return [KnownMatch(entry, SAME, 1.0, ("the issue",)) for entry in found]
    by_signature = [
        _of_signature(entry, run, run.traits())
        for entry in entries
        for run in entry.failing
        if wanted and run.signature == wanted
    ]
    if by_signature:
        return _without_ambiguity(list({m.entry.issue: m for m in by_signature}.values()))
    words = set(_WORD.findall(wanted.lower()))
    matches = [KnownMatch(entry, SIMILAR, _share_of_words(words, entry)) for entry in entries]
    better = [match for match in matches if match.score >= MIN_WORD_SCORE]
    return sorted(better, key=lambda match: -match.score)


def _share_of_words(words: set[str], entry: KnownFailure) -> float:
    """Return the share of ``words`` that an entry has, also in a slightly different form."""
    titles = " ".join([entry.title, entry.component, *(run.title for run in entry.runs)])
    own = sorted(set(_WORD.findall(titles.lower())))
    if not words or not own:
        return 0.0
    hits = sum(bool(difflib.get_close_matches(word, own, 1, 0.85)) for word in words)
    return round(hits / len(words), 3)


def version_key(version: str) -> tuple[int, ...]:
    """Return a version as numbers, for sorting: a nightly build is older than its release.

    The result is empty for an empty version.
    """
    release, _, nightly = version.partition("+")[0].partition(".dev")
    numbers = [int(part) for part in re.findall(r"\d+", release)[:3]]
    if not numbers:
        return ()
    padded = (*numbers, 0, 0)[:3]
    return (*padded, 0, int(nightly)) if nightly.isdecimal() else (*padded, 1, 0)
