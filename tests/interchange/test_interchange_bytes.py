"""What is written is what the protobuf package reads, and the other way round."""

from pathlib import Path

import numpy as np
import pytest

from jaxperf.graph import TaskKind, build_graph
from jaxperf.interchange import read_chakra, write_chakra
from jaxperf.interchange.chakra._schema import AttributeType, NodeType, read_chakra_file
from jaxperf.replay import replay_graph
from jaxperf.simulator import SimulatedJob, simulate, write_traces
from jaxperf.trace import read_run

pytest.importorskip("google.protobuf")
from google.protobuf.internal import decoder, encoder  # noqa: E402

from tests.interchange.chakra_schema import messages  # noqa: E402

_DecodeVarint32 = getattr(decoder, "_DecodeVarint32")  # noqa: B009
_VarintBytes = getattr(encoder, "_VarintBytes")  # noqa: B009


@pytest.fixture(scope="module")
def chakra() -> dict:
    return messages()


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    job = SimulatedJob(layers=1, steps=2, data_parallel=2)
    return read_run(write_traces(simulate(job), tmp_path_factory.mktemp("two")))


def _parse(path: Path, chakra: dict) -> tuple:
    data, at, found = path.read_bytes(), 0, []
    while at < len(data):
        size, at = _DecodeVarint32(data, at)
        kind = chakra["Node"] if found else chakra["GlobalMetadata"]
        found.append(kind.FromString(data[at : at + size]))
        at += size
    return found[0], found[1:]


def _attributes(node) -> dict:
    return {each.name: getattr(each, each.WhichOneof("value")) for each in node.attr}


def test_the_protobuf_package_reads_every_node_that_was_written(run, chakra, tmp_path):
    graph = build_graph(run)
    paths = write_chakra(graph, tmp_path, run=run)
    count = 0
    for path, rank in zip(paths, graph.ranks, strict=True):
        head, nodes = _parse(path, chakra)
        assert head.version == "0.0.4"
        assert _attributes(head)["jaxperf_rank"] == rank
        count += sum(node.type != NodeType.METADATA_NODE for node in nodes)
        total = sum(_attributes(n).get("jaxperf_duration_ns", 0) for n in nodes)
        assert total == graph.duration_ns[graph.trace == rank].sum()
    assert count == graph.tasks


def test_collectives_say_what_a_simulator_of_networks_asks_for(run, chakra, tmp_path):
    graph = build_graph(run)
    _, nodes = _parse(write_chakra(graph, tmp_path, run=run)[0], chakra)
    found = [_attributes(node) for node in nodes if node.type == NodeType.COMM_COLL_NODE]
    told = run.traces[0].collectives
    sizes = {2 * each.in_elements for each in told if each.name == "allreduce" and each.in_elements}
    assert len(found) == int(((graph.kind == TaskKind.COLLECTIVE) & (graph.trace == 0)).sum())
    assert {each["comm_type"] for each in found} == {0}  # ALL_REDUCE
    assert {each["comm_size"] for each in found} == sizes  # BFloat16
    assert {each["pg_name"] for each in found} == {"0"}  # of all ranks
    assert not any(each["is_cpu_op"] for each in found)


@pytest.mark.parametrize(
    "job",
    [
        SimulatedJob(layers=1, steps=1, data_parallel=2),
        SimulatedJob(layers=2, steps=1, micro_batches=2, pipeline_parallel=2),
    ],
    ids=["replicas", "stages"],
)
def test_without_our_attributes_the_ranks_still_meet(job, chakra, tmp_path):
    run = read_run(write_traces(simulate(job), tmp_path / "traces"))
    graph = build_graph(run)
    paths = write_chakra(graph, tmp_path, run=run)
    for path in paths:
        head, nodes = _parse(path, chakra)
        for message in (head, *nodes):
            kept = [each for each in message.attr if not each.name.startswith("jaxperf_")]
            del message.attr[:]
            message.attr.extend(kept)
        encoded = [message.SerializeToString() for message in (head, *nodes)]
        path.write_bytes(b"".join(_VarintBytes(len(each)) + each for each in encoded))
    read = read_chakra(paths)
    meets = graph.arrival >= 0
    assert (read.arrival >= 0).sum() == meets.sum()
    assert [read.names[n] for n in read.name[read.arrival >= 0]] == [
        graph.names[n] for n in graph.name[meets]
    ]
    assert replay_graph(read).end_us.max() > 0


@pytest.mark.parametrize("kind", AttributeType, ids=lambda kind: kind.name.lower())
def test_every_type_of_attribute_is_read(kind, chakra, tmp_path):
    low = {"FIXED32": 7, "FIXED64": 7, "UINT32": 7, "UINT64": 1 << 63}.get(kind.name, -7)
    value = {"STRING": "é", "BYTES": b"\xff", "BOOL": True, "DOUBLE": 0.1, "FLOAT": 0.5}.get(
        kind.name, low
    )
    node = chakra["Node"](id=1 << 63, ctrl_deps=[2, 300], data_deps=[4])
    name = kind.name.lower()
    node.attr.add(name="one", **{f"{name}_val": value})
    many = node.attr.add(name="many", doc_string="said")
    getattr(many, f"{name}_list").values.extend([value, value])
    encoded = [b"", node.SerializeToString()]
    path = tmp_path / "a.0.et"
    path.write_bytes(b"".join(_VarintBytes(len(each)) + each for each in encoded))
    (read,) = read_chakra_file(path).nodes
    assert read.attributes == {"one": value, "many": (value, value)}
    assert (read.id, list(read.control), list(read.data)) == (1 << 63, [2, 300], [4])


def test_times_are_whole_microseconds_and_rise_from_zero(run, chakra, tmp_path):
    graph = build_graph(run)
    timeline = replay_graph(graph)
    nodes = [
        node
        for path in write_chakra(graph, tmp_path, timeline=timeline)
        for node in _parse(path, chakra)[1]
        if node.type != NodeType.METADATA_NODE
    ]
    by_id = {node.id: node for node in nodes}
    place = np.argsort(np.argsort(graph.order))
    start = np.array([by_id[i].start_time_micros for i in place])
    assert np.all(np.abs(start - (timeline.start_us - timeline.start_us.min())) <= 1)
    duration = np.array([by_id[i].duration_micros for i in place])
    assert np.all(np.abs(duration - graph.duration_ns / 1e3) <= 0.5)
