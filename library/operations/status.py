"""A run's state, as text and as JSON."""

import asyncio
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from edgeflock.operations.runs import print_runs
from edgeflock.operations.text import first_state
from edgeflock.shared.numbers import loss, size
from edgeflock.shared.protocol.frames import PrivacySpent, worst_class
from edgeflock.shared.protocol.shown import labels_text
from edgeflock.shared.settings.modes import traits_of
from edgeflock.tui.pages import summary
from edgeflock.tui.sources import FeedClient
from edgeflock.tui.text.numbers import plain

_UNLIMITED_WIDTH = 10_000
"""A width in columns that no table has."""

_MAX_STATE = 60
"""The most characters of a state."""

Column = Callable[[dict[str, Any]], str | Text]
"""A device's status -> the text of its cell."""


async def status(server: str, token: str = "", *, feed: bool = True) -> dict[str, Any]:
    """Return the run's state at the URL `server`, like `edgeflock status --json`.

    The feed adds events, rates and curves. A device's token shows only a part of the state.
    Raises EdgeflockError if there is no answer, Unauthorized if the token is not known.
    """
    client = FeedClient(server, token)
    fields: dict[str, Any] = await client.request("GET", "/v1/status")
    state = await first_state(client) if feed and "devices" in fields else None
    return fields if state is None else {**fields, "feed": summary(state)}


def show_status(server: str, token: str, *, as_json: bool, labels: Iterable[str] = ()) -> None:
    """Print the state of the run at `server`, with the devices that have all of the `labels`."""
    fields = with_labels(asyncio.run(status(server, token, feed=as_json)), labels)
    if as_json:
        print(json.dumps(fields))
    else:
        print_status(_console(), fields)


def _console() -> Console:
    """Return the console of standard output. A pipe gets one line for each device."""
    return Console(width=None if sys.stdout.isatty() else _UNLIMITED_WIDTH)


