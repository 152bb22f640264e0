"""The operators of a GPT-like model on one rank: what runs forward, and what runs backward.

Their inputs are those of PyTorch's schemas, in that order. Of the wrappers that PyTorch has around
an operator only those are here that tell more than it does.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from jaxperf.simulator._cost import SimulatedHardware, attention, gemm, host_work, memory_bound
from jaxperf.simulator._inputs import NOTHING, Input, operator, scalar, scalars, tensor, tensors
from jaxperf.simulator._program import Call, Instruction, Kernel, Launch, Op, Work

ELEMENT_BYTES = 2
"""Activations, parameters and gradients are bfloat16."""


@dataclass(frozen=True, slots=True)
class Operator:
    """One operator and its backward.

    Attributes:
        forward: the operator.
        backward_name: of its node in autograd's graph.
        backward: what the node runs.
        gradient: what the node is given.
        reduce_forward, reduce_backward: the result, or the gradient, is summed over the
            tensor-parallel group.
        parameters: elements of the parameters whose gradient it makes, on this rank.
    """

    forward: Op
    backward_name: str
    backward: tuple[Op, ...]
    gradient: Input
    reduce_forward: bool = False
    reduce_backward: bool = False
    parameters: int = 0


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

    @property
    def vocabulary(self) -> int:
        """Words of this rank."""
        return self.vocabulary_size // self.tensor_parallel

    @property
    def words(self) -> Input:
        """The numbers of the micro-batch's words."""
        return tensor(self.sequences, self.sequence_length, dtype="long int")

    def activations(self, width: int) -> Input:
        """`width` numbers of each token."""
        return tensor(self.sequences, self.sequence_length, width)


