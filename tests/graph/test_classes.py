"""Classes of kernels by the names that real devices show."""

import pytest

from jaxperf.graph import COMPUTE_CLASSES, TaskClass, classify_kernel, classify_names

NAMES = {
    "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64": TaskClass.GEMM,
    "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn": TaskClass.GEMM,
    "Cijk_Ailk_Bljk_BBS_BH_MT128x128x32_MI16x16x16x1": TaskClass.GEMM,
    "nvjet_tst_256x128_64x4_1x2_h_bz_coopA_TNT": TaskClass.GEMM,
    "void cutlass::Kernel2<cutlass_80_tensorop_s16816gemm>": TaskClass.GEMM,
    "void flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128>>": TaskClass.ATTENTION,
    "fmha_cutlassF_bf16_aligned_64x128_rf_sm80": TaskClass.ATTENTION,
    "sm80_xmma_fprop_implicit_gemm_bf16bf16_bf16f32": TaskClass.CONVOLUTION,
    "void cudnn::winograd_nonfused::winogradForwardData4x4": TaskClass.CONVOLUTION,
    "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel": TaskClass.NORMALIZATION,
    "void cudnn::bn_fw_tr_1C11_kernel_NCHW<float>": TaskClass.NORMALIZATION,
    "void at::native::vectorized_elementwise_kernel<4, CUDAFunctor_add>": TaskClass.ELEMENTWISE,
    "triton_poi_fused_add_mul_3": TaskClass.ELEMENTWISE,
    "void multi_tensor_apply_kernel<TensorListMetadata<4>, FusedAdamMathFunctor>": (
        TaskClass.OPTIMIZER
    ),
    "split_embedding_codegen_forward_unweighted_kernel": TaskClass.EMBEDDING,
    "void moe_align_block_size_kernel<int>": TaskClass.MOE,
    "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)": (
        TaskClass.COMMUNICATION
    ),
    "my_own_kernel": TaskClass.OTHER,
}


@pytest.mark.parametrize("name", NAMES)
def test_a_kernel_is_known_by_its_name(name):
    assert classify_kernel(name) is NAMES[name]


def test_a_table_of_names_is_classified_name_by_name():
    assert classify_names(tuple(NAMES)).tolist() == [int(known) for known in NAMES.values()]


def test_computing_is_neither_communicating_nor_copying_nor_of_the_host():
    others = {TaskClass.COMMUNICATION, TaskClass.MEMCPY, TaskClass.HOST, TaskClass.LAUNCH}
    assert set(TaskClass) - others == COMPUTE_CLASSES
