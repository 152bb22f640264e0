"""What a release says of itself is the same everywhere."""

import re
import tomllib
from pathlib import Path

import pytest

import jaxperf

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


@pytest.mark.parametrize(
    "page, pattern",
    [("CITATION.cff", r"^version: (\S+)$"), ("CHANGELOG.md", r"^## \[(\d\S*)\]")],
)
def test_the_version_is_that_of_the_package(page, pattern):
    first = re.search(pattern, (ROOT / page).read_text(), re.MULTILINE)
    assert first
    assert first[1] == PROJECT["version"] == jaxperf.__version__


def test_the_date_of_the_release_is_that_of_the_changelog():
    cited = re.search(r"^date-released: (\S+)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)
    assert cited
    assert f"## [{PROJECT['version']}] - {cited[1]}" in (ROOT / "CHANGELOG.md").read_text()


def test_every_dependency_is_explained():
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]
    needed = [
        *PROJECT["dependencies"],
        *sum(PROJECT["optional-dependencies"].values(), []),
        *(each for group in groups.values() for each in group if isinstance(each, str)),
    ]
    page = (ROOT / "docs" / "dependencies.md").read_text()
    names = {re.match(r"[\w-]+", each)[0] for each in needed}  # type: ignore[index]
    assert not {name for name in names if not re.search(rf"(?<![\w-]){name}(?![\w-])", page)}