def embedding(hardware: SimulatedHardware, shape: Shape) -> list[Operator]:
    """Token embedding, split over the vocabulary."""
    moved_bytes = 2 * shape.tokens * shape.hidden_size * ELEMENT_BYTES
    weight = tensor(shape.vocabulary, shape.hidden_size)
    result = shape.activations(shape.hidden_size)
    select = memory_bound(hardware, "indexSelectLargeIndex<bf16>", "embedding", moved_bytes)
    add_rows = memory_bound(
        hardware, "embedding_backward_feature_kernel<bf16>", "embedding", moved_bytes
    )
    rows = [weight, scalar(0), tensor(shape.tokens, dtype="long int")]
    no_padding, no = scalar(-1), scalar(False)
    return [
        Operator(
            operator(
                "aten::embedding",
                [weight, shape.words, no_padding, no, no],
                [_launching("aten::index_select", rows, select)],
            ),
            "EmbeddingBackward0",
            (
                _launching(
                    "aten::embedding_dense_backward",
                    [result, shape.words, scalar(shape.vocabulary), no_padding, no],
                    add_rows,
                ),
            ),
            result,
            reduce_forward=shape.tensor_parallel > 1,
            parameters=shape.vocabulary * shape.hidden_size,
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
        _residual(hardware, shape),
        _layer_norm(hardware, shape),
        _linear(hardware, shape, hidden, 4 * hidden // ways, reduce_backward=ways > 1),
        _gelu(hardware, shape, 4 * hidden // ways),
        _linear(hardware, shape, 4 * hidden // ways, hidden, reduce_forward=ways > 1),
        _residual(hardware, shape),
    ]


def head(hardware: SimulatedHardware, shape: Shape) -> list[Operator]:
    """Last layer norm, logits and loss."""
    split = shape.tensor_parallel > 1
    return [
        _layer_norm(hardware, shape),
        _linear(hardware, shape, shape.hidden_size, shape.vocabulary, reduce_backward=split),
        _log_softmax(hardware, shape),
        _loss(hardware, shape),
    ]


def optimize(hardware: SimulatedHardware, parameters: Sequence[int]) -> Op:
    """Fused Adam over chunks of tensors: parameters, gradients and two moments of 32 bits."""
    chunk, total = 64 * 2**20, sum(parameters)
    # PyTorch's kernels name the type of the parameters.
    name = "multi_tensor_apply_kernel<FusedAdamMathFunctor<c10::BFloat16, 4>>"
    moved_bytes = 2 * ELEMENT_BYTES + ELEMENT_BYTES + 4 * 4
    body: list[Instruction] = [host_work(hardware)]
    for start in range(0, total, chunk):
        size_bytes = min(chunk, total - start) * moved_bytes
        kernel = memory_bound(hardware, name, "optimizer", size_bytes)
        body += [host_work(hardware, 0.5), Launch(kernel)]
    states = [tensors(*((size,) for size in parameters))] * 4
    steps = tensors(*[()] * len(parameters))
    numbers = [scalar(value) for value in (1e-3, 0.9, 0.999, 0.01, 1e-8, False, False)]
    inputs = [*states, tensors(), steps, *numbers, NOTHING, NOTHING]
    return operator("aten::_fused_adamw_", inputs, body)


def accumulate(hardware: SimulatedHardware, parameters: int) -> Op:
    """Adds the gradient of a further micro-batch."""
    kernel = _elementwise(hardware, "CUDAFunctor_add", 3 * ELEMENT_BYTES * parameters)
    gradient = tensor(parameters)
    body = [host_work(hardware, 0.3), Launch(kernel)]
    return operator("aten::add_", [gradient, gradient, scalar(1)], body)


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
        operator(
            "aten::linear",
            [tensor(tokens, inputs), tensor(outputs, inputs), NOTHING],
            [_multiply(hardware, tokens, outputs, inputs, "tn")],
        ),
        "MmBackward0",
        (
            _multiply(hardware, tokens, inputs, outputs, "nn"),
            _multiply(hardware, outputs, inputs, tokens, "nt"),
        ),
        tensor(tokens, outputs),
        reduce_forward,
        reduce_backward,
        parameters=inputs * outputs,
    )


def _multiply(hardware: SimulatedHardware, m: int, n: int, k: int, layout: str) -> Op:
    # cuBLAS sets its attributes first, and launches through the driver.
    body = [
        host_work(hardware, 0.4),
        Call("cudaFuncSetAttribute", 0.6),
        Launch(gemm(hardware, m, n, k, layout), call="cuLaunchKernel"),
        Work(0.8),
    ]
    return operator("aten::mm", [tensor(m, k), tensor(k, n)], body)


def _layer_norm(hardware: SimulatedHardware, shape: Shape) -> Operator:
    size_bytes = shape.tokens * shape.hidden_size * ELEMENT_BYTES
    names = (
        "vectorized_layer_norm_kernel<bf16>",
        "layer_norm_grad_input_kernel<bf16>",
        "GammaBetaBackwardCUDAKernel<bf16>",
    )
    normalize, of_input, of_parameters = (
        memory_bound(hardware, name, "normalization", accesses * size_bytes)
        for name, accesses in zip(names, (2, 3, 2), strict=True)
    )
    x, parameter = shape.activations(shape.hidden_size), tensor(shape.hidden_size)
    axes = scalars(shape.hidden_size)
    statistic = tensor(shape.sequences, shape.sequence_length, 1, dtype="float")
    inputs = [x, axes, parameter, parameter, scalar(1e-5)]
    saved = [x, x, axes, statistic, statistic, parameter, parameter, scalars(True, True, True)]
    return Operator(
        operator(
            "aten::layer_norm",
            [*inputs, scalar(True)],
            [_launching("aten::native_layer_norm", inputs, normalize)],
        ),
        "NativeLayerNormBackward0",
        (_launching("aten::native_layer_norm_backward", saved, of_input, of_parameters),),
        x,
        parameters=2 * shape.hidden_size,
    )


def _attention(hardware: SimulatedHardware, shape: Shape) -> Operator:
    heads = shape.heads // shape.tensor_parallel
    size = shape.hidden_size // shape.heads
    sizes = (shape.sequences, heads, shape.sequence_length, size)
    x = tensor(*sizes)
    # FlashAttention itself takes the heads after the tokens.
    turned = tensor(shape.sequences, shape.sequence_length, heads, size)
    dropout, causal, no = scalar("0."), scalar(True), scalar(False)
    scale, length = scalar(size**-0.5), scalar(shape.sequence_length)
    lengths = [NOTHING, NOTHING, length, length]
    flash = _launching(
        "aten::_flash_attention_forward",
        [*[turned] * 3, *lengths, dropout, causal, no, scale, *[NOTHING] * 4],
        attention(hardware, *sizes, backward=False),
    )
    chosen = operator(
        "aten::_scaled_dot_product_flash_attention",
        [x, x, x, dropout, causal, no, scale],
        [flash],
    )
    sums, random = tensor(*sizes[:-1], dtype="float"), tensor(dtype="long int")
    saved = [sums, *lengths, dropout, causal, random, random, scale]
    flash_backward = _launching(
        "aten::_flash_attention_backward",
        [*[turned] * 5, *saved, NOTHING, NOTHING],
        attention(hardware, *sizes, backward=True),
    )
    return Operator(
        operator(
            "aten::scaled_dot_product_attention",
            [x, x, x, NOTHING, dropout, causal, NOTHING, no],
            [chosen],
        ),
        "ScaledDotProductFlashAttentionBackward0",
        (
            operator(
                "aten::_scaled_dot_product_flash_attention_backward",
                [*[x] * 5, *saved],
                [flash_backward],
            ),
        ),
        x,
    )


def _residual(hardware: SimulatedHardware, shape: Shape) -> Operator:
    """An addition; backward the gradients of its two branches are added where they meet."""
    size_bytes = 3 * shape.tokens * shape.hidden_size * ELEMENT_BYTES
    x = shape.activations(shape.hidden_size)
    kernel = _elementwise(hardware, "CUDAFunctor_add", size_bytes)
    add = _launching("aten::add", [x, x, scalar(1)], kernel)
    return Operator(add, "AddBackward0", (add,), x)


def _gelu(hardware: SimulatedHardware, shape: Shape, width: int) -> Operator:
    size_bytes = 2 * shape.tokens * width * ELEMENT_BYTES
    x = shape.activations(width)
    kernel = _elementwise(hardware, "GeluCUDAKernel", size_bytes)
    return Operator(
        _launching("aten::gelu", [x, NOTHING], kernel),
        "GeluBackward0",
        (_launching("aten::gelu_backward", [x, x, NOTHING], kernel),),
        x,
    )


def _log_softmax(hardware: SimulatedHardware, shape: Shape) -> Operator:
    x = tensor(shape.tokens, shape.vocabulary)
    size_bytes = shape.tokens * shape.vocabulary * ELEMENT_BYTES
    forward, backward = (
        memory_bound(hardware, f"cunn_SoftMax{way}<bf16>", "elementwise", accesses * size_bytes)
        for way, accesses in (("Forward", 2), ("Backward", 3))
    )
    axis, bfloat16 = scalar(1), scalar(15)
    return Operator(
        _launching("aten::_log_softmax", [x, axis, scalar(False)], forward),
        "LogSoftmaxBackward0",
        (_launching("aten::_log_softmax_backward_data", [x, x, axis, bfloat16], backward),),
        x,
    )


def _loss(hardware: SimulatedHardware, shape: Shape) -> Operator:
    forward, backward = (
        memory_bound(
            hardware,
            f"nll_loss_{way}_reduce_cuda_kernel_2d",
            "elementwise",
            8 * shape.tokens,
        )
        for way in ("forward", "backward")
    )
    inputs = [
        tensor(shape.tokens, shape.vocabulary),
        tensor(shape.tokens, dtype="long int"),
        NOTHING,
        scalar(1),
        scalar(-100),
    ]
    number = tensor()
    return Operator(
        _launching("aten::nll_loss_forward", inputs, forward),
        "NllLossBackward0",
        (_launching("aten::nll_loss_backward", [number, *inputs, number], backward),),
        number,
    )


def _launching(name: str, inputs: Sequence[Input], *kernels: Kernel) -> Op:
    return operator(name, inputs, [Launch(kernel) for kernel in kernels])


def _elementwise(hardware: SimulatedHardware, functor: str, size_bytes: int) -> Kernel:
    name = f"vectorized_elementwise_kernel<4, {functor}<bf16>>"
    return memory_bound(hardware, name, "elementwise", size_bytes)
