"""The operators of a GPT-like model on one rank: what runs forward, and what runs backward."""

from dataclasses import dataclass

from jaxperf.simulator._cost import SimulatedHardware, attention, gemm, memory_bound
from jaxperf.simulator._program import Kernel

ELEMENT_BYTES = 2
"""Activations, parameters and gradients are bfloat16."""


@dataclass(frozen=True, slots=True)
class Operator:
    """One operator and its backward.

    Attributes:
        name: of the forward operator.
        backward_name: of its node in autograd's graph.
        forward, backward: kernels.
        reduce_forward, reduce_backward: the result, or the gradient, is summed over the
            tensor-parallel group.
        parameters: elements of the parameters whose gradient it makes, on this rank.
        shape: of its input.
    """

    name: str
    backward_name: str
    forward: tuple[Kernel, ...]
    backward: tuple[Kernel, ...]
    reduce_forward: bool = False
    reduce_backward: bool = False
    parameters: int = 0
    shape: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Shape:
    """What one rank sees of the model: a micro-batch, and its share of the tensors.

    Attributes:
        sequences: in a micro-batch.
        sequence_length: tokens of a sequence.
        hidden_size: of the model.
        heads: of attention, in the whole model.
        vocabulary_size: of the whole model.
        tensor_parallel: ranks that share each layer.
    """

    sequences: int
    sequence_length: int
    hidden_size: int
    heads: int
    vocabulary_size: int
    tensor_parallel: int

    @property
    def tokens(self) -> int:
        return self.sequences * self.sequence_length


def embedding(hardware: SimulatedHardware, shape: Shape) -> list[Operator]:
    """Token embedding, split over the vocabulary."""
    moved_bytes = 2 * shape.tokens * shape.hidden_size * ELEMENT_BYTES
    split = shape.tensor_parallel > 1
    return [
        Operator(
            "aten::embedding",
            "EmbeddingBackward0",
            (memory_bound(hardware, "indexSelectLargeIndex<bf16>", "embedding", moved_bytes),),
            (
                memory_bound(
                    hardware, "embedding_backward_feature_kernel<bf16>", "embedding", moved_bytes
                ),
            ),
            reduce_forward=split,
            parameters=shape.vocabulary_size // shape.tensor_parallel * shape.hidden_size,
            shape=(shape.sequences, shape.sequence_length),
        )
    ]


