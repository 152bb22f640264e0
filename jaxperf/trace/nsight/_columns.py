"""From the rows of one process of an Nsight Systems export to the columns of a rank."""

from collections.abc import Sequence

import numpy as np

from jaxperf.trace._columns import Columns
from jaxperf.trace._notes import NoteBook
from jaxperf.trace._types import MISSING
from jaxperf.trace.nsight._rows import Rows
from jaxperf.trace.nsight._target import Target

_FARTHEST_NS = 1 << 62


def process_columns(process: int, rows: Sequence[Rows], target: Target, notes: NoteBook) -> Columns:
    """The columns of a process.

    Args:
        process: which.
        rows: its rows.
        target: what is known of its threads and GPUs.
        notes: where unusable times are noted.

    Returns:
        The columns, without any row where none has a usable time.
    """
    columns = Columns(notes)
    filled = 0
    for part in rows:
        part = _usable(part, notes)
        if not len(part.start):
            continue
        names = np.array([columns.names[name] for name in part.names], np.int32)
        columns.dense["start"].append(part.start)
        columns.dense["duration"].append(_durations(part, notes))
        columns.dense["category"].append(part.category)
        columns.dense["name"].append(names[part.name])
        columns.dense["thread"].append(_threads(columns, part, process))
        at = np.arange(filled, filled + len(part.start))
        for column, values, known in _values(columns, part, process, target):
            if known.any():
                columns.sparse[column].append((at[known], values[known]))
        filled += len(part.start)
    _name_threads(columns, process, target)
    return columns


def _usable(rows: Rows, notes: NoteBook) -> Rows:
    usable = np.abs(rows.start) < _FARTHEST_NS  # False for `MISSING`, whose magnitude is negative
    usable &= rows.start != MISSING
    if usable.all():
        return rows
    notes.add("missing-time", count=int((~usable).sum()))
    return rows.where(usable)


def _durations(rows: Rows, notes: NoteBook) -> np.ndarray:
    ended = (np.abs(rows.end) < _FARTHEST_NS) & (rows.end != MISSING)
    if not ended.all():
        notes.add("missing-duration", count=int((~ended).sum()))
    duration = np.where(ended, rows.end - rows.start, 0)
    if (duration < 0).any():
        notes.add("negative-duration", count=int((duration < 0).sum()))
    return np.maximum(duration, 0)


def _threads(columns: Columns, rows: Rows, process: int) -> np.ndarray:
    """(n,) int32, number of each row's thread, or of its stream."""
    device = rows.values.get("device")
    key = rows.thread if device is None else (device << 34) + rows.values["stream"]
    _, first, which = np.unique(key, return_index=True, return_inverse=True)
    numbers = [
        columns.threads[str(process), str(rows.thread[row])]
        if device is None
        else columns.threads[f"GPU {device[row]}", f"stream {rows.values['stream'][row]}"]
        for row in first.tolist()
    ]
    return np.array(numbers, np.int32)[which]


def _values(
    columns: Columns, rows: Rows, process: int, target: Target
) -> list[tuple[str, np.ndarray, np.ndarray]]:
    """(column of the trace, values, where they are known) of each further column."""
    found = []
    for column, values in rows.values.items():
        if column == "blocks":
            devices, which = np.unique(rows.values["device"], return_inverse=True)
            gpus = [target.gpu(process, device) for device in devices.tolist()]
            sms = np.array([gpu.multiprocessors or np.nan for gpu in gpus])
            values = (values / sms[which]).astype(np.float32)
            found.append(("blocks_per_sm", values, ~np.isnan(values)))
        elif column == "shape":
            known = values != MISSING
            shapes = [columns.shapes.texts[rows.shapes[k]] for k in np.unique(values[known])]
            numbers = np.full(len(rows.shapes) + 1, -1, np.int32)
            numbers[np.unique(values[known])] = shapes
            found.append(("shape", numbers[np.where(known, values, -1)], known))
        else:
            found.append((column, values, values != MISSING))
    return found


def _name_threads(columns: Columns, process: int, target: Target) -> None:
    if process in target.process_names:
        columns.process_names[str(process)] = target.process_names[process]
    for written in columns.threads.written:
        if written[0] == str(process):
            name = target.thread_names.get((process, int(written[1])))
            if name:
                columns.thread_names[written] = f"thread {written[1]} ({name})"
