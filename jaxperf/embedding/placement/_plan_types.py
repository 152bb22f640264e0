"""What a plan of embedding tables consists of."""

from dataclasses import dataclass

from jaxperf.trace import Note


@dataclass(frozen=True)
class Shard:
    """A part of a table on a device.

    Attributes:
        device: it; those of a server are next to each other.
        split: `table` where the shard is the whole of it, `rows` or `columns` where it is a part.
        fraction: of the table's rows or columns.
    """

    device: int
    split: str
    fraction: float


@dataclass(frozen=True)
class TablePlan:
    """What becomes of a table, or of those of its rows that share one fate.

    Attributes:
        name: of the table.
        tier: memory that the rows lie on.
        cached_fraction: of these rows, those with a copy in a faster memory.
        policy: which those are: `lru` the last ones used, `pinned` the hottest; `None` where
            there are none.
        shards: where the rows are.
        cached_by_tier: the same fraction by memory, of those that hold copies.
    """

    name: str
    tier: str
    cached_fraction: float
    policy: str | None
    shards: tuple[Shard, ...]
    cached_by_tier: dict[str, float]


@dataclass(frozen=True)
class TierUse:
    """What a memory of all servers does.

    Attributes:
        name: of the memory.
        bytes: of rows and copies.
        capacity_bytes: room for them.
        hit_ratio: rows found there, of those that no faster memory has; NaN where none are asked.
        read_bytes_per_s: in whole blocks.
        iops: blocks read and written a second.
        drive_writes_per_day: of each drive.
        rated_drive_writes_per_day: for its warranty; infinite where nothing wears.
    """

    name: str
    bytes: float
    capacity_bytes: float
    hit_ratio: float
    read_bytes_per_s: float
    iops: float
    drive_writes_per_day: float
    rated_drive_writes_per_day: float


@dataclass(frozen=True)
class EmbeddingPlan:
    """Where tables go, and what comes of it.

    Attributes:
        model: its name.
        server: its name.
        nodes: servers.
        binding: what keeps one server less from the rate, or from holding the tables; with a
            given number of servers, what sets the time of the step. `capacity`, `compute`,
            `network`; or `bandwidth`, `iops`, `latency`, `link` or `wear`, each `of` a memory.
        step_binding: what sets the time of the step, in the same words.
        step_us: time of an iteration.
        samples_per_s: of the whole job.
        target_samples_per_s: asked for; `None` where nothing was.
        cost_usd, power_w: of all servers; power at `samples_per_s`.
        bound_us: no placement is faster, whatever the sizes of its caches.
        bound_gap: time above it, as a part of it; NaN where no bound above 0 was proven.
        greedy_us: step of the greedy placement; NaN where it found none.
        tables: by name; a table whose shards differ has an entry for each kind.
        tiers: from the fastest.
        notes: what was assumed, or is doubtful.
    """

    model: str
    server: str
    nodes: int
    binding: str
    step_binding: str
    step_us: float
    samples_per_s: float
    target_samples_per_s: float | None
    cost_usd: float
    power_w: float
    bound_us: float
    bound_gap: float
    greedy_us: float
    tables: tuple[TablePlan, ...]
    tiers: tuple[TierUse, ...]
    notes: tuple[Note, ...]
