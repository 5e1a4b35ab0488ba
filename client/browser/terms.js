/**
 * Checks a server's Welcome before anything of its size is allocated (docs/protocol.md, Limits).
 * @module
 */
import {ServerFault, DeviceError, printable} from "./errors.js";
import {Layout, product} from "./layout.js";
import {PROTOCOL} from "./records.js";

const MAX_TENSORS = 10_000,
    MAX_RANK = 8,
    MAX_NAME = 300;
const MAX_SAMPLES = 1 << 24,
    MAX_BATCH = 1 << 16,
    NUMBER_BYTES = 4;
/** Bytes held for each entry of theta, and more for each entry and line with Adafactor. */
const ENTRY_BYTES = 48,
    LINE_BYTES = 32;
const OVERHEAD = 1 << 12;

/**
 * The layout of the run. Raises ServerFault for a value that is not valid, and DeviceError for a run that this
 * device cannot take part in.
 * @param {import("./records.js").Welcome} welcome
 * @param {number} memory in bytes
 */
export function layoutOf(welcome, memory) {
    const check = (isValid, name) => {
        if (!isValid) {
            throw new ServerFault(
                `the server's Welcome has ${name} = ${printable(JSON.stringify(welcome[name] ?? null, plain), 60)}, which is not valid`,
            );
        }
    };
    if (welcome.protocol !== PROTOCOL) {
        throw new ServerFault(`the server speaks protocol ${welcome.protocol}, this device ${PROTOCOL}`);
    }
    for (const name of ["run", "model", "loss"]) check(isText(welcome[name]), name);
    check(welcome.batch >= 1 && welcome.batch <= MAX_BATCH, "batch");
    check(welcome.localSteps >= 1 && welcome.localSteps * welcome.batch <= MAX_SAMPLES, "localSteps");
    check(welcome.frameBytes >= 1, "frameBytes");
    for (const name of ["balance", "threshold", "feedback", "alpha", "beta"]) {
        check(welcome[name] >= 0 && welcome[name] <= 1, name);
    }
    for (const name of ["elastic", "momentum", "adafactor"]) check(welcome[name] >= 0 && welcome[name] < 1, name);
    check(welcome.select > 0 && welcome.select <= 1, "select");
    check(
        welcome.significance === null || (welcome.significance >= 0 && welcome.significance < Infinity),
        "significance",
    );
    check(welcome.proximal >= 0 && welcome.proximal < Infinity, "proximal");
    check(welcome.localRate > 0 && welcome.localRate < Infinity, "localRate");
    check([1, 2, 3, 4].includes(welcome.indices), "indices");
    check(welcome.values <= 5 && (welcome.indices === 3) === (welcome.values === 5), "values");
    const numbers = product(welcome.input ?? [1]);
    check(numbers >= 1, "input");
    if (!(welcome.batch * numbers * NUMBER_BYTES <= memory)) {
        throw new ServerFault(`the server's batches have ${welcome.batch} samples of ${numbers} numbers, for which this device's memory is too small`);
    }
    for (const [name, setting] of UNSUPPORTED) {
        const value = welcome[name];
        if (value && value.length !== 0) throw unsupported(setting);
    }
    if (/^(a2c|ppo)\b/.test(welcome.loss)) throw unsupported(`learns by acting (model.loss = ${welcome.loss})`);
    const layout = readLayout(welcome.layout, memory);
    personalLayout(welcome, layout, memory);
    check(welcome.start === null || welcome.start.fillings.length === layout.tensors.length, "start");
    return layout;
}

/**
 * The layout of the personal layers of a checked Welcome; null: it has none.
 * @param {import("./records.js").Welcome} welcome
 * @param {Layout} layout of the shared layers
 * @param {number} memory
 */
export function personalLayout({personal, balances}, layout, memory) {
    if (!personal) return null;
    const entries = layout.trained.tensors.map(({name, shape}) => [name, shape]);
    const whole = readLayout([...entries, ...personal.layout], memory);
    if (balances || whole.buffers || personal.start.fillings.length !== personal.layout.length) {
        throw new ServerFault("the server's personal layers are not those of its run");
    }
    return readLayout(personal.layout, memory);
}

const UNSUPPORTED = [
    ["tasks", 'hands out data shards (coordination.mode = "tasks")'],
    ["elastic", 'averages elastically (coordination.mode = "elastic")'],
    ["base", "trains adapters of a frozen model (model.lora)"],
    ["app", "needs an app of the device's own (model.module = arrays:...)"],
    ["sums", 'sums gradients in secret (coordination.mode = "private")'],
    ["clip", 'has devices add noise to their gradients (privacy.mode = "local")'],
];

/** @param {string} does */
const unsupported = (does) =>
    new DeviceError(`this run ${does}, and a browser cannot: take part with an installed device (edgeflock client)`);

/** The bytes of the longest valid answer of a server with this layout. @param {Layout} layout */
export const longestMessage = (layout) => 8 * layout.size + OVERHEAD;

function readLayout(entries, memory) {
    if (entries.length > MAX_TENSORS) {
        throw new ServerFault(`the server's layout has ${entries.length} tensors`);
    }
    const shapes = entries.map(readEntry);
    const sizes = shapes.map(([, shape]) => product(shape));
    const lines = shapes.map(([, shape], t) =>
        shape.length > 1 ? shape[0] + product(shape.slice(1)) : 1 + sizes[t],
    );
    const size = sum(sizes);
    if (!(ENTRY_BYTES * size + LINE_BYTES * sum(lines) <= memory)) {
        throw new ServerFault(`the server's model has ${size} entries, for which this device's memory is too small`);
    }
    const isMixed = shapes.some(([, , buffer], t) => t && !buffer && shapes[t - 1][2]);
    const isRepeated = new Set(shapes.map(([name]) => name)).size < shapes.length;
    if (isMixed || isRepeated || !shapes.some(([, , buffer], t) => !buffer && sizes[t])) {
        throw new ServerFault(
            "the server's layout has two tensors of one name, no parameters, or one after a buffer",
        );
    }
    return Layout.of(shapes);
}

/** @returns {[string, number[], boolean]} */
function readEntry(entry, t) {
    const [name, shape, buffer] = Array.isArray(entry) ? entry : [];
    const sizes = Array.isArray(shape) ? shape.map((size) => (typeof size === "bigint" ? Number(size) : size)) : null;
    const isValid =
        isText(name) &&
        sizes &&
        sizes.length <= MAX_RANK &&
        (entry.length === 2 || (entry.length === 3 && buffer === true)) &&
        sizes.every((size) => Number.isInteger(size) && size >= 0 && size <= 2 ** 40);
    if (!isValid) throw new ServerFault(`entry ${t} of the server's layout is no name and shape of a tensor`);
    return [name, sizes, buffer === true];
}

const sum = (numbers) => numbers.reduce((all, one) => all + one, 0);

const isText = (text) => typeof text === "string" && text.length <= MAX_NAME && printable(text) === text;

const plain = (_, value) => (typeof value === "bigint" ? String(value) : value);