def layer(hardware: SimulatedHardware, shape: Shape) -> list[Operator]:
    """One transformer layer; attention and the MLP are split by columns, then by rows."""
    hidden, ways = shape.hidden_size, shape.tensor_parallel
    return [
        _layer_norm(hardware, shape),
        _linear(hardware, shape, hidden, 3 * hidden // ways, reduce_backward=ways > 1),
        _attention(hardware, shape),
        _linear(hardware, shape, hidden // ways, hidden, reduce_forward=ways > 1),
        _elementwise(hardware, shape, "aten::add", "AddBackward0", "CUDAFunctor_add", hidden, 3),
        _layer_norm(hardware, shape),
        _linear(hardware, shape, hidden, 4 * hidden // ways, reduce_backward=ways > 1),
        _elementwise(
            hardware, shape, "aten::gelu", "GeluBackward0", "GeluCUDAKernel", 4 * hidden // ways, 2
        ),
        _linear(hardware, shape, 4 * hidden // ways, hidden, reduce_forward=ways > 1),
        _elementwise(hardware, shape, "aten::add", "AddBackward0", "CUDAFunctor_add", hidden, 3),
    ]


def head(hardware: SimulatedHardware, shape: Shape) -> list[Operator]:
    """Last layer norm, logits and loss."""
    vocabulary = shape.vocabulary_size // shape.tensor_parallel
    logits_bytes = shape.tokens * vocabulary * ELEMENT_BYTES
    softmax = ("cunn_SoftMaxForward<bf16>", "cunn_SoftMaxBackward<bf16>")
    loss = ("nll_loss_forward_reduce_cuda_kernel_2d", "nll_loss_backward_reduce_cuda_kernel_2d")
    return [
        _layer_norm(hardware, shape),
        _linear(
            hardware,
            shape,
            shape.hidden_size,
            vocabulary,
            reduce_backward=shape.tensor_parallel > 1,
        ),
        Operator(
            "aten::_log_softmax",
            "LogSoftmaxBackward0",
            (memory_bound(hardware, softmax[0], "elementwise", 2 * logits_bytes),),
            (memory_bound(hardware, softmax[1], "elementwise", 3 * logits_bytes),),
            shape=(shape.tokens, vocabulary),
        ),
        Operator(
            "aten::nll_loss_forward",
            "NllLossBackward0",
            (memory_bound(hardware, loss[0], "elementwise", 8 * shape.tokens),),
            (memory_bound(hardware, loss[1], "elementwise", 8 * shape.tokens),),
            shape=(shape.tokens, vocabulary),
        ),
    ]


def optimizer_kernels(hardware: SimulatedHardware, parameters: int) -> list[Kernel]:
    """Fused Adam over chunks of tensors: parameters, gradients and two moments of 32 bits."""
    chunk = 64 * 2**20
    name = "multi_tensor_apply_kernel<FusedAdamMathFunctor<bf16, 4>>"
    moved_bytes = 2 * ELEMENT_BYTES + ELEMENT_BYTES + 4 * 4
    sizes = [min(chunk, parameters - start) for start in range(0, parameters, chunk)]
    return [memory_bound(hardware, name, "optimizer", size * moved_bytes) for size in sizes]


def accumulation_kernel(hardware: SimulatedHardware, parameters: int) -> Kernel:
    """Adds the gradient of a further micro-batch."""
    name = "vectorized_elementwise_kernel<4, CUDAFunctor_add<bf16>>"
    return memory_bound(hardware, name, "elementwise", 3 * ELEMENT_BYTES * parameters)


def _linear(
    hardware: SimulatedHardware,
    shape: Shape,
    inputs: int,
    outputs: int,
    *,
    reduce_forward: bool = False,
    reduce_backward: bool = False,
) -> Operator:
    tokens = shape.tokens
    return Operator(
        "aten::linear",
        "MmBackward0",
        (gemm(hardware, tokens, outputs, inputs, "tn"),),
        (
            gemm(hardware, tokens, inputs, outputs, "nn"),
            gemm(hardware, outputs, inputs, tokens, "nt"),
        ),
        reduce_forward,
        reduce_backward,
        parameters=inputs * outputs,
        shape=(tokens, inputs),
    )


def _layer_norm(hardware: SimulatedHardware, shape: Shape) -> Operator:
    size_bytes = shape.tokens * shape.hidden_size * ELEMENT_BYTES
    kind = "normalization"
    return Operator(
        "aten::layer_norm",
        "NativeLayerNormBackward0",
        (memory_bound(hardware, "vectorized_layer_norm_kernel<bf16>", kind, 2 * size_bytes),),
        (
            memory_bound(hardware, "layer_norm_grad_input_kernel<bf16>", kind, 3 * size_bytes),
            memory_bound(hardware, "GammaBetaBackwardCUDAKernel<bf16>", kind, 2 * size_bytes),
        ),
        parameters=2 * shape.hidden_size,
        shape=(shape.sequences, shape.sequence_length, shape.hidden_size),
    )


def _attention(hardware: SimulatedHardware, shape: Shape) -> Operator:
    heads = shape.heads // shape.tensor_parallel
    size = shape.hidden_size // shape.heads
    sizes = (shape.sequences, heads, shape.sequence_length, size)
    return Operator(
        "aten::scaled_dot_product_attention",
        "ScaledDotProductFlashAttentionBackward0",
        (attention(hardware, *sizes, backward=False),),
        (attention(hardware, *sizes, backward=True),),
        shape=sizes,
    )


def _elementwise(
    hardware: SimulatedHardware,
    shape: Shape,
    name: str,
    backward_name: str,
    functor: str,
    width: int,
    accesses: int,
) -> Operator:
    size_bytes = shape.tokens * width * ELEMENT_BYTES * accesses
    kernel = f"vectorized_elementwise_kernel<4, {functor}<bf16>>"
    return Operator(
        name,
        backward_name,
        (memory_bound(hardware, kernel, "elementwise", size_bytes),),
        (memory_bound(hardware, kernel, "elementwise", size_bytes),),
        shape=(shape.sequences, shape.sequence_length, width),
    )
