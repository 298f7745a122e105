"""What goes where when a pack becomes an issue. Nothing is posted, and no address that a pack holds
is used.
"""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlencode

from reprokit.core.judge.responsible import responsibility
from reprokit.core.triage import issue_search
from reprokit.host.pack import issue_url, writer
from reprokit.host.pack.reopen import OpenedPack

FIELD_CHARS = 65_536
"""GitHub refuses longer bodies, of all fields together."""
SEARCH = "https://github.com/search"
PYTORCH = {
    "Describe the bug": ("issue/describe.md",),
    "Error logs": ("issue/error_logs.md",),
    "Versions": ("issue/versions.md",),
}
TRITON_FORM = {
    "Describe the bug": ("issue/describe.md", "issue/error_logs.md"),
    "Environment details": ("issue/versions.md",),
}
"""The fields of each form, and the files of a pack that go there."""


@dataclass(frozen=True)
class FormField:
    """One field of a form."""

    name: str
    files: tuple[str, ...]
    """Those of the pack that go there; one that it lacks is left out."""
    text: str


@dataclass(frozen=True)
class FormFiling:
    """All that a person does by hand."""

    form: str
    """``pytorch`` or ``triton``."""
    url: str
    fields: tuple[FormField, ...]
    size: int
    """Bytes of the tarball."""
    query: str

    @property
    def search_url(self) -> str:
        """Where issues like this one are looked for."""
        return f"{SEARCH}?{urlencode({'type': 'issues', 'q': self.query})}"

    @property
    def fits(self) -> bool:
        """GitHub takes the tarball as an attachment."""
        return self.size <= writer.MOST_BYTES


def why_not(opened: OpenedPack) -> str:
    """Why this pack is no bug to file; empty when it is one."""
    return responsibility.why_not_filed(opened.verdict)


def filing_of(opened: OpenedPack) -> FormFiling:
    """What to open, paste, attach and search for."""
    repository = responsibility.repository_for(opened.verdict)
    is_triton = repository == issue_url.TRITON
    fields = []
    for name, wanted in (TRITON_FORM if is_triton else PYTORCH).items():
        held = tuple(file for file in wanted if file in opened.pack.files)
        texts = [opened.pack.files[file].decode("utf-8", "replace").strip() for file in held]
        fields.append(FormField(name, held, "\n\n".join(texts) + "\n" if held else ""))
    title = opened.signature.title
    return FormFiling(
        "triton" if is_triton else "pytorch",
        issue_url.issue_form_url(title, repository),
        tuple(fields),
        opened.pack.path.stat().st_size,
        issue_search.search_query(title, repository),
    )
