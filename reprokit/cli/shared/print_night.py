"""The morning in the terminal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from reprokit.cli.shared import out


def print_night(told: dict[str, Any], output_dir: Path) -> None:
    """Print what a night came to."""
    from reprokit.host.nightly.night_report_files import DIGEST, PAGE, TITLES

    line = out.RESULTS.line

    colours = {
        "new": "red",
        "regressed": "red",
        "fixed": "green",
        "flaky": "yellow",
        "open": "default",
        "muted": "dim",
    }
    line((f"{told['suite']}, night {told['night']['name']}:", "bold"), f" {told['sentence']}")
    for group, title in TITLES.items():
        found = told["groups"][group]
        if group == "muted" or not found:
            continue
        line((f"\n{title.capitalize()}", f"bold {colours[group]}"))
        for bug in found[:20]:
            line(f"  bug {bug['id']}  {bug['title']}")
            cells = f"{bug['tonight']} cell{'s' if bug['tonight'] != 1 else ''} tonight"
            about = [bug["reason"], bug["cause"], cells, ", ".join(bug["torch"])]
            if before := bug["healthy_before"]:
                is_other = before["torch"] and before["torch"] != before["then_torch"]
                about += [
                    "healthy the night of"
                    f" {before['night']}{' with torch ' + before['torch'] if is_other else ''}"
                ]
            about += [f"repro of {bug['repro_lines']} lines"] if bug["repro_lines"] else []
            line(f"          {'; '.join(a for a in about if a)}")
            if bug["pack"]:
                line(f"          {output_dir / bug['pack']}")
        if len(found) > 20:
            line(f"  and {len(found) - 20} more")
    for name, title in (
        ("surprises", "Not as expected: healthy"),
        ("unknown", "Could not be judged"),
        ("lost", "Lost"),
    ):
        if told[name]:
            line((f"\n{title}", "bold"))
            for row in told[name][:20]:
                line(
                    f"  {row['target']}"
                    f" {row['settings']}{': ' + row['why'] if row.get('why') else ''}"
                )
    if told["refused"]["count"]:
        line((f"\nRefused, in quarantine ({told['refused']['count']})", "bold"))
        for why in told["refused"]["reasons"][:20]:
            line(f"  {why}")
    if told["proposals"]:
        line(("\nPerhaps one bug", "bold"))
        for one in told["proposals"][:10]:
            a, b = one["bugs"]
            line(f"  {a} and {b}, {one['score']:.0%} alike: {'; '.join(one['shared'])}")
            line(f"          reprokit nightly merge {a} {b}, or split {a} {b}")
    line(f"\nreport     {output_dir / PAGE}")
    line(f"digest     {output_dir / DIGEST}")
