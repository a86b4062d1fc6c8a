"""What is served to browsers: vendored with its licence, readable contrast in both themes, bounded weight."""

import gzip
import re

import pytest

SHEET = "dashboard/static/dashboard/sluicegate.css"


def tokens(root, theme):
    """Token -> (r, g, b) of one theme."""
    found = {}
    pattern = r"--([a-z0-9-]+): (?:light-dark\((#[0-9a-f]{6}), (#[0-9a-f]{6})\)|(#[0-9a-f]{6}));"
    for name, light, dark, both in re.findall(pattern, (root / SHEET).read_text()):
        text = both or (light if theme == "light" else dark)
        found[name] = tuple(int(text[i : i + 2], 16) for i in (1, 3, 5))
    return found


def luminance(rgb):
    """Relative luminance as WCAG 2 defines it."""
    parts = [c / 255 / 12.92 if c / 255 <= 0.04045 else ((c / 255 + 0.055) / 1.055) ** 2.4 for c in rgb]
    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]


def contrast(one, other):
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


PAIRS = [
    *(
        (text, ground)
        for text in ("text", "text-2", "text-3")
        for ground in ("bg", "surface", "sunken", "raised")
    ),
    *((f"{name}-ink", f"{name}-tint") for name in ("p0", "p1", "p2", "bad", "good")),
    *((f"{name}-ink", "surface") for name in ("p0", "p1", "p2", "bad", "good")),
    ("text-2", "track"),
    ("text-2", "bad-tint"),
    ("accent", "surface"),
    ("accent", "accent-tint"),
    ("on-solid", "accent-solid"),
    ("on-solid", "bad-solid"),
]


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize(("text", "ground"), PAIRS, ids=[f"{t} on {g}" for t, g in PAIRS])
def test_text_is_readable(request, theme, text, ground):
    found = tokens(request.config.rootpath, theme)
    assert contrast(found[text], found[ground]) >= 4.5


def test_plotly_is_vendored_whole_with_its_licence(request):
    folder = request.config.rootpath / "dashboard/static/dashboard/vendor"
    script = (folder / "plotly-basic-4.1.1.min.js").read_text()
    assert "plotly.js (basic - minified) v4.1.1" in script[:200]
    assert "MIT License" in (folder / "plotly-LICENSE.txt").read_text()


def test_a_first_visit_weighs_less_than_900_kilobytes(request):
    folder = request.config.rootpath / "dashboard/static/dashboard"
    files = [*folder.glob("*.js"), *folder.glob("*.css"), *(folder / "vendor").glob("*.js")]
    assert sum(len(gzip.compress(f.read_bytes())) for f in files) < 500_000


def test_scripts_ask_nobody_else(request):
    folder = request.config.rootpath / "dashboard/static/dashboard"
    for file in [*folder.glob("*.js"), *folder.glob("*.css")]:
        assert not re.search(r"https?://(?!www\.w3\.org/)", file.read_text()), file.name
