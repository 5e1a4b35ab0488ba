"""What a device is called if nobody says."""

import socket
from pathlib import Path

from edgeflock.client.machine import default_name


def machine(root: Path, *, serial: str = "", cards: tuple[str, ...] = (), id_: str = "") -> str:
    if serial:
        (root / "sys/firmware/devicetree/base").mkdir(parents=True)
        (root / "sys/firmware/devicetree/base/serial-number").write_text(serial + "\0")
    for number, address in enumerate(cards):
        (root / f"sys/class/net/eth{number}/device").mkdir(parents=True)
        (root / f"sys/class/net/eth{number}/address").write_text(address + "\n")
    (root / "etc").mkdir(parents=True, exist_ok=True)
    (root / "etc/machine-id").write_text(id_)
    return default_name(root)


def test_clones_of_one_card_have_names_of_their_own(tmp_path: Path) -> None:
    one = machine(tmp_path / "a", serial="10000000abc", id_="same")
    other = machine(tmp_path / "b", serial="10000000def", id_="same")
    third = machine(tmp_path / "c", cards=("b8:27:eb:00:00:01",), id_="same")
    fourth = machine(tmp_path / "d", cards=("b8:27:eb:00:00:02",), id_="same")
    fifth = machine(tmp_path / "e", id_="same")
    names = {one, other, third, fourth, fifth}
    assert len(names) == 5
    assert all(name.rpartition("-")[0] == socket.gethostname() for name in names)
    assert all(len(name.rpartition("-")[2]) == 6 for name in names)


def test_it_stays_the_same(tmp_path: Path) -> None:
    name = machine(tmp_path, serial="10000000abc", cards=("b8:27:eb:00:00:01",), id_="x")
    assert default_name(tmp_path) == name
    assert default_name() == default_name()
