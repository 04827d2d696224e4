"""A page in headless Chromium, over the DevTools protocol on a pipe: what it says on its console, asks the network for, and looks like.

Enters: the path of an HTML file. Leaves: results of expressions, pictures, a PDF. Skips the test, with the reason, where Chromium is not.
"""

from __future__ import annotations

import base64
import fcntl
import itertools
import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest

FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking --disable-component-update"
    " --disable-sync --disable-extensions --hide-scrollbars --remote-debugging-pipe"
).split()


def chromium() -> str:
    """Where Chromium is; skips the test where it is not."""
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if found is None:
        pytest.skip("no Chromium on this machine (Debian: apt-get install chromium)")
    return found


class Page:
    """One page in a browser of its own, with an empty profile. problems: what the console and the network had to say."""

    def __init__(self) -> None:
        self.profile = tempfile.TemporaryDirectory(prefix="aot-chromium-", ignore_cleanup_errors=True)
        commands, self.to = os.pipe()
        self.answers, answers = os.pipe()
        ends = [
            fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in (commands, answers)
        ]  # Chromium's are 3 and 4, which may be taken

        def attach() -> None:
            for number, end in enumerate(ends, 3):
                os.dup2(end, number)

        arguments = [chromium(), *FLAGS, f"--user-data-dir={self.profile.name}", "about:blank"]
        quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self.process = subprocess.Popen(arguments, close_fds=False, preexec_fn=attach, **quiet)
        for end in ends:
            os.close(end)
        os.close(commands)
        os.close(answers)
        self.numbers, self.pending = itertools.count(1), b""
        self.events: list[dict[str, Any]] = []
        self.session: str | None = None
        target = next(one for one in self.call("Target.getTargets")["targetInfos"] if one["type"] == "page")
        self.session = self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def __enter__(self) -> Page:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.to)
        self.process.terminate()
        self.process.wait()
        os.close(self.answers)
        self.profile.cleanup()

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """A command's result; events that come before it are kept."""
        number = next(self.numbers)
        message = {"id": number, "method": method, "params": parameters, **({"sessionId": self.session} if self.session else {})}
        os.write(self.to, json.dumps(message).encode() + b"\0")
        while (answer := self._next()).get("id") != number:
            self.events.append(answer)
        assert "error" not in answer, (method, answer)
        return answer["result"]

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self.pending:
            read = os.read(self.answers, 1 << 20)
            assert read, "Chromium has ended"
            self.pending += read
        line, self.pending = self.pending.split(b"\0", 1)
        return json.loads(line)

    def open(self, path: Path, width: int = 1280, dark: bool = False) -> None:
        """Show a file, in a window of this width, until its script has run."""
        self.resize(width, dark=dark)
        self.call("Page.navigate", url=path.resolve().as_uri())
        self.events.append({})
        while self.events[-1].get("method") != "Page.loadEventFired":
            self.events.append(self._next())
        assert self.evaluate("document.documentElement.dataset.ready") == "yes", self.problems

    def resize(self, width: int, height: int = 900, dark: bool = False) -> None:
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression."""
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def key(self, name: str) -> None:
        """Press a key where the focus is."""
        text = {"text": "\r"} if name == "Enter" else {}
        code = {"Enter": 13, "Tab": 9, "ArrowRight": 39}.get(name, 0)
        self.call("Input.dispatchKeyEvent", type="keyDown", key=name, windowsVirtualKeyCode=code, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=name, windowsVirtualKeyCode=code)

    def point(self, selector: str, number: int = 0) -> None:
        """Move the mouse on an element."""
        x, y = self.evaluate(
            f"(() => {{ const one = document.querySelectorAll({json.dumps(selector)})[{number}]; one.scrollIntoView({{block: 'center'}});"
            " const box = one.getBoundingClientRect(); return [box.x + box.width / 2, box.y + box.height / 2]; })()"
        )
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    @property
    def problems(self) -> list[str]:
        """Errors and warnings of the console and exceptions, as text."""
        found = []
        for event in self.events:
            if event.get("method") in ("Runtime.exceptionThrown", "Log.entryAdded"):
                found.append(json.dumps(event["params"]))
            if event.get("method") == "Runtime.consoleAPICalled":
                found.append(json.dumps(event["params"]["args"]))
        return found

    @property
    def requests(self) -> list[str]:
        """Addresses that were asked for, but for files and data."""
        asked = [event["params"]["request"]["url"] for event in self.events if event.get("method") == "Network.requestWillBeSent"]
        return [url for url in asked if not url.startswith(("file:", "data:"))]

    def picture(self, path: Path, whole: bool = True) -> None:
        """A PNG of the page."""
        made = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(made["data"]))

    def pdf(self, path: Path) -> None:
        path.write_bytes(base64.b64decode(self.call("Page.printToPDF", printBackground=False, preferCSSPageSize=True)["data"]))
