"""What the examples in docstrings may use without making it: a graph, its program, a replay."""

import numpy as np
import pytest

from jaxperf.graph import DependencyKind, TaskClass
from tests.helpers import make_graph


@pytest.fixture(autouse=True)
def _nouns_of_examples(request):
    """`graph`: a call of 6 us starts a kernel after 4 us, which a copy follows after 1 us."""
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
