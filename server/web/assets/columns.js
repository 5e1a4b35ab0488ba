// What is told of a device: how each column is called, written, and how wide it is.

import { age, count, decimal, memory, NOTHING, percent, rate, signed, size } from "./numbers.js";

const words = (value) => value ?? NOTHING;
const with_unit = (unit) => (value) => (value === null ? NOTHING : `${value.toFixed(0)}${unit}`);

// key, title, width in pixels, form(value, now, what else the row has), whether it is words, and about
export const COLUMNS = [
    ["name", "Device", 150, words, true, "its name"],
    [
        "state",
        "State",
        104,
        words,
        true,
        "training; waiting: for its turn; idle: connected, but silent for long; starved: so, for want of samples",
    ],
    ["class", "Class", 80, words, true, "what kind of machine it says it is"],
    ["updates", "Updates", 84, count, false, "updates that count"],
    ["loss", "Loss", 72, decimal, false, "of its last update"],
    [
        "last_seen",
        "Seen",
        62,
        (value, now) => age(value === null ? null : Math.max(0, now - value)),
        false,
        "how long ago it last said something",
    ],
    ["staleness", "Stale", 66, count, false, "versions between its last update's base and the model"],
    ["ingress", "Received", 88, size, false, "bytes from it"],
    ["egress", "Sent", 88, size, false, "bytes to it"],
    ["refused", "Refused", 80, count, false, "updates that were refused"],
    ["smoothed_loss", "~Loss", 72, decimal, false, "of its updates of late, averaged"],
    ["updates_per_s", "Updates/s", 88, rate, false, "its updates a second, of late"],
    ["contribution", "Part", 66, percent, false, "of the updates in the model that are its"],
    ["rate", "Samples/s", 88, rate, false, "samples a second that arrive at it"],
    ["cpu", "CPU", 62, with_unit("%"), false, "of all its cores"],
    ["temperature", "Temp", 66, with_unit("\u00b0C"), false, "degrees Celsius"],
    ["ram", "RAM", 104, (value, now, row) => memory(value, row("memory")), false, "used, of how much"],
    ["battery", "Battery", 78, with_unit("%"), false, "charge"],
    ["batch", "Batch", 66, count, false, "samples a step"],
    ["depth", "Waiting", 80, count, false, "samples in its buffer"],
    ["clipped", "Clipped", 80, count, false, "updates of which the defence let a part count"],
    ["dropped", "Dropped", 82, count, false, "updates of which it let nothing count"],
    ["standing", "Standing", 84, signed, false, "how its updates agree with the server's own gradient"],
    ["drops", "Lost", 72, count, false, "samples that its buffer had no room for"],
    [
        "stream_accuracy",
        "Right before",
        104,
        percent,
        false,
        "last samples that were right before they were trained on",
    ],
    ["backend", "Backend", 80, words, true, "what it trains with"],
    ["labels", "Labels", 110, words, true, "labels of its owner and of operators"],
    ["edgeflock", "Version", 80, words, true, "its version of Edgeflock"],
].map(([key, title, width, form, text, about]) => ({ key, title, width, form, text, about }));

// And what only a device's own page has room for.
export const MORE = [
    ...COLUMNS.slice(2),
    { key: "samples", title: "Samples", form: count },
    { key: "quarantined", title: "Unfit samples", form: count },
    { key: "duplicates", title: "Repeated samples", form: count },
    { key: "stream_loss", title: "Loss before", form: decimal },
    { key: "shards", title: "Data shards", form: count },
    { key: "repeated", title: "Repeated shards", form: count },
    {
        key: "undervoltage",
        title: "Under-voltage",
        form: (value) => (value === null ? NOTHING : value ? "yes" : "no"),
    },
];

export const STATES = {
    training: "\u25cf",
    waiting: "\u25d4",
    starved: "\u25cc",
    idle: "\u25cb",
    paused: "\u2016",
    away: "\u00b7",
};

// What a value means: ok, warn, bad, or nothing in particular.
export function sense(key, value) {
    if (value === null) return "none";
    if (key === "temperature") return value >= 85 ? "bad" : value >= 75 ? "warn" : "";
    if (key === "battery") return value < 15 ? "bad" : value < 30 ? "warn" : "";
    if (["refused", "clipped", "dropped", "drops", "quarantined"].includes(key)) return value ? "warn" : "";
    if (key === "standing") return value < 0 ? "warn" : "";
    if (key === "undervoltage") return value ? "bad" : "";
    return "";
}
