"""A Kafka broker's messages as a stream. A message is one sample (client/data/messages.py).

    kafka://[user[:password]@]host[:9092]/topic[?group=NAME][&from=latest]
    kafkas://[user[:password]@]host[:9093]/topic         over TLS; passwords and certificates: uri.py

With a group the broker stores the committed offset. Devices of one group share the topic's partitions.
Without a group, all partitions are read, from now on. from=earliest starts with the oldest message. It is the
default of a group without offsets. Order holds within a partition. An offset is committed once its samples
are done: trained on and acknowledged by the server, dropped, set aside, or on disk (client.buffer). So a
crash loses nothing, and a group reads the rest again. A sample without a key gets its topic, partition and
offset as key. Commits do not wait for halves that lack their partners (join=).

A user logs in with SASL. sasl=PLAIN, the default, sends the password in clear text and requires TLS.
sasl=SCRAM-SHA-256 and sasl=SCRAM-SHA-512 do not.

An unavailable broker is retried for ever. Memory is bounded: fetching waits until messages are taken.
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
from edgeflock.client.data.uri import PASSWORD, TLS, Uri, password, tls
from edgeflock.shared.extras import install_command
from edgeflock.shared.logs import OncePerMinute
from edgeflock.shared.protocol.backoff import back_off

if TYPE_CHECKING:
    import aiokafka
    from aiokafka import TopicPartition

log = logging.getLogger(__name__)

INBOX_BYTES = 1 << 24
"""Largest number of bytes of prefetched messages."""

CHUNK_MESSAGES = 512
"""Maximum number of messages in a chunk."""

PORT = 9092
"""The default port. With TLS it is one higher."""

COMMIT_SECONDS = 1.0
"""Least seconds between two commits."""

STOP_SECONDS = 2.0
"""Longest wait to leave a Kafka group. Without it, an unavailable broker would block for ever."""


def from_kafka(uri: Uri, tally: Skipped) -> AsyncGenerator[StreamChunk, None]:
    """Return the samples in the messages of the topic. Raises ConfigError before it connects."""
    reader, settings = MessageReader(uri, tally), consumer_settings(uri)
    try:
        import aiokafka  # noqa: F401
    except ImportError as error:
        raise uri.error(f"kafka needs aiokafka: {install_command('streams')}") from error
    return _listen(uri.broker(PORT).topic, reader, settings, tally)


async def _listen(
    topic: str, reader: MessageReader, settings: dict[str, Any], tally: Skipped
) -> AsyncGenerator[StreamChunk, None]:
    import aiokafka
    from aiokafka.errors import KafkaConnectionError, KafkaError

    broker = settings["bootstrap_servers"]
    for name in _LOGGERS:
        logging.getLogger(name).addFilter(_ONCE_PER_MINUTE)
    delays = back_off(Random())
    clock = asyncio.get_running_loop().time
    while True:
        pending, due, is_last = PendingOffsets(), clock(), False
        consumer = aiokafka.AIOKafkaConsumer(topic, **settings)
        try:
            await consumer.start()
            log.info("listening to kafka %s", broker)
            while True:
                fetched = await consumer.getmany(timeout_ms=1000, max_records=CHUNK_MESSAGES)
                if fetched:
                    delays = back_off(Random())
                for partition, messages in fetched.items():
                    chunks = reader.chunks((one.value or b"", _name(one)) for one in messages)
                    for number, chunk in enumerate(chunks, 1):
                        is_last = number == len(chunks)
                        yield chunk
                    pending.add(partition, messages[-1].offset + 1, tally.progress().received)
                    is_last = False
                if settings["group_id"] and clock() >= due:
                    due = clock() + COMMIT_SECONDS
                    await _commit(consumer, pending.pop_done(tally.progress().done))
        except (KafkaError, OSError) as error:
            delay, reason = next(delays), str(error)
            if isinstance(error, KafkaConnectionError):  # aiokafka's own line before says why
                reason = (
                    "no Kafka broker answers: start it, or correct the address (kafkas: if it speaks TLS)"
                )
            log.warning("kafka %s: %s; trying again in %.1f s", broker, reason, delay)
        finally:
            if is_last:  # the last chunk was taken
                pending.add(partition, messages[-1].offset + 1, tally.progress().received)
            with suppress(TimeoutError):
                async with asyncio.timeout(STOP_SECONDS):
                    if settings["group_id"]:
                        await _commit(consumer, pending.pop_done(tally.progress().done))
                    await consumer.stop()
        await asyncio.sleep(delay)


class PendingOffsets:
    """Offsets of each partition that wait until their samples are done."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[int, TopicPartition, int]] = deque()

    def add(self, partition: "TopicPartition", offset: int, received: int) -> None:
        """Record that all before `offset` was yielded, when `received` samples had arrived in total."""
        self._waiting.append((received, partition, offset))

    def pop_done(self, samples: int) -> dict["TopicPartition", int]:
        """Return the new offset of each partition with progress, now that `samples` samples are done."""
        offsets = {}
        while self._waiting and self._waiting[0][0] <= samples:
            _, partition, offset = self._waiting.popleft()
            offsets[partition] = offset
        return offsets


