"""The work of the tasks of a graph, one small capture for each phenomenon."""

import json
from typing import Any

import numpy as np
import pytest

from jaxperf.config import load_hardware
from jaxperf.cost._work import COLLECTIVE_OPERATIONS, PRECISIONS, Work, WorkKind, select_work
from jaxperf.cost._work_formulas import attention_work, matmul_work
from jaxperf.cost._work_of_tasks import known_work, task_work
from jaxperf.graph import ExecutionGraph, TaskClass, TaskKind, build_graph
from jaxperf.trace import Run, read_run
from tests.graph.written import MAIN, Capture
from tests.trace.written import document, read, row

BF16, FLOAT = "c10::BFloat16", "float"
MM: dict[str, Any] = dict(shapes=[[256, 64], [64, 128]], types=[BF16, BF16])
PRODUCT = matmul_work(256, 128, 64)
GEMM = "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n"


class Traced(Capture):
    """A capture whose operators have inputs."""

    def operator(
        self,
        name: str,
        ts: float,
        dur: float,
        shapes: list | None = None,
        types: list[str] | None = None,
        values: list[str] | None = None,
    ) -> None:
        self.op(name, ts, dur)
        told = {"Input Dims": shapes, "Input type": types, "Concrete Inputs": values}
        self.rows[-1]["args"] = {key: value for key, value in told.items() if value is not None}

    def work_of(self, folder, *names: str) -> Work:
        """The work of the tasks of some names, in order of their start."""
        graph, work = self.graph_and_work(folder)
        wanted = [name for name in graph.names if name in names]
        mine = np.isin(graph.name, [graph.names.index(name) for name in wanted])
        tasks = np.flatnonzero(mine & (graph.kind >= TaskKind.KERNEL))
        return select_work(work, tasks[np.argsort(graph.start_ns[tasks], kind="stable")])

    def graph_and_work(self, folder) -> tuple[ExecutionGraph, Work]:
        run = Run((self.trace(folder),), (), ())
        graph = build_graph(run)
        return graph, task_work(graph, run)


def assert_same(found: Work, right: Work) -> None:
    for field in ("kind", "precision", "flops", "memory_bytes", "batch", "m", "n", "k"):
        np.testing.assert_array_equal(getattr(found, field), getattr(right, field), field)


# Which operator
# ---------------------------------------------------------------------------------------


def test_a_kernel_has_the_work_of_the_operator_that_launched_it(tmp_path):
    capture = Traced()
    capture.operator("aten::mm", 0, 20, **MM)
    capture.launch(GEMM, at=5, start=30, dur=10)
    assert_same(capture.work_of(tmp_path, GEMM), PRODUCT)


def test_the_innermost_operator_that_tells_decides(tmp_path):
    capture = Traced()
    capture.operator("aten::linear", 0, 40, [[256, 64], [128, 64], [128]], [BF16] * 3)
    capture.operator("aten::addmm", 2, 30, [[128], [256, 64], [64, 128]], [BF16] * 3)
    capture.launch(GEMM, at=5, start=30, dur=10)
    assert_same(capture.work_of(tmp_path, GEMM), PRODUCT)


def test_an_operator_around_one_that_tells_nothing_is_asked(tmp_path):
    capture = Traced()
    capture.operator("MmBackward0", 0, 40, [[256, 128]], [BF16])
    capture.operator("aten::mm", 2, 30, **MM)
    capture.operator("my::gemm", 3, 20)
    capture.launch(GEMM, at=5, start=30, dur=10)
    assert_same(capture.work_of(tmp_path, GEMM), PRODUCT)


def test_a_kernel_under_no_operator_that_tells_has_no_work(tmp_path):
    capture = Traced()
    capture.operator("CompiledFunction", 0, 40, [[256, 64], [64, 128]], [BF16, BF16])
    capture.launch(GEMM, at=5, start=30, dur=10)
    found = capture.work_of(tmp_path, GEMM)
    assert found.kind.item() == WorkKind.UNKNOWN
    assert found.task_class.item() == TaskClass.GEMM
    assert np.isnan(found.flops.item()) and np.isnan(found.memory_bytes.item())
    assert not known_work(found).any()


