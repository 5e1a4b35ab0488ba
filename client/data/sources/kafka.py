"""A Kafka broker's messages as a stream. A message is one sample (client/data/messages.py).

    kafka://[user[:password]@]host[:9092]/topic[?group=NAME][&from=latest]
    kafkas://[user[:password]@]host[:9093]/topic         over TLS; passwords and certificates: access.py

With a group the broker remembers how far it has read; devices of one group share the topic's partitions.
Without one, all partitions are read, from now on. from=earliest reads what there is first; it is the default
of a group that has read nothing yet. Order holds within a partition. The broker is told that a message was
read once what it brought is done with: trained on and acknowledged by the server, dropped, set aside, or on
disk (client.buffer). So nothing is lost by a crash, and a group reads the rest again: what names a sample
that brings no key is its topic, partition and offset. Halves that wait for their others (join=) are not
waited for.

A user logs in by SASL: sasl=PLAIN, the default, sends the password as it is, which asks for TLS;
sasl=SCRAM-SHA-256 and sasl=SCRAM-SHA-512 do not.

A broker that is away is tried again for ever. Memory stays bounded: it waits while nobody takes anything.
"""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING, Any

from edgeflock.client.data.reading import OPTIONS, MessageReader
from edgeflock.client.data.records import RECORD_BYTES, Skipped, StreamChunk
from edgeflock.client.data.sources.access import PASSWORD, TLS, no_tls, password, tls
from edgeflock.client.data.uri import Uri
from edgeflock.shared.extras import install
from edgeflock.shared.protocol.backoff import back_off

if TYPE_CHECKING:
    import aiokafka
    from aiokafka import TopicPartition

log = logging.getLogger(__name__)

INBOX_BYTES = 1 << 24
"""Messages that are fetched ahead: at most so many bytes of them."""

TOGETHER = 512
"""Messages of a chunk, at most."""

PORT = 9092
"""The usual one; the next one, over TLS."""

COMMIT_SECONDS = 1.0
"""Between two times that the broker is told."""

STOP_SECONDS = 2.0
"""How long to wait for a Kafka group to be left: while the broker is away that never ends."""


async def from_kafka(uri: Uri, tally: Skipped) -> AsyncGenerator[StreamChunk, None]:
    reader, settings = MessageReader(uri, tally), consumer_settings(uri)
    broker = settings["bootstrap_servers"]
    try:
        import aiokafka
        from aiokafka.errors import KafkaError
    except ImportError as error:
        raise uri.wrong(f"kafka needs aiokafka: {install('streams')}") from error
    for name in _CHATTY:
        logging.getLogger(name).addFilter(_SELDOM)
    delays = back_off(Random())
    clock = asyncio.get_running_loop().time
    while True:
        read, due, is_last = Read(), clock(), False
        consumer = aiokafka.AIOKafkaConsumer(uri.broker(PORT).topic, **settings)
        try:
            await consumer.start()
            log.info("listening to kafka %s", broker)
            while True:
                fetched = await consumer.getmany(timeout_ms=1000, max_records=TOGETHER)
                if fetched:
                    delays = back_off(Random())
                for partition, messages in fetched.items():
                    chunks = reader.chunks((one.value or b"", _name(one)) for one in messages)
                    for number, chunk in enumerate(chunks, 1):
                        is_last = number == len(chunks)
                        yield chunk
                    read.until(partition, messages[-1].offset + 1, tally.progress().came)
                    is_last = False
                if settings["group_id"] and clock() >= due:
                    due = clock() + COMMIT_SECONDS
                    await _commit(consumer, read.done(tally.progress().done))
        except (KafkaError, OSError) as error:
            delay = next(delays)
            log.warning("kafka %s: %s; trying again in %.1f s", broker, error, delay)
        finally:
            if is_last:  # it was the last to be asked for
                read.until(partition, messages[-1].offset + 1, tally.progress().came)
            with suppress(TimeoutError):
                async with asyncio.timeout(STOP_SECONDS):
                    if settings["group_id"]:
                        await _commit(consumer, read.done(tally.progress().done))
                    await consumer.stop()
        await asyncio.sleep(delay)


