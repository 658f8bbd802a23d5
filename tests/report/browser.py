"""A headless Chromium, spoken to through its DevTools protocol over a pair of pipes: no driver, nothing downloaded."""

import base64
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
MISSING = "no Chromium is installed (Debian: apt-get install chromium; or name one with AUTOTUNE_TEST_BROWSER)"

_WIRE = """import os, sys
for number, given in enumerate(sys.argv[1:3]):
    os.dup2(int(given), 13 + number)
for number in (3, 4):
    os.dup2(10 + number, number)
os.execvp(sys.argv[3], sys.argv[3:])
"""
"""The protocol's pipes are the descriptors 3 and 4."""


def program() -> str | None:
    """The browser of this machine."""
    given = os.environ.get("AUTOTUNE_TEST_BROWSER")
    return given or next((path for path in map(shutil.which, PROGRAMS) if path), None)


class Browser:
    """One page. Events that come while an answer is waited for are kept in `events`."""

    def __init__(self, reader: Any, writer: Any) -> None:
        self._reader, self._writer, self._number = reader, writer, 0
        self._session: str | None = None
        self.events: list[dict[str, Any]] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """What the browser answers."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        self._writer.write(json.dumps(message).encode() + b"\0")
        self._writer.flush()
        while True:
            answer = self._receive()
            if answer.get("id") == self._number:
                assert "error" not in answer, (method, answer["error"])
                result: dict[str, Any] = answer["result"]
                return result
            self.events.append(answer)

    def _receive(self) -> dict[str, Any]:
        text = bytearray()
        while (byte := self._reader.read(1)) != b"\0":
            assert byte, "the browser has ended"
            text += byte
        message: dict[str, Any] = json.loads(bytes(text))
        return message

    def open(self, address: str, width: int, height: int = 844) -> None:
        """Load a page at a width in CSS pixels, and wait until it is there."""
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        self.events.clear()
        self.call("Page.navigate", url=address)
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self._receive())

    def ask(self, expression: str) -> Any:
        """The value of an expression of JavaScript; a promise is waited for."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def requests(self) -> list[str]:
        """Addresses that were asked for since the page was opened."""
        return [event["params"]["request"]["url"] for event in self.events
                if event.get("method") == "Network.requestWillBeSent"]  # fmt: skip

    def complaints(self) -> list[str]:
        """What the browser's console and its log say of errors."""
        found = [event["params"]["entry"] for event in self.events if event.get("method") == "Log.entryAdded"]
        thrown = [event for event in self.events if event.get("method") == "Runtime.exceptionThrown"]
        return [entry["text"] for entry in found if entry["level"] == "error"] + [str(event) for event in thrown]

    def picture(self, path: Path, most: int = 16000) -> None:
        """A screenshot of the whole page, however long, up to `most` pixels."""
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": min(size["height"], most), "scale": 1}
        data = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)["data"]
        path.write_bytes(base64.b64decode(data))


@contextmanager
def browser(name: str, profile: Path) -> Iterator[Browser]:
    """A browser with a profile of its own, without network access for itself."""
    from_us, to_browser = os.pipe()
    from_browser, to_us = os.pipe()
    command = [
        name, "--headless=new", "--remote-debugging-pipe", f"--user-data-dir={profile}", "--no-sandbox",
        "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--disable-extensions", "--hide-scrollbars",
        "--disable-background-networking", "--disable-component-update",
    ]  # fmt: skip

    wired = [sys.executable, "-c", _WIRE, str(from_us), str(to_us), *command]
    process = subprocess.Popen(wired, pass_fds=(from_us, to_us), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    os.close(from_us)
    os.close(to_us)
    try:
        with os.fdopen(from_browser, "rb") as reader, os.fdopen(to_browser, "wb") as writer:
            yield Browser(reader, writer)
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
