"""TOML into frozen nouns: unknown keys are refused, with the nearest that are known."""

import difflib
import os
import re
import tomllib
import warnings
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from jaxperf.errors import ConfigError

_T = TypeVar("_T")
_MOST_BYTES, _MOST_DOTS = 128 << 20, 1000
_FEW = 8
Source = str | os.PathLike[str]


def load_toml(path: Path, noun: type[_T]) -> _T:
    """Read a TOML file into a noun.

    Args:
        path: the file.
        noun: a msgspec `Struct`.

    Returns:
        What the file describes.

    Raises:
        ConfigError: the file cannot be read, or has a key or value that the noun has not.
    """
    return convert(read_toml(path), noun, str(path))


def read_toml(path: Path) -> dict[str, Any]:
    """The tables of a TOML file.

    Raises:
        ConfigError: the file cannot be read, or is none.
    """
    try:
        with open(path, "rb") as file:
            text = file.read(_MOST_BYTES + 1)
        if len(text) > _MOST_BYTES:
            raise ConfigError("too long", where=str(path), expected=f"at most {_MOST_BYTES} bytes")
        # The parser takes time with the square of them.
        if any(part.count(b".") > _MOST_DOTS for part in re.split(rb"[,=\n\]]", text)):
            expected = f"at most {_MOST_DOTS} dots in a key or a text"
            raise ConfigError("too long a key", where=str(path), expected=expected)
        return tomllib.loads(text.decode())
    except OSError as error:
        raise ConfigError(
            "cannot be read",
            where=str(path),
            got=error.strerror,
            expected="the name of a TOML file",
        ) from None
    except UnicodeDecodeError:
        raise ConfigError("not text", where=str(path), expected="TOML in UTF-8") from None
    except (ValueError, RecursionError) as error:
        # Also of numbers with thousands of digits, and tables nested as deep.
        remedy = None if path.suffix == ".toml" else "name a TOML file, with tables such as [table]"
        raise ConfigError(
            "not valid TOML", where=str(path), got=str(error), remedy=remedy
        ) from None


def convert(content: Any, noun: type[_T], where: str) -> _T:
    _refuse_large(content, where, "")
    _refuse_unknown(content, noun, where, "")
    try:
        return msgspec.convert(content, noun)
    except msgspec.ValidationError as error:
        what, _, place = str(error).partition(" - at ")
        key = place.strip("`").removeprefix("$").removeprefix(".")
        raise ConfigError(
            what.replace("`", ""), where=f"{where}: {key}" if key else where
        ) from None


def _refuse_large(content: Any, where: str, place: str) -> None:
    """Refuse whole numbers beyond TOML's own limit: no float holds the largest of them."""
    if isinstance(content, dict):
        for key, value in content.items():
            _refuse_large(value, where, f"{place}{_on_one_line(str(key))}.")
    elif isinstance(content, list | tuple):
        for index, value in enumerate(content):
            _refuse_large(value, where, f"{place.rstrip('.')}[{index}].")
    elif isinstance(content, int) and not -(2**63) <= content < 2**63:
        raise ConfigError(
            "too large a number",
            where=f"{where}: {place.rstrip('.')}",
            got=f"{content.bit_length()} bits",
            expected="a whole number of 64 bits, or one with an exponent",
        )


def _refuse_unknown(content: Any, noun: Any, where: str, place: str) -> None:
    """Refuse what no field of a noun takes, naming the fields or words that are nearest."""
    kind = msgspec.inspect.type_info(noun) if isinstance(noun, type) else noun
    if isinstance(kind, msgspec.inspect.UnionType):
        for each in kind.types:
            _refuse_unknown(content, each, where, place)
    elif isinstance(kind, msgspec.inspect.StructType) and isinstance(content, dict):
        fields = {field.encode_name: field.type for field in kind.fields}
        for key, value in content.items():
            if key not in fields:
                raise ConfigError(
                    "unknown key",
                    where=f"{where}: {place}{_on_one_line(key)}",
                    expected=one_of(key, fields),
                )
            _refuse_unknown(value, fields[key], where, f"{place}{key}.")
        _refuse_missing(content, kind, where, place)
    elif isinstance(kind, msgspec.inspect.DictType) and isinstance(content, dict):
        for key, value in content.items():
            _refuse_unknown(value, kind.value_type, where, f"{place}{_on_one_line(key)}.")
    elif isinstance(kind, msgspec.inspect.ListType) and isinstance(content, list):
        for index, value in enumerate(content):
            _refuse_unknown(value, kind.item_type, where, f"{place.rstrip('.')}[{index}].")
    elif isinstance(kind, msgspec.inspect.LiteralType) and isinstance(content, str):
        if content not in kind.values:
            words = [str(word) for word in kind.values]
            raise ConfigError(
                "unknown word",
                where=f"{where}: {place.rstrip('.')}",
                got=repr(content[:40]),
                expected=one_of(content, words),
            )


