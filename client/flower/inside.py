"""Uses of flwr's private names. tests/flower/test_inside.py lists the supported versions."""

import re
import time
from pathlib import Path
from typing import Any

from flwr.app import Message, RecordDict
from flwr.app.metadata import Metadata
from flwr.clientapp import ClientApp
from flwr.common.config import flatten_dict, parse_config_args
from flwr.common.constant import SUPERLINK_NODE_ID
from flwr.common.serde import recorddict_from_proto, recorddict_to_proto
from flwr.proto.recorddict_pb2 import RecordDict as RecordDictProto
from flwr.supercore.object_ref import load_app

from edgeflock.shared.errors import ConfigError

_TTL = 1e9
"""Seconds until a message expires."""


def load(reference: str, folder: Path) -> ClientApp:
    """Load the ClientApp module:attribute from a folder. Raises ConfigError and the module's errors."""
    app = load_app(reference, ConfigError, folder)
    if not isinstance(app, ClientApp):
        raise ConfigError(f"{reference} is no ClientApp, but {type(app).__name__}")
    return app


def handles(app: ClientApp, kind: str) -> bool:
    """Return whether the app answers messages of this type. An app made from a client_fn answers all."""
    return app._call is not None or f"{kind}.default" in app._registered_funcs


def flatten(config: Any) -> dict[str, Any]:
    """Flatten a table of settings, with nested keys joined by dots. Raises ValueError."""
    return dict(flatten_dict(config))


def parse_pairs(text: str) -> dict[str, Any]:
    """Parse `text` as the --node-config of a SuperNode. Raises ConfigError."""
    ignored = re.sub(r"""\S+?=('[^']*'|"[^"]*"|\S+)""", "", text).split()  # by flwr, without a word
    if ignored and not text.endswith(".toml"):
        raise ConfigError(f"{ignored[0]!r} is no pair; write key=value, with spaces between pairs")
    try:
        return parse_config_args([text]) if text else {}
    except Exception as error:  # click's, and whatever is wrong with a file
        raise ConfigError(f"{error}") from error


def message(content: RecordDict, kind: str, run: int, node: int, identifier: str, group: str) -> Message:
    """Make a message of this type from the server to the node."""
    metadata = Metadata(
        run_id=run,
        message_id=identifier,
        src_node_id=SUPERLINK_NODE_ID,
        dst_node_id=node,
        reply_to_message_id="",
        group_id=group,
        created_at=time.time(),
        ttl=_TTL,
        message_type=kind,
    )
    made: Message = Message(content=content, metadata=metadata)  # type: ignore[call-overload]
    return made


def encode(records: RecordDict) -> bytes:
    octets: bytes = recorddict_to_proto(records).SerializeToString()
    return octets


def decode(octets: bytes) -> RecordDict:
    """What `encode` returned. Raises ValueError."""
    try:
        return recorddict_from_proto(RecordDictProto.FromString(octets))
    except Exception as error:  # protobuf's own have no base that is promised
        raise ValueError(f"no records: {error}") from error
