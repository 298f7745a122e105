"""Open pages in a real headless Chromium, and use them: click, type, measure, take pictures.

The tests speak the DevTools protocol through a pipe: JSON messages that end with a null byte.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import pytest

from tests.support.system_packages import require_programs

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)
DESKTOP_WIDTH, PHONE_WIDTH = 1180, 390
TIMEOUT_S = 120
WAIT_S = 20
MAX_HEIGHT = 12_000


_LEFT = "Inspected target navigated or closed"
"""The error of Chromium for a page that a click leaves."""


class Tab:
    """One tab of a running Chromium."""

    def __init__(self, commands: IO[bytes], answers: IO[bytes]) -> None:
        self._commands, self._answers = commands, answers
        self._number, self._session = 0, ""
        self._events: list[dict[str, Any]] = []
        targets = self.send("Target.getTargets")["targetInfos"]
        page = next(t["targetId"] for t in targets if t["type"] == "page")
        attached = self.send("Target.attachToTarget", targetId=page, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.send(f"{domain}.enable")

    def send(self, method: str, is_repeated: bool = False, **parameters: Any) -> dict[str, Any]:
        """Send one command, and return its result. With ``is_repeated``, send it again if the page
        was left meanwhile.
        """
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        self._commands.write(json.dumps(message).encode() + b"\0")
        self._commands.flush()
        while (answer := self._read()).get("id") != self._number:
            self._events.append(answer)
        if is_repeated and _LEFT in str(answer.get("error")):  # a link leads to a different page
            return self.send(method, is_repeated, **parameters)
        assert "error" not in answer, (method, answer["error"])
        return answer["result"]

    def _read(self) -> dict[str, Any]:
        data = bytearray()
        while (byte := self._answers.read(1)) != b"\0":
            assert byte, "Chromium has ended"
            data += byte
        return json.loads(data)

    def open_page(self, page: Path, width: int = DESKTOP_WIDTH, dark: bool = False) -> None:
        """Open a file as a window of this width, or as a phone if it is narrow."""
        is_phone = width < 600
        self._events.clear()
        self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=840,
            deviceScaleFactor=1,
            mobile=is_phone,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.send("Emulation.setEmulatedMedia", features=[scheme])
        self.send("Page.navigate", url=page.as_uri())
        while not any(event["method"] == "Page.loadEventFired" for event in self._events):
            self._events.append(self._read())

    def evaluate(self, code: str) -> Any:
        """Return the JSON value of a JavaScript expression in the page, as if a user acted."""
        done = self.send(
            "Runtime.evaluate",
            expression=code,
            returnByValue=True,
            awaitPromise=True,
            userGesture=True,
            is_repeated=True,
        )
        assert "exceptionDetails" not in done, done
        return done["result"].get("value")

    def wait_for(self, code: str, value: object) -> None:
        """Wait until an expression has a value. Input reaches the page some time after it is sent."""
        end = time.monotonic() + WAIT_S
        while (now := self.evaluate(code)) != value:
            assert time.monotonic() < end, f"{code} is {now!r} and not {value!r}"
            time.sleep(0.05)

    def click(self, selector: str) -> None:
        """Click the middle of an element with the mouse."""
        code = (
            f"(e => {{ e.scrollIntoView({{block: 'center'}}); const r = e.getBoundingClientRect();"
            f" return [r.x + r.width / 2, r.y + r.height / 2]; }})(document.querySelector({selector!r}))"
        )
        x, y = self.evaluate(code)
        for kind in ("mousePressed", "mouseReleased"):
            self.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def type_text(self, selector: str, text: str) -> None:
        """Type a text into an empty field."""
        self.evaluate(f"document.querySelector({selector!r}).focus()")
        self.evaluate(f"document.querySelector({selector!r}).value = ''")
        self.send("Input.insertText", text=text)

    def paste(self, selector: str, text: str) -> None:
        """Paste the clipboard into a field until it has this text; copying may take some time."""
        field = f"document.querySelector({selector!r})"
        end = time.monotonic() + WAIT_S
        while (now := self.evaluate(f"{field}.value")) != text:
            assert time.monotonic() < end, f"{selector} has {now!r}"
            self.evaluate(f"{field}.value = ''; {field}.focus()")
            self.send("Input.dispatchKeyEvent", type="keyDown", key="v", commands=["paste"])
            time.sleep(0.2)

    def press_key(self, key: str) -> None:
        """Press a key, such as ``ArrowDown``."""
        for kind in ("keyDown", "keyUp"):
            self.send("Input.dispatchKeyEvent", type=kind, key=key, code=key)

    def screenshot(self, png: Path, max_height: int = MAX_HEIGHT) -> bytes:
        """Return the whole page as a PNG, which is also written to ``png``."""
        size = self.send("Page.getLayoutMetrics")["cssContentSize"]
        clip = {
            "x": 0,
            "y": 0,
            "width": size["width"],
            "height": min(size["height"], max_height),
            "scale": 1,
        }
        done = self.send("Page.captureScreenshot", clip=clip, captureBeyondViewport=True)
        png.write_bytes(base64.b64decode(done["data"]))
        return png.read_bytes()

    @property
    def problems(self) -> list[str]:
        """Errors of scripts and of the security policy, and requests for other than this file."""
        found = []
        for event in self._events:
            about = event.get("params", {})
            if event["method"] == "Runtime.exceptionThrown":
                found.append(json.dumps(about["exceptionDetails"]))
            elif event["method"] == "Log.entryAdded" and about["entry"]["level"] == "error":
                found.append(about["entry"]["text"])
            elif event["method"] == "Network.requestWillBeSent" and about["type"] != "Document":
                found.append(about["request"]["url"])
        return found

    def page_width(self) -> tuple[int, int]:
        """Return the width of the content and of the window; they differ if the page scrolls."""
        code = "[document.documentElement.scrollWidth, document.documentElement.clientWidth]"
        content, window = self.evaluate(code)
        return content, window


@dataclass(frozen=True)
class Browser:
    """A headless Chromium."""

    program: str

    @contextlib.contextmanager
    def open_tab(self) -> Iterator[Tab]:
        """Start the browser with one tab, and end it afterwards."""
        child_reads, we_write = os.pipe()
        we_read, child_writes = os.pipe()
        with (
            tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile,
            open(we_write, "wb") as commands,
            open(we_read, "rb") as answers,
        ):
            # the protocol uses the descriptors 3 and 4
            pipes = f'exec "$@" 3<&{child_reads} 4>&{child_writes}'
            words = [self.program, *FLAGS, f"--user-data-dir={profile}", "about:blank"]
            child = subprocess.Popen(
                ["bash", "-c", pipes, "bash", *words],
                pass_fds=(child_reads, child_writes),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
            os.close(child_reads)
            os.close(child_writes)

            def kill() -> None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(child.pid, signal.SIGKILL)

            limit = threading.Timer(TIMEOUT_S, kill)  # a read from a dead browser ends
            limit.start()
            try:
                yield Tab(commands, answers)
            finally:
                limit.cancel()
                kill()
                child.wait()


def find_browser(config: pytest.Config) -> Browser:
    """Return the installed Chromium, or skip the test."""
    require_programs(config, "browser", ("chromium",), ("chromium", "chromium-driver"))
    return Browser("chromium")
