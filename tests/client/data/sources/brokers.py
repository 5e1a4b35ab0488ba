"""Real brokers for tests, on free ports of 127.0.0.1: Mosquitto, and librdkafka's mock cluster over TCP.

The cluster speaks Kafka's protocol in a thread of this process. confluent-kafka does not export its
functions, but the library that it brings along does.
"""

import asyncio
import base64
import ctypes
import getpass
import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path

import pytest

from tests.ports import lasting

MOSQUITTO = shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin:/usr/local/sbin")


def passwords(path: Path, user: str, password: str) -> Path:
    """A password file for Mosquitto (man mosquitto_passwd: PBKDF2-HMAC-SHA512)."""
    salt, rounds = os.urandom(12), 101
    digest = hashlib.pbkdf2_hmac("sha512", password.encode(), salt, rounds)
    coded = [base64.b64encode(part).decode() for part in (salt, digest)]
    path.write_text(f"{user}:$7${rounds}${coded[0]}${coded[1]}\n")
    return path


class Mosquitto:
    """A broker that can be killed and started again on its port. Use as an async context manager."""

    def __init__(self, directory: Path, *settings: str) -> None:
        """`settings` are further lines of its configuration."""
        if MOSQUITTO is None:
            pytest.skip("mosquitto is not installed (apt-get install mosquitto)")
        self.port = lasting()
        self._settings = directory / "mosquitto.conf"
        # As root it would become another user, who cannot read what a test wrote.
        listening = [f"user {getpass.getuser()}", f"listener {self.port} 127.0.0.1", "max_queued_messages 0"]
        self._settings.write_text("\n".join([*listening, *(settings or ["allow_anonymous true"])]))
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Return when it listens."""
        assert MOSQUITTO is not None
        quiet = asyncio.subprocess.DEVNULL
        self._process = await asyncio.create_subprocess_exec(
            MOSQUITTO, "-c", str(self._settings), stdout=quiet, stderr=quiet
        )
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", self.port)
            except OSError:
                assert self._process.returncode is None, "mosquitto did not start"
                await asyncio.sleep(0.01)
                continue
            writer.close()
            await writer.wait_closed()
            return

    async def kill(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            await process.wait()

    async def __aenter__(self) -> "Mosquitto":
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.kill()


BROKER = 1
"""The mock cluster's only broker."""


class MockKafka:
    """One broker; topics have one partition."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        why = ctypes.create_string_buffer(512)
        self._client = library.rd_kafka_new(0, None, why, len(why))
        assert self._client, why.value
        self._cluster = library.rd_kafka_mock_cluster_new(self._client, 1)
        library.rd_kafka_mock_group_initial_rebalance_delay_ms(self._cluster, 0)
        self.address: str = library.rd_kafka_mock_cluster_bootstraps(self._cluster).decode()

    def create(self, topic: str) -> None:
        assert self._library.rd_kafka_mock_topic_create(self._cluster, topic.encode(), 1, 1) == 0

    def down(self) -> None:
        """Cut all lines and accept no more."""
        assert self._library.rd_kafka_mock_broker_set_down(self._cluster, BROKER) == 0

    def up(self) -> None:
        assert self._library.rd_kafka_mock_broker_set_up(self._cluster, BROKER) == 0

    def produce(self, topic: str, *records: bytes) -> None:
        """Return when the broker has them."""
        from confluent_kafka import Producer

        producer = Producer({"bootstrap.servers": self.address, "log_level": 0, "linger.ms": 0})
        for record in records:
            producer.produce(topic, record)
        assert producer.flush(20) == 0

    def close(self) -> None:
        self._library.rd_kafka_mock_cluster_destroy(self._cluster)
        self._library.rd_kafka_destroy(self._client)


@contextmanager
def mock_kafka() -> Iterator[MockKafka]:
    cluster = MockKafka(_library())
    try:
        yield cluster
    finally:
        cluster.close()


def _library() -> ctypes.CDLL:
    pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed")
    files = metadata.files("confluent-kafka") or []
    paths = [file.locate() for file in files if "librdkafka" in file.name]
    if not paths:
        pytest.skip("this confluent-kafka brings no librdkafka of its own")
    library = ctypes.CDLL(str(paths[0]))
    pointer, text, number = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int
    for name, result, arguments in (
        ("rd_kafka_new", pointer, [number, pointer, text, ctypes.c_size_t]),
        ("rd_kafka_destroy", None, [pointer]),
        ("rd_kafka_mock_cluster_new", pointer, [pointer, number]),
        ("rd_kafka_mock_cluster_destroy", None, [pointer]),
        ("rd_kafka_mock_cluster_bootstraps", text, [pointer]),
        ("rd_kafka_mock_group_initial_rebalance_delay_ms", None, [pointer, ctypes.c_int32]),
        ("rd_kafka_mock_topic_create", number, [pointer, text, number, number]),
        ("rd_kafka_mock_broker_set_down", number, [pointer, ctypes.c_int32]),
        ("rd_kafka_mock_broker_set_up", number, [pointer, ctypes.c_int32]),
    ):
        function = getattr(library, name)
        function.restype = result
        function.argtypes = arguments
    return library