def test_without_a_launch_the_profiler_s_id_tells_the_operator(tmp_path):
    capture = Traced()
    capture.operator("aten::mm", 0, 20, **MM)
    capture.rows[-1]["args"]["External id"] = 7
    capture.work(GEMM, 30, 10)
    capture.rows[-1]["args"]["External id"] = 7
    assert_same(capture.work_of(tmp_path, GEMM), PRODUCT)


def test_kernels_of_a_device_graph_have_no_operator(tmp_path):
    capture = Traced()
    capture.operator("aten::mm", 0, 20, **MM)
    capture.launch(GEMM, at=5, start=30, dur=10, call="cudaGraphLaunch")
    assert capture.work_of(tmp_path, GEMM).kind.item() == WorkKind.UNKNOWN


def test_host_work_has_no_work_and_every_task_the_class_of_the_graph(tmp_path):
    capture = Traced()
    capture.operator("aten::mm", 0, 20, **MM)
    capture.launch(GEMM, at=5, start=30, dur=10)
    graph, work = capture.graph_and_work(tmp_path)
    assert len(work) == graph.tasks
    assert work.task_class.tolist() == graph.task_class.tolist()
    host = graph.kind < TaskKind.KERNEL
    assert (work.kind[host] == WorkKind.UNKNOWN).all()
    assert known_work(work).tolist() == (~host).tolist()


def test_each_rank_has_the_work_of_its_own_trace(tmp_path):
    runs = []
    for rank, rows in enumerate((256, 512)):
        capture = Traced()
        capture.operator("aten::mm", 0, 20, [[rows, 64], [64, 128]], [BF16, BF16])
        capture.launch(GEMM, at=5, start=30, dur=10)
        job = {"distributedInfo": {"rank": rank, "world_size": 2}}
        runs.append(read(tmp_path, document(capture.rows, **job), f"rank{rank}.json"))
    run = Run(tuple(runs), (), ())
    graph = build_graph(run)
    work = task_work(graph, run)
    kernels = graph.kind == TaskKind.KERNEL
    assert dict(zip(graph.trace[kernels].tolist(), work.m[kernels].tolist(), strict=True)) == {
        0: 256,
        1: 512,
    }


# Which share
# ---------------------------------------------------------------------------------------


def test_a_sum_of_partial_results_has_no_part_in_the_product(tmp_path):
    capture = Traced()
    capture.operator("aten::mm", 0, 30, **MM)
    capture.launch(GEMM, at=5, start=40, dur=10)
    capture.launch("void cublasLt::splitKreduce_kernel<32>", at=15, start=50, dur=5)
    assert_same(capture.work_of(tmp_path, GEMM), PRODUCT)
    helper = capture.work_of(tmp_path, "void cublasLt::splitKreduce_kernel<32>")
    assert helper.kind.item() == WorkKind.UNKNOWN


def test_kernels_of_one_product_share_it_by_their_time(tmp_path):
    capture = Traced()
    capture.operator("aten::mm", 0, 30, **MM)
    capture.launch("gemm_a", at=5, start=40, dur=30)
    capture.launch("gemm_b", at=15, start=80, dur=10)
    found = capture.work_of(tmp_path, "gemm_a", "gemm_b")
    assert found.flops.tolist() == [0.75 * PRODUCT.flops.item(), 0.25 * PRODUCT.flops.item()]
    assert found.memory_bytes.sum() == PRODUCT.memory_bytes.item()
    assert (2 * found.batch * found.m * found.n * found.k).tolist() == found.flops.tolist()


def test_what_fills_the_result_before_the_product_writes_it(tmp_path):
    capture = Traced()
    capture.operator("aten::addmm", 0, 30, [[128], [256, 64], [64, 128]], [BF16] * 3)
    bias = "void at::native::elementwise_kernel<128, 4>(int)"
    capture.launch(bias, at=5, start=40, dur=5)
    capture.launch(GEMM, at=15, start=50, dur=10)
    assert_same(capture.work_of(tmp_path, GEMM), PRODUCT)
    found = capture.work_of(tmp_path, bias)
    assert found.memory_bytes.item() == 256 * 128 * 2
    assert found.kind.item() == WorkKind.MEMORY