def _refuse_missing(
    content: Mapping[str, Any], kind: msgspec.inspect.StructType, where: str, place: str
) -> None:
    """Refuse a table without a field that has no default, naming all of these."""
    needed = [field.encode_name for field in kind.fields if field.required]
    missing = [name for name in needed if name not in content]
    if missing:
        raise ConfigError(
            f"missing required field {missing[0]}",
            where=f"{where}: {place.rstrip('.')}" if place else where,
            expected=f"a value for each of {', '.join(needed)}",
            remedy=f"add a line {missing[0]} = ..",
        )


def _on_one_line(key: str) -> str:
    return key if key.isprintable() else repr(key)


def number_places(
    content: dict[str, Any], place: str = ""
) -> Iterable[tuple[str, tuple[dict, str]]]:
    """Each number of nested tables: its key, and where it stands."""
    for key, value in content.items():
        if isinstance(value, dict):
            yield from number_places(value, f"{place}{key}.")
        elif not isinstance(value, str | bool):
            yield f"{place}{key}", (content, key)


def leaves(content: Mapping[str, Any], place: str = "") -> Iterable[tuple[str, Any]]:
    for key, value in content.items():
        if isinstance(value, dict):
            yield from leaves(value, f"{place}{key}.")
        else:
            yield f"{place}{key}", value


def read_named(
    source: Source,
    what: str,
    read: Callable[[Path], _T],
    known: Mapping[str, _T],
    otherwise: Callable[[str], _T | None] = lambda text: None,
) -> _T:
    """What a user names: by a file, or by the name of one that comes with the package.

    Args:
        source: the file or the name.
        what: what it is a description of.
        read: reads a file.
        known: those that come with the package, by name.
        otherwise: finds one by other words, or nothing.

    Returns:
        The description.

    Raises:
        ConfigError: there is no such file or name.
    """
    text = os.fspath(source)
    if os.path.isfile(text) or text.endswith(".toml"):
        return read(Path(text))
    found = known.get(text) or otherwise(text)
    if found is None:
        near = ", ".join(nearest_words(text, known, most=9))
        raise ConfigError(
            f"no such {what}",
            where=what,
            got=repr(text),
            expected=f"a TOML file, or one of {near}",
        )
    return found


def compile_pattern(pattern: str, where: str) -> re.Pattern[str]:
    """A regular expression that a user wrote.

    Raises:
        ConfigError: it is not valid, or too large.

    Example:
        >>> compile_pattern("a+", "scale").pattern
        'a+'
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            return re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        raise ConfigError(
            "not a regular expression", where=where, got=f"{pattern[:80]!r}: {error}"
        ) from None


def nearest_words(word: str, known: Iterable[str], most: int = 5) -> list[str]:
    """The known words that are most like one, else the first of them.

    Example:
        >>> nearest_words("gem", ["gemm", "attention"])
        ['gemm']
    """
    known = list(known)
    return difflib.get_close_matches(word, known, n=most, cutoff=0.5) or known[:most]


def one_of(word: str, known: Iterable[str]) -> str:
    """What was expected in place of a word: all where they are few, the nearest first.

    Example:
        >>> one_of("blck", ["row", "block"])
        'one of block, row'
        >>> one_of("w3", [f"w{i}" for i in range(3, 99)])
        'one of w3, w93, w83, w73, w63, ..'
    """
    known = list(known)
    near = nearest_words(word, known)
    few = len(known) <= _FEW
    others = [each for each in known if each not in near] if few else [".."]
    return f"one of {', '.join([*near, *others])}"


def config_folder(kind: str) -> Path:
    """The folder of the descriptions of one kind that come with the package.

    Args:
        kind: `hardware`, `jobs` or `steps`.

    Returns:
        The folder.
    """
    # In a wheel the files lie inside the package, in a checkout beside it.
    package = Path(__file__).resolve().parent.parent
    inside = package / "configs" / kind
    return inside if inside.is_dir() else package.parent / "configs" / kind
