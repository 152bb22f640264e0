"""A batch over the processes of JAX's own distributed runtime: the same bits as in one."""

import pickle
import socket
import subprocess
import sys

import numpy as np
import pytest

from jaxperf.search._distributed import distributed_rows

PROGRAM = """
import pickle, sys
import jax
process, port, path = int(sys.argv[1]), sys.argv[2], sys.argv[3]
jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_cpu_collectives_implementation", "gloo")
jax.distributed.initialize("127.0.0.1:" + port, 2, process)
from tests.search.test_search_distributed import columns
with open(path, "wb") as file:
    pickle.dump((columns(), jax.process_count()), file)
"""


def columns() -> dict[str, np.ndarray]:
    """Measures of a small space, in blocks of three of its 8 points."""
    from jaxperf.config import Job, SearchSpace, load_hardware
    from jaxperf.search._evaluate import evaluate
    from jaxperf.search._problem import pose

    job = Job(
        layers=4,
        hidden_size=1024,
        attention_heads=8,
        vocabulary_size=32000,
        sequence_length=1024,
    )
    axes = {"tensor_parallel": (1, 2), "micro_batch_size": (1, 2), "recompute": ("none", "full")}
    problem = pose(job, load_hardware("h100"), SearchSpace("small", axes, 4, 16))

    def measured(index: np.ndarray) -> dict[str, np.ndarray]:
        found = evaluate(problem, index)
        return found.measures | {"feasible": found.feasible}

    return distributed_rows(measured, np.arange(problem.space.size), block=3)


@pytest.mark.slow
def test_two_processes_have_the_rows_of_one_to_the_bit(tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    files = [tmp_path / str(process) for process in range(2)]
    children = [
        subprocess.Popen([sys.executable, "-c", PROGRAM, str(process), port, str(file)])
        for process, file in enumerate(files)
    ]
    try:
        assert [child.wait(timeout=240) for child in children] == [0, 0]
    finally:
        for child in children:
            child.kill()
            child.wait()
    expected = columns()
    for file in files:
        found, processes = pickle.loads(file.read_bytes())
        assert processes == 2
        assert found.keys() == expected.keys()
        for name, column in expected.items():
            assert found[name].dtype == column.dtype
            assert found[name].tobytes() == column.tobytes()


@pytest.mark.parametrize("rows", [0, 1, 4, 7])
def test_in_one_process_it_is_the_function(rows):
    def squares(index):
        return {"square": index**2, "pair": np.stack([index, -index], axis=1) / 3}

    index = np.arange(rows) + 5
    found = distributed_rows(squares, index, block=4)
    for name, column in squares(index).items():
        np.testing.assert_array_equal(found[name], column, strict=True)