def test_helpers_of_an_attention_have_no_part_in_it(tmp_path):
    capture = Traced()
    shape = [2, 8, 512, 64]
    values = [*[""] * 8, "512", "512", "0.", "False", "", "", ""]
    name = "aten::_scaled_dot_product_flash_attention_backward"
    capture.operator(name, 0, 60, [[*shape]] * 5 + [[2, 8, 512]] + [[]] * 9, [BF16] * 5, values)
    main = "void pytorch_flash::flash_bwd_dq_dk_dv_loop_kernel<64>"
    helper = "void pytorch_flash::flash_bwd_dot_do_o_kernel<64>"
    capture.launch(helper, at=5, start=70, dur=5)
    capture.launch(main, at=15, start=80, dur=50)
    right = attention_work(2, 8, 8, 512, 512, 64, backward=True)
    assert_same(capture.work_of(tmp_path, main), right)
    assert capture.work_of(tmp_path, helper).kind.item() == WorkKind.UNKNOWN


SIDES = [[8, 64, 14, 14], [8, 32, 14, 14], [64, 32, 1, 1], *[[]] * 8]
FLOPS = 2 * (8 * 14 * 14) * 64 * 32
ASKED = ["", "", "", "[0]", "[1, 1]", "[0, 0]", "[1, 1]", "False", "[0, 0]", "1"]


@pytest.mark.parametrize(
    "kernels",
    [
        ("sm80_xmma_dgrad_implicit_gemm", "sm80_xmma_wgrad_implicit_gemm"),
        ("igemm_bwd_gtcx3_nhwc_bf16", "igemm_wrw_gtcx3_nhwc_bf16"),
        ("volta_sgemm_64x64_nn", "volta_sgemm_64x64_nt"),
        ("volta_sgemm_64x64_nn", "void cudnn::cnn::wgrad_alg0_engine<float>"),
    ],
)
def test_each_gradient_of_a_convolution_goes_to_its_kernel(tmp_path, kernels):
    capture = Traced()
    values = [*ASKED, "[True, True, False]"]
    capture.operator("aten::convolution_backward", 0, 60, SIDES, [BF16] * 3, values)
    for i, name in enumerate(kernels):
        capture.launch(name, at=5 + 10 * i, start=70 + 30 * i, dur=10 + 10 * i)
    found = capture.work_of(tmp_path, *kernels)
    assert found.flops.tolist() == pytest.approx([FLOPS, FLOPS])
    assert found.m.tolist() == [8 * 14 * 14, 64]  # places of the input; channels of the result


def test_several_kernels_of_one_gradient_share_it(tmp_path):
    capture = Traced()
    values = [*ASKED, "[False, True, False]"]
    capture.operator("aten::convolution_backward", 0, 60, SIDES, [BF16] * 3, values)
    capture.launch("void cudnn::winograd_nonfused::winogradWgradData4x4", 5, 70, 10)
    capture.launch("volta_sgemm_64x64_nt", 15, 90, 30)
    names = ("void cudnn::winograd_nonfused::winogradWgradData4x4", "volta_sgemm_64x64_nt")
    assert capture.work_of(tmp_path, *names).flops.tolist() == pytest.approx(
        [FLOPS / 4, 3 * FLOPS / 4]
    )


def test_gradients_of_which_the_trace_does_not_say_that_both_were_asked_for_stay_unknown(tmp_path):
    capture = Traced()
    capture.operator("aten::convolution_backward", 0, 60, SIDES, [BF16] * 3)
    capture.launch("volta_sgemm_64x64_nn", 5, 70, 10)
    capture.launch("sm80_xmma_wgrad_implicit_gemm", 15, 90, 10)
    found = capture.work_of(tmp_path, "volta_sgemm_64x64_nn", "sm80_xmma_wgrad_implicit_gemm")
    assert found.kind.tolist() == [WorkKind.UNKNOWN, WorkKind.MATMUL]


def test_a_one_sided_gradient_takes_its_shapes_from_the_operator_around_it(tmp_path):
    capture = Traced()
    shapes = [[8, 32, 14, 14], [8, 64, 14, 14], [64, 32, 1, 1], *[[]] * 8]
    capture.operator("aten::cudnn_convolution_backward", 0, 60, shapes, [FLOAT] * 3)
    one = [[], [8, 64, 14, 14], [64, 32, 1, 1], *[[]] * 7]
    capture.operator("aten::cudnn_convolution_backward_input", 2, 20, one, ["", FLOAT, FLOAT])
    capture.launch("volta_sgemm_64x64_nn", 5, 70, 10)
    found = capture.work_of(tmp_path, "volta_sgemm_64x64_nn")
    assert found.flops.item() == pytest.approx(FLOPS)
    assert found.n.item() == 32


