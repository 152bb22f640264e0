"""Chakra traces: ours come back whole; others' are replayed by rules worked out by hand."""

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jaxperf.errors import ConfigError, OutputError, TraceError
from jaxperf.graph import ExecutionGraph, GraphLane, TaskClass, TaskKind, build_graph
from jaxperf.interchange import read_chakra, write_chakra
from jaxperf.interchange.chakra._protobuf import bytes_field, packed, varint
from jaxperf.interchange.chakra._schema import (
    AttributeType as Type,
    NodeType,
    attribute,
    encoded_name,
    input_values,
    node_head,
    read_chakra_file,
    with_length,
)
from jaxperf.replay import replay_graph
from jaxperf.simulator import Noise, SimulatedJob, simulate, write_traces
from jaxperf.trace import MISSING, read_run
from tests.helpers import make_graph, random_graph

RANKS = {
    "one": {},
    "two replicas": {"data_parallel": 2},
    "two stages": {"pipeline_parallel": 2, "micro_batches": 2},
    "four": {"data_parallel": 2, "tensor_parallel": 2},
}


@pytest.fixture(scope="module", params=RANKS, ids=lambda name: name.replace(" ", "_"))
def run(request, tmp_path_factory):
    noise = Noise(kernel=0.05, host=0.1, latency=0.1)
    job = SimulatedJob(
        layers=2, steps=2, noise=noise, clock_spread_us=500.0, **RANKS[request.param]
    )
    return read_run(write_traces(simulate(job), tmp_path_factory.mktemp("run")))


def _by_order(graph: ExecutionGraph, values: np.ndarray) -> np.ndarray:
    return values[np.argsort(graph.order, kind="stable")]


# Files of our own
# ---------------------------------------------------------------------------------------


def test_a_graph_comes_back_whole_and_replays_the_same(run, tmp_path):
    graph = build_graph(run)
    paths = write_chakra(graph, tmp_path, run=run)
    assert [path.name for path in paths] == [f"trace.{rank}.et" for rank in graph.ranks]
    read = read_chakra(tmp_path)
    before, after = replay_graph(graph), replay_graph(read)
    for name in ("start_us", "end_us"):
        same = _by_order(graph, getattr(before, name)) == _by_order(read, getattr(after, name))
        assert same.all()
    for name in ("kind", "task_class", "trace", "duration_ns", "release_ns", "start_ns", "end_ns"):
        assert np.array_equal(
            _by_order(graph, getattr(graph, name)), _by_order(read, getattr(read, name))
        )
    assert read.lanes == graph.lanes
    spans = [
        [
            (
                step.name,
                step.rank,
                step.begin_ns,
                t.start_us[step.begin_task],
                t.end_us[step.end_task],
            )
            for step in g.steps
        ]
        for g, t in ((graph, before), (read, after))
    ]
    assert spans[0] == spans[1]
    assert len(spans[0]) == 2 * len(graph.ranks)


def test_any_graph_comes_back_with_its_lags_and_releases(tmp_path):
    graph = random_graph(np.random.default_rng(3), 200, lanes=1)
    write_chakra(graph, tmp_path, "random")
    read = read_chakra(tmp_path / "random.0.et")
    assert np.array_equal(_by_order(read, read.release_ns), _by_order(graph, graph.release_ns))
    edges = [
        sorted(zip(*(getattr(g, name).tolist() for name in EDGES), strict=True))
        for g in (graph, read)
    ]
    assert edges[0] == edges[1]
    assert np.array_equal(replay_graph(read).start_us, replay_graph(graph).start_us)


EDGES = ("source", "target", "lag_ns", "from_start", "dependency", "unexplained_ns")


def test_sends_and_receives_name_both_ends(tmp_path):
    job = SimulatedJob(layers=2, steps=1, pipeline_parallel=2)
    run = read_run(write_traces(simulate(job), tmp_path / "traces"))
    write_chakra(build_graph(run), tmp_path, run=run)
    ends: dict[object, list] = {}
    for rank in (0, 1):
        for node in read_chakra_file(tmp_path / f"trace.{rank}.et").nodes:
            if node.type in (NodeType.COMM_SEND_NODE, NodeType.COMM_RECV_NODE):
                source, target = node.attributes["comm_src"], node.attributes["comm_dst"]
                assert rank == (source if node.type == NodeType.COMM_SEND_NODE else target)
                ends.setdefault(node.attributes["comm_tag"], []).append((source, target))
    assert ends
    assert all(len(pair) == 2 and pair[0] == pair[1] for pair in ends.values())


