"""The public names: each is exported explicitly, documented, and found where the docs say."""

import ast
import importlib
import inspect
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import jaxperf

PACKAGE = Path(jaxperf.__file__).parent
API = (PACKAGE.parent / "docs" / "api.md").read_text()


def public_packages():
    """`jaxperf` and each part of it whose name has no underscore."""
    yield "jaxperf"
    for module in pkgutil.walk_packages([str(PACKAGE)], "jaxperf."):
        if not any(part.startswith("_") for part in module.name.split(".")):
            yield module.name


def exported(package):
    """Names that a package re-exports, or that a public module defines."""
    path = Path(importlib.import_module(package).__file__ or "")
    tree = ast.parse(path.read_text())
    if path.name == "__init__.py":
        imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
        return [alias for node in imports for alias in node.names if alias.asname]
    nodes = [n for n in tree.body if isinstance(n, ast.FunctionDef | ast.ClassDef)]
    return [ast.alias(node.name, node.name) for node in nodes if not node.name.startswith("_")]


PUBLIC = [(package, alias) for package in public_packages() for alias in exported(package)]


@pytest.mark.parametrize("package, alias", PUBLIC, ids=lambda x: getattr(x, "name", x))
def test_a_public_name_is_exported_under_its_own_name_and_documented(package, alias):
    assert alias.name == alias.asname
    assert not alias.name.startswith("_")
    value = getattr(importlib.import_module(package), alias.name)
    if callable(value):
        assert inspect.getdoc(value), f"{package}.{alias.name} has no docstring"


def test_every_name_of_the_package_itself_is_resolved_and_in_the_api_page():
    names = {alias.name for alias in exported("jaxperf")}
    assert names == {name for name in dir(jaxperf) if hasattr(jaxperf, name)} & names
    assert set(jaxperf._MODULES) <= names
    missing = sorted(name for name in names if f"`{name}`" not in API)
    assert not missing, f"docs/api.md lacks {missing}"


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'repaly'"):
        jaxperf.repaly  # noqa: B018


def test_the_verb_replay_is_not_shadowed_by_its_package():
    import jaxperf.replay._types
    from jaxperf.replay import Timeline

    assert callable(jaxperf.replay)
    assert jaxperf.Timeline is Timeline


@pytest.mark.parametrize(
    "verb", [name for name, place in jaxperf._MODULES.items() if place == f"jaxperf.{name}"]
)
def test_a_verb_is_one_whichever_of_its_modules_came_first(verb):
    program = (
        f"import jaxperf.{verb}, sys, types\n"
        f"assert isinstance(jaxperf.{verb}, types.FunctionType)\n"
        f"from jaxperf import {verb}\n"
        f"assert {verb} is sys.modules['jaxperf.{verb}'].{verb} is jaxperf.{verb}\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_help_imports_no_numpy():
    program = (
        "import sys, jaxperf.cli\n"
        "assert jaxperf.cli.main(['--help']) == 0\n"
        "sys.exit('numpy' in sys.modules)\n"
    )
    subprocess.run(
        [sys.executable, "-c", program], check=True, timeout=60, stdout=subprocess.DEVNULL
    )


@pytest.mark.parametrize("module", ["jaxperf", "jaxperf.inspection", "jaxperf.simulator"])
def test_the_host_side_is_imported_without_jax(module):
    program = f"import sys, {module}; sys.exit('jax' in sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
