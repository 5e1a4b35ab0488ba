"""[limits]: limits on what the server accepts."""

from typing import Annotated

from pydantic import Field

from edgeflock.shared.settings.settings import Section


class LimitSettings(Section):
    """Limits on what the server accepts, from one device and in all."""

    frame_bytes: Annotated[int, Field(ge=0)] = 0
    """bytes of one message, at most; 0: as many as an update of the model, or shared samples, may take"""
    inflight_bytes: Annotated[int, Field(ge=1024)] = 1 << 28
    """bytes of the unfinished messages of all devices together, at most"""
    refusals: Annotated[int, Field(ge=0)] = 20
    """refusals of one device in a minute; one more puts it into quarantine; 0: no limit"""
    device_rate: Annotated[float, Field(ge=1024)] = float(1 << 28)
    """bytes a second to and from a device, which waits beyond it; each record counts 8 KiB more"""
    rate: Annotated[float, Field(ge=1024)] = float(1 << 30)
    """bytes a second to and from all devices together, counted in the same way"""
    expansion_bytes: Annotated[int, Field(ge=1024)] = 1 << 28
    """bytes of memory that decoding one update may take"""
    samples: Annotated[int, Field(ge=1)] = 1 << 16
    """samples of one update, at most"""
    parameter: Annotated[float, Field(gt=0, le=1e30)] = 60_000.0
    """largest magnitude of a parameter: an update beyond it is refused; at least twice that of the first
    model"""
    devices: Annotated[int, Field(ge=1)] = 10_000
    """devices that a run may know, at most"""
    downlink_bytes: Annotated[int, Field(ge=1 << 20)] = 1 << 30
    """bytes of memory for copies of what devices hold (downlink.mode = lossy)"""
    watchers: Annotated[int, Field(ge=0)] = 16
    """monitors that may follow the run at a time; 0: none"""
    device_series: Annotated[int, Field(ge=0)] = 1000
    """devices that have metrics of their own, at most; 0: none"""
    hello_seconds: Annotated[float, Field(gt=0)] = 10.0
    """seconds for a device's first message on its connection"""
    request_seconds: Annotated[float, Field(gt=0)] = 10.0
    """seconds for the head of an HTTP request, and as many for its body"""
    message_seconds: Annotated[float, Field(gt=0)] = 300.0
    """seconds from the first byte of a message to its last"""
    unauthenticated: Annotated[int, Field(ge=1)] = 1024
    """connections that have shown no token yet; one more closes the oldest"""
    address_connections: Annotated[int, Field(ge=1)] = 4096
    """connections from one address, or from one proxy, at most"""
