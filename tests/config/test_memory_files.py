"""Servers and the memories they name."""

import shutil

from jaxperf.config import config_folder, load_memory, load_server


def test_a_memory_of_ones_own_lies_beside_its_server(tmp_path, monkeypatch):
    """Wherever the command is run."""
    shutil.copy(config_folder("memory") / "hbm3-h100-80gb.toml", tmp_path / "mine.toml")
    text = (config_folder("servers") / "h100.toml").read_text()
    assert 'memory = "hbm3-h100-80gb"' in text
    (tmp_path / "server.toml").write_text(text.replace("hbm3-h100-80gb", "mine.toml"))
    monkeypatch.chdir("/")
    server = load_server(tmp_path / "server.toml")
    assert server.tiers[0].memory == str(tmp_path / "mine.toml")
    assert load_memory(server.tiers[0].memory) == load_memory("hbm3-h100-80gb")
