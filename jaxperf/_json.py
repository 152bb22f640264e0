"""What reading JSON that anybody may have written can raise."""

import msgspec

NOT_READABLE: tuple[type[Exception], ...] = (
    *(msgspec.DecodeError, UnicodeDecodeError),
    RecursionError,  # of what is nested a thousand deep
)
"""Of `msgspec.json.decode`, whatever the bytes."""
