"""What a training job must fulfil to exist: each rule says what is nearest to it."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NoReturn

import msgspec
import numpy as np

from jaxperf.config._job import Job
from jaxperf.config._job_columns import JobColumns, by_parts
from jaxperf.config._toml import nearest_words
from jaxperf.errors import ConfigError

JOB_PRECISIONS = ("fp32", "tf32", "fp16", "bf16", "fp8", "fp4")
_AXES = {
    "tp": "tensor_parallel",
    "cp": "context_parallel",
    "dp": "data_parallel",
    "pp": "pipeline_parallel",
}
_MOST_TOKENS = 10**9
_MOST_PASSES = 10**6
# Sizes of a tensor may be large; what a graph holds one by one may not.
_COUNTED = (*_AXES.values(), "expert_parallel", "layers", "micro_batches", "virtual_stages")
_MAY_BE_ZERO = ("experts.shared", "experts.dense_layers", "prefetch")


def check_job(job: Job, where: str, gpus: int | None = None) -> Job:
    """Refuse a job that cannot be.

    The rules are those of Megatron-LM (`megatron/training/arguments.py`), and for DualPipe those
    of `deepseek-ai/DualPipe`.

    Args:
        job: the job.
        where: what to call it in the error: its file, or `set`.
        gpus: how many there are, where that is known.

    Returns:
        The same job.

    Raises:
        ConfigError: it breaks a rule; the message says which, and the nearest valid values.

    Example:
        >>> job = Job(layers=30, hidden_size=64, attention_heads=4, vocabulary_size=64,
        ...           sequence_length=64, pipeline_parallel=4, micro_batches=4)
        >>> check_job(job, "gpt.toml")
        Traceback (most recent call last):
        jaxperf.errors.ConfigError: gpt.toml: layers: not divisible by pipeline_parallel; \
