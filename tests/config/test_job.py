"""Jobs: what a file may say, what comes with the package, and how a field is changed."""

import re

import hypothesis
import hypothesis.strategies as st
import jax
import msgspec
import pytest

from jaxperf.config import (
    Experts,
    Job,
    LatentAttention,
    built_in_jobs,
    config_folder,
    hardware_numbers,
    is_job_key,
    job_keys,
    load_hardware,
    load_job,
    set_job,
)
from jaxperf.errors import ConfigError

MINE = """
name = "mine"
layers = 8
hidden_size = 2048
attention_heads = 16
vocabulary_size = 51200
sequence_length = 2048
data_parallel = 2
pipeline_parallel = 2
tensor_parallel = 2
rank_order = "tp-dp-pp"
micro_batches = 4
"""
MIXTURE = """
expert_parallel = 2
[experts]
count = 4
per_token = 2
ffn_hidden_size = 512
"""
NAMES = [
    "deepseek-v3",
    "gpt3-117b",
    "gpt3-15b",
    "gpt3-175b",
    "gpt3-44b",
    "llama3-405b",
    "llama3-70b",
    "llama3-8b",
    "mixtral-8x7b",
]


def written(folder, text, name="job.toml"):
    path = folder / name
    path.write_text(text)
    return path


def parameters(job: Job) -> int:
    """Elements of every matrix of a model; norms and biases are less than a thousandth."""
    hidden, heads, head = job.hidden_size, job.attention_heads, job.size_of_head
    matrices = 3 if job.gated_ffn else 2
    if (latent := job.latent_attention) is not None:
        assert latent.query_rank is not None
        queries = latent.query_rank * (hidden + heads * (head + latent.rope_head_size))
        keys = hidden * (latent.key_value_rank + latent.rope_head_size)
        keys += latent.key_value_rank * heads * (head + latent.value_head_size)
        attention = queries + keys + heads * latent.value_head_size * hidden
    else:
        attention = 2 * hidden * head * (heads + job.kv_heads)
    dense = matrices * hidden * job.ffn_size
    embeddings = (1 if job.tied_embeddings else 2) * job.vocabulary_size * hidden
    if (experts := job.experts) is None:
        return job.layers * (attention + dense) + embeddings
    width = experts.ffn_hidden_size * (experts.count + experts.shared)
    mixture = matrices * hidden * width + hidden * experts.count
    sparse = job.layers - experts.dense_layers
    return job.layers * attention + experts.dense_layers * dense + sparse * mixture + embeddings


# What comes with the package
# ---------------------------------------------------------------------------------------


def test_the_jobs_that_come_with_the_package_are_these():
    assert sorted(built_in_jobs()) == NAMES


@pytest.mark.parametrize(
    "name, billions",
    [
        # The names of table 1 of the Lumos study.
        ("gpt3-15b", 15),
        ("gpt3-44b", 44),
        ("gpt3-117b", 117),
        ("gpt3-175b", 175),
        # The model cards.
        ("llama3-8b", 8.0),
        ("llama3-70b", 70.6),
        ("llama3-405b", 406),
        ("mixtral-8x7b", 46.7),
        # The report: 671B without the module of multi-token prediction.
        ("deepseek-v3", 671),
    ],
)
def test_a_built_in_job_has_as_many_parameters_as_its_source_says(name, billions):
    digits = 1 if isinstance(billions, float) else 0
    assert round(parameters(load_job(name)) / 1e9, digits) == billions


@pytest.mark.parametrize("name, billions", [("mixtral-8x7b", 12.9), ("deepseek-v3", 37)])
def test_a_mixture_of_experts_takes_the_published_share_of_its_parameters_for_a_token(
    name, billions
):
    job = load_job(name)
    assert job.experts is not None
    active = msgspec.structs.replace(job.experts, count=job.experts.per_token)
    count = parameters(msgspec.structs.replace(job, experts=active)) / 1e9
    assert round(count, 1 if isinstance(billions, float) else 0) == billions


@pytest.mark.parametrize(
    "name, ranks, sequences",
    [
        ("gpt3-15b", 2 * 2 * 4, None),
        ("gpt3-44b", 4 * 4 * 4, None),
        ("gpt3-117b", 8 * 4 * 4, None),
        ("gpt3-175b", 8 * 4 * 16, None),
        ("llama3-8b", 8, 128),
        ("llama3-70b", 64, 128),
        ("llama3-405b", 16384, 2048),
        ("mixtral-8x7b", 64, 256),
        ("deepseek-v3", 2048, 15360),
    ],
)
def test_a_built_in_job_has_the_ranks_and_the_batch_that_its_source_says(name, ranks, sequences):
    job = load_job(name)
    assert job.world_size == ranks
    assert sequences is None or job.global_batch_size == sequences


