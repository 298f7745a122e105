"""Read the statements of what a capture prints and of its HTML report, with their checks.

Both are read as a person reads them, from the printed text. A text that the issue states too has
the checks of the issue. Paths, commands, times and sizes of tables are structure: each file that is
named must exist, and no time is longer than the run.
"""

from __future__ import annotations

import html.parser
import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Statement = dict[str, Any]
"""A statement in the form of ``claims.json``."""
NAME_COLUMNS = 11
QUOTED = (("why", "li"), ("answers", "li"), ("waits", "li"), ("ablation", "p"))
"""Paragraphs of the page that say what the issue says."""
CONFIG = re.compile(r"(torch(?:\.\w+)*\.config(?:\.\w+)+) = (.+)")
WAYS: Mapping[str, Mapping[str, Any]] = {
    "no torch.compile": {"without_compile": True},
    "the program's own backend": {},
    "without the program's own passes": {"without_passes": True},
    "dynamic=False": {"compile": {"dynamic": False}},
    "dynamic=True": {"compile": {"dynamic": True}},
    "no caches": {
        "configs": {
            "torch._inductor.config.fx_graph_cache": False,
            "torch._functorch.config.enable_autograd_cache": False,
        }
    },
    "no fusion": {
        "configs": {
            "torch._inductor.config.max_fusion_size": 1,
            "torch._inductor.config.epilogue_fusion": False,
        }
    },
    "no pattern matcher": {"configs": {"torch._inductor.config.pattern_matcher": False}},
    "no vectorised C++": {"configs": {"torch._inductor.config.cpp.simdlen": 0}},
    "one OpenMP thread in C++": {"configs": {"torch._inductor.config.cpp.threads": 1}},
    "rounding as eager does": {"configs": {"torch._inductor.config.emulate_precision_casts": True}},
    "no layout optimization": {"configs": {"torch._inductor.config.layout_optimization": False}},
    "a higher recompile limit": {
        "configs": {
            "torch._dynamo.config.recompile_limit": 256,
            "torch._dynamo.config.accumulated_recompile_limit": 4096,
        }
    },
}
"""What a way to compile changes, written from the documentation of torch."""
_HEAD = re.compile(r"(?P<kind>[a-z-]+)(?: in (?P<phase>[\w-]+))?: (?P<reason>.*)")
_REPRO = re.compile(r"(?P<lines>\d+) lines?, fails in (?P<hits>\d+) of (?P<runs>\d+) fresh runs: ")
_PLACE = re.compile(
    r"(?P<place>[^:]+\.py:\d+)(?: in (?P<function>[\w.<>]+))?(?:: (?P<code>.*))?", re.DOTALL
)
_BACKENDS = re.compile(r"(?P<it>it|a part of it) fails with (?P<fails>[^;]+?)(?: and passes with (?P<passes>[^;]+?))?(?:$|;|\.$|, so)", re.I)  # fmt: skip
_BLAMED = re.compile(r"it disappears without the (?P<what>[\w -]+?) `(?P<name>[^`]+)`")
_FAILURE_IN = re.compile(r"The failure is in (?P<frame>(?:torch|triton)/\S+?)[.,]?(?: in .*)?\.?")
_CALLED = re.compile(r"torch called (?P<function>[\w.]+), and it did not return\.")
_OWN = re.compile(r"\bat (?P<place>[^\s:;,]+\.py:\d+)")


def check(how: str, **what: Any) -> Statement:
    """Return a check in the form of ``claims.json``."""
    return {"how": how, **what}


def statement(text: str, *checks: Statement, is_structure: bool = False) -> Statement:
    """Return a statement about the captured run."""
    return {
        "text": text,
        "about": "the captured run",
        "checks": list(checks),
        "is_structure": is_structure,
    }