class Read:
    """How far each partition was read, until what that brought is done with."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[int, TopicPartition, int]] = deque()

    def until(self, partition: "TopicPartition", offset: int, came: int) -> None:
        """All before `offset` was handed on, after which so many samples had come in all."""
        self._waiting.append((came, partition, offset))

    def done(self, samples: int) -> dict["TopicPartition", int]:
        """The new offset of each partition of which more is done with, now that so many samples are."""
        offsets = {}
        while self._waiting and self._waiting[0][0] <= samples:
            _, partition, offset = self._waiting.popleft()
            offsets[partition] = offset
        return offsets


async def _commit(consumer: "aiokafka.AIOKafkaConsumer", offsets: dict["TopicPartition", int]) -> None:
    """Tell the broker. Of partitions that another device of the group has got meanwhile, that one does."""
    from aiokafka.errors import KafkaError

    mine = {partition: offset for partition, offset in offsets.items() if partition in consumer.assignment()}
    if not mine:
        return
    try:
        await consumer.commit(mine)
    except KafkaError as error:  # what was read since is read again, and known by its keys
        log.info("the broker was not told what is done with: %s", error)


def _name(message: "aiokafka.ConsumerRecord[object, object]") -> str:
    return f"{message.topic}/{message.partition}@{message.offset}"


def consumer_settings(uri: Uri) -> dict[str, Any]:
    """What aiokafka's consumer is told. Raises ConfigError."""
    uri.knows("group", "from", "sasl", *OPTIONS, *PASSWORD, *TLS)
    secure, group = uri.scheme == "kafkas", uri.options.get("group") or None
    broker, secret = uri.broker(PORT + secure), password(uri)
    start = uri.one_of("from", *(("earliest", "latest") if group else ("latest", "earliest")))
    mechanism = uri.one_of("sasl", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
    if not secure:
        no_tls(uri)
    secret = secret or broker.password
    if (broker.user is None) != (secret is None):
        raise uri.wrong(
            f"a user and a password go together: {uri.scheme}://user@host/topic?password_file=PATH"
        )
    if broker.user is None and "sasl" in uri.options:
        raise uri.wrong(f"sasl= needs a user: {uri.scheme}://user@host/topic")
    if broker.user is not None and mechanism == "PLAIN" and not secure:
        raise uri.wrong("PLAIN sends the password as it is: use kafkas:, or sasl=SCRAM-SHA-256 if it must be")
    settings: dict[str, Any] = {
        "bootstrap_servers": f"{broker.host}:{broker.port}",
        "group_id": group,
        "auto_offset_reset": start,
        "enable_auto_commit": False,
        "retry_backoff_ms": 1000,  # once connected, aiokafka itself tries again for ever
        "fetch_max_bytes": INBOX_BYTES,
        "max_partition_fetch_bytes": 2 * RECORD_BYTES,
        "security_protocol": ("SASL_" if broker.user else "") + ("SSL" if secure else "PLAINTEXT"),
    }
    if secure:
        settings["ssl_context"] = tls(uri)
    if broker.user:
        settings["sasl_mechanism"] = mechanism
        settings["sasl_plain_username"], settings["sasl_plain_password"] = broker.user, secret
    return settings


_CHATTY = ("aiokafka", "aiokafka.conn", "aiokafka.consumer.fetcher", "aiokafka.consumer.group_coordinator")
"""aiokafka's loggers that say the same several times a second while a broker is away."""


class _Seldom(logging.Filter):
    """Lets each logger say something once a minute."""

    def __init__(self) -> None:
        super().__init__()
        self._said: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        if record.created - self._said.get(record.name, 0.0) < 60:
            return False
        self._said[record.name] = record.created
        return True


_SELDOM = _Seldom()
