"""Messages that no layer sends: gradients and weights over data parallelism, and pipelines."""

from jaxperf.config import Job
from jaxperf.workload._parameters import ParameterCounts
from jaxperf.workload._pieces import (
    Number,
    Piece,
    activation_bytes,
    group_shape,
    is_one,
    message,
    tokens_between,
)


def gradient_messages(job: Job, parameters: ParameterCounts) -> tuple[Piece, ...]:
    """The sum of gradients over the ranks that hold the same parameters.

    An all-reduce; a reduce-scatter where the optimizer's states are sharded (Rajbhandari et al.,
    arXiv 1910.02054). Gradients of routed experts are summed over data-parallel ranks that hold the
    same experts.

    Args:
        job: the job.
        parameters: whose gradients are summed, as the rank holds them.

    Returns:
        A message for the dense part and one for the experts, each where there is any and it has
        other ranks to go to.

    Example:
        >>> job = Job(layers=1, hidden_size=64, attention_heads=4, vocabulary_size=100,
        ...           sequence_length=128, data_parallel=4)
        >>> [(m.operation, m.message_bytes) for m in gradient_messages(job, ParameterCounts(100.0))]
        [('all_reduce', 400.0)]
    """
    operation = "all_reduce" if job.sharding == "none" else "reduce_scatter"
    return _over_data(job, "gradients", operation, parameters, job.gradient_bytes, "fp32")


def parameter_messages(job: Job, parameters: ParameterCounts) -> tuple[Piece, ...]:
    """The gather of sharded weights: of all of them once an iteration, or of a layer for its use.

    Args:
        job: the job.
        parameters: which are gathered, as the rank holds them together.

    Returns:
        As `gradient_messages`; nothing where no weights are sharded.

    Example:
        >>> job = Job(layers=1, hidden_size=64, attention_heads=4, vocabulary_size=100,
        ...           sequence_length=128, data_parallel=4, sharding="zero1")
        >>> [m.message_bytes for m in parameter_messages(job, ParameterCounts(100.0))]
        [200.0]
    """
    if job.sharding == "none":
        return ()
    return _over_data(job, "weights", "all_gather", parameters, activation_bytes(job), None)


def pipeline_message(job: Job) -> Piece:
    """Activations from one stage to the next, or their gradient back.

    Example:
        >>> job = Job(layers=2, hidden_size=64, attention_heads=4, vocabulary_size=100,
        ...           sequence_length=128, pipeline_parallel=2)
        >>> pipeline_message(job).message_bytes
        16384.0
    """
    size = tokens_between(job) * job.hidden_size * activation_bytes(job)
    return message(job, "stage", "send_receive", size, "pipeline", ranks=2)


def tied_embedding_message(job: Job) -> tuple[Piece, ...]:
    """The sum of gradients of tied embeddings, which first and last stage both hold."""
    if not job.tied_embeddings or job.pipeline_parallel == 1:
        return ()
    size = job.vocabulary_size * job.hidden_size / job.tensor_parallel * job.gradient_bytes
    name = "tied embedding all_reduce"
    return (message(job, name, "all_reduce", size, "pipeline", ranks=2, precision="fp32"),)


def _over_data(
    job: Job,
    name: str,
    operation: str,
    parameters: ParameterCounts,
    each: Number,
    precision: str | None,
) -> tuple[Piece, ...]:
    pieces = []
    for count, axis, label in (
        (parameters.dense, "data", name),
        (parameters.expert, "expert data", f"expert {name}"),
    ):
        ranks, _ = group_shape(job, axis)
        if is_one(ranks) or (isinstance(count, int | float) and count == 0):
            continue
        label = f"{label} {operation}"
        pieces.append(message(job, label, operation, count * each, axis, precision=precision))
    return tuple(pieces)