def ways_of(text: str, known: Sequence[Statement], how: str = "passes") -> list[Statement]:
    """Return the checks that the program passes, or fails, with a way to compile."""
    name = re.sub(r" \((?:only the limit|tried on a part of it)\)$", "", text.strip())
    of = {"with": name}
    if name in WAYS:
        return [check(how, **of, **WAYS[name])]
    if match := re.fullmatch(r'(backend|mode)="(\w[\w-]*)"', name):
        return [check(how, **of, compile={match[1]: match[2]})]
    if CONFIG.fullmatch(name):
        modules = ", ".join(
            f"torch.{name}.config" for name in ("_inductor", "_dynamo", "_functorch")
        )
        return [check(how, **of, of="issue", lines=f"import {modules}\n{name}")]
    # a changed line is only in the evidence of the statement of the issue
    return [{**row, "how": how} for row in known if row.get("with") == name][:1]


def read_statements(terminal: str, run_dir: Path) -> dict[str, list[Statement]]:
    """Return the statements of each surface: ``terminal`` and ``report.html``."""
    claims_file = run_dir / "pack" / "issue" / "claims.json"
    claims = json.loads(claims_file.read_text()) if claims_file.exists() else []
    page = run_dir / "pack" / "report.html"
    reader = _Statements({plain(row["text"]): row["checks"] for row in claims}, run_dir)
    found = {"terminal": list(reader.of_terminal(terminal))} if terminal.strip() else {}
    if page.exists():
        found["report.html"] = list(reader.of_page(page.read_text()))
    if any(row["text"].startswith("A part of it ") for row in claims):
        # the ways to compile were tried on a part of the program
        for row in (row for rows in found.values() for row in rows):
            if any(one.get("with") for one in row["checks"]):
                row["about"] = "the program of the pack"
    return found


def plain(text: str) -> str:
    """Return the words of a text, without marks of code and without a dot at the end."""
    return " ".join(text.replace("`", "").split()).rstrip(".")


