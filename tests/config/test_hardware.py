"""Configuration: what a file may say, and how a mistake in it is told."""

import msgspec
import pytest

from jaxperf.config import (
    Hardware,
    Link,
    Scenario,
    built_in_hardware,
    compile_pattern,
    config_folder,
    hardware_numbers,
    hardware_of_device,
    load_hardware,
    load_scenarios,
    recorded_hardware,
    set_hardware,
)
from jaxperf.errors import ConfigError

MINE = """
name = "mine"
gpus_per_node = 4
streaming_multiprocessors = 100
memory_bytes = 1e9
memory_bytes_per_s = 1e12
l2_bytes = 1e7
[peak_flops_per_s]
bf16 = 1e14
[links.pcie]
bus_bytes_per_s = 20e9
latency_us = 10
"""


def written(folder, text, name="hw.toml"):
    path = folder / name
    path.write_text(text)
    return path


@pytest.mark.parametrize("name", ["a100", "b200", "h100", "h200", "mi300x", "v100"])
def test_every_number_of_a_built_in_machine_names_its_source(name):
    (path,) = [p for p in _hardware_files() if p.stem == name]
    lines = path.read_text().splitlines()
    numbers = [line for line in lines if " = " in line and '"' not in line]
    assert len(numbers) >= 12
    unsourced = [line for line in numbers if "#" not in line and "gpus_per_node" not in line]
    assert not unsourced


def _hardware_files():
    return sorted(config_folder("hardware").glob("*.toml"))


@pytest.mark.parametrize(
    "device, name",
    [
        ("NVIDIA H100 80GB HBM3", "NVIDIA H100 80GB HBM3"),
        ("NVIDIA A100-SXM4-80GB", "NVIDIA A100-SXM4-80GB"),
        ("A100-SXM4-80GB", "NVIDIA A100-SXM4-80GB"),
        ("NVIDIA H200", "NVIDIA H200"),
        ("NVIDIA B200", "NVIDIA B200"),
        ("AMD Instinct MI300X VF", "AMD Instinct MI300X"),
        ("Tesla V100-SXM2-16GB", "Tesla V100-SXM2-32GB"),
        ("NVIDIA GB200", None),
        ("NVIDIA H100 PCIe", None),
        ("NVIDIA A100-SXM4-40GB", None),
    ],
)
def test_a_device_is_known_by_the_name_that_the_profiler_writes(device, name):
    found = hardware_of_device(device)
    assert (found and found.name) == name


def test_a_machine_of_ones_own_is_a_file(tmp_path):
    hardware = load_hardware(written(tmp_path, MINE))
    assert hardware.links == {"pcie": Link(20e9, 10.0)}
    assert hardware.launch_queue == 1024


@pytest.mark.parametrize(
    "old, new, message",
    [
        ("l2_bytes", "l2_size", "l2_size: unknown key; expected one of .*l2_bytes"),
        ("latency_us", "latency_ns", "links.pcie.latency_ns: unknown key.*latency_us"),
        ("= 100\n", '= "many"\n', "streaming_multiprocessors: Expected int, got str"),
        ("= 1e12", "= -1e12", "memory_bytes_per_s: not a quantity; got -1000000000000.0"),
        ("= 1e12", "= nan", "memory_bytes_per_s: not a quantity; got nan"),
        ("bf16 = 1e14", "", "peak_flops_per_s: empty table"),
        ('"mine"', '"mine', "not valid TOML"),
        ("memory_bytes = 1e9", "", "missing required field memory_bytes"),
    ],
)
def test_a_mistake_in_a_file_is_told_with_its_key(tmp_path, old, new, message):
    path = written(tmp_path, MINE.replace(old, new, 1))
    with pytest.raises(ConfigError, match=message) as error:
        load_hardware(path)
    assert str(path) in str(error.value)


def test_a_bad_pattern_of_devices_is_refused(tmp_path):
    path = written(tmp_path, 'device_pattern = "("\n' + MINE)
    with pytest.raises(ConfigError, match="device_pattern: not a regular expression"):
        load_hardware(path)


def test_an_unknown_machine_names_the_nearest():
    with pytest.raises(ConfigError, match="no such hardware; got 'h10'; expected .*h100"):
        load_hardware("h10")


def test_a_file_that_is_absent_or_no_text_is_told(tmp_path):
    with pytest.raises(ConfigError, match="absent.toml: cannot be read"):
        load_hardware(tmp_path / "absent.toml")
    path = tmp_path / "binary.toml"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="not text"):
        load_hardware(path)


def test_a_number_is_changed_by_its_key_and_nothing_else_is():
    before = load_hardware("h100")
    after = set_hardware(before, {"links.network.bus_bytes_per_s": 1e9, "gpus_per_node": 4.0})
    changed = {
        key
        for key, value in hardware_numbers(after).items()
        if value != hardware_numbers(before)[key]
    }
    assert changed == {"links.network.bus_bytes_per_s", "gpus_per_node"}
    assert isinstance(after.gpus_per_node, int)


@pytest.mark.parametrize(
    "values, message",
    [
        ({"memory_bandwidth": 1.0}, "set memory_bandwidth: no such key.*memory_bytes"),
        ({"links.nvlink": 1.0}, "no such key"),
        ({"name": 1.0}, "no such key"),
        ({"memory_bytes_per_s": 0.0}, "not a quantity"),
        ({"gpus_per_node": 2.5}, "Expected int"),
        ({"memory_bytes_per_s": "fast"}, "Expected float, got str"),
    ],
)
def test_a_change_that_makes_no_machine_is_refused(values, message):
    with pytest.raises(ConfigError, match=message):
        set_hardware(load_hardware("h100"), values)


