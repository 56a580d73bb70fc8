"""A page in Chromium."""

from __future__ import annotations

import time
from typing import Any

from playwright.sync_api import Page

ARGUMENTS = [  # software rendering, and no request of the browser's own
    "--no-sandbox",
    "--use-angle=swiftshader",
    "--enable-unsafe-swiftshader",
    "--ignore-gpu-blocklist",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]


class Opened:
    """A page, with what it said and asked for."""

    def __init__(self, page: Page, url: str) -> None:
        self.page, self.said, self.requests = page, [], []
        page.on("console", lambda message: self.said.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: self.said.append(str(error)))
        page.on("request", lambda request: self.requests.append(request.url))
        page.goto(url)

    def js(self, expression: str) -> Any:
        return self.page.evaluate(expression)

    def wait(self, condition: str, seconds: float = 30) -> None:
        """Playwright's own waiting evaluates text, which the page's policy forbids."""
        until = time.monotonic() + seconds
        while not self.js(f"Boolean({condition})"):
            assert time.monotonic() < until, (condition, self.said)
            time.sleep(0.05)

    def text(self, id_: str) -> str:
        return self.page.locator(f"#{id_}").inner_text()