@pytest.mark.parametrize("name", NAMES)
def test_every_value_of_a_built_in_job_names_its_source(name):
    lines = (config_folder("jobs") / f"{name}.toml").read_text().splitlines()
    values = [line for line in lines if " = " in line and not line.startswith(("#", "name"))]
    assert len(values) >= 15
    assert not [line for line in values if "#" not in line]
    named = set(re.findall(r"^# (\[\w+\])|(?<=\. )(\[\w+\])", "\n".join(lines), re.MULTILINE))
    sources = {first or second for first, second in named}
    used = {source for line in values for source in re.findall(r"\[\w+\]", line.partition("#")[2])}
    assert used <= sources


# Files
# ---------------------------------------------------------------------------------------


def test_a_job_of_ones_own_is_a_file_and_what_it_leaves_out_follows(tmp_path):
    job = load_job(written(tmp_path, MINE))
    assert (job.ffn_size, job.kv_heads, job.size_of_head) == (8192, 16, 128)
    assert (job.world_size, job.global_batch_size) == (8, 8)
    assert job.experts is None and job.stage_layers is None


def test_the_example_of_the_interface_is_a_job(shared, tmp_path):
    text = (shared / "CLI.md").read_text()
    example = text.partition("```toml\n# job\n")[2].partition("```")[0]
    job = load_job(written(tmp_path, example))
    assert (job.name, job.world_size, job.schedule) == ("gpt", 8, "1F1B")


def test_parts_of_a_job_are_tables(tmp_path):
    latent = "[latent_attention]\nkey_value_rank = 64\nrope_head_size = 16\nvalue_head_size = 32\n"
    job = load_job(written(tmp_path, MINE + MIXTURE + latent))
    assert job.experts == Experts(count=4, per_token=2, ffn_hidden_size=512)
    assert job.latent_attention == LatentAttention(
        key_value_rank=64, rope_head_size=16, value_head_size=32
    )


@pytest.mark.parametrize(
    "old, new, message",
    [
        ("hidden_size", "hiden_size", "hiden_size: unknown key; expected one of hidden_size"),
        ("per_token", "per_tokens", "experts.per_tokens: unknown key; expected one of per_token"),
        ("layers = 8", "layers = 8.5", "layers: Expected int, got float"),
        ("layers = 8", "layers = true", "layers: Expected int, got bool"),
        ("layers = 8\n", "", "field layers; expected .* hidden_size, .*; add a line layers = "),
        ("count = 4\n", "", "experts: missing required field count; expected .* per_token"),
        ("layers = 8", 'layers = 8\nschedule = "1f1b"', "schedule: unknown word; got '1f1b'.*1F1B"),
        ("layers = 8", 'layers = 8\nsharding = "zero4"', "'zero4'; expected one of zero3, zero2"),
        ("layers = 8", 'layers = 8\n"a\\nb" = 1', r"'a\\nb': unknown key"),
        ("layers = 8", "layers = 8\nstage_layers = [4, 4.5]", "stage_layers.*Expected int"),
        ("layers = 8", "layers = 9", "layers: not divisible by pipeline_parallel"),
    ],
)
def test_a_mistake_in_a_file_is_told_with_its_key_in_one_line(tmp_path, old, new, message):
    path = written(tmp_path, (MINE + MIXTURE).replace(old, new, 1))
    with pytest.raises(ConfigError, match=message) as error:
        load_job(path)
    assert str(path) in str(error.value) and "\n" not in str(error.value)


def test_an_unknown_job_names_the_nearest(tmp_path):
    with pytest.raises(ConfigError, match="no such job; got 'llama-8b'; expected .*llama3-8b"):
        load_job("llama-8b")
    with pytest.raises(ConfigError, match="absent.toml: cannot be read; .* expected the name of a"):
        load_job(tmp_path / "absent.toml")


# Changes
# ---------------------------------------------------------------------------------------


def test_a_field_is_changed_by_its_key_and_nothing_else_is(tmp_path):
    before = load_job(written(tmp_path, MINE + MIXTURE))
    after = set_job(before, {"layers": 16.0, "experts.count": 8.0, "recompute": "full"})
    experts = Experts(count=8, per_token=2, ffn_hidden_size=512)
    assert after == msgspec.structs.replace(before, layers=16, experts=experts, recompute="full")
    assert isinstance(after.layers, int)
    assert set_job(before, {}) == before


@pytest.mark.parametrize(
    "key, value, expected",
    [
        ("sequence_parallel", "true", True),
        ("overlap_gradients", "false", False),
        ("overlap_gradients", True, True),
        ("gradient_bytes", 2.0, 2.0),
        ("gradient_bytes", 2, 2.0),
        ("schedule", "gpipe", "gpipe"),
        ("sharding", "none", "none"),
        ("key_value_heads", "none", None),
        ("key_value_heads", 4.0, 4),
        ("stage_layers", "5,3", (5, 3)),
        ("stage_layers", [5, 3], (5, 3)),
        ("stage_layers", "none", None),
        ("name", "other", "other"),
    ],
)
def test_a_value_of_the_command_line_is_read_as_its_field_needs(tmp_path, key, value, expected):
    assert getattr(set_job(load_job(written(tmp_path, MINE)), {key: value}), key) == expected


