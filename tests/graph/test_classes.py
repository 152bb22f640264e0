"""Classes of kernels by the names that real devices show, and tables of a user's own."""

import json

import pytest

from jaxperf.errors import ConfigError
from jaxperf.graph import (
    COMPUTE_CLASSES,
    TaskClass,
    TaskKind,
    build_graph,
    classify_kernel,
    classify_names,
)
from jaxperf.graph._classes import KERNEL_CLASSES, extend_classes, load_classes
from jaxperf.trace import Category, Run, read_run
from tests.graph.written import Capture
from tests.trace.written import document, read

NAMES = {
    "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64": TaskClass.GEMM,
    "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn": TaskClass.GEMM,
    "Cijk_Ailk_Bljk_BBS_BH_MT128x128x32_MI16x16x16x1": TaskClass.GEMM,
    "nvjet_tst_256x128_64x4_1x2_h_bz_coopA_TNT": TaskClass.GEMM,
    "void cutlass::Kernel2<cutlass_80_tensorop_s16816gemm>": TaskClass.GEMM,
    "sm90_xmma_gemm_bf16_dgrad_fc1": TaskClass.GEMM,
    "void deep_gemm::fp8_gemm_kernel<4096u, 7168u>": TaskClass.GEMM,
    "bmm_Bfloat16_MxE2m1MxE4m3_Fp32_t128x16x256u2": TaskClass.GEMM,
    "triton_tem_fused__to_copy_addmm_native_layer_norm_t_view_8": TaskClass.GEMM,
    "void flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128>>": TaskClass.ATTENTION,
    "fmha_cutlassF_bf16_aligned_64x128_rf_sm80": TaskClass.ATTENTION,
    "void cutlass::device_kernel<flash::FlashAttnBwdPreprocess<cute::C<64>>>": TaskClass.ATTENTION,
    "_fwd_kernel_aligned_0d1d2d3d45d6de": TaskClass.ATTENTION,
    "kernel_unified_attention_2d": TaskClass.ATTENTION,
    "triton_tem_fused_flex_attention_3": TaskClass.ATTENTION,
    "sm80_xmma_fprop_implicit_gemm_bf16bf16_bf16f32": TaskClass.CONVOLUTION,
    "void cudnn::winograd_nonfused::winogradForwardData4x4": TaskClass.CONVOLUTION,
    "igemm_bwd_gtcx3_nhwc_bf16_bx0_ex1_bt128x256x32": TaskClass.CONVOLUTION,
    "batched_transpose_32x32_half": TaskClass.CONVOLUTION,
    "void nchwToNhwcKernel<float, float>": TaskClass.CONVOLUTION,
    "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel": TaskClass.NORMALIZATION,
    "void at::native::(anonymous namespace)::RowwiseMomentsCUDAKernel": TaskClass.NORMALIZATION,
    "void cudnn::bn_fw_tr_1C11_kernel_NCHW<float>": TaskClass.NORMALIZATION,
    "MIOpenBatchNormFwdTrainSpatial": TaskClass.NORMALIZATION,
    "triton_red_fused__fused_rms_norm_backward_mm_mul_3": TaskClass.NORMALIZATION,
    "void at::native::vectorized_elementwise_kernel<4, CUDAFunctor_add>": TaskClass.ELEMENTWISE,
    "void at::native::distribution_kernel<normal_and_transform>": TaskClass.ELEMENTWISE,
    "triton_poi_fused_add_mul_3": TaskClass.ELEMENTWISE,
    "loop_add_fusion_3": TaskClass.ELEMENTWISE,
    "input_fusion": TaskClass.ELEMENTWISE,
    "gemm_fusion_dot_4": TaskClass.GEMM,
    "triton_poi_fused__scaled_mm__to_copy_clone_0": TaskClass.ELEMENTWISE,
    "triton_poi_fused_all_gather_into_tensor_2": TaskClass.ELEMENTWISE,
    "triton_per_fused__to_copy_linalg_vector_norm_1": TaskClass.ELEMENTWISE,
    "_per_token_group_quant_fp8": TaskClass.ELEMENTWISE,
    "void vllm::reshape_and_cache_flash_kernel<__nv_bfloat16>": TaskClass.ELEMENTWISE,
    "void multi_tensor_apply_kernel<TensorListMetadata<4>, FusedAdamMathFunctor>": (
        TaskClass.OPTIMIZER
    ),
    "split_embedding_codegen_forward_unweighted_kernel": TaskClass.EMBEDDING,
    "split_embedding_backward_codegen_rowwise_adagrad_kernel<fbgemm_gpu::A>": TaskClass.EMBEDDING,
    "void fbgemm_gpu::permute_2D_data_kernel<false>": TaskClass.EMBEDDING,
    "void moe_align_block_size_kernel<int>": TaskClass.MOE,
    "grouped_topk_kernel": TaskClass.MOE,
    "my_own_kernel": TaskClass.OTHER,
    "my_dedicated_allocation": TaskClass.OTHER,
}

