"""The page of the compiles has what the traces say, is safe with any text, and has a limit."""

from __future__ import annotations

from pathlib import Path

from reprokit.host.report.page import compile_pages
from tests.core.test_trace_records import FAILED, TRACE, line, of
from tests.host.test_report import EVIL, check_page_is_accessible, check_page_is_safe
from tests.support.browser import DESKTOP_WIDTH, PHONE_WIDTH, Browser

GUARD = line(of(artifact={"name": "dynamo_cpp_guards_str"}), f"GUARD {EVIL}")
CODE = line(of(artifact={"name": "inductor_output_code"}), "x" * 60)


def traces(text: str = TRACE, count: int = 1) -> dict[str, bytes]:
    return {f"rank_{rank}.log": text.encode() for rank in range(count)}


def test_the_page_has_each_compile_and_escapes_everything() -> None:
    """It has the graph with the user's line, the error, times and guards."""
    failed = FAILED["compilation_metrics"] | {"dynamo_cumulative_compile_time_us": 1_500_000}
    text = TRACE.replace(line(FAILED), GUARD + line(of(compilation_metrics=failed)))
    found = check_page_is_safe(compile_pages.render_compile_pages(traces(text)), "compiles")
    check_page_is_accessible(found)
    body = found.all("body")[0][1]
    for part in (
        "# File: /home/me/model.py:10",
        "KeyError: 'buf1'",
        "dynamo 1.50",
        EVIL,
        "1 compile",
    ):
        assert part in body, part
    links = {attrs["href"] for attrs, _ in found.all("a") if not attrs["href"].startswith("#")}
    assert links == {"report.html"}
    (opened,) = [text for attrs, text in found.all("details") if "open" in attrs]
    assert opened.startswith("Graph of Dynamo")


def test_each_process_has_its_own_compiles() -> None:
    found = check_page_is_safe(compile_pages.render_compile_pages(traces(count=3)), "compiles")
    check_page_is_accessible(found)
    assert "rank_2.log" in found.all("body")[0][1] and "3 compiles" in found.all("h1")[0][1]


def test_a_page_has_a_limit() -> None:
    """Compiles that failed have room first, and what is left out is said."""
    healthy = "".join(
        line(
            of(number, artifact={"name": "inductor_output_code"}), f"code {number} " + "x" * 150_000
        )
        + line(of(number, compilation_metrics={"co_name": f"f{number}"}))
        for number in range(1, 300)
    )
    page = compile_pages.render_compile_pages(traces(healthy + TRACE))
    assert len(page) < 2 * compile_pages.MAX_CHARS
    assert "200 compiles" in page and "100 more are only in the trace" in page
    assert "KeyError" in page and "Generated code: the trace of the pack has it" in page
    assert compile_pages.render_compile_pages({}) == ""
    assert compile_pages.render_compile_pages({"a": b"no trace"}) == ""
    assert compile_pages.render_compile_pages({"a": TRACE[:40].encode()}) == ""


def test_a_browser_shows_the_page_of_the_compiles(tmp_path: Path, browser: Browser) -> None:
    """It fits a desktop and a phone, and a link to a compile opens its parts."""
    page = tmp_path / "compiles.html"
    page.write_text(compile_pages.render_compile_pages(traces(TRACE + CODE, count=2)))
    with browser.open_tab() as tab:
        for width in (DESKTOP_WIDTH, PHONE_WIDTH):
            tab.open_page(page, width)
            content, window = tab.page_width()
            assert content <= window == width and tab.problems == []
        opened = "[...document.querySelectorAll('#c1-0-0 ~ details')].map(part => part.open)"
        assert tab.evaluate(opened) == [True, False]
        tab.click("a[href='#c1-0-0']")
        tab.wait_for(f"{opened}.every(part => part)", True)