def test_a_stream_is_shared_by_all_kernels_of_its_operator(tmp_path):
    capture = Traced()
    shapes = [[512, 64], [512, 64], [], [512, 1], [512, 1], [64], [64], []]
    types = [FLOAT, FLOAT, "", FLOAT, FLOAT, FLOAT, FLOAT, ""]
    capture.operator("aten::native_layer_norm_backward", 0, 60, shapes, types)
    capture.launch("layer_norm_grad_input_kernel", 5, 70, 30)
    capture.launch("GammaBetaBackwardCUDAKernel", 15, 110, 10)
    found = capture.work_of(tmp_path, "layer_norm_grad_input_kernel", "GammaBetaBackwardCUDAKernel")
    size = 4 * (3 * 512 * 64 + 2 * 512 + 2 * 64)
    assert found.memory_bytes.tolist() == [0.75 * size, 0.25 * size]
    assert found.kind.tolist() == [WorkKind.MEMORY] * 2


# What kernels' names tell
# ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name, precision",
    [
        ("ampere_sgemm_128x64_tn", "fp32"),
        ("void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_256x64_16x4_tn_align1>", "tf32"),
        ("sm80_xmma_gemm_tf32f32_tf32f32_f32_tn_n_tilesize128x128", "tf32"),
    ],
)
def test_whether_floats_are_multiplied_in_tf32_the_kernel_s_name_tells(tmp_path, name, precision):
    capture = Traced()
    capture.operator("aten::mm", 0, 20, [[256, 64], [64, 128]], [FLOAT, FLOAT])
    capture.launch(name, at=5, start=30, dur=10)
    found = capture.work_of(tmp_path, name)
    assert PRECISIONS[found.precision.item()] == precision
    assert found.memory_bytes.item() == matmul_work(256, 128, 64, precision="fp32").memory_bytes


def test_where_the_trace_holds_no_types_the_kernel_s_name_tells_their_size(tmp_path):
    capture = Traced()
    capture.operator("aten::mm", 0, 20, [[256, 64], [64, 128]])
    capture.launch("volta_sgemm_64x64_nn", at=5, start=30, dur=10)
    capture.operator("aten::add", 40, 20, [[256, 64], [256, 64], []], [])
    add = "void at::native::vectorized_elementwise_kernel<4, AddFunctor<c10::Half>>"
    capture.launch(add, at=45, start=70, dur=10)
    assert_same(
        capture.work_of(tmp_path, "volta_sgemm_64x64_nn"),
        matmul_work(256, 128, 64, precision="fp32"),
    )
    found = capture.work_of(tmp_path, add)
    assert found.memory_bytes.item() == 3 * 256 * 64 * 2


def test_the_elements_of_a_list_have_the_size_that_the_kernel_s_name_tells(tmp_path):
    capture = Traced()
    listed = ["TensorList", "Scalar"]
    capture.operator("aten::cat", 0, 20, [[[64, 8], [32, 8]], []], listed)
    cat = "void CatArrayBatchedCopy<OpaqueType<2u>, unsigned int, 2, 128, 1>"
    capture.launch(cat, at=5, start=30, dur=10)
    capture.operator("aten::_foreach_mul_", 40, 20, [[[64, 8]], []], listed)
    many = "void multi_tensor_apply_kernel<TensorListMetadata<1>, BinaryOpScalarFunctor<float, 1>>"
    capture.launch(many, at=45, start=70, dur=10)
    assert capture.work_of(tmp_path, cat).memory_bytes.item() == 2 * 96 * 8 * 2
    assert capture.work_of(tmp_path, many).memory_bytes.item() == 2 * 64 * 8 * 4


# Copies
# ---------------------------------------------------------------------------------------


def test_copies_have_the_bytes_that_the_trace_tells(tmp_path):
    capture = Traced()
    names = (
        "Memcpy DtoD (Device -> Device)",
        "Memset (Device)",
        "Memcpy HtoD (Pageable -> Device)",
    )
    for i, name in enumerate(names):
        capture.launch(name, at=10 * i, start=100 + 20 * i, dur=10, call="cudaMemcpyAsync")
        capture.rows[-1]["args"]["bytes"] = 1000
    found = capture.work_of(tmp_path, *names)
    assert found.memory_bytes.tolist() == [2000, 1000, 1000]
    # A copy from the host is not bound by the device's memory.
    assert found.kind.tolist() == [WorkKind.MEMORY, WorkKind.MEMORY, WorkKind.UNKNOWN]


