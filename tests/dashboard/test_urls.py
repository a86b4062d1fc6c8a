import pytest
from django.urls import resolve, reverse


@pytest.mark.parametrize(
    ("name", "arguments", "path"),
    [
        ("overview", [], "/"),
        ("live", [], "/live/"),
        ("history", [], "/live/history/"),
        ("backend-override", ["b 1/x"], None),
        ("backend-override", ["b1"], "/backends/b1/override/"),
        ("override-release", ["ov_1"], "/overrides/ov_1/release/"),
        ("audit", [], "/audit/"),
        ("sign-in", [], "/sign-in/"),
        ("sign-out", [], "/sign-out/"),
    ],
)
def test_paths_are_stable_names(name, arguments, path):
    if path is None:
        with pytest.raises(Exception, match="Reverse for"):
            reverse(f"dashboard:{name}", args=arguments)
        return
    assert reverse(f"dashboard:{name}", args=arguments) == path
    assert resolve(path).view_name == f"dashboard:{name}"