def test_the_recorded_machine_is_told_by_its_devices_or_by_the_user():
    assert recorded_hardware(["NVIDIA H200", "NVIDIA H200"]).name == "NVIDIA H200"
    assert recorded_hardware(["unheard of"], "v100").name.startswith("Tesla V100")
    assert recorded_hardware([None], load_hardware("a100")).name == "NVIDIA A100-SXM4-80GB"
    for names in (["unheard of"], ["NVIDIA H200", "NVIDIA B200"], ["NVIDIA H200", None]):
        with pytest.raises(ConfigError, match="recorded machine is not known.*--hardware"):
            recorded_hardware(names)


@pytest.mark.parametrize("names", [[None], [None, None], []])
def test_traces_that_name_no_device_are_told_apart_from_an_unknown_one(names):
    with pytest.raises(ConfigError, match="do not name their device; expected.*--hardware mi300x"):
        recorded_hardware(names)


def test_scenarios_are_read_in_order_and_named_by_their_place(tmp_path):
    path = written(
        tmp_path,
        """
        [[scenario]]
        name = "half"
        scale = { gemm = 0.5, "rank:2/compute" = 0.77 }
        [[scenario]]
        set = { memory_bytes_per_s = 4.8e12, hardware = "h200" }
        """,
    )
    first, second = load_scenarios(path)
    assert first == Scenario(name="half", scale={"gemm": 0.5, "rank:2/compute": 0.77})
    assert second.name == "scenario 1"
    assert second.set == {"memory_bytes_per_s": 4.8e12, "hardware": "h200"}


@pytest.mark.parametrize(
    "text, message",
    [
        ("[[scenarios]]", "scenarios: unknown key; expected one of scenario"),
        ("[[scenario]]\nscales = {}", r"scenario\[0\].scales: unknown key; .*scale"),
        ('[[scenario]]\nscale = { gemm = "half" }', "Expected float, got str"),
        ("scenario = 3", "Expected array, got int"),
    ],
)
def test_a_mistake_in_scenarios_is_told_with_its_place(tmp_path, text, message):
    with pytest.raises(ConfigError, match=message):
        load_scenarios(written(tmp_path, text))


def test_nouns_are_immutable():
    for noun in (load_hardware("h100"), Scenario(name="x")):
        with pytest.raises(AttributeError):
            setattr(noun, "name", "y")  # noqa: B010
    assert isinstance(built_in_hardware()["h100"], Hardware)
    assert issubclass(Hardware, msgspec.Struct)


# What others may make of a file
# ---------------------------------------------------------------------------------------


SECOND_LINK = "[links.xgmi]\nbus_bytes_per_s = 1e9\nlatency_us = 1\n"
NETWORK = SECOND_LINK.replace("xgmi", "network")


def test_two_links_inside_a_node_are_refused_and_one_beside_a_network_is_not(tmp_path):
    with pytest.raises(ConfigError, match="links: two links inside a node; got pcie, xgmi"):
        load_hardware(written(tmp_path, MINE + SECOND_LINK))
    assert set(load_hardware(written(tmp_path, MINE + NETWORK)).links) == {"pcie", "network"}


def test_a_link_whose_name_has_dots_is_changed_by_its_key(tmp_path):
    before = load_hardware(written(tmp_path, MINE.replace("links.pcie", 'links."pcie.gen5.x16"')))
    key = "links.pcie.gen5.x16.bus_bytes_per_s"
    assert hardware_numbers(before)[key] == 20e9
    assert set_hardware(before, {key: 40e9}).links == {"pcie.gen5.x16": Link(40e9, 10.0)}


@pytest.mark.parametrize(
    "text",
    [
        f"gpus_per_node = {'9' * 5000}",
        f"links = {'[' * 20_000}{']' * 20_000}",
        f"links = {'{a = ' * 20_000}1{'}' * 20_000}",
    ],
    ids=["digits", "arrays", "tables"],
)
def test_numbers_and_tables_beyond_reason_are_not_valid(tmp_path, text):
    path = written(tmp_path, text)
    with pytest.raises(ConfigError, match="hw.toml: not valid TOML") as error:
        load_hardware(path)
    assert len(str(error.value)) < 500 + len(str(path))


@pytest.mark.parametrize("device", ["NVIDIA GH200 480GB", "NVIDIA H20", "NVIDIA GB200"])
def test_a_device_whose_name_merely_holds_that_of_another_is_not_known(device):
    assert hardware_of_device(device) is None
    with pytest.raises(ConfigError, match=f"not known; got {device}"):
        recorded_hardware([device])


@pytest.mark.parametrize(
    "pattern",
    ["(", "a{99999999999}", "(" * 20_000 + ")" * 20_000, "[z-a]", "(?P<1>a)"],
    ids=["open", "count", "deep", "range", "name"],
)
def test_a_pattern_beyond_reason_is_not_a_regular_expression(pattern):
    with pytest.raises(ConfigError, match="scale x: not a regular expression") as error:
        compile_pattern(pattern, "scale x")
    assert len(str(error.value)) < 300


def test_a_pattern_that_python_warns_of_is_compiled_without_a_word():
    # Warnings are errors here.
    assert compile_pattern("[[a]", "scale").search("[")


def test_a_cache_that_is_not_known_may_be_left_out(tmp_path):
    text = "\n".join(
        line
        for line in (config_folder("hardware") / "h100.toml").read_text().splitlines()
        if not line.startswith("l2_bytes")
    )
    path = tmp_path / "hw.toml"
    path.write_text(text)
    hardware = load_hardware(path)
    assert hardware.l2_bytes is None
    assert "l2_bytes" not in hardware_numbers(hardware)
