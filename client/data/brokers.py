"""Brokers as streams. A message is one sample (records.py).

    mqtt://[user:password@]host[:1883]/topic[?session=NAME]
        The topic may have the wildcards + and #. MQTT 5. With a session the broker keeps for a week what is
        published while the device is away, and delivers it at least once (QoS 1); without one, what nobody
        hears is gone (QoS 0).
    kafka://host[:9092]/topic[?group=NAME][&from=latest]
        With a group the broker remembers how far it has read; devices of one group share the topic's
        partitions. Without one, all partitions are read, from now on. from=earliest reads what there is
        first; it is the default of a group that has read nothing yet. Order holds within a partition.

A broker that is away is tried again for ever. Memory stays bounded: MQTT cannot be slowed down, so what comes
faster than it is taken is counted as overrun and dropped; Kafka waits.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING

from edgeflock.client.data.records import RECORD_BYTES, Chunk, Skipped, gather
from edgeflock.client.data.uri import Uri
from edgeflock.shared.protocol.backoff import back_off

if TYPE_CHECKING:
    import aiokafka
    import aiomqtt

log = logging.getLogger(__name__)

INBOX_BYTES = 1 << 24
"""Messages that wait to be decoded, or are fetched ahead, at most so many bytes of them."""

TOGETHER = 512
"""Messages of a chunk, at most."""

SESSION_SECONDS = 7 * 24 * 3600

STOP_SECONDS = 2.0
"""How long to wait for a Kafka group to be left: while the broker is away that never ends."""


async def from_mqtt(uri: Uri, tally: Skipped) -> AsyncGenerator[Chunk, None]:
    uri.knows("session")
    broker = uri.broker(1883)
    try:
        import aiomqtt
        from paho.mqtt.packettypes import PacketTypes
        from paho.mqtt.properties import Properties
    except ImportError as error:
        raise uri.wrong("mqtt needs aiomqtt: pip install 'edgeflock[streams]'") from error
    session = uri.options.get("session")
    asked = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
    asked.MaximumPacketSize = RECORD_BYTES + (1 << 17)  # a topic may have 64 KiB
    if session:
        asked.SessionExpiryInterval = SESSION_SECONDS

    def connect(inbox: _Inbox) -> aiomqtt.Client:
        return aiomqtt.Client(
            broker.host,
            broker.port,
            username=broker.user,
            password=broker.password,
            identifier=session,
            protocol=aiomqtt.ProtocolVersion.V5,
            clean_start=not session,
            properties=asked,
            queue_type=lambda maxsize: inbox,  # type: ignore[arg-type]  # it is called, no more
        )

    delays = back_off(Random())
    while True:
        inbox = _Inbox(tally)
        try:
            async with connect(inbox) as client:
                try:
                    granted = await client.subscribe(broker.topic, qos=1 if session else 0)
                except ValueError as error:
                    raise uri.wrong(f"topic {broker.topic!r}: {error}") from error
                if any(getattr(code, "is_failure", False) for code in granted):
                    raise aiomqtt.MqttError(f"the broker refuses the topic: {granted[0]}")
                log.info("listening to mqtt %s", broker)
                async for message in client.messages:
                    delays = back_off(Random())
                    for chunk in gather([_payload(message), *inbox.rest()], tally):
                        yield chunk
        except aiomqtt.MqttError as error:
            for chunk in gather(inbox.rest(), tally):
                yield chunk
            delay = next(delays)
            log.warning("mqtt %s: %s; trying again in %.1f s", broker, error, delay)
            await asyncio.sleep(delay)


class _Inbox(asyncio.Queue["aiomqtt.Message"]):
    """The messages that have come, bounded by their bytes."""

    def __init__(self, tally: Skipped) -> None:
        super().__init__()
        self._tally = tally
        self._octets = 0

    def put_nowait(self, item: "aiomqtt.Message") -> None:
        size = len(_payload(item))
        if self._octets + size > INBOX_BYTES:
            self._tally.add("overrun", "messages come faster than they are taken")
            return
        self._octets += size
        super().put_nowait(item)

    def _get(self) -> "aiomqtt.Message":
        message = super()._get()
        self._octets -= len(_payload(message))
        return message

    def rest(self) -> list[bytes]:
        """What else is here, as far as it goes into one chunk."""
        return [_payload(self.get_nowait()) for _ in range(min(self.qsize(), TOGETHER - 1))]


def _payload(message: "aiomqtt.Message") -> bytes:
    assert isinstance(message.payload, bytes), "other types are for sending"
    return message.payload


async def from_kafka(uri: Uri, tally: Skipped) -> AsyncGenerator[Chunk, None]:
    uri.knows("group", "from")
    broker = uri.broker(9092)
    group = uri.options.get("group") or None
    start = uri.options.get("from", "earliest" if group else "latest")
    if start not in ("earliest", "latest"):
        raise uri.wrong(f"from={start} must be earliest or latest")
    if broker.user:
        raise uri.wrong("a user and password are not supported for kafka")
    try:
        import aiokafka
        from aiokafka.errors import KafkaError
    except ImportError as error:
        raise uri.wrong("kafka needs aiokafka: pip install 'edgeflock[streams]'") from error
    for name in _CHATTY:
        logging.getLogger(name).addFilter(_SELDOM)
    delays = back_off(Random())
    while True:
        consumer = aiokafka.AIOKafkaConsumer(
            broker.topic,
            bootstrap_servers=f"{broker.host}:{broker.port}",
            group_id=group,
            auto_offset_reset=start,
            enable_auto_commit=group is not None,
            retry_backoff_ms=1000,  # once connected, aiokafka itself tries again for ever
            fetch_max_bytes=INBOX_BYTES,
            max_partition_fetch_bytes=2 * RECORD_BYTES,
        )
        try:
            await consumer.start()
            log.info("listening to kafka %s", broker)
            while True:
                fetched = await consumer.getmany(timeout_ms=1000, max_records=TOGETHER)
                if fetched:
                    delays = back_off(Random())
                for messages in fetched.values():
                    for chunk in gather((message.value or b"" for message in messages), tally):
                        yield chunk
        except (KafkaError, OSError) as error:
            delay = next(delays)
            log.warning("kafka %s: %s; trying again in %.1f s", broker, error, delay)
        finally:
            await _stop(consumer)
        await asyncio.sleep(delay)


async def _stop(consumer: "aiokafka.AIOKafkaConsumer") -> None:
    with suppress(TimeoutError):
        await asyncio.wait_for(consumer.stop(), STOP_SECONDS)


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
