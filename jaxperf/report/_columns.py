"""The timeline as the page carries it: columns of small whole numbers, packed.

Tasks stand in order of lane and replayed start. Each column is made of numbers near 0 (gaps
instead of times, differences to the replay instead of what was measured), written as four planes
of bytes, and all of them are deflated as one. 800,000 tasks take some megabytes.
"""

import base64
import zlib

import numpy as np

from jaxperf.graph import DependencyKind, TaskClass, TaskKind
from jaxperf.replay import Replay
from jaxperf.report._timeline import Spans, Waits, binding_source, lane_order, timeline_spans
from jaxperf.report._words import class_word

_LARGEST = 2**31 - 1


def page_data(replay: Replay, measured: bool = True) -> tuple[dict, str]:
    """What the page draws.

    Args:
        replay: the result of a replay.
        measured: whether anything was; an estimate has one timeline.

    Returns:
        Tables and sizes, ready for JSON; and the columns, as text in base64.
    """
    graph = replay.graph
    before, replayed = timeline_spans(replay)
    window_ns = max((int(x.end_ns.max()) for x in (before, replayed) if graph.tasks), default=0)
    quantum_ns = max(1, -(-window_ns // _LARGEST))

    tasks_of_lane = np.bincount(graph.lane, minlength=len(graph.lanes)).tolist()
    lanes = [lane for lane in lane_order(graph).tolist() if tasks_of_lane[lane]]
    row = np.full(len(graph.lanes), -1, np.int64)
    row[lanes] = np.arange(len(lanes))
    order = np.lexsort((graph.order, replayed.start_ns, row[graph.lane]))
    place = np.empty(graph.tasks, np.int64)
    place[order] = np.arange(graph.tasks)

    labels, label = _labels(replay, order)
    columns = {
        "label": label,
        **_spans(before, replayed, order, quantum_ns),
        **_causes(replay, order, place),
        **_waits("measured", before.waits, row[graph.lane], place, quantum_ns),
        **_waits("replayed", replayed.waits, row[graph.lane], place, quantum_ns),
    }
    tables = {
        "measured": measured,
        "window_us": window_ns / 1e3,
        "quantum_us": quantum_ns / 1e3,
        "lanes": [
            {
                "rank": graph.lanes[lane].rank,
                "name": graph.lanes[lane].name,
                "stream": graph.lanes[lane].is_stream,
                "tasks": tasks_of_lane[lane],
            }
            for lane in lanes
        ],
        "names": graph.names,
        "labels": labels,
        "classes": [task_class.name.lower() for task_class in TaskClass],
        "class_words": [class_word(task_class.name.lower()) for task_class in TaskClass],
        "kinds": [kind.name.lower() for kind in TaskKind],
        "dependencies": [kind.name.lower() for kind in DependencyKind],
        "steps": _steps(replay, before, replayed),
        "columns": [[name, len(column)] for name, column in columns.items()],
    }
    return tables, _packed(list(columns.values()))


def _labels(replay: Replay, order: np.ndarray) -> tuple[list[list[int]], np.ndarray]:
    graph = replay.graph
    sizes = len(graph.names) or 1, len(TaskKind), len(TaskClass)
    key = np.ravel_multi_index((graph.name, graph.kind, graph.task_class), sizes)
    unique, label = np.unique(key[order], return_inverse=True)
    return np.stack(np.unravel_index(unique, sizes), axis=1).tolist(), label


def _spans(measured: Spans, replayed: Spans, order: np.ndarray, quantum_ns: int) -> dict:
    start, end, m_start, m_end = (
        time[order] // quantum_ns
        for time in (replayed.start_ns, replayed.end_ns, measured.start_ns, measured.end_ns)
    )
    return {
        "gap": start - _shifted(end),
        "duration": end - start,
        "shift": _differences(m_start - start),
        "stretch": (m_end - m_start) - (end - start),
    }


def _causes(replay: Replay, order: np.ndarray, place: np.ndarray) -> dict:
    source = binding_source(replay)[order]
    bound = source >= 0
    why = np.zeros(len(order), np.int64)  # 0: no dependency bound it
    why[bound] = 1 + replay.graph.dependency[replay.binding[order[bound]]]
    return {"back": np.where(bound, np.arange(len(order)) - place[source], 0), "why": why}


def _waits(prefix: str, waits: Waits, row: np.ndarray, place: np.ndarray, quantum_ns: int) -> dict:
    order = np.lexsort((waits.begin_ns, row[waits.task]))
    task = place[waits.task[order]]
    begin, end = waits.begin_ns[order] // quantum_ns, waits.end_ns[order] // quantum_ns
    cause = waits.cause[order]
    return {
        f"{prefix}_wait_task": _differences(task),
        f"{prefix}_wait_begin": _differences(begin),
        f"{prefix}_wait_length": end - begin,
        f"{prefix}_wait_back": np.where(cause >= 0, task - place[cause], 0),
    }


def _steps(replay: Replay, measured: Spans, replayed: Spans) -> list[dict]:
    return [
        {
            "name": step.name,
            "rank": step.rank,
            **{
                key: [spans.start_ns[step.begin_task] / 1e3, spans.end_ns[step.end_task] / 1e3]
                for key, spans in (("measured", measured), ("replayed", replayed))
            },
        }
        for step in replay.graph.steps
    ]


def _shifted(column: np.ndarray) -> np.ndarray:
    return np.concatenate([np.zeros(1, column.dtype), column])[: len(column)]


def _differences(column: np.ndarray) -> np.ndarray:
    return column - _shifted(column)


def _packed(columns: list[np.ndarray]) -> str:
    deflate = zlib.compressobj(6)
    parts = []
    for column in columns:
        signed = column.astype(np.int64)
        zigzag = ((signed << 1) ^ (signed >> 63)).astype("<u4")  # small numbers of either sign
        parts.append(deflate.compress(zigzag.view(np.uint8).reshape(-1, 4).T.tobytes()))
    parts.append(deflate.flush())
    return base64.b64encode(b"".join(parts)).decode()