def test_experts_are_added_to_a_dense_job_whole_and_taken_away_by_a_word(tmp_path):
    dense = load_job(written(tmp_path, MINE))
    values = {"experts.count": 4.0, "experts.per_token": 2.0, "experts.ffn_hidden_size": 512.0}
    sparse = set_job(dense, values)
    assert sparse.experts == Experts(count=4, per_token=2, ffn_hidden_size=512)
    assert set_job(sparse, {"experts": "none"}) == dense
    with pytest.raises(ConfigError, match="set: experts: missing required field"):
        set_job(dense, {"experts.count": 4.0})


@pytest.mark.parametrize(
    "values, message",
    [
        ({"layer": 4}, "set layer: no such key; expected one of layers"),
        ({"experts.counts": 4}, "set experts.counts: no such key; expected one of experts.count"),
        ({"layers.count": 4}, "set layers.count: no such key"),
        ({"": 4}, "no such key"),
        ({"layers": 2.5}, "set: layers: Expected int, got float"),
        ({"layers": float("nan")}, "layers: Expected int, got float"),
        ({"layers": float("inf")}, "layers: Expected int, got float"),
        ({"layers": 1e300}, "set: layers: "),
        ({"layers": "many"}, "layers: Expected int, got str"),
        ({"layers": "none"}, "layers: Expected int, got str"),
        ({"layers": True}, "layers: Expected int, got bool"),
        ({"sequence_parallel": 1.0}, "sequence_parallel: Expected bool, got float"),
        ({"schedule": "pipedream"}, "set: schedule: unknown word; got 'pipedream'"),
        ({"stage_layers": "a,b"}, "stage_layers: Expected array"),
        ({"experts": 8.0}, "experts: Expected object"),
        ({"experts": 8.0, "experts.count": 4}, "set experts: no table; got 8"),
        ({"layers": 9.0}, "set: layers: not divisible by pipeline_parallel"),
    ],
)
def test_a_change_that_makes_no_job_is_refused(tmp_path, values, message):
    with pytest.raises(ConfigError, match=message):
        set_job(load_job(written(tmp_path, MINE)), values)


ANYTHING = st.one_of(
    st.integers(),
    st.integers(1, 16),
    st.floats(),
    st.booleans(),
    st.text(max_size=8),
    st.sampled_from(["none", "true", "1,2", "interleaved", "dualpipe", "1" * 400]),
    st.lists(st.integers(), max_size=3),
)


@hypothesis.given(st.dictionaries(st.sampled_from(job_keys()), ANYTHING, min_size=1, max_size=4))
def test_no_value_makes_anything_but_a_job_or_a_refusal_in_one_line(values):
    try:
        assert isinstance(set_job(load_job("llama3-70b"), values), Job)
    except ConfigError as error:
        assert "\n" not in str(error) and len(str(error)) < 500


def test_a_change_is_refused_where_there_are_too_few_gpus():
    with pytest.raises(ConfigError, match="ranks: more than there are GPUs; got 16 ranks"):
        set_job(load_job("llama3-8b"), {"data_parallel": 8}, gpus=8)


def test_no_key_is_both_a_job_s_and_a_machine_s():
    assert set(job_keys()).isdisjoint(hardware_numbers(load_hardware("h100")))
    assert is_job_key("experts.count") and is_job_key("latent_attention.query_rank")
    assert not is_job_key("links.nvlink.latency_us") and not is_job_key("layer")
    assert [key for key in job_keys() if "." not in key] == list(Job.__struct_fields__)


def test_the_sizes_of_a_job_may_be_traced():
    def width(hidden):
        job = msgspec.structs.replace(
            load_job("gpt3-15b"), hidden_size=hidden, ffn_hidden_size=None
        )
        return job.ffn_size * 1.0

    assert jax.grad(width)(6144.0) == 4.0


def test_what_only_says_what_follows_goes_on_following():
    gpt = Job(
        layers=2,
        hidden_size=64,
        ffn_hidden_size=256,
        attention_heads=4,
        key_value_heads=4,
        head_size=16,
        vocabulary_size=100,
        sequence_length=128,
    )
    wide = set_job(gpt, {"hidden_size": 128, "attention_heads": 8})
    assert (wide.ffn_size, wide.kv_heads, wide.size_of_head) == (512, 8, 16)
    kept = set_job(gpt, {"hidden_size": 128, "ffn_hidden_size": 256})
    assert (kept.ffn_size, kept.size_of_head) == (256, 32)


def test_what_says_something_of_its_own_stays():
    grouped = load_job("llama3-8b")
    wide = set_job(grouped, {"hidden_size": 8192, "attention_heads": 64})
    assert (wide.ffn_size, wide.kv_heads) == (grouped.ffn_size, grouped.kv_heads)
