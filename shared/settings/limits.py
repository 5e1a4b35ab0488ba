"""[limits]: limits on what the server accepts."""

from typing import Annotated

from pydantic import Field

from edgeflock.shared.settings.settings import Section


class LimitSettings(Section):
    """Limits on what the server accepts, from one device and in all."""

    frame_bytes: Annotated[int, Field(ge=0)] = Field(
        0, description="bytes of a message; 0: as many as an update of the model, or shared samples, may take"
    )
    inflight_bytes: Annotated[int, Field(ge=1024)] = Field(
        1 << 28, description="bytes of the unfinished messages of all devices together"
    )
    refusals: Annotated[int, Field(ge=0)] = Field(
        20, description="refusals of one device in a minute, before it is kept out for a time; 0: no limit"
    )
    device_rate: Annotated[float, Field(ge=1024)] = Field(
        float(1 << 28),
        description="bytes a second to and from a device; each record counts 8 KiB more; beyond it, the "
        "device "
        "waits",
    )
    rate: Annotated[float, Field(ge=1024)] = Field(
        float(1 << 30), description="the same for all devices together"
    )
    expansion_bytes: Annotated[int, Field(ge=1024)] = 1 << 28
    samples: Annotated[int, Field(ge=1)] = Field(1 << 16, description="samples of an update")
    parameter: Annotated[float, Field(gt=0, le=1e30)] = Field(
        60_000.0,
        description="magnitude of a parameter after a step; at least twice that of the first model's",
    )
    devices: Annotated[int, Field(ge=1)] = 10_000
    downlink_bytes: Annotated[int, Field(ge=1 << 20)] = Field(
        1 << 30, description="bytes of memory for the replicas of devices (downlink.mode = lossy)"
    )
    downlink_disk_bytes: Annotated[int, Field(ge=0)] = Field(
        1 << 34, description="bytes of a file next to the journal, for replicas that do not fit in memory"
    )
    watchers: Annotated[int, Field(ge=0)] = Field(16, description="monitors that follow the run at a time")
    device_series: Annotated[int, Field(ge=0)] = Field(
        1000, description="devices that have their own metrics"
    )
    hello_seconds: Annotated[float, Field(gt=0)] = 10.0
    request_seconds: Annotated[float, Field(gt=0)] = Field(
        10.0, description="seconds for the head of a request"
    )
    message_seconds: Annotated[float, Field(gt=0)] = Field(
        300.0, description="seconds from the first byte of a message to its last"
    )
    unauthenticated: Annotated[int, Field(ge=1)] = Field(
        1024, description="connections that have shown no token yet"
    )
    address_connections: Annotated[int, Field(ge=1)] = Field(
        4096, description="connections from one address, or from one proxy"
    )