def test_a_file_is_not_written_over_another(tmp_path):
    graph = make_graph([1_000], [], release_ns={0: 0})
    write_chakra(graph, tmp_path)
    with pytest.raises(OutputError, match="exists already"):
        write_chakra(graph, tmp_path)
    write_chakra(graph, tmp_path, overwrite=True)
    with pytest.raises(ConfigError, match="prefix"):
        write_chakra(graph, tmp_path, "a/b")


def test_a_rank_whose_file_is_missing_is_named(tmp_path):
    job = SimulatedJob(layers=1, steps=1, data_parallel=2)
    run = read_run(write_traces(simulate(job), tmp_path / "traces"))
    paths = write_chakra(build_graph(run), tmp_path)
    with pytest.raises(TraceError, match=r"ranks are missing; got ranks 0; expected also 1"):
        read_chakra(paths[0])


# Files of other tools
# ---------------------------------------------------------------------------------------


def _node(
    id, type=NodeType.COMP_NODE, duration_us=0, data=(), control=(), start_us=0, **told
) -> bytes:
    """A node as other tools write it; `told` are its attributes."""
    head = node_head(
        id, encoded_name(told.pop("name", f"n{id}")), type, data, start_us, duration_us
    )
    if control:
        head += bytes_field(4, packed(control))
    for name, value in told.items():
        kind = {bool: Type.BOOL, str: Type.STRING}.get(type_of(value), Type.INT64)
        head += attribute(name, kind, value)
    return head


type_of = type
COLL = NodeType.COMM_COLL_NODE


def _write(path: Path, *nodes: bytes, head: bytes = b"") -> Path:
    path.write_bytes(with_length(head) + b"".join(map(with_length, nodes)))
    return path


def _ends(graph: ExecutionGraph) -> dict:
    """End of each node that is no arrival, by rank and name."""
    timeline = replay_graph(graph)
    return {
        (graph.ranks[graph.trace[i]], graph.names[graph.name[i]]): float(timeline.end_us[i])
        for i in range(graph.tasks)
        if graph.kind[i] != TaskKind.ARRIVAL
    }


def test_a_collective_begins_when_its_last_rank_is_there(tmp_path):
    # Rank 0 is ready at 10 us and waits 10 us inside its node; rank 1 is ready at 20 us.
    _write(
        tmp_path / "job.0.et",
        _node(0, duration_us=10),
        _node(1, COLL, 15, [0], comm_type=0, comm_size=4096),
        _node(2, duration_us=3, data=[1]),
    )
    _write(
        tmp_path / "job.1.et",
        _node(0, duration_us=20),
        _node(1, COLL, 5, [0], comm_type=0, comm_size=4096),
        _node(2, duration_us=4, data=[1]),
    )
    graph = read_chakra(tmp_path)
    assert _ends(graph) == {
        **{(0, "n0"): 10, (0, "n1"): 25, (0, "n2"): 28},
        **{(1, "n0"): 20, (1, "n1"): 25, (1, "n2"): 29},
    }
    assert graph.task_class[1] == TaskClass.COMMUNICATION


