"""Pairs of runs: what differs, and what A's structure makes of B's durations."""

from pathlib import Path

from _tables import markdown, number

from jaxperf.comparison import Comparison, compare

PAIRS: dict[str, tuple[str, str]] = {
    "nanoGPT, optimizer in hooks (4 steps)": (
        "nanogpt_h100_rank0_adam_hook_ab/current_rank0_4step.json.gz",
        "nanogpt_h100_rank0_adam_hook_ab/hook_rank0_4step.json.gz",
    ),
    "the same (6 steps)": (
        "nanogpt_h100_rank0_adam_hook_ab/current_rank0_6step.json.gz",
        "nanogpt_h100_rank0_adam_hook_ab/hook_rank0_6step.json.gz",
    ),
    "ViT, bf16 to int8 (graph launches)": (
        "vit_quant_a100_cudagraph_pair/bf16_warm.json.gz",
        "vit_quant_a100_cudagraph_pair/int8_warm.json.gz",
    ),
    "BERT, H100 to MI300X": (
        "infer_pairs_h100_vs_mi300x/bert-small_h100.json.gz",
        "infer_pairs_h100_vs_mi300x/bert-small_mi300.json.gz",
    ),
    "Qwen, H100 to MI300X": (
        "infer_pairs_h100_vs_mi300x/qwen1.5-0.5b_h100.json.gz",
        "infer_pairs_h100_vs_mi300x/qwen1.5-0.5b_mi300.json.gz",
    ),
    "ViT classifier, H100 to MI300X": (
        "infer_pairs_h100_vs_mi300x/vit-nsfw_h100.json.gz",
        "infer_pairs_h100_vs_mi300x/vit-nsfw_mi300.json.gz",
    ),
    "toy transformer, twice": (
        "single_gpu_misc/h100_transformer_toy_3step_run1.json.gz",
        "single_gpu_misc/h100_transformer_toy_3step_run2.json.gz",
    ),
    "Particle Transformer, batch 64 to 128": (
        "particle_transformer_a100_batch_sweep/fwd_bs64.json.gz",
        "particle_transformer_a100_batch_sweep/fwd_bs128.json.gz",
    ),
    "Particle Transformer, batch 128 to 512": (
        "particle_transformer_a100_batch_sweep/fwd_bs128.json.gz",
        "particle_transformer_a100_batch_sweep/fwd_bs512.json.gz",
    ),
    "torchrec, run a to run b": (
        "torchrec_sst_dlrm_v100_4rank_3step/run_a",
        "torchrec_sst_dlrm_v100_4rank_3step/run_b",
    ),
}
"""Name, run A and run B, below the folder of traces."""


def measure(shared: Path) -> dict[str, Comparison]:
    """Each pair compared."""
    folder = shared / "traces"
    return {name: compare(folder / a, folder / b) for name, (a, b) in PAIRS.items()}


def table(found: dict[str, Comparison]) -> str:
    """One line a pair; times in ms."""
    words = {True: "yes", False: "no", None: "-"}
    lines = [
        [
            name,
            number(c.a.step_us / 1e3, 3),
            number(c.b.step_us / 1e3, 3),
            number(c.difference_percent),
            words[c.within_variation],
            number(c.predicted_b_step_us / 1e3, 3),
            number(c.prediction_error_percent),
            number(c.device.matched_percent, 1),
        ]
        for name, c in found.items()
    ]
    columns = ["pair", "A", "B", "difference, %", "within variation", "B from A", "error, %"]
    return markdown([*columns, "device tasks matched, %"], lines)
