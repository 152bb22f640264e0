"""Types and values of the inputs of operators, as the profiler writes them."""

import numpy as np

from jaxperf.trace import Trace
from tests.trace.written import document, read, row


def operator(ts: float, **written: object) -> dict:
    made = row("aten::addmm", "cpu_op", ts)
    made["args"] = {key.replace("_", " "): value for key, value in written.items()}
    return made


def told(trace: Trace, column: str, table: str) -> list[str | None]:
    texts = getattr(trace, table)
    return [texts[number] if number >= 0 else None for number in getattr(trace, column).tolist()]


def test_input_types_and_values_are_kept_as_written(tmp_path):
    types = ["c10::BFloat16", "c10::BFloat16", "Scalar"]
    full = operator(0, Input_type=types, Concrete_Inputs=["", "", "1"])
    trace = read(tmp_path, document([full]))
    assert told(trace, "input_type", "input_types") == [
        '["c10::BFloat16", "c10::BFloat16", "Scalar"]'
    ]
    assert told(trace, "input_value", "input_values") == ['["", "", "1"]']


def test_what_is_not_written_is_minus_one(tmp_path):
    dims = operator(0, Input_Dims=[[2, 3]])
    launch = row("cudaLaunchKernel", "cuda_runtime", 1)
    trace = read(tmp_path, document([dims, launch]))
    assert trace.input_type.tolist() == trace.input_value.tolist() == [-1, -1]
    assert trace.input_types == trace.input_values == ()
    assert trace.input_type.dtype == trace.input_value.dtype == np.int32


def test_equal_texts_share_one_row_of_the_table_whatever_their_white_space(tmp_path):
    events = document([operator(0, Input_type=["float"]), operator(1, Input_type=["float"])])
    spaced = events.replace('"float"\n', '   "float"\n', 1)
    trace = read(tmp_path, spaced)
    assert trace.input_types == ('["float"]',)
    assert trace.input_type.tolist() == [0, 0]


def test_lists_of_tensors_keep_their_nesting(tmp_path):
    made = operator(0, Input_Dims=[[[2, 3], [4]], []], Input_type=["TensorList", "Scalar"])
    trace = read(tmp_path, document([made]))
    assert trace.shapes == ("[[[2, 3], [4]], []]",)
    assert trace.input_types == ('["TensorList", "Scalar"]',)


def test_inputs_of_an_event_that_needs_coercion_are_kept(tmp_path):
    # An id as text sends the whole slice through the lenient decoder.
    made = operator(0, Input_type=["float"], Concrete_Inputs=[""])
    made["args"]["External id"] = "7"
    trace = read(tmp_path, document([made]))
    assert told(trace, "input_type", "input_types") == ['["float"]']
    assert told(trace, "input_value", "input_values") == ['[""]']
    assert trace.external_id.tolist() == [7]