@dataclass
class _Statements:
    """Reads the surfaces of one run."""

    claims: Mapping[str, list[Statement]]
    run_dir: Path

    @property
    def known(self) -> list[Statement]:
        """All checks of the issue."""
        return [row for checks in self.claims.values() for row in checks]

    def of_terminal(self, text: str) -> Iterator[Statement]:
        """Yield what each line of a summary states."""
        rows = text.splitlines()
        kind = json.loads((self.run_dir / "pack" / "verdict.json").read_text())["kind"]
        heads = [n for n, row in enumerate(rows) if re.match(rf"{kind}(:| in )", row)]
        if not heads:
            yield statement("no line of the terminal has the verdict", check("file", file="absent"))
            return
        yield self._head(rows[heads[-1]])  # what the program prints is before it
        name = ""
        for row in rows[heads[-1] + 1 :]:
            if not row.strip():
                break
            name = row[:NAME_COLUMNS].strip() or name
            yield self._row(name, row[NAME_COLUMNS:].strip(), row)

    def _head(self, text: str) -> Statement:
        match = _HEAD.fullmatch(text)
        if match is None:
            return statement(text)
        return statement(text, check("kind", kind=match["kind"], phase=match["phase"]))

    def _row(self, name: str, text: str, row: str) -> Statement:
        if name == "your line":
            return self._place(row, text)
        if name in ("compiling", "function"):
            function, _, file = text.partition(" in ")
            return statement(row, check("function", function=function, file=file))
        if name == "caused by":
            return statement(row, *self._cause(text))
        if name == "capture":
            return statement(row, check("command", words=shlex.split(text)))
        if name == "known":
            numbers = re.findall(r"pytorch/pytorch#\d+", text)
            return statement(row, check("known", issues=numbers, title=text.removesuffix(" ...")))
        if name == "avoid it":
            if text.endswith("(not tried)"):
                return statement(row, is_structure=True)
            part = " (tried on a part of it)"
            ways = text.removesuffix(part).split(" or ")
            return statement(row, *(c for way in ways for c in ways_of(way, self.known)))
        if name == "repro":
            match = _REPRO.match(text)
            if match is None:
                return statement(row, check("file", file=text.rpartition(": ")[2]))
            file = text[match.end() :]
            checks = [check("file", file=file), check("lines", lines=int(match["lines"]))]
            return statement(row, *checks, check("repro", is_all=match["hits"] == match["runs"]))
        if name == "report":
            return statement(row, check("file", file=text), is_structure=True)
        if name == "next":
            words = [word for word in shlex.split(text) if "/" in word]
            return statement(row, *(check("file", file=word) for word in words), is_structure=True)
        if name == "no repro":
            return statement(row, check("no repro"))
        return statement(row, *self._words(text))

    def _place(self, row: str, text: str) -> Statement:
        match = _PLACE.fullmatch(text)
        if match is None:
            return statement(row)
        return statement(row, check("source", **match.groupdict()))

    def _cause(self, text: str) -> list[Statement]:
        party, _, why = text.partition(": ")
        checks: list[Statement] = []
        if match := _FAILURE_IN.fullmatch(why):
            checks.append(check("stack", frame=match["frame"].rstrip(".")))
        elif match := _BACKENDS.match(why):
            checks += ways_of(match["fails"], self.known, "fails")
            for way in re.split(r", | and ", match["passes"] or ""):
                checks += ways_of(way, self.known) if way else []
        elif match := _BLAMED.match(why):
            checks.append(check("without", what=match["what"], name=match["name"]))
        elif match := _CALLED.match(why):
            checks.append(check("stack", frame=f"<user>:{match['function']}"))
        elif party == "your program":
            checks += [check("own code", place=place) for place in _OWN.findall(why)[:1]]
        return checks or self._words(why)

    def _words(self, text: str) -> list[Statement]:
        """Return the checks of the statement of the issue with these words."""
        words = plain(text.removesuffix(" ..."))
        if words in self.claims:
            return self.claims[words]
        longer = (
            checks for known, checks in self.claims.items() if len(words) > 30 and words in known
        )
        return next(longer, [])

    def of_page(self, text: str) -> Iterator[Statement]:
        """Yield what a report states, without its figures."""
        blocks = _Blocks()
        blocks.feed(text)
        term = ""
        for block in blocks.blocks:
            words = " ".join(block.text.split())
            place = block.section
            if block.tag == "dt":
                term = words
            elif block.tag == "h1":
                yield statement(words, check("heading", words=words))
            elif "lead" in block.classes:
                yield statement(words, *(self._words(words) or [check("reason", words=words)]))
            elif "decision" in block.classes:
                yield self._decision(words)
            elif "own" in block.classes:
                name, _, rest = words.partition(": ")
                if name == "Your code":
                    yield self._place(words, rest)
                else:
                    function, _, file = rest.partition(" in ")
                    yield statement(words, check("function", function=function, file=file))
            elif block.id == "program-text":
                yield statement("the program", check("program", text=block.text))
            elif place == "remedies" and block.tag == "li":
                yield statement(words, *ways_of(words, self.known))
            elif place == "program" and block.tag == "p":
                yield statement(words, *self._about(words))
            elif place in ("", "facts", "why") and block.tag == "dd":
                yield self._term(term, words)
            elif (place, block.tag) in QUOTED:
                yield statement(words, *self._words(words))
            elif place == "ablation" and block.tag == "tr" and any(block.cells):
                yield self._step(*block.cells)
            elif place == "head" and block.tag == "p" and "kicker" not in block.classes:
                yield statement(words, *self._beside_head(words))

    def _beside_head(self, words: str) -> list[Statement]:
        if words.startswith("Without torch.compile: "):
            how = "passes" if re.search(r"\bpass(es|ed)\b", words) else "fails"
            return self._words(words) or [check(how, without_compile=True)]
        return self._words(words) or [check("cause in words", words=words)]

    def _decision(self, words: str) -> Statement:
        numbers = re.findall(r"pytorch/pytorch#\d+", words)
        if numbers:
            is_one = "Compare it with" not in words
            return statement(words, check("known", issues=numbers[:1] if is_one else numbers))
        if words.startswith("Open a new issue"):
            return statement(
                words, check("passes", without_compile=True), check("known", issues=[])
            )
        places = [check("own code", place=place) for place in _OWN.findall(words)[:1]]
        why = self._words(words.partition("Because ")[2])
        return statement(words, *(places or why or [check("cause", cause="")]))

    def _about(self, words: str) -> list[Statement]:
        if words.startswith("Not proved: "):
            return [check("no repro"), check("candidate", origin=words.partition(" It is ")[2])]
        match = re.match(r"(\d+) lines?\b.*?; the same failure in (\d+) of (\d+) fresh runs", words)
        if match is None:
            return self._words(words)
        checks = [check("lines", lines=int(match[1])), check("repro", is_all=match[2] == match[3])]
        if "eager passes" in words:
            checks.append(check("repro in eager"))
        return checks

    def _term(self, term: str, words: str) -> Statement:
        text = f"{term}: {words}"
        if term == "versions":
            return statement(text, check("versions", versions=words))
        if term in ("kind", "phase"):
            name = words.split(" ")[0]
            return statement(text, check("kind", **{term: "" if name == "none" else name}))
        if term == "cause":
            return statement(text, check("cause", cause=words))
        if term == "signature":
            return statement(text, check("signature", words=words))
        if term == "responsible":
            is_known = words != "unknown"
            checks = [check("responsible", party=words)] * is_known
            return statement(text, *checks, is_structure=not is_known)
        if term in ("command", "date"):
            return statement(text, is_structure=True)
        return statement(text, *self._words(f"{term} at work: {words}"))

    def _step(self, name: str, result: str, cpu_s: str) -> Statement:
        text = f"{name}: {result}"
        how = {"the same failure": "fails", "passes": "passes"}.get(result)
        if how is None:
            return statement(text, is_structure=name == "ablation step")
        return statement(f"{text}, {cpu_s} CPU seconds", *ways_of(name, self.known, how))


