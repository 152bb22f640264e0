"""What TorchRec's planner is told and what it answers, as nouns; its names of shardings."""

from dataclasses import dataclass

from jaxperf.config import EmbeddingTable
from jaxperf.errors import ConfigError

SHARDING_TYPES = (
    "data_parallel",
    "table_wise",
    "column_wise",
    "table_column_wise",
    "row_wise",
    "table_row_wise",
)
"""Those that TorchRec's sharders offer by default, in their order."""
ALL_SHARDING_TYPES = (*SHARDING_TYPES, "grid_shard")
FUSED_KERNELS = ("fused", "fused_uvm", "fused_uvm_caching")
"""Of every sharding but `data_parallel`, whose kernel is `dense`."""
COMPUTE_KERNELS = ("dense", *FUSED_KERNELS)
DEFAULT_LOAD_FACTOR = 0.2
"""Share of the rows of a table in its cache, where nothing is said."""


@dataclass(frozen=True)
class Topology:
    """The devices that a plan is for, with TorchRec's own bandwidths where none are given.

    Attributes:
        world_size: devices of the job.
        local_world_size: devices of a host.
        device_bytes_per_s: of a device's memory.
        host_link_bytes_per_s: between a device and its host's memory.
        intra_host_bytes_per_s: between the devices of a host.
        inter_host_bytes_per_s: of one device to those of other hosts.

    Example:
        >>> Topology(world_size=16, local_world_size=8).hosts
        2.0
    """

    world_size: int
    local_world_size: int
    device_bytes_per_s: float = 897 * 2.0**30
    host_link_bytes_per_s: float = 32 * 2.0**30
    intra_host_bytes_per_s: float = 600 * 2.0**30
    inter_host_bytes_per_s: float = 12.5 * 2.0**30

    def __post_init__(self):
        if not 0 < self.local_world_size <= self.world_size:
            raise ConfigError(
                "no such devices",
                where="topology: local_world_size",
                got=f"{self.local_world_size} of {self.world_size}",
                expected="at least 1, at most world_size",
            )

    @property
    def hosts(self) -> float:
        """Hosts of the job."""
        return self.world_size / self.local_world_size


def row_devices(sharding_type: str, topology: Topology) -> int:
    """Devices among which one sharding type deals the rows, and so the lookups, of a table.

    Raises:
        ConfigError: there is no such sharding type.

    Example:
        >>> row_devices("table_row_wise", Topology(16, 8))
        8
    """
    match sharding_type:
        case "data_parallel" | "table_wise" | "column_wise" | "table_column_wise":
            return 1
        case "row_wise":
            return topology.world_size
        case "table_row_wise" | "grid_shard":
            return topology.local_world_size
    expected = "one of " + ", ".join(ALL_SHARDING_TYPES)
    raise ConfigError("no such sharding type", got=sharding_type, expected=expected)


@dataclass(frozen=True)
class Shard:
    """A part of a table on one device.

    Attributes:
        rows, columns: size of the part.
        row_offset, column_offset: where it begins in the table.
    """

    rows: int
    columns: int
    row_offset: int = 0
    column_offset: int = 0


@dataclass(frozen=True)
class ShardingOption:
    """One way to cut a table and to look rows up in it.

    Attributes:
        table: that is cut.
        sharding_type: one of `ALL_SHARDING_TYPES`.
        compute_kernel: one of `COMPUTE_KERNELS`: rows in the device's memory (`dense`, `fused`),
            in the host's (`fused_uvm`), or there with a cache on the device (`fused_uvm_caching`).
        shards: in the order of TorchRec.
    """

    table: EmbeddingTable
    sharding_type: str
    compute_kernel: str
    shards: tuple[Shard, ...]


@dataclass(frozen=True)
class ShardPerf:
    """What a step takes for a shard, in the parts that TorchRec tells apart.

    Attributes:
        fwd_compute_ms, bwd_compute_ms: of the lookups and of their gradients.
        fwd_comms_ms, bwd_comms_ms: of the embeddings and of their gradients between devices; the
            optimizer of a data-parallel table counts as communication.
        input_dist_comms_ms: of the ids, which `total_ms` leaves out.
        prefetch_compute_ms: of rows that come to the cache.
    """

    fwd_compute_ms: float
    fwd_comms_ms: float
    bwd_compute_ms: float
    bwd_comms_ms: float
    input_dist_comms_ms: float = 0.0
    prefetch_compute_ms: float = 0.0

    @property
    def total_ms(self) -> float:
        """The sum, one after the other, without the distribution of the input."""
        forward_ms = self.fwd_compute_ms + self.fwd_comms_ms
        return forward_ms + self.bwd_compute_ms + self.bwd_comms_ms + self.prefetch_compute_ms


@dataclass(frozen=True)
class ShardStorage:
    """Memory of a shard.

    Attributes:
        hbm_bytes: of the device.
        ddr_bytes: of the host.
    """

    hbm_bytes: int
    ddr_bytes: int


@dataclass(frozen=True)
class ShardEstimate:
    """What TorchRec's planner says of a shard.

    Attributes:
        shard: the part.
        perf: times of a step.
        storage: memory that it takes.
    """

    shard: Shard
    perf: ShardPerf
    storage: ShardStorage
