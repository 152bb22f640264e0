"""What waited for what in an Nsight Systems export: synchronisations and recorded events."""

from collections.abc import Mapping

import numpy as np

from jaxperf.trace._notes import NoteBook
from jaxperf.trace._types import ALL_STREAMS, MISSING, Category
from jaxperf.trace.nsight._rows import (
    DEVICE_COLUMNS,
    LARGEST_ID,
    Rows,
    identity,
    named,
    on_device,
)
from jaxperf.trace.nsight._tables import Tables

# CUpti_ActivitySynchronizationType, in Kineto's words.
_STREAM_WAIT, _EVENT_SYNC = "Stream Wait Event", "Event Sync"
_STREAM_SYNC, _CONTEXT_SYNC = "Stream Sync", "Context Sync"
_SYNCS = {1: _EVENT_SYNC, 2: _STREAM_WAIT, 3: _STREAM_SYNC, 4: _CONTEXT_SYNC}
_SYNC_NAMES = (
    ("STREAM_WAIT", _STREAM_WAIT),
    ("EVENT_SYNC", _EVENT_SYNC),
    ("STREAM_SYNC", _STREAM_SYNC),
    ("CONTEXT_SYNC", _CONTEXT_SYNC),
)


def sync_rows(tables: Tables, notes: NoteBook) -> Rows:
    """What waited for what, as Kineto's `cuda_sync` rows tell it."""
    columns = (*DEVICE_COLUMNS, "contextId", "syncType", "eventId", "eventSyncId")
    rows = tables.numbers("CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", columns)
    words = tables.texts("ENUM_CUPTI_SYNC_TYPE", "id", "name")
    told = {number: _sync_name(text) for number, text in words.items()}
    kinds = _SYNCS | {number: name for number, name in told.items() if name}
    name, names = named(rows["syncType"], kinds, "Unknown Sync")
    record, stream = _records(tables, rows)
    for_event = np.isin(names, [_STREAM_WAIT, _EVENT_SYNC])[name]
    values = {
        "wait_on_record": np.where(for_event, record, MISSING),
        "wait_on_stream": np.where(for_event, stream, MISSING),
    }
    found = on_device(rows, Category.SYNC, name, names, values)
    found.values["stream"][np.isin(names, [_CONTEXT_SYNC])[name]] = ALL_STREAMS
    waits = np.isin(names, [_STREAM_WAIT])[name]
    if waits.any() and not (record[waits] != MISSING).any():
        # Rows that do not say what they wait for would keep the order of the calls from telling.
        notes.add("event-records-missing", count=int(waits.sum()))
        found = found.where(~waits)
    return found


def _sync_name(text: str) -> str | None:
    return next((name for part, name in _SYNC_NAMES if part in text.upper()), None)


def _records(tables: Tables, waits: Mapping[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """(n,) int64 each, the call that recorded the awaited event, and the stream it is on.

    An event is recorded again and again: newer exports number each record (`eventSyncId`); in older
    ones the last record before the wait is meant, and calls are numbered in order.
    """
    columns = ("globalPid", "contextId", "eventId", "eventSyncId", "correlationId", "streamId")
    records = tables.numbers("CUPTI_ACTIVITY_KIND_CUDA_EVENT", columns)
    called = identity(records["correlationId"]) != MISSING
    records = {column: values[called] for column, values in records.items()}
    waiting = identity(waits["correlationId"])
    found = _last_before(
        _keys(records, waits, ("globalPid", "contextId", "eventId")),
        records["correlationId"],
        np.where(waiting == MISSING, LARGEST_ID, waiting),
    )
    numbered = _last_before(
        _keys(records, waits, ("globalPid", "eventSyncId")),
        records["correlationId"],
        np.full(len(waiting), LARGEST_ID),
    )
    found = np.where((waits["eventSyncId"] > 0) & (numbered >= 0), numbered, found)
    # The last place of each is for those that were not found, -1.
    call = np.append(records["correlationId"], MISSING)
    stream = np.append(records["streamId"], MISSING)
    return call[found], stream[found]


def _keys(
    records: Mapping[str, np.ndarray], waits: Mapping[str, np.ndarray], columns: tuple[str, ...]
) -> tuple[np.ndarray, np.ndarray]:
    """A number for each record and each wait, equal where all the columns are."""
    told = np.stack([np.concatenate([records[c], waits[c]]) for c in columns], axis=1)
    _, key = np.unique(told, axis=0, return_inverse=True)
    key, count = key.reshape(-1), len(records[columns[0]])
    return key[:count], key[count:]


def _last_before(
    keys: tuple[np.ndarray, np.ndarray], called: np.ndarray, before: np.ndarray
) -> np.ndarray:
    """(waits,) int64, index of the last record of a wait's key that was called before, else -1."""
    of_records, of_waits = keys
    place = (of_records << 32) + called
    order = np.argsort(place, kind="stable")
    at = np.searchsorted(place[order], (of_waits << 32) + before) - 1
    if not len(order):
        return at
    candidate = order[np.maximum(at, 0)]
    return np.where((at >= 0) & (of_records[candidate] == of_waits), candidate, -1)
