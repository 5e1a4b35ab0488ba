"""Streams of real brokers: what is published arrives, in order, also after the broker was gone."""

import asyncio
import contextlib
import gc
import json
import logging
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import pytest

from edgeflock.client.data.records import RECORD_BYTES, Skipped, SourceProgress
from edgeflock.client.data.sources import kafka as kafka_source
from edgeflock.client.data.sources import mqtt as mqtt_source
from edgeflock.client.data.sources import open_source
from edgeflock.client.data.uri import Uri
from edgeflock.shared.errors import ConfigError
from edgeflock.shared.logs import OncePerMinute
from edgeflock.shared.protocol.backoff import back_off
from tests.certificates import certificate
from tests.client.data.sources.brokers import Mosquitto, mock_kafka, passwords

aiomqtt = pytest.importorskip("aiomqtt", reason="aiomqtt is not installed")
aiokafka = pytest.importorskip("aiokafka", reason="aiokafka is not installed")


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lost brokers are tried again at once: a test kills them on purpose."""
    for source in (kafka_source, mqtt_source):
        monkeypatch.setattr(source, "back_off", lambda random: back_off(random, 0.02, 0.1))


def record(i: int) -> bytes:
    """Every other in JSON."""
    if i % 2:
        return json.dumps({"x": [i, -i], "y": i}).encode()
    return bytes(msgpack.packb({"x": np.array([i, -i], "<f4").tobytes(), "y": i}))


class Consumer:
    """What a source has yielded."""

    def __init__(self) -> None:
        self.got: list[int] = []
        self.keys: list[str | None] = []
        self.tally = Skipped()
        self.changed = asyncio.Event()

    async def consume(self, uri: str) -> None:
        async for chunk in open_source(uri, self.tally):
            assert chunk.x.tolist() == [[i, -i] for i in chunk.y.tolist()]
            self.got += chunk.y.tolist()
            self.keys += chunk.keys
            self.changed.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self.changed.clear()
            await self.changed.wait()


@asynccontextmanager
async def consuming(uri: str) -> AsyncIterator[Consumer]:
    consumer = Consumer()
    task = asyncio.create_task(consumer.consume(uri))
    try:
        yield consumer
        assert not task.done()
    finally:
        task.cancel()
        await asyncio.wait([task])


async def publish(port: int, *records: bytes, topic: str = "sensors/one", qos: int = 0, **login: Any) -> None:
    async with aiomqtt.Client("127.0.0.1", port, **login) as client:
        for one in records:
            await client.publish(topic, one, qos=qos)


async def heard(consumer: Consumer, port: int, **login: Any) -> None:
    """Return once what is published arrives. Without a session, MQTT keeps nothing for who comes later."""
    before = len(consumer.got)
    while len(consumer.got) == before:
        await publish(port, record(0), **login)
        try:
            await asyncio.wait_for(consumer.until(lambda: len(consumer.got) > before), 0.1)
        except TimeoutError:
            continue
    # Several may have been on their way.
    await publish(port, record(1), **login)
    await consumer.until(lambda: consumer.got[-1] == 1)
    consumer.got.clear()


async def test_mqtt_delivers_in_order_and_skips_what_is_broken(tmp_path: Path) -> None:
    async with Mosquitto(tmp_path) as broker:
        uri = f"mqtt://127.0.0.1:{broker.port}/sensors/+"
        async with consuming(uri) as consumer:
            await heard(consumer, broker.port)
            records = [record(i) for i in range(1000)]
            records[500:500] = [b"?", bytes(RECORD_BYTES + 1), b'{"x": [1, 2, 3], "y": 1}']
            await publish(broker.port, *records)
            await consumer.until(lambda: len(consumer.got) >= 1000)
            assert consumer.got == list(range(1000))
            assert consumer.tally.counts == {"unreadable": 1, "too large": 1, "of another shape": 1}


async def test_a_killed_mqtt_broker_is_found_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with Mosquitto(tmp_path) as broker:
        async with consuming(f"mqtt://127.0.0.1:{broker.port}/sensors/one") as consumer:
            for _ in range(2):
                await heard(consumer, broker.port)
                await publish(broker.port, *map(record, range(50)))
                await consumer.until(lambda: len(consumer.got) >= 50)
                assert consumer.got == list(range(50))
                await broker.kill()
                await broker.start()
            await heard(consumer, broker.port)
            assert consumer.tally.total == 0
    assert "trying again" in caplog.text


async def test_an_mqtt_broker_may_come_late(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    broker = Mosquitto(tmp_path)
    async with consuming(f"mqtt://127.0.0.1:{broker.port}/sensors/one") as consumer:
        while caplog.text.count("trying again") < 3:
            await asyncio.sleep(0.01)
        assert f"nothing listens at mqtt://127.0.0.1:{broker.port}/sensors/one" in caplog.text
        async with broker:
            await heard(consumer, broker.port)


async def test_a_session_gets_what_was_published_meanwhile(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with Mosquitto(tmp_path) as broker:
        uri = f"mqtt://127.0.0.1:{broker.port}/sensors/one?session=pi"
        async with consuming(uri):
            while "listening" not in caplog.text:
                await asyncio.sleep(0.01)
        await publish(broker.port, *map(record, range(20)), qos=1)
        async with consuming(uri) as consumer:
            await consumer.until(lambda: len(consumer.got) >= 20)
            assert consumer.got == list(range(20))


async def test_what_comes_faster_than_it_is_taken_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mqtt_source, "INBOX_BYTES", 2000)
    tally = Skipped()
    async with Mosquitto(tmp_path) as broker:
        source = open_source(f"mqtt://127.0.0.1:{broker.port}/sensors/one?session=pi", tally)
        first = asyncio.ensure_future(anext(source))
        while not first.done():
            await publish(broker.port, record(0))
            await asyncio.wait([first], timeout=0.1)
        while tally.total < 10:  # nobody takes anything
            await publish(broker.port, *map(record, range(100)))
        assert set(tally.counts) == {"overrun"}
        await source.aclose()


@pytest.fixture
def guarded(tmp_path: Path) -> tuple[Mosquitto, Path]:
    """A broker that speaks TLS and knows pi, whose password is open:sesame@home; and who signed for it."""
    signed = certificate(tmp_path / "broker.pem")
    known = passwords(tmp_path / "passwords", "pi", "open:sesame@home")
    settings = ["allow_anonymous false", f"password_file {known}", f"certfile {signed}", f"keyfile {signed}"]
    return Mosquitto(tmp_path, *settings), signed


async def test_mqtt_over_tls_with_a_password_of_the_environment_or_a_file(
    guarded: tuple[Mosquitto, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker, signed = guarded
    monkeypatch.setenv("BROKER", "open:sesame@home")
    (tmp_path / "secret").write_text("open:sesame@home\n")
    context = ssl.create_default_context(cafile=str(signed))
    login: dict[str, Any] = {"username": "pi", "password": "open:sesame@home", "tls_context": context}
    async with broker:
        for secret in ("password_env=BROKER", f"password_file={tmp_path}/secret"):
            uri = f"mqtts://pi@127.0.0.1:{broker.port}/sensors/+?ca={signed}&{secret}"
            async with consuming(uri) as consumer:
                await heard(consumer, broker.port, **login)
                await publish(broker.port, *map(record, range(20)), **login)
                await consumer.until(lambda: len(consumer.got) >= 20)
                assert consumer.got == list(range(20))


async def test_a_broker_that_nobody_vouches_for_gets_no_password(guarded: tuple[Mosquitto, Path]) -> None:
    broker, signed = guarded
    async with broker:
        with pytest.raises(
            ConfigError, match="shows a certificate that this machine does not trust"
        ) as reported:
            await anext(open_source(f"mqtts://pi:secret@127.0.0.1:{broker.port}/sensors/+"))
        assert "secret" not in str(reported.value)
        with pytest.raises(ConfigError, match="use a name that it is valid for"):
            await anext(open_source(f"mqtts://pi:secret@localhost:{broker.port}/sensors/+?ca={signed}"))


# aiomqtt leaves the socket of a client that was refused to the garbage collector.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
async def test_a_wrong_password_is_told_and_tried_again(
    guarded: tuple[Mosquitto, Path], caplog: pytest.LogCaptureFixture
) -> None:
    broker, signed = guarded
    async with broker, consuming(f"mqtts://pi:wrong@127.0.0.1:{broker.port}/sensors/+?ca={signed}"):
        while caplog.text.count("trying again") < 2:
            await asyncio.sleep(0.01)
    assert "ot authori" in caplog.text
    assert "; correct user and password: mqtt://USER@HOST/TOPIC?password_file=PATH" in caplog.text
    assert "wrong" not in caplog.text
    caplog.clear()  # it holds the error, which holds the socket
    gc.collect()


@pytest.mark.parametrize("refused", [True, False])
async def test_a_source_ends_that_is_cancelled_as_the_broker_answers(
    refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """asyncio.wait_for drops a cancellation that comes together with the answer (Python before 3.12)."""
    source = asyncio.create_task(anext(open_source("mqtt://127.0.0.1:9/sensors", Skipped())))

    async def answer(self: Any) -> Any:
        source.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(0)
        if refused:
            raise aiomqtt.MqttError("not authorised")
        return self

    monkeypatch.setattr(aiomqtt.Client, "__aenter__", answer)
    done, _ = await asyncio.wait([source], timeout=5)
    source.cancel()
    assert done, "it went on"
    assert source.cancelled()


def load_settings(uri: str) -> dict[str, Any]:
    settings = kafka_source.consumer_settings(Uri.parse(uri))
    named = ("bootstrap_servers", "security_protocol", "group_id", "auto_offset_reset", "enable_auto_commit")
    assert set(named) < set(settings)
    return settings


def test_what_aiokafka_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA", "open sesame")
    plain = load_settings("kafka://host/power")
    assert (plain["bootstrap_servers"], plain["security_protocol"]) == ("host:9092", "PLAINTEXT")
    assert not {"ssl_context", "sasl_mechanism", "sasl_plain_password"} & set(plain)
    signed = certificate(tmp_path / "broker.pem")
    secure = load_settings(f"kafkas://host/power?ca={signed}")
    assert (secure["bootstrap_servers"], secure["security_protocol"]) == ("host:9093", "SSL")
    context = secure["ssl_context"]
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)
    assert context.cert_store_stats()["x509"] == 1
    known = load_settings(f"kafkas://pi@host:1/power?password_env=KAFKA&certificate={signed}&group=g")
    assert (known["security_protocol"], known["sasl_mechanism"]) == ("SASL_SSL", "PLAIN")
    assert (known["sasl_plain_username"], known["sasl_plain_password"]) == ("pi", "open sesame")
    assert (known["group_id"], known["enable_auto_commit"]) == ("g", False)
    scram = load_settings("kafka://pi:a%40b@host/power?sasl=SCRAM-SHA-512")
    assert (scram["security_protocol"], scram["sasl_mechanism"]) == ("SASL_PLAINTEXT", "SCRAM-SHA-512")
    assert scram["sasl_plain_password"] == "a@b"


async def test_aiokafka_takes_what_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    for uri in ("kafka://host/t?group=g", "kafkas://pi:x@host/t", "kafka://pi:x@host/t?sasl=SCRAM-SHA-256"):
        await aiokafka.AIOKafkaConsumer("t", **load_settings(uri)).stop()


async def test_a_topic_that_is_none_is_a_config_error(tmp_path: Path) -> None:
    async with Mosquitto(tmp_path) as broker:
        with pytest.raises(ConfigError, match="topic 'a/#/b'"):
            await anext(open_source(f"mqtt://127.0.0.1:{broker.port}/a/#/b"))


async def test_kafka_delivers_in_order_and_skips_what_is_broken() -> None:
    with mock_kafka() as cluster:
        cluster.create("power")
        records = [record(i) for i in range(1200)]
        records[700:700] = [b"", b"?", b'{"x": [1, 2], "y": NaN}']
        await asyncio.to_thread(cluster.produce, "power", *records)
        async with consuming(f"kafka://{cluster.address}/power?from=earliest") as consumer:
            await consumer.until(lambda: len(consumer.got) >= 1200)
            assert consumer.got == list(range(1200))
            assert consumer.tally.counts == {"unreadable": 2, "not finite": 1}
            places = [*range(700), *range(703, 1203)]
            assert consumer.keys == [f"power/0@{place}" for place in places]


async def test_a_kafka_broker_that_was_away_goes_on_where_it_was() -> None:
    with mock_kafka() as cluster:
        cluster.create("power")
        await asyncio.to_thread(cluster.produce, "power", *map(record, range(10)))
        async with consuming(f"kafka://{cluster.address}/power?from=earliest") as consumer:
            await consumer.until(lambda: len(consumer.got) >= 10)
            cluster.down()
            cluster.up()
            await asyncio.to_thread(cluster.produce, "power", *map(record, range(10, 20)))
            await consumer.until(lambda: len(consumer.got) >= 20)
            assert consumer.got == list(range(20))


async def test_a_kafka_broker_may_come_late(caplog: pytest.LogCaptureFixture) -> None:
    with mock_kafka() as cluster:
        cluster.create("power")
        await asyncio.to_thread(cluster.produce, "power", *map(record, range(5)))
        cluster.down()
        async with consuming(f"kafka://{cluster.address}/power?from=earliest") as consumer:
            while caplog.text.count("trying again") < 3:
                await asyncio.sleep(0.01)
            assert "no Kafka broker answers: start it, or correct the address" in caplog.text
            cluster.up()
            await consumer.until(lambda: len(consumer.got) >= 5)


async def test_a_kafka_group_goes_on_after_a_restart(monkeypatch: pytest.MonkeyPatch) -> None:
    # Once a member has left, the mock cluster waits for others almost as long as a session lasts.
    hasty = partial(aiokafka.AIOKafkaConsumer, session_timeout_ms=3000, heartbeat_interval_ms=300)
    monkeypatch.setattr(aiokafka, "AIOKafkaConsumer", hasty)
    monkeypatch.setattr(kafka_source, "STOP_SECONDS", 300.0)  # whoever leaves says where it was
    with mock_kafka() as cluster:
        cluster.create("power")
        uri = f"kafka://{cluster.address}/power?group=pi"
        await asyncio.to_thread(cluster.produce, "power", *map(record, range(10)))
        async with consuming(uri) as consumer:
            await consumer.until(lambda: len(consumer.got) >= 10)
        await asyncio.to_thread(cluster.produce, "power", *map(record, range(10, 15)))
        async with consuming(uri) as consumer:
            await consumer.until(lambda: len(consumer.got) >= 5)
            assert consumer.got == list(range(10, 15))


async def test_a_kafka_group_reads_again_what_is_not_done_with(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of ten samples six were trained on and four taken when the device ended, or all are on disk."""
    hasty = partial(aiokafka.AIOKafkaConsumer, session_timeout_ms=8000, heartbeat_interval_ms=300)
    monkeypatch.setattr(aiokafka, "AIOKafkaConsumer", hasty)
    monkeypatch.setattr(kafka_source, "CHUNK_MESSAGES", 2)
    monkeypatch.setattr(kafka_source, "STOP_SECONDS", 300.0)  # whoever leaves says where it was
    with mock_kafka() as cluster:
        cluster.create("power")
        uri = f"kafka://{cluster.address}/power?group=pi"
        await asyncio.to_thread(cluster.produce, "power", *map(record, range(10)))
        async with consuming(uri) as consumer:
            consumer.tally.progress = lambda: SourceProgress(len(consumer.got), min(6, len(consumer.got)))
            await consumer.until(lambda: len(consumer.got) >= 10)
        async with consuming(uri) as consumer:
            await consumer.until(lambda: len(consumer.got) >= 4)
            assert consumer.got == list(range(6, 10))


