/**
 * The records of docs/protocol.md: those of a device are encoded, those of a server checked and decoded.
 * @module
 */
import {Decoder, encode} from "./vendor/msgpack/index.mjs";
import {EMPTY} from "./bytes.js";
import {ServerFault, printable} from "./errors.js";
import {scan} from "./scan.js";
import {CONSTANT, NORMAL, UNIFORM} from "./training/start.js";

export const PROTOCOL = 2;
const GRID = 3, SCALE = 5;
const LARGEST_LEVEL = 2400;

/**
 * @typedef {{columns: string[], means: number[], spreads: number[], labels: string[], numbers: boolean,
 *   target: number[], categories: string[][]}} Description
 * @typedef {{digest: Uint8Array, size: number, mode: number, load: boolean}} Weights
 * @typedef {{tag: "Welcome", protocol: number, run: string, model: string, loss: string, layout: any[],
 *   start: import("./training/start.js").Start | null, version: number, sequence: number, batch: number,
 *   localSteps: number, localRate: number, select: number, balance: number, threshold: number, feedback: number,
 *   indices: number, values: number, frameBytes: number, alpha: number, beta: number, weights: Weights | null,
 *   secret: Uint8Array, tasks: boolean, significance: number | null, decays: boolean, elastic: number,
 *   chunk: number, momentum: number, input: number[] | null, adam: boolean, proximal: number, app: Uint8Array,
 *   data: Description | null, heldOut: any, adafactor: number, balances: boolean, selectInterval: number,
 *   evaluate: number, personal: {layout: any[], start: import("./training/start.js").Start} | null,
 *   base: any, private: boolean, clip: number}} Welcome
 * @typedef {{tag: "Model", version: number, base: number | null, count: number, indices: Uint8Array,
 *   values: Uint8Array, changes: boolean, indexMode: number, valueMode: number}} Model
 * @typedef {{tag: "Receipt", sequence: number, version: number, model: Model | null, moments: Uint8Array,
 *   labels: Uint8Array}} Receipt
 * @typedef {{tag: "Refusal", code: string, detail: string, sequence: number | null, seconds: number}} Refusal
 * @typedef {{tag: "Stop", reason: string}} Stop
 * @typedef {{tag: "Challenge", challenge: Uint8Array, rotate: boolean}} Challenge
 * @typedef {Welcome | Model | Receipt | Refusal | Stop | Challenge} ServerRecord
 *
 * @typedef {{sequence: number, base: number, count: number, indices: Uint8Array, values: Uint8Array, loss: number,
 *   samples: number, held: number, indexMode: number, valueMode: number, facts: Object | null, pull: boolean,
 *   moments: Uint8Array, labels: Uint8Array}} Update
 */

// What a device sends.

const pack = (record) => encode(record, {forceFloat32: true});

/** @param {{name: string, layout: Uint8Array, facts: Object, secret: Uint8Array, proof: Uint8Array}} hello */
export const encodeHello = ({name, layout, facts, secret, proof}) =>
    pack([1, PROTOCOL, name, layout, facts, false, secret, "", proof]);

/** @param {number | null} base @param {number} held */
export const encodePull = (base, held) => pack(held ? [3, base, held] : [3, base]);

/** @param {Update} update */
export function encodeUpdate(update) {
    const fields = [
        5, update.sequence, update.base, update.count, update.indices, update.values, levelOf(update.loss),
        update.samples, update.held, update.indexMode, update.valueMode, update.facts, update.pull, null,
        update.moments, update.labels,
    ];
    const usual = [0, GRID, SCALE, null, true, null, EMPTY, EMPTY];
    const isUsual = (value, other) => value === other || (other === EMPTY && value.length === 0);
    while (usual.length && isUsual(fields[fields.length - 1], usual.pop())) fields.pop();
    return pack(fields);
}

/** @param {Object} facts */
export const encodeTelemetry = (facts) => pack([12, facts]);

/** @param {string} reason */
export const encodeGoodbye = (reason) => pack([13, printable(reason, 290)]);

/** @param {string} credential */
export const encodeCredential = (credential) => pack([14, credential]);

/** The level of a loss: sixteenths of an octave; null if it is not finite. @param {number} loss */
export function levelOf(loss) {
    if (!Number.isFinite(loss)) return null;
    if (loss <= 0) return -LARGEST_LEVEL;
    return Math.max(-LARGEST_LEVEL, Math.min(LARGEST_LEVEL, Math.round(16 * Math.log2(loss))));
}

