"""A headless Chromium, told what to do over a pipe in the protocol of its developer tools; nothing but the standard library.

The protocol runs code in a page whatever that page's own policy is, so a page without scripts can be asked how it looks.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Any, Self

__all__ = ["Browser", "chromium"]

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_FLAGS = (
    "--headless",
    "--no-sandbox",  # tests may run as root
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
)


def chromium() -> str | None:
    """The browser's program; None where there is none."""
    return next((found for name in _NAMES if (found := shutil.which(name))), None)


class Browser:
    """One page of a browser."""

    def __init__(self, program: str) -> None:
        self._profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        commands, self._commands = os.pipe()
        self._answers, answers = os.pipe()
        profile = f"--user-data-dir={self._profile.name}"
        # The browser reads from 3 and writes to 4; a shell puts the pipes there.
        self._process = subprocess.Popen(
            ["bash", "-c", f'exec "$@" 3<&{commands} 4>&{answers}', "bash", program, *_FLAGS, profile],
            pass_fds=(commands, answers),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(commands)
        os.close(answers)
        self._rest, self._number, self._session = b"", 0, ""
        self.requests: list[str] = []
        target = self._ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self._ask("Page.enable")
        self._ask("Network.enable")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._commands)  # by which it ends
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._answers)
        self._profile.cleanup()

    def show(self, page: Path, width: int, scheme: str, media: str = "screen") -> None:
        """Load a page at a width in CSS pixels, light or dark; its requests are in ``requests``."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self._ask("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        self._ask("Emulation.setEmulatedMedia", media=media, features=features)
        self.requests = []
        self._ask("Page.navigate", url=page.absolute().as_uri())
        while self._read().get("method") != "Page.loadEventFired":
            pass

    def evaluate(self, expression: str) -> Any:
        """What an expression of JavaScript comes to, as plain values."""
        found = self._ask("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def _ask(self, method: str, **values: Any) -> dict[str, Any]:
        self._number += 1
        asked = {"id": self._number, "method": method, "params": values}
        if self._session:
            asked["sessionId"] = self._session
        os.write(self._commands, json.dumps(asked).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return answer["result"]

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            found = os.read(self._answers, 1 << 20)
            assert found, "the browser has ended"
            self._rest += found
        message, self._rest = self._rest.split(b"\0", 1)
        answer = json.loads(message)
        if answer.get("method") == "Network.requestWillBeSent":
            self.requests.append(answer["params"]["request"]["url"])
        return answer