def test_groups_of_one_name_and_other_members_do_not_meet(tmp_path):
    # Four ranks; each calls its own pair "1", as PyTorch does where every rank makes one group.
    for rank, ready in enumerate((10, 20, 30, 40)):
        pair = [rank // 2 * 2, rank // 2 * 2 + 1]
        told = json.dumps([{"pg_name": "1", "pg_desc": "tp", "ranks": pair, "group_size": 2}])
        groups = _node(9, NodeType.METADATA_NODE) + input_values(f"['{told}']")
        _write(
            tmp_path / f"job.{rank}.et",
            groups,
            _node(0, duration_us=ready),
            _node(1, COLL, 5, [0], comm_type=0, pg_name="1"),
        )
    ends = _ends(read_chakra(tmp_path))
    assert [ends[rank, "n1"] for rank in range(4)] == [25, 25, 45, 45]
    assert len(ends) == 8  # the notes of groups are no work


def test_a_send_meets_its_receive(tmp_path):
    send, receive = NodeType.COMM_SEND_NODE, NodeType.COMM_RECV_NODE
    _write(
        tmp_path / "a.0.et", _node(0, duration_us=7), _node(1, send, 2, [0], comm_dst=1, comm_tag=5)
    )
    _write(
        tmp_path / "a.1.et",
        _node(0, receive, 9, comm_src=0, comm_tag=5),
        _node(1, duration_us=1, data=[0]),
    )
    assert _ends(read_chakra(tmp_path)) == {(0, "n0"): 7, (0, "n1"): 9, (1, "n0"): 9, (1, "n1"): 10}


def test_two_ranks_that_send_before_they_receive_are_no_deadlock(tmp_path):
    send, receive = NodeType.COMM_SEND_NODE, NodeType.COMM_RECV_NODE
    for rank in (0, 1):
        _write(
            tmp_path / f"a.{rank}.et",
            _node(0, send, 2, comm_dst=1 - rank),
            _node(1, receive, 3, comm_src=1 - rank),
        )
    assert set(_ends(read_chakra(tmp_path)).values()) == {2}  # the shorter of both


def test_nodes_of_one_stream_run_one_after_another(tmp_path):
    # As Chakra's converter writes: device nodes depend on the CPU node that launched them.
    cpu: dict[str, Any] = {"is_cpu_op": True, "tid": 1}
    gpu: dict[str, Any] = {"is_cpu_op": False}
    _write(
        tmp_path / "a.0.et",
        _node(1, duration_us=5, **cpu),
        _node(2, duration_us=5, data=[1], control=[77], **cpu),
        _node(3, duration_us=100, data=[1], stream=7, **gpu, name="ampere_sgemm_128x64_nn"),
        _node(4, duration_us=10, data=[2], stream=7, **gpu),
        _node(5, duration_us=20, data=[2], stream=8, **gpu),
    )
    graph = read_chakra(tmp_path)
    ends = _ends(graph)
    assert [ends[0, name] for name in ("n1", "n2", "ampere_sgemm_128x64_nn")] == [5, 10, 105]
    assert (ends[0, "n4"], ends[0, "n5"]) == (115, 30)
    assert set(graph.lanes) == {
        GraphLane(0, "thread 1", -1, -1),
        GraphLane(0, "GPU 0 stream 7", 0, 7),
        GraphLane(0, "GPU 0 stream 8", 0, 8),
    }
    assert TaskClass.GEMM in graph.task_class
    assert [note.code for note in graph.notes] == ["chakra-callers-missing"]


def test_what_cannot_be_told_is_noted(tmp_path):
    _write(tmp_path / "a.0.et", _node(0, COLL, 0, comm_type=0), _node(1, COLL, 8, comm_type=2))
    _write(tmp_path / "a.1.et", _node(0, COLL, 0, comm_type=0))
    graph = read_chakra(tmp_path)
    assert [note.code for note in graph.notes] == ["chakra-no-duration", "chakra-unmatched"]
    assert _ends(graph)[0, "n1"] == 8


def test_a_node_without_dependencies_starts_when_it_is_said_to(tmp_path):
    _write(
        tmp_path / "a.0.et",
        _node(0, duration_us=5, start_us=1_000_000, is_cpu_op=True, tid=1),
        _node(1, duration_us=5, start_us=1_000_100, is_cpu_op=True, tid=2),
    )
    graph = read_chakra(tmp_path)
    assert _ends(graph) == {(0, "n0"): 5, (0, "n1"): 105}
    assert graph.start_ns.tolist() == [0, 100_000]
    assert (graph.release_ns != MISSING).all()


# Files that cannot be used
# ---------------------------------------------------------------------------------------

GOOD = with_length(b"") + with_length(_node(1))


@pytest.mark.parametrize(
    ("data", "says"),
    {
        "empty": (b"", "no nodes"),
        "head_alone": (with_length(b"\x0a\x050.0.4"), "no nodes"),
        "length_cut": (GOOD + b"\xff\xff", "byte .*: an integer is cut"),
        "length_without_end": (GOOD + b"\xff" * 40, "an integer is cut, or has no end"),
        "ten_gigabytes": (
            GOOD + varint(10 << 30) + b"\x08",
            "got 10737418240 bytes; expected at most 1",
        ),
        "length_of_64_bits": (GOOD + varint(-1), "longer than the rest of the file"),
        "field_cut": (GOOD + with_length(b"\x12\x7f"), "longer than the rest of its message"),
        "group": (GOOD + with_length(b"\x0b\x0c"), "wire type 3"),
        "fixed_cut": (GOOD + with_length(b"\x09\x01"), "got 8 bytes; expected at most 1"),
        "text_of_attribute_as_number": (
            GOOD + with_length(bytes_field(10, bytes_field(7, b"seven"))),
            "expected int32",
        ),
        "same_id": (GOOD + with_length(_node(1)), "two nodes have one id; got node 1 twice"),
        "absent_id": (GOOD + with_length(_node(2, data=[3])), "node 2: a node depends on one"),
        "waits_for_itself": (GOOD + with_length(_node(2, data=[2])), "node 2 waits for node 2"),
        "cycle": (
            GOOD + with_length(_node(2, data=[3])) + with_length(_node(3, data=[2, 1])),
            "cycle; got node [23] waits for node [23] waits for node [23]",
        ),
        "eternity": (GOOD + with_length(_node(2, duration_us=1 << 63)), "a time that no run has"),
        "json": (b'{"schema": "1.0.1", "nodes": []}' * 9, "got JSON; expected messages"),
        "gzip": (gzip.compress(GOOD, mtime=0), "got a compressed file; .*unpack it first"),
    }.values(),
)
def test_a_file_that_cannot_be_used_says_why_in_one_line(data, says, tmp_path):
    path = tmp_path / "a.0.et"
    path.write_bytes(data)
    with pytest.raises(TraceError, match=says) as error:
        read_chakra(path)
    assert str(error.value).startswith(str(path))
    assert "\n" not in str(error.value)


def test_deep_nesting_is_not_followed(tmp_path):
    inner = b""
    for _ in range(5_000):
        inner = bytes_field(8, inner)
    path = _write(tmp_path / "a.0.et", _node(1, duration_us=2) + bytes_field(9, inner))
    assert _ends(read_chakra(path)) == {(0, "n1"): 2}


def test_json_within_is_not_followed_without_end(tmp_path):
    groups = _node(9, NodeType.METADATA_NODE) + input_values("['" + "[" * 100_000 + "']")
    assert _ends(read_chakra(_write(tmp_path / "a.0.et", groups, _node(1)))) == {(0, "n1"): 0}


def test_ranks_that_wait_for_each_other_in_a_ring_are_named(tmp_path):
    def two(first, second):
        return _node(0, COLL, 1, pg_name=first), _node(1, COLL, 1, [0], pg_name=second)

    _write(tmp_path / "a.0.et", *two("1", "2"))
    _write(tmp_path / "a.1.et", *two("2", "1"))
    with pytest.raises(TraceError, match="cycle; got n[01] of rank [01] waits for"):
        read_chakra(tmp_path)


def test_files_of_one_run_are_asked_for(tmp_path):
    with pytest.raises(TraceError, match=r"no Chakra execution trace.*\.<rank>\.et"):
        read_chakra(tmp_path)
    with pytest.raises(TraceError, match="cannot be read"):
        read_chakra(tmp_path / "no.0.et")
    _write(tmp_path / "a.0.et", _node(1))
    _write(tmp_path / "b.0.et", _node(1))
    with pytest.raises(TraceError, match=r"two files of one rank; got rank 0, of which .*a\.0\.et"):
        read_chakra(tmp_path)
    write_chakra(make_graph([1_000], [], release_ns={0: 0}), tmp_path, "b", overwrite=True)
    (tmp_path / "b.0.et").rename(tmp_path / "c.1.et")
    _write(tmp_path / "a.7.et", _node(1))
    with pytest.raises(TraceError, match="files of different tools"):
        read_chakra([tmp_path / "c.1.et", tmp_path / "a.7.et"])


@pytest.mark.parametrize("at", range(0, 400, 19))
def test_a_damaged_file_of_our_own_is_an_error_or_a_graph(at, tmp_path):
    graph = make_graph([5_000, 7_000], [(0, 1, 300)], release_ns={0: 0}, steps=[(0, 1)])
    (path,) = write_chakra(graph, tmp_path)
    data = bytearray(path.read_bytes())
    data[at % len(data)] ^= 0x55
    path.write_bytes(bytes(data))
    try:
        assert read_chakra(path).tasks
    except TraceError as error:
        assert "\n" not in str(error)