async def _commit(consumer: "aiokafka.AIOKafkaConsumer", offsets: dict["TopicPartition", int]) -> None:
    """Commit the offsets, except of partitions that are now assigned to another device of the group."""
    from aiokafka.errors import KafkaError

    mine = {partition: offset for partition, offset in offsets.items() if partition in consumer.assignment()}
    if not mine:
        return
    try:
        await consumer.commit(mine)
    except KafkaError as error:  # messages since then are read again, and recognized by their keys
        log.info("the broker stored no offsets: %s; it sends the samples since then again", error)


def _name(message: "aiokafka.ConsumerRecord[object, object]") -> str:
    return f"{message.topic}/{message.partition}@{message.offset}"


def consumer_settings(uri: Uri) -> dict[str, Any]:
    """Return the arguments of aiokafka's consumer. Raises ConfigError."""
    uri.check_options("group", "from", "sasl", *OPTIONS, *PASSWORD, *TLS)
    context, group = tls(uri), uri.options.get("group") or None
    secure = context is not None
    broker, secret = uri.broker(PORT + secure), password(uri)
    start = uri.one_of("from", *(("earliest", "latest") if group else ("latest", "earliest")))
    mechanism = uri.one_of("sasl", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
    secret = secret or broker.password
    if (broker.user is None) != (secret is None):
        raise uri.error(
            f"a user and a password go together: {uri.scheme}://user@host/topic?password_file=PATH"
        )
    if broker.user is None and "sasl" in uri.options:
        raise uri.error(f"sasl= needs a user: {uri.scheme}://user@host/topic")
    if broker.user is not None and mechanism == "PLAIN" and not secure:
        raise uri.error("PLAIN sends the password as it is: use kafkas:, or sasl=SCRAM-SHA-256 if it must be")
    settings: dict[str, Any] = {
        "bootstrap_servers": f"{broker.host}:{broker.port}",
        "group_id": group,
        "auto_offset_reset": start,
        "enable_auto_commit": False,
        "retry_backoff_ms": 1000,  # once connected, aiokafka itself retries for ever
        "fetch_max_bytes": INBOX_BYTES,
        "max_partition_fetch_bytes": 2 * RECORD_BYTES,
        "security_protocol": ("SASL_" if broker.user else "") + ("SSL" if secure else "PLAINTEXT"),
    }
    if secure:
        settings["ssl_context"] = context
    if broker.user:
        settings["sasl_mechanism"] = mechanism
        settings["sasl_plain_username"], settings["sasl_plain_password"] = broker.user, secret
    return settings


_LOGGERS = ("aiokafka", "aiokafka.conn", "aiokafka.consumer.fetcher", "aiokafka.consumer.group_coordinator")
"""aiokafka's loggers that repeat themselves several times a second while a broker is unavailable."""


_ONCE_PER_MINUTE = OncePerMinute()