def test_a_copy_without_bytes_is_not_known(tmp_path):
    capture = Traced()
    capture.launch("Memcpy DtoD (Device -> Device)", at=0, start=10, dur=10)
    found = capture.work_of(tmp_path, "Memcpy DtoD (Device -> Device)")
    assert not known_work(found).any()


# Collectives
# ---------------------------------------------------------------------------------------

SAID = {
    "all-reduce": ("allreduce", 1024, 1024, "all_reduce", 4096),
    "all-gather": ("_allgather_base", 128, 1024, "all_gather", 4096),
    "reduce-scatter": ("_reduce_scatter_base", 1024, 128, "reduce_scatter", 4096),
    "coalesced": ("reduce_scatter_tensor_coalesced", 1024, 128, "reduce_scatter", 4096),
    "all-to-all": ("all_to_all", 1024, 900, "all_to_all", 4096),
    "broadcast": ("broadcast", 1024, 1024, "broadcast", 4096),
    "send": ("send", 1024, 1024, "send_receive", 4096),
}


@pytest.mark.parametrize("case", SAID)
def test_a_message_is_the_whole_buffer_as_its_arguments_tell(tmp_path, case):
    name, sent, received, operation, size = SAID[case]
    capture = Traced()
    kernel = "ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)"
    capture.launch(kernel, at=0, start=10, dur=10)
    capture.rows[-1]["args"] |= {
        "Collective name": name,
        "In msg nelems": sent,
        "Out msg nelems": received,
        "Group size": 8,
        "Process Group Ranks": "[0, 2, 4, 6, 8, 10, 12, 14]",
        "dtype": "Float",
    }
    found = capture.work_of(tmp_path, kernel)
    assert COLLECTIVE_OPERATIONS[found.operation.item()] == operation
    assert found.message_bytes.item() == size
    assert (found.ranks.item(), found.stride.item()) == (8, 2)
    assert found.kind.item() == WorkKind.COLLECTIVE
    assert known_work(found).all()


def collective_operator(kernel: str, name: str, values: list[str] | None) -> Traced:
    """A collective without arguments, under the operators that PyTorch writes."""
    capture = Traced()
    capture.operator("record_param_comms", 0, 40, [[], [], []], ["", "", ""], values)
    capture.operator(name, 1, 38, [[16, 64]], [BF16])
    capture.launch(kernel, at=5, start=50, dur=10)
    return capture


def test_an_older_collective_has_the_message_of_its_operator(tmp_path):
    kernel = "ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)"
    capture = collective_operator(kernel, "nccl:all_reduce", None)
    found = capture.work_of(tmp_path, kernel)
    assert COLLECTIVE_OPERATIONS[found.operation.item()] == "all_reduce"
    assert found.message_bytes.item() == 16 * 64 * 2
    assert np.isnan(found.ranks.item()) and np.isnan(found.stride.item())
    assert not known_work(found).any()


def test_the_recorder_of_parameters_tells_the_group(tmp_path):
    kernel = "ncclDevKernel_AllGather_RING_LL(ncclDevComm*)"
    values = ["", "", "", "0", "", "[]", "[]", "0", "4", "8"]
    found = collective_operator(kernel, "nccl:_all_gather_base", values).work_of(tmp_path, kernel)
    assert found.message_bytes.item() == 8 * 16 * 64 * 2
    assert (found.ranks.item(), found.stride.item()) == (8, 4)


def test_an_older_recorder_tells_the_size_of_the_group_alone(tmp_path):
    kernel = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevComm*)"
    values = ["", "337", "93825114103440", "0", "", "[]", "[]", "8"]
    found = collective_operator(kernel, "nccl:all_reduce", values).work_of(tmp_path, kernel)
    assert found.ranks.item() == 8
    assert np.isnan(found.stride.item())


