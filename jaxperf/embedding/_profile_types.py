"""What a profile of embedding lookups consists of."""

from dataclasses import dataclass

from jaxperf.embedding.locality import Characteristics
from jaxperf.trace import Note


@dataclass(frozen=True)
class CurvePoint:
    """Hits of a cache of one size.

    Attributes:
        rows: size of the cache.
        hits: lookups that hit, rounded where they are estimated; `None` where the number of
            lookups is unknown.
        hit_ratio: share of lookups that hit.
        interval: of 95 %, where the hit ratio comes from a sample; else `None`.
    """

    rows: int
    hits: int | None
    hit_ratio: float
    interval: tuple[float, float] | None = None


@dataclass(frozen=True)
class BatchRows:
    """Distinct rows of a batch.

    Attributes:
        lookups: of the table in the batch.
        rows: mean number of distinct rows that they read.
    """

    lookups: int
    rows: float


@dataclass(frozen=True)
class LogProfile:
    """Demand and locality of one table.

    Attributes:
        file: where the lookups, or their popularity, were read.
        table: name of the table.
        format: of the file.
        accesses: number of lookups; `None` where only shares are known.
        distinct: number of distinct rows.
        policy: of the caches.
        ways: rows of a set; `None` for fully associative caches.
        sample: share of rows that distances were counted for; `None` where all were.
        curve: hits by size.
        characteristics: what the log says of its table; `None` where there is no log.
        row_bytes: bytes of a row, as given; `None` where not.
        distinct_per_batch: distinct rows by the size of a batch.
        notes: what was guessed or is doubtful.
    """

    file: str
    table: str
    format: str
    accesses: int | None
    distinct: int
    policy: str
    ways: int | None
    sample: float | None
    curve: tuple[CurvePoint, ...]
    characteristics: Characteristics | None
    row_bytes: float | None
    distinct_per_batch: tuple[BatchRows, ...]
    notes: tuple[Note, ...]


@dataclass(frozen=True)
class Profile:
    """Demand and locality of tables.

    Attributes:
        logs: one for each table, in the order of the files.
    """

    logs: tuple[LogProfile, ...]

    @property
    def notes(self) -> tuple[Note, ...]:
        """Those of all logs, each once."""
        return tuple(dict.fromkeys(note for log in self.logs for note in log.notes))