@dataclass
class _Block:
    """One paragraph, row or item of a page."""

    tag: str
    section: str
    classes: list[str]
    id: str
    text: str = ""
    cells: list[str] = field(default_factory=list)


class _Blocks(html.parser.HTMLParser):
    """The paragraphs of a page, with the section in which each is."""

    TAGS = ("p", "li", "dt", "dd", "tr", "h1")
    HIDDEN = ("svg", "script", "style", "button", "nav", "footer", "caption", "thead")

    def __init__(self) -> None:
        super().__init__()
        self.blocks: list[_Block] = []
        self._open: list[_Block] = []
        self._section = ""
        self._hidden = 0
        self._is_cell = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Open a block."""
        values = {name: value or "" for name, value in attrs}
        if tag in self.HIDDEN:
            self._hidden += 1
        elif tag == "header":
            self._section = "head"
        elif tag in ("section", "main"):
            self._section = values.get("aria-labelledby") or {"Command and versions": "facts"}.get(
                values.get("aria-label", ""), values.get("aria-label", "")
            )
        elif tag in self.TAGS or values.get("id") == "program-text":
            classes = values.get("class", "").split()
            self._open.append(_Block(tag, self._section, classes, values.get("id", "")))
        elif tag in ("td", "th") and self._open:
            self._open[-1].cells.append("")
            self._is_cell = True

    def handle_endtag(self, tag: str) -> None:
        """Close a block."""
        if tag in self.HIDDEN:
            self._hidden -= 1
        elif tag in ("td", "th"):
            self._is_cell = False
        elif self._open and tag == self._open[-1].tag:
            self.blocks.append(self._open.pop())
        elif tag == "section":
            self._section = ""

    def handle_data(self, data: str) -> None:
        """Add text to the open block."""
        if self._open and not self._hidden:
            self._open[-1].text += data
            if self._is_cell:
                self._open[-1].cells[-1] += data
