"""What every replay takes for granted, and the user should know."""

import os

from jaxperf.graph import ExecutionGraph, TaskKind
from jaxperf.trace import Note, Run


def replay_notes(run: Run, graph: ExecutionGraph) -> list[Note]:
    """What a replay of a run takes for granted.

    Args:
        run, graph: the run.

    Returns:
        A note for each file that was set aside, for collectives whose waiting is in their duration,
        and where no step is marked.
    """
    notes = [
        Note("set-aside", f"{os.path.basename(aside.file)}: {aside.reason}", aside.file)
        for aside in run.set_aside
    ]
    collectives = int(((graph.kind == TaskKind.COLLECTIVE) & (graph.arrival < 0)).sum())
    if collectives:
        notes.append(
            Note(
                "collectives-as-measured",
                f"{collectives} collectives and sends take as long as measured, their waiting for "
                "other ranks included",
            )
        )
    if not graph.steps:
        notes.append(
            Note("no-steps", "no step is marked in the traces: the whole capture is one iteration")
        )
    return notes