// What a server sends. A check takes (value, name), and returns the value or raises ServerFault.

function fail(name, value) {
    const shown = typeof value === "object" && value !== null ? "a container" : printable(value, 40);
    return new ServerFault(`the server sent ${name} = ${shown}, which is not valid`);
}

const int = (value, name) => {
    const number = typeof value === "bigint" ? Number(value) : value;
    if (Number.isSafeInteger(number) && number >= 0 && !Object.is(number, -0)) return number;
    throw fail(name, value);
};
const float = (value, name) => {
    if (typeof value === "bigint") return Number(value);
    if (typeof value === "number") return value;
    throw fail(name, value);
};
const exactly = (isValid) => (value, name) => {
    if (isValid(value)) return value;
    throw fail(name, value);
};
const bool = exactly((value) => typeof value === "boolean");
const text = exactly((value) => typeof value === "string");
const bytes = exactly((value) => value instanceof Uint8Array);
const list = exactly(Array.isArray);
const optional = (check) => (value, name) => (value === null ? null : check(value, name));
const listOf = (check, most = Infinity) => (value, name) => {
    if (!Array.isArray(value) || value.length > most) throw fail(name, value);
    return value.map((one, i) => check(one, `${name}[${i}]`));
};

const single = (value, name) => {
    const number = Math.fround(float(value, name));
    if (!Number.isFinite(number)) throw fail(name, value);
    return number;
};

function filling(value, name) {
    const [kind, a, b] = Array.isArray(value) && value.length === 3 ? value : [];
    const found = {kind, a: single(a, name), b: single(b, name)};
    const isValid = {[CONSTANT]: found.b === 0, [UNIFORM]: found.a <= found.b, [NORMAL]: found.b >= 0}[kind];
    if (!isValid) throw fail(name, value);
    return found;
}

function start(value, name) {
    if (!Array.isArray(value) || value.length !== 2) throw fail(name, value);
    const seed = typeof value[0] === "bigint" ? value[0] : BigInt(int(value[0], `${name}.seed`));
    if (seed < 0n || seed >> 63n) throw fail(`${name}.seed`, seed);
    return {seed, fillings: listOf(filling)(value[1], name)};
}

function weights(value, name) {
    if (!Array.isArray(value) || value.length !== 4) throw fail(name, value);
    const digest = bytes(value[0], name);
    if (digest.length !== 32) throw fail(name, value);
    return {digest, size: int(value[1], name), mode: int(value[2], name), load: bool(value[3], name)};
}

const MOST_NAMES = 1 << 14, MOST_CATEGORIES = 100, LONGEST_NAME = 200;

const names = (most) => (value, name) => {
    const found = listOf(text, most)(value, name);
    const isName = (one) => one.length > 0 && one.length <= LONGEST_NAME && one === printable(one);
    if (!found.every(isName) || new Set(found).size < found.length) throw fail(name, value);
    return found;
};

function description(value, name) {
    if (!Array.isArray(value) || value.length < 5 || value.length > 7) throw fail(name, value);
    const [columns, means, spreads, labels, numbers, target = [], categories = []] = value;
    const found = {
        columns: names(MOST_NAMES)(columns, `${name}.columns`),
        means: listOf(single, MOST_NAMES)(means, `${name}.means`),
        spreads: listOf(single, MOST_NAMES)(spreads, `${name}.spreads`),
        labels: names(MOST_NAMES)(labels, `${name}.labels`),
        numbers: bool(numbers, `${name}.numbers`),
        target: listOf(single, 2)(target, `${name}.target`),
        categories: listOf(names(MOST_CATEGORIES), MOST_NAMES)(categories, `${name}.categories`),
    };
    const fits =
        found.means.length === found.spreads.length &&
        (!found.columns.length || !found.means.length || found.means.length === found.columns.length) &&
        found.target.length !== 1 && (!found.target.length || found.numbers) &&
        [...found.spreads, ...found.target.slice(1)].every((spread) => spread > 0) &&
        (!found.categories.length || found.categories.length === found.columns.length);
    if (!fits) throw fail(name, value);
    return found;
}

function personal(value, name) {
    if (!Array.isArray(value) || value.length !== 2) throw fail(name, value);
    return {layout: list(value[0], `${name}.layout`), start: start(value[1], `${name}.start`)};
}

/**
 * Tag -> the record: its fields in order as [name, check], and the value of those that may be left out.
 * @type {Record<number, {tag: string, limits: import("./scan.js").Limits, fields: [string, Function, any?][]}>}
 */
