"""An MQTT 5 broker's messages as a stream. A message is one sample (client/data/messages.py).

    mqtt://[user[:password]@]host[:1883]/topic[?session=NAME]
    mqtts://[user[:password]@]host[:8883]/topic            over TLS; passwords and certificates: uri.py

The topic may have the wildcards + and #. With a session the broker stores messages for a week while the
device is offline, and delivers them at least once (QoS 1). Without one, messages sent meanwhile are lost (QoS
0). Only a key in the message itself identifies a repeated delivery.

An unavailable broker is retried for ever. Memory is bounded: MQTT has no flow control here, so messages that
arrive faster than they are taken are counted as overrun and dropped.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from random import Random
from typing import TYPE_CHECKING

from edgeflock.client.data.reading import OPTIONS, MessageReader
from edgeflock.client.data.records import OVERRUN, RECORD_BYTES, Skipped, StreamChunk
from edgeflock.client.data.uri import PASSWORD, TLS, Broker, Uri, password, tls
from edgeflock.shared.extras import install_command
from edgeflock.shared.protocol.backoff import back_off, failure_reason, permanent_error

if TYPE_CHECKING:
    import aiomqtt

log = logging.getLogger(__name__)

INBOX_BYTES = 1 << 24
"""Largest number of bytes of messages that wait to be decoded."""

CHUNK_MESSAGES = 512
"""Maximum number of messages in a chunk."""

_REFUSED = (134, 135)
"""The broker's reason codes "bad user name or password" and "not authorized"."""

SESSION_SECONDS = 7 * 24 * 3600


def from_mqtt(uri: Uri, tally: Skipped) -> AsyncGenerator[StreamChunk, None]:
    """Return the samples in the messages of the topic. Raises ConfigError before it connects."""
    uri.check_options("session", *OPTIONS, *PASSWORD, *TLS)
    context = tls(uri)
    broker, secret = uri.broker(8883 if context else 1883), password(uri)
    if broker.user is None and (secret or broker.password):
        raise uri.error("a password needs its user: mqtt://user@host/topic")
    try:
        import aiomqtt
        from paho.mqtt.packettypes import PacketTypes
        from paho.mqtt.properties import Properties
    except ImportError as error:
        raise uri.error(f"mqtt needs aiomqtt: {install_command('streams')}") from error
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
            password=secret or broker.password,
            tls_context=context,
            identifier=session,
            protocol=aiomqtt.ProtocolVersion.V5,
            clean_start=not session,
            properties=asked,
            queue_type=lambda maxsize: inbox,  # type: ignore[arg-type]  # it is called, no more
        )

    return _listen(uri, broker, MessageReader(uri, tally), tally, connect, qos=1 if session else 0)


async def _listen(
    uri: Uri,
    broker: Broker,
    reader: MessageReader,
    tally: Skipped,
    connect: "Callable[[_Inbox], aiomqtt.Client]",
    qos: int,
) -> AsyncGenerator[StreamChunk, None]:
    import aiomqtt

    delays, url = back_off(Random()), f"{uri.scheme}://{broker}"
    while True:
        inbox = _Inbox(tally)
        try:
            async with connect(inbox) as client:
                _raise_if_cancelled()
                try:
                    granted = await client.subscribe(broker.topic, qos=qos)
                except ValueError as error:
                    raise uri.error(f"topic {broker.topic!r}: {error}") from error
                if any(getattr(code, "is_failure", False) for code in granted):
                    raise aiomqtt.MqttError(f"the broker refuses the topic: {granted[0]}")
                log.info("listening to %s %s", uri.scheme, broker)
                async for message in client.messages:
                    delays = back_off(Random())
                    for chunk in reader.chunks((one, None) for one in [_payload(message), *inbox.rest()]):
                        yield chunk
        except aiomqtt.MqttError as error:
            _raise_if_cancelled()
            for chunk in reader.chunks((one, None) for one in inbox.rest()):
                yield chunk
            # aiomqtt raises its own error "from None", with the ssl module's error as its context.
            cause, reason = error.__context__, f"{url}: {error}"
            if isinstance(cause, OSError):
                if hopeless := permanent_error(url, cause):
                    raise hopeless from error
                reason = failure_reason(url, cause)
            if isinstance(cause, ConnectionResetError) and uri.scheme == "mqtts":
                reason += "; if the broker speaks no TLS there, write mqtt:"
            if getattr(getattr(error, "rc", None), "value", 0) in _REFUSED:
                reason += "; correct user and password: mqtt://USER@HOST/TOPIC?password_file=PATH"
            delay = next(delays)
            log.warning("%s; trying again in %.1f s", reason, delay)
            await asyncio.sleep(delay)


def _raise_if_cancelled() -> None:
    """Raise the cancellation that `asyncio.wait_for` lost.

    Before Python 3.12 it drops a cancellation that comes at the same moment as what it waits for, and aiomqtt
    waits so for the broker's answer.
    """
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


class _Inbox(asyncio.Queue["aiomqtt.Message"]):
    """A queue of received messages, bounded by their bytes."""

    def __init__(self, tally: Skipped) -> None:
        super().__init__()
        self._tally = tally
        self._octets = 0

    def put_nowait(self, item: "aiomqtt.Message") -> None:
        size = len(_payload(item))
        if self._octets + size > INBOX_BYTES:
            self._tally.add(OVERRUN, "messages come faster than they are taken")
            return
        self._octets += size
        super().put_nowait(item)

    def _get(self) -> "aiomqtt.Message":
        message = super()._get()
        self._octets -= len(_payload(message))
        return message

    def rest(self) -> list[bytes]:
        """Return the other waiting messages, at most as many as fit one chunk."""
        return [_payload(self.get_nowait()) for _ in range(min(self.qsize(), CHUNK_MESSAGES - 1))]


def _payload(message: "aiomqtt.Message") -> bytes:
    assert isinstance(message.payload, bytes), "other types are for sending"
    return message.payload