COMMUNICATION = [
    "ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)",
    "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "nccldevkernel_sendrecv",
    "ncclSymkDevKernel_AllReduce_AGxLL_R_sum_bf16",
    "rcclGenericKernel<1, false>(ncclDevKernelArgsStorage<4096ul>)",
    "void deep_ep::internode_ll::combine<3, 10, 7168, 9>(void*)",
    "_ZN7deep_ep8intranode8dispatchILi8EEEvPv",
    "void dpsk::ep::dispatch_kernel<8>",
    "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>",
    "void sglang::custom_all_reduce_kernel<8>",
    "void quickreduce::allreduce_prototype_twoshot<8>",
    "void tensorrt_llm::kernels::oneShotAllReduceKernel<__nv_bfloat16>",
    "void tensorrt_llm::kernels::ar_fusion::allreduce_fusion_kernel_oneshot_lamport<4>",
    "void flashinfer::trtllm_mnnvl_allreduce::twoshot_allreduce_kernel<4>",
    "void (anonymous namespace)::multimem_all_reduce_kernel<c10::BFloat16, 16>",
    "void c10d::symmetric_memory::two_shot_all_reduce_kernel<16>",
    "void userbuffers_fp16_sum_inplace_gpu_rw_blocked<8>",
    "oneccl_allreduce_bf16",
    "void mscclpp::allreduce7<float>",
    "void nvshmemi_transfer_kernel<1>",
]


@pytest.mark.parametrize("name", NAMES)
def test_a_kernel_is_known_by_its_name(name):
    assert classify_kernel(name) is NAMES[name]


@pytest.mark.parametrize("name", COMMUNICATION)
def test_a_library_that_communicates_is_known_by_its_names(name):
    assert classify_kernel(name) is TaskClass.COMMUNICATION


def test_a_table_of_names_is_classified_name_by_name():
    assert classify_names(tuple(NAMES)).tolist() == [int(known) for known in NAMES.values()]


def test_computing_is_neither_communicating_nor_copying_nor_of_the_host():
    others = {TaskClass.COMMUNICATION, TaskClass.MEMCPY, TaskClass.HOST, TaskClass.LAUNCH}
    assert set(TaskClass) - others == COMPUTE_CLASSES


# Tables of a user's own
# ---------------------------------------------------------------------------------------


def test_rows_of_the_user_decide_before_those_of_the_table():
    mine = extend_classes([("moe", "^my_own"), ("ELEMENTWISE", "GEMM")])
    assert classify_kernel("my_own_gemm", mine) is TaskClass.MOE
    assert classify_kernel("nvjet_tst", mine) is TaskClass.GEMM
    assert classify_kernel("volta_sgemm", mine) is TaskClass.ELEMENTWISE
    assert classify_kernel("my_own_gemm") is TaskClass.GEMM


def test_tables_can_be_extended_again():
    first = extend_classes([("moe", "^a")])
    second = extend_classes([("attention", "^ab")], first)
    assert [classify_kernel(name, second).name for name in ("ab", "ac")] == ["ATTENTION", "MOE"]
    assert second.rows[2:] == KERNEL_CLASSES.rows


def test_a_file_of_rows_is_read(tmp_path):
    path = tmp_path / "classes.toml"
    path.write_text(
        '[[kernel]]\nclass = "communication"\npattern = "my_ring"\n'
        '[[kernel]]\nclass = "optimizer"\npattern = "^Muon"\n'
    )
    mine = load_classes(path)
    assert classify_kernel("my_ring_step", mine) is TaskClass.COMMUNICATION
    assert classify_kernel("muon_step", mine) is TaskClass.OPTIMIZER


def test_an_unknown_class_is_refused_with_the_nearest():
    with pytest.raises(ConfigError, match="row 2: no such class; got 'atention'.*one of attention"):
        extend_classes([("gemm", "a"), ("atention", "b")])


