"""A forgiving JSON parser, for the few events that a strict one refuses.

It never raises: every departure from JSON is read in the likeliest way and counted under the code
of a note. It is slow (pure Python), and is only given the pieces that failed.
"""

import re
from collections import Counter
from decimal import Decimal
from typing import Any

_SPACE = re.compile(r"[\s\x00-\x1f]*")
_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?(?=[\s,}\]]|$)")
_WORD = re.compile(r"[^\s,:{}\[\]\"]+")
_LITERALS = {"true": True, "false": False, "null": None}
_PYTHON_LITERALS = {"True": True, "False": False, "None": None}
_NO_NUMBER = re.compile(r"[+-]?(?:nan|inf|infinity)(?:\(\w*\))?", re.IGNORECASE)
_ESCAPE = re.compile(r"\\(?:u[0-9a-fA-F]{4}|.)", re.DOTALL)
_VALID_ESCAPE = re.compile(r"\\(?:[\"\\/bfnrt]|u[0-9a-fA-F]{4})")
_SIMPLE = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_CONTROL = re.compile(r"[\x00-\x1f]")
_SURROGATES = re.compile(r"[\ud800-\udbff][\udc00-\udfff]|[\ud800-\udfff]")
_AFTER_KEY = re.compile(r"\s*:")
# What follows the closing quote of a value: the end of its container, or the next key or element.
_AFTER_VALUE_IN_OBJECT = re.compile(r"\s*(?:\}|\]|$|,\s*(?:\"(?:[^\"\\\n]|\\.)*\"\s*:|[}\]{]|$))")
_AFTER_VALUE_IN_ARRAY = re.compile(r"\s*(?:\]|\}|$|,\s*(?:[\"\[\]{}\d-]|true|false|null|$))")
_BRACKET = re.compile(r"[{}\[\]]")
_NEXT_KEY = re.compile(r"\s*\"(?:[^\"\\\n]|\\.)*\"\s*:")
_DEPTH = 100


def parse(data: bytes) -> tuple[list[Any], Counter[str]]:
    """Every JSON value in a damaged text.

    Args:
        data: the text; pieces of text between values are skipped.

    Returns:
        The values, and how many repairs of each kind (codes of notes) were made. Numbers with a
        fraction are `Decimal`. A value that cannot be understood is `None`.
    """
    parser = _Parser(data)
    return parser.values(), parser.repairs