def print_status(console: Console, status: dict[str, Any]) -> None:
    """Print /v1/status as text. A device's token shows only a part of it."""
    if "runs" in status:
        print_runs(console, status["runs"])
        return
    if "devices" not in status:
        console.print(f"Run {status['run']}, {status['state']}, version {status['version']:,}")
        more = "More is for viewers: edgeflock token create --role viewer, on the server's machine"
        if leader := status.get("leader"):
            more = f"This is a gateway; ask its leader: edgeflock status {plain(leader)}"
        console.print(Text(more), soft_wrap=True)
        return
    evaluation = status["evaluation"] or {}
    target = f" of {status['updates_target']:,}" if status["updates_target"] else ""
    coordination, compression = status["coordination"], status["compression"]
    console.print(
        f"Run {status['run']}, {status['state']}: {status['model']}, {status['parameters']:,} parameters"
    )
    if status["diverged"] is not None:
        console.print(Text(status["diverged"][:1].upper() + status["diverged"][1:], "bold red"))
    for finding in status["findings"]:
        device_name = "" if finding["device"] is None else f" {finding['device']}"
        text = Text(
            f"{finding['kind']}{device_name}: {finding['text']}; {finding['remedy']}",
            _STYLES[finding["severity"]],
        )
        console.print(text, soft_wrap=True)
    console.print(f"{_describe_rule(coordination)}, {_describe_selection(coordination, compression)}")
    console.print(f"Version {status['version']:,}{target}")
    if (shards := status["shards"]) is not None:
        parts = shards["processes"]
        memory = size(sum(shard["nbytes"] for shard in parts))
        nodes, times = len({shard["node"] for shard in parts}), shards["restored"]
        again = f"; made again from the journal {times} time{'s' * (times != 1)}" if times else ""
        console.print(f"In {len(parts)} shards on {nodes} node{'s' * (nodes != 1)}, {memory} in all{again}")
    if (tasks := status["tasks"]) is not None:
        console.print(
            f"Tasks: {tasks['finished']} of {tasks['shards']} shards in "
            f"this round, {tasks['wanted']} wanted; duplicates so far: {tasks['duplicates']:,}"
        )
    if (privacy := status.get("privacy")) is not None:
        spent = PrivacySpent(**privacy)
        console.print(
            f"Differential privacy of each {spent.unit}: epsilon {spent.text} at delta {spent.delta:.3g}, "
            f"noise {spent.noise:.3g}; updates of a device: {spent.participations:,}"
            + (f" of {spent.limit:,}" if spent.limit else "")
        )
    if (cohort := status["cohort"]) is not None:
        fewest, members = coordination["quorum"] * coordination["groups"], cohort["members"]
        if coordination["mode"] == "private" and members < fewest:
            console.print(f"Devices that are here: {members:,}; a secure sum has at least {fewest:,}")
        else:
            console.print(f"Devices that take part: {members:,}; that wait for a turn: {cohort['waiting']:,}")
    if evaluation:
        accuracy = evaluation["accuracy"]
        shown = "" if accuracy is None else f", accuracy {accuracy:.2%}"
        console.print(f"Loss {loss(evaluation['loss'], 4)}{shown} at version {evaluation['version']:,}")
        if (worst := worst_class(evaluation.get("classes", ()))) is not None:
            console.print(
                f"Worst of {len(evaluation['classes'])} classes: {worst[0]}, accuracy {worst[1]:.2%}"
            )
        if named := [
            f"{name} {'failed' if value is None else f'{value:.4g}'}"
            for name, value in evaluation["metrics"].items()
            if not name.startswith("on_devices.")  # a line of their own follows
        ]:
            console.print(Text(", ".join(named)))
    if (averages := status["on_devices"]) is not None:
        means = ", ".join(f"{name} {value:.4g}" for name, value in averages.items() if name != "num-examples")
        console.print(f"On devices' own {averages['num-examples']:,.0f} examples: {means}", highlight=False)
    for label, averages in status.get("on_devices_by_label", {}).items():
        means = ", ".join(f"{name} {value:.4g}" for name, value in averages.items() if name != "num-examples")
        console.print(f"  {label}: {means}", highlight=False)
    console.print(
        f"Ingress {size(status['ingress'])}, egress {size(status['egress'])}"
        + (
            f", {status['reduction']}x less than dense float32 up, {status['reduction_both_ways']}x both ways"
            if status["reduction"]
            else ""
        )
    )
    if (base := status.get("base")) is not None:
        console.print(
            f"The frozen base has {size(base['size'])}; {size(base['egress'])} of it were sent since the "
            "server started, which are not in the egress"
        )
    for one in status["gateways"]:
        console.print(
            f"Gateway {one['name']} at {one['address']}: {one['devices']:,} "
            f"device{'s' * (one['devices'] != 1)}, "
            f"{one['updates']:,} update{'s' * (one['updates'] != 1)}, {size(one['waiting'])} waiting",
            highlight=False,
        )
    devices = sorted(status["devices"], key=lambda device: device["name"])
    versions = Counter(str(device["facts"].get("version", "unknown")) for device in devices)
    if len(versions) > 1:
        each = ", ".join(f"{version} on {count:,}" for version, count in sorted(versions.items()))
        console.print(f"Devices run other versions of Edgeflock: {each}", highlight=False)
    columns = dict(_COLUMNS)
    if status.get("privacy") is not None or traits_of(status["coordination"]["mode"]).private:
        del columns["loss"]  # devices keep it to themselves
    if any(device.get("labels") for device in devices):
        columns["labels"] = _labels_text
    if compression["threshold"] or (status["cnc"] and any(device["uncompressed"] for device in devices)):
        if status["cnc"] is not None:
            console.print(
                f"{status['cnc']:.1%} of the updates held a selection of the gradient (CNC ratio), the "
                "others all of it, coded"
            )
        columns["cnc"] = lambda device: "-" if device["cnc"] is None else f"{device['cnc']:.2f}"
    columns |= {} if status["tasks"] is None else _TASK_COLUMNS
    columns |= {
        name: column
        for name, column in _STREAM_COLUMNS.items()
        if any(column(device) != "-" for device in devices)
    }
    for number, table in enumerate(_tables(console, columns, devices)):
        if number:
            console.print()
        console.print(table)


def _tables(
    console: Console, columns: Mapping[str, Column], devices: list[dict[str, Any]]
) -> Iterator[Table]:
    """Yield as many tables as full-width columns need. Each has the devices' names."""
    rest = [name for name in columns if name != "device"]
    unbounded = console.options.update(width=_UNLIMITED_WIDTH)
    while rest:
        for number in range(len(rest), 0, -1):
            table = _table({name: columns[name] for name in ("device", *rest[:number])}, devices)
            if console.measure(table, options=unbounded).maximum <= console.width:
                break
        del rest[:number]
        yield table


def _table(columns: Mapping[str, Column], devices: Iterable[dict[str, Any]]) -> Table:
    table = Table(box=None, header_style="bold")
    for name in columns:
        table.add_column(name, justify="left" if name in ("device", "state") else "right", no_wrap=True)
    for device in devices:
        table.add_row(*(column(device) for column in columns.values()))
    return table