got 30 with pipeline_parallel = 4; expected a multiple of 4, such as 28 or 32
    """
    _check_numbers(job, where)
    for rule in _RULES:
        rule(job, where)
    _check_ranks(job, where, gpus)
    return job


@dataclass(frozen=True, eq=False)
class BrokenRule:
    """What some of many jobs cannot have.

    Attributes:
        text: what is wrong, as `check_job` says it.
        jobs: (rows,) bool, which it holds of.
    """

    text: str
    jobs: np.ndarray


def broken_rules(jobs: JobColumns) -> tuple[BrokenRule, ...]:
    """Which of many jobs cannot be, and why.

    Args:
        jobs: the jobs, their own columns of the right types.

    Returns:
        Every way in which some break a rule; a job may break several. Those that break none fulfil
        `check_job`.

    Example:
        >>> from jaxperf.config._job_columns import job_columns
        >>> job = Job(layers=8, hidden_size=64, attention_heads=4, vocabulary_size=64,
        ...           sequence_length=64, micro_batches=4)
        >>> jobs = job_columns(job, {"pipeline_parallel": [1, 3, 4]})
        >>> (rule,) = broken_rules(jobs)
        >>> rule.jobs.tolist(), rule.text.partition(";")[0]
        ([False, True, False], 'layers: not divisible by pipeline_parallel')
    """
    where = "job"

    def text_of(rule: Callable[[Job], object]) -> Callable[[Job], str | None]:
        def text(job: Job) -> str | None:
            try:
                rule(job)
            except ConfigError as error:
                return str(error).removeprefix(f"{where}: ")
            return None

        return text

    found: dict[str, np.ndarray] = {}

    def note(parts: Sequence[str | None], part_of_row: np.ndarray) -> None:
        for place, text in enumerate(parts):
            if text is not None:
                found[text] = found.get(text, False) | (part_of_row == place)

    for name, column in jobs.columns.items():
        # Looked at one by one: all numbers of a job are read, and they depend on nothing else.
        values = [msgspec.structs.replace(jobs.base, **{name: value}) for value in column.values]
        note([text_of(lambda job: _check_numbers(job, where))(job) for job in values], column.codes)
    number_broken = np.zeros(jobs.rows, bool)
    for broken in found.values():
        number_broken |= broken
    sound = np.flatnonzero(~number_broken)
    some = jobs.take(sound)
    for rule in (*_RULES, lambda job, where: _check_ranks(job, where, None)):
        parts, part_of_row = by_parts(some, text_of(lambda job, rule=rule: rule(job, where)))
        whole = np.full(jobs.rows, -1)
        whole[sound] = part_of_row
        note(parts, whole)
    return tuple(BrokenRule(text, broken) for text, broken in found.items())


def _check_numbers(job: Job, where: str) -> None:
    for key, value in _numbers(job):
        least = 0 if key in _MAY_BE_ZERO else 1
        most = _MOST_PASSES if key in _COUNTED else _MOST_TOKENS
        if not least <= value <= most:
            near = least if value < least else most
            _refuse(where, key, "not a count", value, f"{least} to {most}, such as {near}")
    if not (math.isfinite(job.gradient_bytes) and 0 < job.gradient_bytes <= 8):
        got, expected = job.gradient_bytes, "a number above 0 and at most 8, such as 2 or 4"
        _refuse(where, "gradient_bytes", "not the size of a number", got, expected)
    if job.precision not in JOB_PRECISIONS:
        near = ", ".join(nearest_words(job.precision, JOB_PRECISIONS, most=len(JOB_PRECISIONS)))
        got = repr(job.precision[:40])
        _refuse(where, "precision", "no such type", got, f"one of {near}")


def _numbers(job: Job) -> Iterable[tuple[str, int]]:
    """Every count of a job by its key, `stage_layers` apart."""
    for part, place in (
        (job, ""),
        (job.experts, "experts."),
        (job.latent_attention, "latent_attention."),
    ):
        if part is not None:
            for key, value in msgspec.structs.asdict(part).items():
                if isinstance(value, int) and not isinstance(value, bool):
                    yield f"{place}{key}", value


def _check_schedule(job: Job, where: str) -> None:
    stages, micro_batches = job.pipeline_parallel, job.micro_batches
    if job.schedule == "none" and stages > 1:
        got, expected = f"none with pipeline_parallel = {stages}", "1F1B, or pipeline_parallel = 1"
        _refuse(where, "schedule", "several stages need a schedule", got, expected)
    if job.schedule == "interleaved":
        _check_interleaved(job, where)
    elif job.virtual_stages > 1:
        got = f"{job.virtual_stages} with schedule = {job.schedule}"
        what, expected = "one chunk of layers on a rank", "1, or schedule = interleaved"
        _refuse(where, "virtual_stages", what, got, expected)
    if job.schedule == "dualpipe":
        if stages % 2:
            got, expected = f"{stages} with schedule = dualpipe", _multiples(stages, 2)
            _refuse(where, "pipeline_parallel", "not an even number of stages", got, expected)
        if micro_batches % 2 or micro_batches < 2 * stages:
            got = f"{micro_batches} with schedule = dualpipe and pipeline_parallel = {stages}"
            near = sorted({max(n, 2 * stages) for n in (micro_batches - 1, micro_batches + 1)})
            expected = f"an even number from {2 * stages} on, such as {_either(near)}"
            what = "not even, or fewer than two a stage"
            _refuse(where, "micro_batches", what, got, expected)


def _check_interleaved(job: Job, where: str) -> None:
    stages = job.pipeline_parallel
    if stages < 2:
        expected = "2 or more, or schedule = 1F1B with virtual_stages = 1"
        got = f"{stages} with schedule = interleaved"
        _refuse(where, "pipeline_parallel", "nothing to interleave", got, expected)
    if job.virtual_stages < 2:
        expected = "2 or more, or schedule = 1F1B"
        got = f"{job.virtual_stages} with schedule = interleaved"
        _refuse(where, "virtual_stages", "nothing to interleave", got, expected)
    _check_multiple(
        where, "micro_batches", job.micro_batches, "pipeline_parallel", stages, "interleaved"
    )


def _check_stages(job: Job, where: str) -> None:
    stages, chunks = job.pipeline_parallel, job.pipeline_parallel * job.virtual_stages
    named = "pipeline_parallel" + (" x virtual_stages" if job.virtual_stages > 1 else "")
    if job.stage_layers is None:
        _check_multiple(where, "layers", job.layers, named, chunks)
        return
    # The first and the last chunk have the embedding and the output layer to do, at least.
    ends = {0, chunks - 1} if job.virtual_stages > 1 else set()
    fewest = chunks - len(ends)
    if job.layers < fewest:
        got = f"{job.layers} with {named} = {chunks}"
        _refuse(where, "layers", "stages without layers", got, f"{fewest} or more")
    even = _even_stages(job.layers, chunks)
    held = job.stage_layers
    if len(held) != chunks:
        expected = f"{chunks} entries, one a stage, such as {even}"
        _refuse(where, "stage_layers", "not as many as stages", len(held), expected)
    if sum(held) != job.layers:
        none = "" if job.layers % chunks else ", or none"
        expected = f"a sum of {job.layers}, such as {even}{none}"
        _refuse(where, "stage_layers", "their sum is not layers", sum(held), expected)
    short = [place for place, n in enumerate(held) if n < 0 or (n == 0 and place not in ends)]
    short += [rank for rank in range(stages) if not sum(held[rank::stages])]
    if short:
        what, got = "a stage without layers", f"{held[short[0]]} at place {short[0]}"
        _refuse(where, "stage_layers", what, got, f"1 or more in each, such as {even}")


def _check_tensor_parallel(job: Job, where: str) -> None:
    degree, heads, kv_heads = job.tensor_parallel, job.attention_heads, job.kv_heads
    if job.head_size is None:
        _check_multiple(where, "hidden_size", job.hidden_size, "attention_heads", heads)
    _check_multiple(where, "attention_heads", heads, "tensor_parallel", degree)
    if heads % kv_heads:
        got = f"{kv_heads} with attention_heads = {heads}"
        near = f"a divisor of {heads}, such as {_either(_near_divisors(heads, kv_heads))}"
        _refuse(where, "key_value_heads", "attention_heads not divisible by it", got, near)
    # Fewer heads than ranks are held by several ranks each.
    if degree % kv_heads:
        _check_multiple(where, "key_value_heads", kv_heads, "tensor_parallel", degree)
    _check_multiple(where, "hidden_size", job.hidden_size, "tensor_parallel", degree)
    _check_multiple(where, "vocabulary_size", job.vocabulary_size, "tensor_parallel", degree)
    if job.experts is None or job.experts.dense_layers:
        _check_multiple(where, "ffn_hidden_size", job.ffn_size, "tensor_parallel", degree)
    if job.experts is not None:
        width = job.experts.ffn_hidden_size
        _check_multiple(where, "experts.ffn_hidden_size", width, "tensor_parallel", degree)


def _check_sequence(job: Job, where: str) -> None:
    """Causal attention is balanced by two pieces of a sequence for each context-parallel rank."""
    context = job.context_parallel
    if context > 1:
        name = "2 x context_parallel"
        _check_multiple(where, "sequence_length", job.sequence_length, name, 2 * context)
    if job.sequence_parallel:
        name = "tensor_parallel" + (" x context_parallel" if context > 1 else "")
        pieces = job.tensor_parallel * context
        unit = math.lcm(pieces, 2 * context) if context > 1 else pieces
        if job.sequence_length % pieces:
            got = f"{job.sequence_length} with sequence_parallel and {name} = {pieces}"
            what, expected = f"not divisible by {name}", _multiples(job.sequence_length, unit)
            _refuse(where, "sequence_length", what, got, expected)


def _check_experts(job: Job, where: str) -> None:
    experts = job.experts
    if experts is None:
        if job.expert_parallel > 1:
            _refuse(where, "expert_parallel", "no experts to spread", job.expert_parallel, "1")
        return
    if experts.per_token > experts.count:
        got = f"{experts.per_token} with experts.count = {experts.count}"
        what, expected = "more than there are", f"1 to {experts.count}"
        _refuse(where, "experts.per_token", what, got, expected)
    if experts.dense_layers >= job.layers:
        got = f"{experts.dense_layers} with layers = {job.layers}"
        expected = f"0 to {job.layers - 1}, or no experts"
        _refuse(where, "experts.dense_layers", "no layer with experts", got, expected)
    ranks = job.data_parallel * job.context_parallel
    for key, whole in (
        ("experts.count", experts.count),
        ("data_parallel x context_parallel", ranks),
    ):
        if whole % job.expert_parallel:
            got = f"{job.expert_parallel} with {key} = {whole}"
            common = math.gcd(experts.count, ranks)
            near = _either(_near_divisors(common, job.expert_parallel))
            expected = f"a divisor of both experts.count and of the ranks, such as {near}"
            _refuse(where, "expert_parallel", f"{key} not divisible by it", got, expected)


_RULES = (_check_schedule, _check_stages, _check_tensor_parallel, _check_sequence, _check_experts)


def _check_ranks(job: Job, where: str, gpus: int | None) -> None:
    degrees = {axis: getattr(job, field) for axis, field in _AXES.items()}
    named = job.rank_order.split("-")
    missing = [axis for axis, degree in degrees.items() if degree > 1 and axis not in named]
    if missing or len(set(named)) < len(named) or not set(named) <= set(_AXES):
        kept = [axis for axis in dict.fromkeys(named) if axis in _AXES]
        expected = (
            f"each of {', '.join(_AXES)} once, those of one rank may be left out, "
            f"such as {'-'.join(kept + missing) or 'tp'}"
        )
        what = f"{', '.join(missing)} left out" if missing else "not an order of axes"
        _refuse(where, "rank_order", what, repr(job.rank_order[:40]), expected)
    if gpus is not None and job.world_size > gpus:
        replica = job.world_size // job.data_parallel
        product = " x ".join(f"{_AXES[a]} {n}" for a, n in degrees.items() if n > 1)
        fits = [
            n
            for n in _near_divisors(job.data_parallel, gpus // replica)
            if n * replica <= gpus and n * job.context_parallel % job.expert_parallel == 0
        ]
        near = f", such as data_parallel = {fits[-1]}" if fits else ""
        got = f"{job.world_size} ranks ({product}) on {gpus} GPUs"
        _refuse(where, "ranks", "more than there are GPUs", got, f"at most {gpus}{near}")


def _check_multiple(
    where: str, key: str, value: int, by: str, degree: int, schedule: str = ""
) -> None:
    if value % degree:
        got = f"{value} with {by} = {degree}" + (f" and schedule = {schedule}" if schedule else "")
        _refuse(where, key, f"not divisible by {by}", got, _multiples(value, degree))


def _multiples(value: int, of: int) -> str:
    lower = value // of * of
    return f"a multiple of {of}, such as {_either([n for n in (lower, lower + of) if n])}"


def _near_divisors(whole: int, value: int) -> list[int]:
    """The divisors of a number on both sides of a value."""
    small = [n for n in range(1, math.isqrt(whole) + 1) if whole % n == 0]
    every = sorted({*small, *(whole // n for n in small)})
    below = [n for n in every if n <= value][-1:]
    return below + [n for n in every if n > value][:1]


def _even_stages(layers: int, chunks: int) -> str:
    """Layers of each chunk, as even as can be."""
    each, more = divmod(layers, chunks)
    if not each:
        return "0 in the first or the last and 1 in the others"
    if chunks > 16:
        return f"{each} or {each + 1} in each" if more else f"{each} in each"
    return str([each + (place < more) for place in range(chunks)])


def _either(values: Sequence[int]) -> str:
    return " or ".join(map(str, values))


def _refuse(where: str, key: str, what: str, got: object, expected: str) -> NoReturn:
    text = str(got)
    got = text if len(text) <= 200 else f"{text[:40]}..."
    raise ConfigError(what, where=f"{where}: {key}", got=got, expected=expected)