class _Parser:
    def __init__(self, data: bytes):
        self.repairs: Counter[str] = Counter()
        try:
            self.text = data.decode()
        except UnicodeDecodeError:
            self.text = data.decode(errors="replace")
            self.repairs["not-utf8"] += 1
        self.at = 0

    def values(self) -> list[Any]:
        found = []
        while char := self._peek():
            if char in "{[":
                found.append(self._value(0))
            elif char in "}]":
                self.repairs["stray-bracket"] += 1
                self.at += 1
            elif char == ",":
                self.at += 1
            else:
                self.repairs["stray-text"] += 1
                self.at = _next_bracket(self.text, self.at)
        return found

    def _peek(self) -> str:
        match = _SPACE.match(self.text, self.at)
        assert match
        self.at = match.end()
        return self.text[self.at : self.at + 1]

    def _value(self, depth: int) -> Any:
        char = self._peek()
        if char == "{" and depth < _DEPTH:
            return self._object(depth)
        if char == "[" and depth < _DEPTH:
            return self._array(depth)
        if char == '"':
            return self._string(_AFTER_VALUE_IN_OBJECT)
        return self._bare()

    def _object(self, depth: int) -> dict[str, Any]:
        self.at += 1
        found: dict[str, Any] = {}
        after_member = False
        while True:
            char = self._peek()
            if char == "}":
                self.at += 1
                return found
            if char == ",":
                self._comma(after_member, "}")
                after_member = False
            elif char == '"':
                if after_member:
                    self.repairs["missing-comma"] += 1
                key = self._string(_AFTER_KEY)
                if self._peek() == ":":
                    self.at += 1
                    found[key] = self._member_value(depth)
                else:
                    self.repairs["unreadable-value"] += 1
                after_member = True
            elif not char or char in "{[]":
                # The start of the next event, or the end of an array around us.
                self.repairs["missing-bracket"] += 1
                return found
            else:
                self.repairs["unreadable-value"] += 1
                self.at += 1

    def _member_value(self, depth: int) -> Any:
        char = self._peek()
        if not char or char in ",}]":
            self.repairs["empty-value"] += 1
            return None
        return self._value(depth + 1)

    def _array(self, depth: int) -> list[Any]:
        self.at += 1
        found: list[Any] = []
        after_element = False
        while True:
            char = self._peek()
            if char == "]":
                self.at += 1
                return found
            if char == ",":
                self._comma(after_element, "]")
                after_element = False
            elif not char or char in "}:" or (char == '"' and self._at_key()):
                self.repairs["missing-bracket"] += 1
                return found
            else:
                if after_element:
                    self.repairs["missing-comma"] += 1
                quoted = char == '"'
                found.append(
                    self._string(_AFTER_VALUE_IN_ARRAY) if quoted else self._value(depth + 1)
                )
                after_element = True

    def _at_key(self) -> bool:
        return _NEXT_KEY.match(self.text, self.at) is not None

    def _comma(self, after_item: bool, closing: str) -> None:
        self.at += 1
        if not after_item or self._peek() == closing:
            self.repairs["stray-comma"] += 1

    def _string(self, after: re.Pattern[str]) -> str:
        """The text from the quote here to the first quote that `after` follows."""
        start = self.at + 1
        end = start
        inner = 0
        while True:
            end = self._next_quote(end)
            if end < 0:
                # No quote closes it: it ends with its line, or with the text.
                self.repairs["missing-quote"] += 1
                line_end = self.text.find("\n", start)
                end = len(self.text) if line_end < 0 else line_end
                end -= self.text.endswith(",", start, end)
                self.at = end
                break
            if after.match(self.text, end + 1):
                if inner:
                    self.repairs["inner-quote"] += inner
                self.at = end + 1
                break
            inner += 1
            end += 1
        return self._unescape(self.text[start:end])

    def _next_quote(self, at: int) -> int:
        while (at := self.text.find('"', at)) >= 0:
            first = at
            while first and self.text[first - 1] == "\\":
                first -= 1
            if (at - first) % 2 == 0:
                return at
            at += 1
        return -1

    def _unescape(self, body: str) -> str:
        if controls := len(_CONTROL.findall(body)):
            self.repairs["control-character"] += controls
        if "\\" not in body:
            return body
        if any(not _VALID_ESCAPE.match(m.group()) for m in _ESCAPE.finditer(body)):
            # Whoever wrote one backslash alone wrote them all alone (paths on Windows).
            self.repairs["lone-backslash"] += 1
            return body.replace('\\"', '"').replace("\\\\", "\\")
        text = _ESCAPE.sub(_unescape_one, body)
        return _SURROGATES.sub(_join_surrogates, text)

    def _bare(self) -> Any:
        match = _NUMBER.match(self.text, self.at)
        if match:
            self.at = match.end()
            written = match.group()
            return Decimal(written) if any(c in written for c in ".eE") else int(written[:400])
        match = _WORD.match(self.text, self.at)
        if not match:
            self.at += 1
            self.repairs["unreadable-value"] += 1
            return None
        self.at = match.end()
        word = match.group()
        if word in _LITERALS:
            return _LITERALS[word]
        if _NO_NUMBER.fullmatch(word):
            self.repairs["not-a-number"] += 1
            return None
        self.repairs["unreadable-value"] += 1
        if word in _PYTHON_LITERALS:
            return _PYTHON_LITERALS[word]
        try:
            return Decimal(word.lstrip("+")) if word[:1] in "+-.0123456789" else None
        except ArithmeticError:
            return None


def _next_bracket(text: str, at: int) -> int:
    match = _BRACKET.search(text, at)
    return match.start() if match else len(text)


def _unescape_one(match: re.Match[str]) -> str:
    code = match.group()[1:]
    return chr(int(code[1:], 16)) if code[0] == "u" and len(code) == 5 else _SIMPLE[code]


def _join_surrogates(match: re.Match[str]) -> str:
    pair = match.group()
    return pair.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
