"""Prepare the issue of a pack: the form, its fields, the attachment and a search.

Nothing is posted, and no address in the pack is used.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlencode

from reprokit.core.judge.responsible import responsibility
from reprokit.core.shared.contract import run_names
from reprokit.core.triage import decision, issue_search
from reprokit.core.triage.decision import decide
from reprokit.core.triage.known_failures import KnownMatch
from reprokit.host.pack import issue_forms, writer
from reprokit.host.pack.reopen import OpenedPack
from reprokit.host.report import markdown

MAX_FIELD_CHARS = 65_536
"""GitHub refuses a body with more characters, over all fields."""
COMMENT = "comment"
"""The name of the form of a failure that is known."""
SEARCH_URL = "https://github.com/search"


@dataclass(frozen=True)
class FormField:
    """One field of a form."""

    name: str
    files: tuple[str, ...]
    """The files of the pack whose text goes into the field."""
    text: str


@dataclass(frozen=True)
class FormFiling:
    """What the user does by hand to file the issue."""

    form: str
    """A name of ``issue_forms.FORMS``."""
    title: str
    url: str
    fields: tuple[FormField, ...]
    size: int
    """Bytes of the tarball."""
    query: str
    begin_with: str = ""
    """The first sentences of a comment for the issue of a known failure; empty for an issue."""

    @property
    def search_url(self) -> str:
        """The address of a search for similar issues."""
        return f"{SEARCH_URL}?{urlencode({'type': 'issues', 'q': self.query})}"

    @property
    def fits(self) -> bool:
        """Whether GitHub accepts the tarball as an attachment."""
        return self.size <= writer.MAX_PACK_BYTES


def why_not_filed(opened: OpenedPack) -> str:
    """Return why the failure of this pack must not be filed; empty if it can be."""
    return responsibility.why_not_filed(opened.verdict)


def prepare_filing(opened: OpenedPack, known: Sequence[KnownMatch] = ()) -> FormFiling:
    """Return what to open, paste, attach and search for.

    A failure that is known gets a comment for its issue instead of an issue.
    """
    if decide(opened.verdict, known).action == decision.COMMENT:
        return _prepare_comment(opened, known[0])
    repository = responsibility.repository_for(opened.verdict)
    form = issue_forms.FORMS[repository]
    fields = []
    for name, wanted in form.fields.items():
        files = tuple(file for file in wanted if file in opened.pack.files)
        texts = [opened.pack.files[file].decode("utf-8", "replace").strip() for file in files]
        fields.append(FormField(name, files, "\n\n".join(texts) + "\n" if files else ""))
    written = opened.pack.files.get(run_names.TITLE_FILE, b"").decode("utf-8", "replace").strip()
    title = markdown.issue_title(markdown.one_line(written or opened.signature.title, 200))
    return FormFiling(
        form.name,
        title,
        issue_forms.issue_form_url(title, repository),
        tuple(fields),
        opened.pack.path.stat().st_size,
        issue_search.search_query(opened.signature, repository),
    )


def _prepare_comment(opened: OpenedPack, match: KnownMatch) -> FormFiling:
    """Return the comment for the issue of a known failure, with the texts of an issue."""
    repository = responsibility.repository_for(opened.verdict)
    form = issue_forms.FORMS[repository]
    names = [file for wanted in form.fields.values() for file in wanted]
    files = tuple(file for file in names if file in opened.pack.files)
    texts = [opened.pack.files[file].decode("utf-8", "replace").strip() for file in files]
    entry = match.entry
    known = f" The catalogue of reprokit says: {entry.versions}." if entry.versions else ""
    shown = markdown.one_line(opened.signature.title, 200)
    intro = f"The failure of this issue occurs here: {markdown.code_span(shown)}."
    begin_with = f"{intro}{known}"
    body = "\n\n".join([begin_with, *texts]) + "\n"
    return FormFiling(
        COMMENT,
        f"{entry.issue}: {entry.title}",
        f"{entry.url}#issue-comment-box",
        (FormField("Comment", files, body if files else ""),),
        opened.pack.path.stat().st_size,
        issue_search.search_query(opened.signature, repository),
        begin_with,
    )
