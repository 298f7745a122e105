"""Print the report of a nightly run in the terminal."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from reprokit.cli.shared import out
from reprokit.core.judge.stacks.location import plural

MAX_KNOWN = 1
"""Known failures that are printed for each bug; the report has all."""


def print_night(report: Mapping[str, Any], output_dir: Path) -> None:
    """Print the report of a nightly run, as ``night_report`` returns it."""
    from reprokit.host.nightly.night_report_files import DIGEST_FILE, PAGE_FILE, TITLES

    line = out.RESULTS.print_line

    colours = {
        "new": "red",
        "regressed": "red",
        "fixed": "green",
        "flaky": "yellow",
        "open": "default",
        "muted": "dim",
    }
    line(
        (f"{report['suite']}, nightly run {report['night']['name']}:", "bold"),
        f" {report['sentence']}",
    )
    for group, title in TITLES.items():
        bugs = report["groups"][group]
        if group == "muted" or not bugs:
            continue
        line((f"\n{title.capitalize()}", f"bold {colours[group]}"))
        for bug in bugs[:20]:
            line(f"  bug {bug['id']}  {bug['title']}")
            cells = f"{plural(bug['tonight'], 'cell')} in this run"
            about = [bug["reason"], bug["cause"], cells, ", ".join(bug["torch"])]
            if before := bug["healthy_before"]:
                is_different = before["torch"] and before["torch"] != before["then_torch"]
                about += [
                    "healthy in"
                    f" {before['night']}{' with torch ' + before['torch'] if is_different else ''}"
                ]
            about += (
                [f"repro of {plural(bug['repro_lines'], 'line')}"] if bug["repro_lines"] else []
            )
            line(f"          {'; '.join(a for a in about if a)}")
            if bug["decision"]:
                line(f"          {out.one_line(bug['decision'])}")
            for sentence in bug["known"][:MAX_KNOWN]:
                line(f"          {out.one_line(sentence)}")
            if bug["pack"]:
                line(f"          {output_dir / bug['pack']}")
        if len(bugs) > 20:
            line(f"  and {len(bugs) - 20} more")
    for name, title in (
        ("surprises", "Not as expected: healthy"),
        ("in_eager", "Fails without torch.compile too"),
        ("unknown", "Could not be judged"),
        ("lost", "Lost"),
    ):
        if report[name]:
            line((f"\n{title}", "bold"))
            for row in report[name][:20]:
                line(
                    f"  {row['target']}"
                    f" {row['settings']}{': ' + row['why'] if row.get('why') else ''}"
                )
    if report["refused"]["count"]:
        line((f"\nRefused, in quarantine ({report['refused']['count']})", "bold"))
        for why in report["refused"]["reasons"][:20]:
            line(f"  {why}")
    if report["proposals"]:
        line(("\nPerhaps one bug", "bold"))
        for pair in report["proposals"][:10]:
            a, b = pair["bugs"]
            line(f"  {a} and {b}, {pair['score']:.0%} alike: {'; '.join(pair['shared'])}")
            line(f"          reprokit nightly merge {a} {b}, or split {a} {b}")
    line(f"\nreport     {output_dir / PAGE_FILE}")
    line(f"digest     {output_dir / DIGEST_FILE}")