@pytest.mark.parametrize(
    "kernel, operation",
    [
        ("ncclKernel_AllReduce_RING_LL_Sum_float(ncclDevComm*)", "all_reduce"),
        ("ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclDevComm*)", "reduce_scatter"),
        ("ncclKernel_AllGather_RING_LL_Sum_int8_t(ncclDevComm*)", "all_gather"),
        ("ncclDevKernel_Broadcast_RING_LL(ncclDevComm*)", "broadcast"),
        ("void deep_ep::internode_ll::dispatch<true, 3, 10, 7168>(void*)", "all_to_all"),
        ("void deep_ep::internode_ll::combine<3, 10, 7168, 9>(void*)", "all_to_all"),
        ("void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>", "all_reduce"),
        ("ncclDevKernel_SendRecv(ncclDevComm*)", None),
        ("ncclDevKernel_Generic(ncclDevComm*)", None),
    ],
)
def test_the_name_alone_tells_the_operation_or_nothing(tmp_path, kernel, operation):
    capture = Traced()
    capture.launch(kernel, at=0, start=10, dur=10)
    found = capture.work_of(tmp_path, kernel)
    index = found.operation.item()
    assert (COLLECTIVE_OPERATIONS[index] if index >= 0 else None) == operation
    assert found.kind.item() == WorkKind.COLLECTIVE
    assert np.isnan(found.message_bytes.item())


def test_sends_and_receives_under_an_all_to_all_are_one(tmp_path):
    kernel = "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclWorkElem)"
    found = collective_operator(kernel, "nccl:all_to_all", None).work_of(tmp_path, kernel)
    assert COLLECTIVE_OPERATIONS[found.operation.item()] == "all_to_all"
    assert found.message_bytes.item() == 16 * 64 * 2


@pytest.mark.parametrize(
    "ranks, stride", [("[0, 1, 2, 3]", 1), ("[3, 11, 19]", 8), ("[0, 1, 8, 9]", None)]
)
def test_the_stride_is_the_distance_of_neighbours_where_it_is_the_same(tmp_path, ranks, stride):
    capture = Traced()
    kernel = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevComm*)"
    capture.launch(kernel, at=0, start=10, dur=10)
    capture.rows[-1]["args"] |= {"Collective name": "allreduce", "Process Group Ranks": ranks}
    found = capture.work_of(tmp_path, kernel)
    assert found.ranks.item() == len(json.loads(ranks))
    np.testing.assert_equal(found.stride.item(), np.nan if stride is None else stride)


# Real traces
# ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path, hardware, classes",
    [
        # Which ranks its collectives join is not told, so no model of them knows enough.
        ("megatron_gpt_tp8_a100_8rank_forward/rank0", "a100", ("GEMM", "NORMALIZATION")),
        ("nanogpt_dp8_h100_8rank_4step/rank0", "h100", ("GEMM", "NORMALIZATION", "ELEMENTWISE")),
        (
            "resnet50_v100_2021_old_schema/workers0",
            "v100",
            ("CONVOLUTION", "NORMALIZATION", "ELEMENTWISE"),
        ),
        ("infer_pairs_h100_vs_mi300x/bert-small_h100", "h100", ("GEMM", "ATTENTION", "EMBEDDING")),
    ],
)
def test_most_of_a_real_trace_is_known_and_no_product_beats_the_device(
    shared, path, hardware, classes
):
    run = read_run(shared / "traces" / f"{path}.json.gz")
    graph = build_graph(run)
    work = task_work(graph, run)
    time_ns = np.where(graph.event >= 0, run.traces[0].duration_ns[graph.event], 0)
    for name in classes:
        mine = graph.task_class == TaskClass[name]
        assert time_ns[mine & known_work(work)].sum() > 0.88 * time_ns[mine].sum(), name
    device = load_hardware(hardware)
    peak = np.array([device.peak_flops_per_s.get(p, np.inf) for p in PRECISIONS] + [np.inf])
    multiplies = np.isfinite(work.flops)
    rate = work.flops[multiplies] / (time_ns[multiplies] * 1e-9)
    assert multiplies.sum() > 5
    # Winograd's algorithm saves up to three of four multiplications of a convolution.
    saved = 4.0 if "CONVOLUTION" in classes else 1.0
    assert (rate < saved * peak[work.precision[multiplies]]).all()


def test_an_operator_on_another_thread_is_not_around_a_launch(tmp_path):
    capture = Traced()
    capture.operator("aten::mm", 0, 20, **MM)
    capture.rows[-1]["tid"] = MAIN + 5
    capture.rows.append(row("aten::empty", "cpu_op", 1, 10, tid=MAIN))
    capture.launch(GEMM, at=5, start=30, dur=10)
    assert capture.work_of(tmp_path, GEMM).kind.item() == WorkKind.UNKNOWN
