"""Texts of others (names in traces, logs, descriptions, file names) made harmless where they show.

They may hold anything: markup, codes that steer a terminal, marks that turn the direction of what
follows, halves of surrogate pairs.
"""

from collections.abc import Iterable
from html import escape

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.segment import Segment


def _codes(*ranges: tuple[int, int]) -> Iterable[int]:
    return (code for first, last in ranges for code in range(first, last + 1))


# Controls but for tab and line feed, and embeddings, overrides and isolates of direction.
_STEERING = (
    *_codes((0x00, 0x08), (0x0B, 0x1F), (0x7F, 0x9F)),
    *_codes((0x2028, 0x2029), (0x202A, 0x202E), (0x2066, 0x2069)),
)
# What no encoding of Unicode can say, and what no page may hold.
_NO_CHARACTER = (*_codes((0xD800, 0xDFFF)), 0xFFFE, 0xFFFF)

# Without width, as they are counted: a table stays straight.
_ON_TERMINAL = dict.fromkeys(_STEERING, "") | dict.fromkeys(_NO_CHARACTER, "\ufffd")
_IN_MARKUP = dict.fromkeys((*_STEERING, *_NO_CHARACTER), "\ufffd") | {0x0D: "\r"}


def markup_text(text: str) -> str:
    """A text for HTML or SVG, within an element or a quoted attribute.

    Args:
        text: anything.

    Returns:
        The text, escaped; where it has what a page cannot hold or should not obey, U+FFFD.

    Example:
        >>> markup_text('<b title="x">')
        '&lt;b title=&quot;x&quot;&gt;'
    """
    return escape(text.translate(_IN_MARKUP))


class Harmless:
    """What is printed, without the characters by which it would steer a terminal.

    Args:
        body: what is printed; colours and styles stay.
    """

    def __init__(self, body: RenderableType):
        self._body = body

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for segment in console.render(self._body, options):
            yield Segment(segment.text.translate(_ON_TERMINAL), segment.style, segment.control)