export const RECORDS = {
    2: {
        tag: "Welcome",
        limits: {containers: 1 << 16, array: 1 << 16, text: 1 << 12},
        fields: [
            ["protocol", int], ["run", text], ["model", text], ["loss", text], ["layout", list], ["start", optional(start)],
            ["version", int], ["sequence", int], ["batch", int], ["localSteps", int], ["localRate", float],
            ["select", float], ["balance", float], ["threshold", float], ["feedback", float], ["indices", int],
            ["values", int], ["frameBytes", int], ["alpha", float], ["beta", float],
            ["weights", optional(weights), null], ["secret", bytes, EMPTY], ["tasks", bool, false],
            ["significance", optional(float), null], ["decays", bool, false], ["elastic", float, 0], ["chunk", int, 0],
            ["momentum", float, 0], ["input", optional(listOf(int, 8)), null], ["adam", bool, false],
            ["proximal", float, 0], ["app", bytes, EMPTY], ["data", optional(description), null],
            ["heldOut", optional(list), null], ["adafactor", float, 0], ["balances", bool, false],
            ["selectInterval", int, 0], ["evaluate", int, 0], ["personal", optional(personal), null],
            ["base", optional(list), null], ["private", bool, false], ["clip", float, 0], ["noise", float, 0],
            ["examples", int, 0], ["sums", optional(list), null],
        ],
    },
    4: {
        tag: "Model",
        limits: {containers: 1, array: 9, text: 0},
        fields: [
            ["version", int], ["behind", optional(int)], ["count", int, 0], ["indices", bytes, EMPTY],
            ["values", bytes, EMPTY], ["changes", bool, true], ["indexMode", int, GRID], ["valueMode", int, SCALE],
        ],
    },
    6: {
        tag: "Receipt",
        limits: {containers: 2, array: 9, text: 0},
        fields: [
            ["sequence", int], ["version", int], ["model", optional(list), null], ["moments", bytes, EMPTY],
            ["labels", bytes, EMPTY],
        ],
    },
    7: {
        tag: "Refusal",
        limits: {containers: 1, array: 5, text: 1 << 16},
        fields: [["code", text], ["detail", text], ["sequence", optional(int)], ["seconds", int, 0]],
    },
    8: {tag: "Stop", limits: {containers: 1, array: 2, text: 1 << 16}, fields: [["reason", text]]},
    15: {
        tag: "Challenge",
        limits: {containers: 1, array: 3, text: 0},
        fields: [["challenge", bytes], ["rotate", bool, false]],
    },
};

const OTHERS = {9: "Samples", 10: "a Task", 11: "an Over"};

/**
 * The record of a server's message. Raises ServerFault if it is none, or none that this device asks for.
 * @param {Uint8Array} octets
 * @returns {ServerRecord}
 */
export function decodeRecord(octets) {
    const head = octets[0] === 0xdc ? 3 : octets[0] === 0xdd ? 5 : 1;
    const tag = octets[head];
    const kind = RECORDS[tag];
    if (!kind || !((octets[0] & 0xf0) === 0x90 || head > 1)) {
        throw new ServerFault(`the server sent ${OTHERS[tag] ?? "a record that is unknown"}, which this device did not ask for`);
    }
    scan(octets, kind.limits);
    const [, ...values] = /** @type {any[]} */ (new Decoder({useBigInt64: true}).decode(octets));
    return complete(kind, values);
}

function complete(kind, values) {
    const required = kind.fields.filter((field) => field.length === 2).length;
    if (values.length < required || values.length > kind.fields.length) {
        throw new ServerFault(`the server sent a ${kind.tag} with ${values.length} fields, not ${kind.fields.length}`);
    }
    const record = /** @type {any} */ ({tag: kind.tag});
    kind.fields.forEach(([name, check, usual], i) => {
        record[name] = i < values.length ? check(values[i], `${kind.tag}.${name}`) : usual;
    });
    if (kind.tag === "Model") {
        if (record.behind > record.version) throw fail("Model.behind", record.behind);
        record.base = record.behind === null ? null : record.version - record.behind;
        delete record.behind;
    } else if (kind.tag === "Receipt" && record.model) {
        const [ahead, ...rest] = record.model;
        record.model = complete(RECORDS[4], [record.version + int(ahead, "Receipt.model.version"), ...rest]);
    }
    return record;
}
