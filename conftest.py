"""What the examples in docstrings may use without making it: a graph, its program, a replay."""

import numpy as np
import pytest

from jaxperf.graph import DependencyKind, TaskClass
from tests.helpers import make_graph


@pytest.fixture(autouse=True)
def _nouns_of_examples(request):
    """`graph`: a call of 6 us starts a kernel after 4 us, which a copy follows after 1 us.

    Below `energy` also `tasks`, the kernel and the copy with their work, and `model`, an H100.
    """
    if not isinstance(request.node, pytest.DoctestItem):
        return
    from jaxperf.compiled import compile_program

    graph = make_graph(
        [6_000, 10_000, 2_000],
        [(0, 1, 4_000, True), (1, 2, 1_000)],
        release_ns={0: 0},
        lane=[0, 1, 1],
        steps=[(0, 2)],
        task_class=[TaskClass.LAUNCH, TaskClass.GEMM, TaskClass.MEMCPY],
        dependency=[DependencyKind.LAUNCH, DependencyKind.STREAM_ORDER],
    )
    namespace = request.getfixturevalue("doctest_namespace")
    namespace |= {"graph": graph, "program": compile_program(graph), "np": np}
    if "energy" in request.node.path.parts:
        from jaxperf.config import load_power
        from jaxperf.energy import power_model

        namespace |= {"tasks": _tasks_of_examples(), "model": power_model(load_power("h100"))}


def _tasks_of_examples():
    from jaxperf.cost import PRECISIONS
    from jaxperf.energy import PowerTasks

    return PowerTasks(
        ranks=(0,),
        ranks_alike=np.ones(1),
        begin_us=0.0,
        end_us=17.0,
        task=np.array([1, 2], np.int32),
        rank=np.zeros(2, np.int32),
        task_class=np.array([TaskClass.GEMM, TaskClass.MEMCPY], np.int32),
        start_us=np.array([4.0, 15.0]),
        duration_us=np.array([10.0, 2.0]),
        is_known=np.array([True, True]),
        precision=np.array([PRECISIONS.index("bf16"), 0], np.int32),
        flops=np.array([5e9, 0.0]),
        memory_bytes=np.array([1e6, 1e6]),
        node_bytes=np.zeros(2),
        network_bytes=np.zeros(2),
        clock_share=np.array([1.0, 0.0]),
    )