def test_a_class_that_no_kernel_has_is_refused():
    with pytest.raises(ConfigError, match="no such class; got 'host'"):
        extend_classes([("host", "a")])


def test_a_broken_expression_is_refused():
    with pytest.raises(ConfigError, match=r"row 1: not a regular expression; got '\(a' .*missing"):
        extend_classes([("gemm", "(a")])


@pytest.mark.parametrize(
    "text, complaint",
    [
        ("[[kernel]\n", "not valid TOML"),
        ('[[kernels]]\nclass = "gemm"\n', "kernels: unknown key; expected one of kernel"),
        ("", "missing required field kernel"),
        ('[kernel]\nclass = "gemm"\npattern = "a"\n', "kernel: Expected array, got object"),
        ('[[kernel]]\nclass = "gemm"\n', r"kernel\[0\]: .*missing required field pattern"),
        (
            '[[kernel]]\nclass = "gemm"\npattern = 3\n',
            r"kernel\[0\]\.pattern: Expected str, got int",
        ),
        ('[[kernel]]\nclass = "game"\npattern = "a"\n', "classes.toml: row 1: no such class"),
    ],
)
def test_a_file_that_is_no_table_is_refused(tmp_path, text, complaint):
    path = tmp_path / "classes.toml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=complaint):
        load_classes(path)


def test_a_file_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="none.toml: cannot be read"):
        load_classes(tmp_path / "none.toml")


def test_a_graph_is_built_with_the_classes_of_the_user(tmp_path):
    capture = Capture()
    capture.launch("my_own_kernel", at=0, start=10, dur=30)
    capture.launch("ring", at=5, start=50, dur=20)
    run = Run((capture.trace(tmp_path),), (), ())
    mine = extend_classes([("gemm", "my_own"), ("communication", "^ring$")])
    graph = build_graph(run, classes=mine)
    kinds = dict(zip(graph.task_class.tolist(), graph.kind.tolist(), strict=True))
    assert kinds[TaskClass.GEMM] == TaskKind.KERNEL
    assert kinds[TaskClass.COMMUNICATION] == TaskKind.COLLECTIVE
    assert not graph.notes


def test_kernels_of_no_known_class_are_noted_with_their_share_and_names(tmp_path):
    capture = Capture()
    capture.launch("void mine::(anonymous namespace)::first<float>(int)", at=0, start=10, dur=30)
    capture.launch("second", at=5, start=50, dur=10)
    capture.launch("sgemm", at=10, start=70, dur=60)
    (note,) = capture.graph(tmp_path).notes
    assert note.code == "other-kernels"
    expected = "2 kernels, 40.0 % of the device's time, are of no known class: most in mine::first"
    assert note.text == f"{expected}, second"
    assert note.where and note.where.endswith("trace.json")


def test_kernels_of_no_time_are_counted_and_not_named(tmp_path):
    capture = Capture()
    capture.launch("mine", at=0, start=10, dur=0)
    (note,) = capture.graph(tmp_path).notes
    assert note.text == "1 kernels, 0.0 % of the device's time, are of no known class"


@pytest.mark.slow
def test_hardly_any_time_of_real_traces_is_of_no_known_class(shared):
    listed = json.loads((shared / "traces" / "sets.json").read_text())
    other = total = 0
    # Names of MTIA's jobs say nothing of what they do.
    for paths in (listed[name] for name in listed if "mtia" not in name):
        trace = read_run([shared / "traces" / path for path in paths]).traces[0]
        kernels = trace.category == Category.KERNEL
        classes = classify_names(trace.names)[trace.name[kernels]]
        time_ns = trace.duration_ns[kernels]
        total += time_ns.sum()
        other += time_ns[classes == TaskClass.OTHER].sum()
    assert 0 < other < 0.005 * total


def test_ranks_meet_at_collectives_of_the_user_s_classes(tmp_path):
    traces = []
    for rank in range(2):
        capture = Capture()
        capture.launch("ring_step<4>", at=0, start=10, dur=30)
        job = {"distributedInfo": {"rank": rank, "world_size": 2}}
        traces.append(read(tmp_path, document(capture.rows, **job), f"rank{rank}.json"))
    run = Run(tuple(traces), (), ())
    mine = extend_classes([("communication", "^ring_step")])
    assert (build_graph(run, classes=mine).arrival >= 0).sum() == 2
    assert (build_graph(run).arrival >= 0).sum() == 0