def test_offsets_are_told_in_the_order_of_their_samples() -> None:
    one, other = aiokafka.TopicPartition("t", 0), aiokafka.TopicPartition("t", 1)
    pending = kafka_source.PendingOffsets()
    pending.add(one, 5, received=5)
    pending.add(other, 3, received=8)
    pending.add(one, 9, received=8)  # nothing of these was fit
    pending.add(one, 20, received=19)
    assert pending.pop_done(4) == {}
    assert pending.pop_done(7) == {one: 5}
    assert pending.pop_done(8) == {other: 3, one: 9}
    assert pending.pop_done(18) == {}
    assert pending.pop_done(19) == {one: 20}


async def test_leaving_a_group_whose_broker_is_away_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kafka_source, "STOP_SECONDS", 0.1)
    with mock_kafka() as cluster:
        cluster.create("power")
        await asyncio.to_thread(cluster.produce, "power", record(0))
        async with consuming(f"kafka://{cluster.address}/power?group=pi") as consumer:
            await consumer.until(lambda: consumer.got == [0])
            cluster.down()


def test_a_repeating_library_says_something_once_a_minute() -> None:
    once = OncePerMinute()

    def passes(name: str, second: float) -> bool:
        said = logging.LogRecord(name, logging.ERROR, "", 0, "gone", None, None)
        said.created = 1e9 + second
        return once.filter(said)

    said = [("a", 0), ("a", 1), ("b", 2), ("a", 59), ("b", 61), ("a", 61)]
    assert [passes(name, second) for name, second in said] == [True, False, True, False, False, True]