def _labels_text(device: dict[str, Any]) -> Text:
    return Text(plain(labels_text(device.get("labels", {}))) or "-")


def with_labels(status: dict[str, Any], labels: Iterable[str]) -> dict[str, Any]:
    """Return the status with only those devices that have all of the labels, NAME=VALUE."""
    wanted = [label.partition("=")[::2] for label in labels]
    devices = [
        device
        for device in status.get("devices", ())
        if all(device.get("labels", {}).get(name) == value for name, value in wanted)
    ]
    return {**status, "devices": devices} if wanted and "devices" in status else status


def _describe_rule(coordination: dict[str, Any]) -> str:
    """Return how updates apply, together or each by a rule, which devices wait, and the rate if it counts."""
    traits = traits_of(coordination["mode"])
    rule = str(coordination["mode" if traits.rounds else "rule"])
    if traits.buffers:
        rule = f"buffers of {coordination['buffer']}, {rule}"
    if traits.elastic:
        chunk = coordination["chunk"]
        rule = f"elastic, moving rate {coordination['moving_rate']}, " + (
            f"chunks of {chunk:,}" if chunk else "all at once"
        )
    gate = coordination["gate"]
    rule += f", {gate} of {coordination['bound']}" if gate != "none" else ""
    return rule if traits.elastic else f"{rule}, learning rate {coordination['learning_rate']}"


def _describe_selection(coordination: dict[str, Any], compression: dict[str, Any]) -> str:
    """Return which part of a gradient devices send, and how its values are coded."""
    part = f"select {compression['select'] or 'the usual part'}"
    if traits_of(coordination["mode"]).private:
        return f"{part}, secret sums of {coordination['bits']} bits an entry"
    if compression["selection"] != "largest":
        decays = ", decaying" if compression["significance_decay"] else ""
        part = f"select what is significant beyond {compression['significance']}{decays}"
    return f"{part}, values {compression['values']}"


def _telemetry_column(key: str, form: str) -> Column:
    """Return a column of the telemetry `key`, if it is a number. Other values are not shown."""

    def column(device: dict[str, Any]) -> str:
        value = device["telemetry"].get(key)
        return form.format(value) if isinstance(value, int | float) else "-"

    return column


def _away_state(device: dict[str, Any]) -> str:
    """Return that a device is away, with a one-word reason: killed, timed out, retired, ..."""
    reason = device["why_left"]
    return f"away ({reason.partition(':')[0]})" if reason else "away"


_STYLES = {"critical": "bold red", "warning": "yellow", "notice": "dim"}


def _state(device: dict[str, Any]) -> str | Text:
    """Return a device's state, with the reason of a pause in the words of its author."""
    if (reason := device["paused_because"]) is not None:
        text = f"paused {reason}".rstrip()
        return Text(plain(text[:_MAX_STATE]))
    if not device["connected"]:
        return _away_state(device)
    return str(device["state"])


_COLUMNS: dict[str, Column] = {
    "device": lambda device: Text(plain(device["name"])),
    "state": _state,
    "updates": lambda device: f"{device['updates']:,}",
    "refused": lambda device: f"{device['refused']:,}",
    "staleness": lambda device: "-" if device["staleness"] is None else str(device["staleness"]),
    "loss": lambda device: "-" if device["staleness"] is None else loss(device["loss"], 3),
    "ingress": lambda device: size(device["ingress"]),
    "egress": lambda device: size(device["egress"]),
    "idle": lambda device: f"{device['idle_seconds']:.0f} s" if device["last_seen"] else "-",
}

_TASK_COLUMNS: dict[str, Column] = {
    "shards": lambda device: str(device["shards"] or "-"),
    "duplicates": lambda device: f"{device['duplicates']:,}",
}

_STREAM_COLUMNS: dict[str, Column] = {
    "rate": _telemetry_column("rate", "{:.1f}/s"),
    "depth": _telemetry_column("depth", "{:,}"),
    "drops": _telemetry_column("drops", "{:,}"),
    "quarantined": _telemetry_column("quarantined", "{:,}"),
    "repeats": _telemetry_column("duplicates", "{:,}"),
    "age": _telemetry_column("age", "{:.1f} s"),
    "accuracy": _telemetry_column("stream_accuracy", "{:.1%}"),
    "stream loss": _telemetry_column("stream_loss", "{:.3f}"),
}


async def roll_back(server: str, token: str, version: int) -> dict[str, Any]:
    """Roll back the model with the admin token. Return {"of", "version"}: its source version and its new one.

    Raises EdgeflockError if the server does not do it.
    """
    return await FeedClient(server, token).roll_back(version)
