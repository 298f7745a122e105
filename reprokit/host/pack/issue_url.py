"""A URL that opens the form of a repository with the title of a failure."""

from __future__ import annotations

from urllib.parse import urlencode

from reprokit.core.judge.responsible import responsibility
from reprokit.host.report import markdown

TRITON = responsibility.UPSTREAM["triton"]
URL_CHARS = 8_000
"""GitHub answers 414 to longer URLs (about 8,192 bytes)."""


def issue_form_url(title: str, repository: str) -> str:
    """A short URL that opens the form of ``repository`` with its title; the form's fields have no
    ids to prefill.

    Empty where there is no repository in which the failure can be filed.
    """
    if not repository:
        return ""
    form = f"https://github.com/{repository}/issues/new"
    template, head = (
        ("bug.yml", "") if repository == TRITON else ("pt2-bug-report.yml", "[torch.compile] ")
    )
    most = 200
    while True:
        query = urlencode(
            {"template": template, "title": head + markdown.one_line(markdown.title(title), most)}
        )
        if len(query) + len(form) < URL_CHARS:
            return f"{form}?{query}"
        most //= 2
