"""A real Chromium. Without one a test says loudly that it was skipped; where CI=true it fails instead."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
ARGUMENTS = [
    "--headless",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def executable() -> str | None:
    """CHROMIUM, else what the PATH has under a usual name."""
    return os.environ.get("CHROMIUM") or next((path for path in map(shutil.which, NAMES) if path), None)


@contextmanager
def running_chromium() -> Iterator[Browser]:
    """A browser for as long as the block lasts."""
    path = executable()
    if path is None:
        words = "NO BROWSER: install chromium or set CHROMIUM; the pages were NOT tested in a browser"
        if os.environ.get("CI") == "true":
            pytest.fail(words)
        pytest.skip(words)
    as_root = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=[*ARGUMENTS, *as_root])
        try:
            yield browser
        finally:
            browser.close()


class Complaints:
    """What went wrong while a page was open: console errors (content policy included), script errors, 5xx answers."""

    def __init__(self, page: Page) -> None:
        self.found: list[str] = []
        page.on(
            "console", lambda m: self._note(m.type in ("error", "warning"), f"console: {m.text} {m.location}")
        )
        page.on("pageerror", lambda error: self._note(True, f"script: {error}"))
        page.on("response", lambda r: self._note(r.status >= 500, f"{r.status} {r.url}"))

    def _note(self, is_one: bool, text: str) -> None:
        if is_one:
            self.found.append(text)
