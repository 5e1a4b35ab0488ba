"""What is used of flwr and not promised: with flwr 1.41 and 1.42 all of it is there and means the same."""

from importlib import metadata
from pathlib import Path

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MessageType, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from edgeflock.client.flower import inside
from edgeflock.shared.errors import ConfigError
from tests.flower.apps import PLAIN, app, plus, record


def test_the_versions_that_are_known_to_work() -> None:
    assert metadata.version("flwr").rpartition(".")[0] in ("1.41", "1.42")


def test_an_app_is_loaded_from_its_folder(tmp_path: Path) -> None:
    (tmp_path / "inside_loaded.py").write_text(
        "from flwr.clientapp import ClientApp\napp = ClientApp()\nno = 1\n"
    )
    assert isinstance(inside.load("inside_loaded:app", tmp_path), ClientApp)
    for reference, complaint in (("inside_loaded:no", "is no ClientApp, but int"), ("inside_loaded:x", "x")):
        with pytest.raises(ConfigError, match=complaint):
            inside.load(reference, tmp_path)


def test_what_an_app_answers_is_known_before_it_is_asked() -> None:
    bare = ClientApp()
    assert not inside.handles(bare, MessageType.TRAIN)
    bare.train()(lambda message, context: message)
    assert inside.handles(bare, MessageType.TRAIN)
    assert not inside.handles(bare, MessageType.EVALUATE)


def test_node_config_is_written_as_for_a_supernode(tmp_path: Path) -> None:
    said = inside.parse_pairs('partition-id=0 lr=0.5 name="a b" on=true')
    assert said == {"partition-id": 0, "lr": 0.5, "name": "a b", "on": True}
    assert inside.parse_pairs("") == {}
    with pytest.raises(ConfigError):
        inside.parse_pairs("name=unquoted")
    for text, token in (("partition-id", "partition-id"), ("a=1 b 'c'", "b"), ("a= b=1", "a="), ("=1", "=1")):
        with pytest.raises(ConfigError, match=f"^'{token}' is no pair; write key=value"):
            inside.parse_pairs(text)
    (tmp_path / "node.toml").write_text("partition-id = 3\n")
    assert inside.parse_pairs(f"{tmp_path}/node.toml") == {"partition-id": 3}


def test_a_run_config_is_flat() -> None:
    assert inside.flatten({"lr": 0.1, "model": {"depth": 2}}) == {"lr": 0.1, "model.depth": 2}


def test_a_message_is_answered_as_one_of_a_superlink() -> None:
    content = RecordDict({"arrays": record(PLAIN), "config": ConfigRecord({"server-round": 1})})
    question = inside.message(content, MessageType.TRAIN, 7, 5, "an identifier", "1")
    reply = app(plus(1))(question, Context(7, 5, {}, RecordDict(), {}))
    assert isinstance(reply, Message)
    assert (reply.metadata.run_id, reply.metadata.src_node_id) == (7, 5)
    assert reply.metadata.reply_to_message_id == "an identifier"


def test_records_come_back_from_bytes() -> None:
    records = RecordDict(
        {
            "arrays": ArrayRecord({"w": Array(np.arange(3.0))}),
            "metrics": MetricRecord({"n": 3, "x": [0.5, 1.5]}),
            "config": ConfigRecord({"secret": b"\x00\x01", "on": True}),
        }
    )
    again = inside.decode(inside.encode(records))
    assert again.array_records["arrays"]["w"].numpy().tolist() == [0, 1, 2]
    assert dict(again.metric_records["metrics"]) == {"n": 3, "x": [0.5, 1.5]}
    assert dict(again.config_records["config"]) == {"secret": b"\x00\x01", "on": True}
    with pytest.raises(ValueError, match="no records"):
        inside.decode(b"\xff\xff\xff")
