"""The issue forms of the repositories that take failures: one row for each.

A new form is a row here, and a party in ``core/judge/responsible/responsibility.py`` whose failures
go to its repository.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlencode

from reprokit.core.judge.responsible.parties import UPSTREAM
from reprokit.host.report import markdown

MAX_URL_CHARS = 8_000
"""GitHub answers 414 to longer URLs (about 8,192 bytes)."""


@dataclass(frozen=True)
class IssueForm:
    """The issue form of one repository."""

    name: str
    template: str
    """File name of the form in the repository."""
    layout: str
    """Template below ``templates/issue`` of the whole issue, whose sections are the fields."""
    fields: Mapping[str, tuple[str, ...]]
    """Name of each field of the form, and the files of a pack whose text goes there."""


FORMS = {
    UPSTREAM["torch"]: IssueForm(
        "pytorch",
        "pt2-bug-report.yml",
        "issue.md.j2",
        {
            "Describe the bug": ("issue/describe.md",),
            "Error logs": ("issue/error_logs.md",),
            "Versions": ("issue/versions.md",),
        },
    ),
    UPSTREAM["triton"]: IssueForm(
        "triton",
        "bug.yml",
        "triton.md.j2",
        {
            "Describe the bug": ("issue/describe.md", "issue/error_logs.md"),
            "Environment details": ("issue/versions.md",),
        },
    ),
}
"""The forms by repository."""


def issue_form_url(title: str, repository: str) -> str:
    """Return a short URL that opens the form of ``repository`` with its title.

    The fields of the forms have no ids, so no URL can fill them. Return an empty text where there
    is no repository in which the failure can be filed.
    """
    if not repository:
        return ""
    form = FORMS[repository]
    address = f"https://github.com/{repository}/issues/new"
    chars = 200
    while True:
        heading = markdown.one_line(markdown.issue_title(title), chars)
        query = urlencode({"template": form.template, "title": heading})
        if len(query) + len(address) < MAX_URL_CHARS:
            return f"{address}?{query}"
        chars //= 2
