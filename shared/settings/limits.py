"""[limits]: what the server takes."""

from typing import Annotated

from pydantic import Field

from edgeflock.shared.settings.settings import Section


class LimitSettings(Section):
    """What the server takes, from one device and in all."""

    frame_bytes: Annotated[int, Field(ge=0)] = Field(
        0, description="of a message; 0: as many as an update of the model, or shared samples, may take"
    )
    inflight_bytes: Annotated[int, Field(ge=1024)] = Field(
        1 << 28, description="of the unfinished messages of all devices together"
    )
    refusals: Annotated[int, Field(ge=0)] = Field(
        20, description="of one device in a minute; one more, and it stays out for a time; 0: any number"
    )
    device_rate: Annotated[float, Field(ge=1024)] = Field(
        float(1 << 28), description="bytes a second to and from a device, a record 8 KiB more; then it waits"
    )
    rate: Annotated[float, Field(ge=1024)] = Field(float(1 << 30), description="the same of all together")
    expansion_bytes: Annotated[int, Field(ge=1024)] = 1 << 28
    samples: Annotated[int, Field(ge=1)] = Field(1 << 16, description="of an update")
    parameter: Annotated[float, Field(gt=0, le=1e30)] = Field(
        60_000.0,
        description="that a step may take one to, in magnitude; no less than twice the first model's",
    )
    devices: Annotated[int, Field(ge=1)] = 10_000
    downlink_bytes: Annotated[int, Field(ge=1 << 20)] = Field(
        1 << 30, description="of memory, for what devices hold (downlink.mode = lossy)"
    )
    downlink_disk_bytes: Annotated[int, Field(ge=0)] = Field(
        1 << 34, description="of a file beside the journal, for what that has no room for"
    )
    watchers: Annotated[int, Field(ge=0)] = Field(16, description="monitors that follow the run at a time")
    device_series: Annotated[int, Field(ge=0)] = Field(
        1000, description="devices that have metrics of their own"
    )
    hello_seconds: Annotated[float, Field(gt=0)] = 10.0
    request_seconds: Annotated[float, Field(gt=0)] = Field(10.0, description="for the head of a request")
    message_seconds: Annotated[float, Field(gt=0)] = Field(
        300.0, description="from the first byte of a message to its last"
    )
    strangers: Annotated[int, Field(ge=1)] = Field(
        1024, description="connections that have shown no token yet"
    )
    address_connections: Annotated[int, Field(ge=1)] = Field(
        4096, description="from one address, or from one proxy"
    )
