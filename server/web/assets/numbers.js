// Numbers for people. A dash stands for what is not known.

export const NOTHING = "\u2013";

const known = (value) => value !== null && value !== undefined && Number.isFinite(value);
const grouped = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });

export const count = (value) => (known(value) ? grouped.format(value) : NOTHING);

// Three digits that count: 0.0123, 1.23, 12.3, 123, 1,234.
export function decimal(value) {
    if (!known(value)) return NOTHING;
    const size = Math.abs(value);
    if (size >= 1e6 || (size < 1e-3 && size > 0)) return value.toExponential(1);
    if (size >= 100) return count(value);
    return value.toFixed(size >= 10 ? 1 : size >= 1 || size === 0 ? 2 : 3);
}

export const percent = (value) =>
    known(value) ? `${(value * 100).toFixed(value < 0.9995 ? 1 : 0)}%` : NOTHING;

export const times = (value) =>
    known(value) ? `${value >= 10 ? count(value) : value.toFixed(1)}x` : NOTHING;

const STEPS = [
    [1e12, "TB"],
    [1e9, "GB"],
    [1e6, "MB"],
    [1e3, "kB"],
];

export function size(value) {
    if (!known(value)) return NOTHING;
    for (const [step, unit] of STEPS) {
        if (value >= step) {
            const part = value / step;
            return `${part >= 100 ? part.toFixed(0) : part >= 10 ? part.toFixed(1) : part.toFixed(2)} ${unit}`;
        }
    }
    return `${value.toFixed(0)} B`;
}

// Of MiB: 212 MiB, 212 of 460 MiB, 0.6 of 3.7 GiB.
export function memory(used, total) {
    if (!known(used)) return NOTHING;
    if (!known(total)) return `${used.toFixed(0)} MiB`;
    if (total < 1000) return `${used.toFixed(0)} of ${total.toFixed(0)} MiB`;
    const form = (value) => (value / 1024).toFixed(value < 10189 ? 1 : 0);
    return `${form(used)} of ${form(total)} GiB`;
}

export const signed = (value) => (known(value) ? `${value < 0 ? "" : "+"}${value.toFixed(3)}` : NOTHING);

// Bytes a second, shorter, for axes.
export function pace(value) {
    if (!known(value)) return NOTHING;
    for (const [step, unit] of STEPS) if (value >= step) return `${trimmed(value / step)} ${unit}/s`;
    return `${trimmed(value)} B/s`;
}

export const trimmed = (value) => String(Number(value.toPrecision(3)));

export function rate(value) {
    if (!known(value)) return NOTHING;
    return value >= 100 ? count(value) : value.toFixed(value >= 10 ? 1 : 2);
}

const SPANS = [
    [86400, "d", 3600, "h"],
    [3600, "h", 60, "m"],
    [60, "m", 1, "s"],
];

// 45s, 3m 20s, 2h 5m, 3d 4h.
export function span(seconds) {
    if (!known(seconds)) return NOTHING;
    if (seconds < 60) return `${Math.max(0, Math.round(seconds))}s`;
    for (const [unit, name, part, small] of SPANS) {
        if (seconds >= unit) {
            const rest = Math.floor((seconds % unit) / part);
            return `${Math.floor(seconds / unit)}${name}${rest ? ` ${rest}${small}` : ""}`;
        }
    }
    return NOTHING;
}

// The larger part of it alone.
export const age = (seconds) => (known(seconds) ? span(seconds).split(" ")[0] : NOTHING);

const clocks = {
    s: new Intl.DateTimeFormat([], {
        hour: "2-digit",
        minute: "2-digit",
        second: "2-digit",
        hourCycle: "h23",
    }),
    m: new Intl.DateTimeFormat([], { hour: "2-digit", minute: "2-digit", hourCycle: "h23" }),
    d: new Intl.DateTimeFormat([], { month: "short", day: "numeric" }),
};

export const clock = (time, to = "s") => clocks[to].format(new Date(time * 1000));

export const date = (time) => `${clock(time, "d")} ${clock(time)}`;
