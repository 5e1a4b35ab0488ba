/**
 * Value modes of docs/protocol.md: float32 <-> bytes, at 32, 16, 8, 4, 1 or no bits a value.
 *
 * `counts` has the number of values of each tensor. Scales are bfloat16, one for each tensor that has values.
 * @module
 */
import {ServerFault} from "../errors.js";
import {concat} from "../bytes.js";

export const F32 = 0, F16 = 1, INT8 = 2, CODEBOOK4 = 3, SIGN = 4, SCALE = 5;
export const LARGEST_STATISTIC = 65504;

const LEVELS = 8;
const LARGEST_SCALE = 3e38;
/** The magnitudes of mode 5. */
export const STEPS = Float32Array.from({length: 256}, (_, e) => (e ? 2 ** ((e - 192) / 8) : 0));

const word = new Uint32Array(1);
const single = new Float32Array(word.buffer);

/** Names of the modes, for errors. */
const SIZES = [
    (k, t) => 4 * k, (k, t) => 2 * k, (k, t) => 2 * t + k, (k, t) => 2 * (t + LEVELS) + ((k + 1) >> 1),
    (k, t) => 2 * t + ((k + 7) >> 3), (k, t) => t,
];

/**
 * Bytes of a value stream. Raises ServerFault for an unknown mode.
 * @param {number} mode
 * @param {number[]} counts
 */
export function sizeOf(mode, counts) {
    if (!(mode in SIZES)) throw new ServerFault(`value mode ${mode} is unknown to this device`);
    return SIZES[mode](counts.reduce((all, count) => all + count, 0), counts.filter((count) => count).length);
}

/**
 * Encode `values`, all finite.
 * @param {number} mode
 * @param {Float32Array} values
 * @param {number[]} counts
 */
export function encodeValues(mode, values, counts) {
    if (mode === F32) return new Uint8Array(values.slice().buffer);
    if (mode === F16) return encodeF16(values);
    const ends = [];
    for (const count of counts) if (count) ends.push((ends[ends.length - 1] ?? 0) + count);
    if (mode === SCALE) return Uint8Array.from(ends, (end, t) => scaleOctet(values, ends[t - 1] ?? 0, end));
    const scales = new Uint16Array(ends.length);
    const relative = new Float32Array(values.length);
    ends.forEach((end, t) => {
        const begin = ends[t - 1] ?? 0;
        let sum = 0;
        let largest = 0;
        for (let i = begin; i < end; i++) {
            sum += Math.abs(values[i]);
            largest = Math.max(largest, Math.abs(values[i]));
        }
        const exact = mode === INT8 ? largest * Math.fround(1 / 127) : sum * Math.fround(1 / (end - begin));
        scales[t] = toBfloat16(Math.min(exact, LARGEST_SCALE));
        const divisor = fromBfloat16(scales[t]) || Infinity;
        for (let i = begin; i < end; i++) relative[i] = values[i] / divisor;
    });
    const head = new Uint8Array(scales.buffer);
    if (mode === INT8) {
        return concat(head, Uint8Array.from(relative, (q) => Math.max(-127, Math.min(127, roundHalfEven(q)))));
    }
    if (mode === SIGN) return concat(head, pack(values, 1, (i) => (values[i] < 0 ? 1 : 0)));
    const levels = fitLevels(relative.map(Math.abs));
    const middles = Array.from(levels.subarray(1), (level, j) => (level + levels[j]) / 2);
    const nearest = (i) => middles.filter((middle) => middle < Math.abs(relative[i])).length;
    const tail = pack(values, 4, (i) => (values[i] < 0 ? LEVELS : 0) | nearest(i));
    return concat(head, new Uint8Array(Uint16Array.from(levels, toBfloat16).buffer), tail);
}

/**
 * Decode the values of `counts`; they may be NaN or infinite. Raises ServerFault unless `octets` has their length.
 * @param {number} mode
 * @param {Uint8Array} octets
 * @param {number[]} counts
 */
export function decodeValues(mode, octets, counts) {
    const expected = sizeOf(mode, counts);
    const count = counts.reduce((all, one) => all + one, 0);
    if (octets.length !== expected) {
        throw new ServerFault(`${count} values of mode ${mode} take ${expected} bytes, not ${octets.length}`);
    }
    if (mode === F32) return new Float32Array(octets.slice().buffer);
    if (mode === F16) return decodeF16(octets);
    const values = new Float32Array(count);
    const present = counts.filter((one) => one);
    const head = 2 * present.length;
    const at = (i) => fromBfloat16(octets[i] | (octets[i + 1] << 8));
    const levels = mode === CODEBOOK4 ? Array.from({length: LEVELS}, (_, j) => at(head + 2 * j)) : [];
    let i = 0;
    present.forEach((one, t) => {
        const scale = mode === SCALE ? STEPS[octets[t]] : at(2 * t);
        for (const end = i + one; i < end; i++) {
            let factor = 1;
            if (mode === INT8) factor = (octets[head + i] << 24) >> 24;
            else if (mode === SIGN) factor = (octets[head + (i >> 3)] >> (7 - (i & 7))) & 1 ? -1 : 1;
            else if (mode === CODEBOOK4) {
                const field = (octets[head + 2 * LEVELS + (i >> 1)] >> (i & 1 ? 0 : 4)) & 15;
                factor = field & LEVELS ? -levels[field - LEVELS] : levels[field];
            }
            values[i] = scale * factor;
        }
    });
    return values;
}

/**
 * Float16, clipped to what is finite. It also codes running statistics.
 * @param {Float32Array | number[]} values
 */
export function encodeF16(values) {
    const halves = Uint16Array.from(values, (value) =>
        toHalf(Math.max(-LARGEST_STATISTIC, Math.min(LARGEST_STATISTIC, value))),
    );
    return new Uint8Array(halves.buffer);
}

/** @param {Uint8Array} octets of float16 */
export function decodeF16(octets) {
    const values = new Float32Array(octets.length >> 1);
    for (let i = 0; i < values.length; i++) values[i] = fromHalf(octets[2 * i] | (octets[2 * i + 1] << 8));
    return values;
}

/** @param {number} value */
function toBfloat16(value) {
    single[0] = value;
    return (word[0] + 0x7fff + ((word[0] >>> 16) & 1)) >>> 16;
}

/** @param {number} octets of bfloat16 */
function fromBfloat16(octets) {
    word[0] = octets << 16;
    return single[0];
}

/** @param {number} value */
function toHalf(value) {
    const magnitude = Math.abs(value);
    const sign = value < 0 || Object.is(value, -0) ? 0x8000 : 0;
    if (magnitude < 2 ** -14) return sign | roundHalfEven(magnitude * 2 ** 24);
    const exponent = Math.floor(Math.log2(magnitude));
    const exact = magnitude < 2 ** exponent ? exponent - 1 : magnitude >= 2 ** (exponent + 1) ? exponent + 1 : exponent;
    return sign | (((exact + 15) << 10) - 1024 + roundHalfEven(magnitude * 2 ** (10 - exact)));
}

/** @param {number} half */
function fromHalf(half) {
    const sign = half & 0x8000 ? -1 : 1;
    const exponent = (half >> 10) & 31;
    const fraction = half & 1023;
    if (exponent === 31) return fraction ? NaN : sign * Infinity;
    return sign * (exponent ? (1 + fraction / 1024) * 2 ** (exponent - 15) : fraction * 2 ** -24);
}

/** @param {number} x */
export function roundHalfEven(x) {
    const down = Math.floor(x);
    const rest = x - down;
    return rest < 0.5 || (rest === 0.5 && down % 2 === 0) ? down : down + 1;
}

function scaleOctet(values, begin, end) {
    let sum = 0;
    for (let i = begin; i < end; i++) sum += Math.abs(values[i]);
    const steps = roundHalfEven(8 * Math.log2(Math.max(sum / (end - begin), 2 ** -30))) + 192;
    return Math.max(0, Math.min(255, steps));
}

/** Fields of `width` bits (1 or 4), most significant first. */
function pack(values, width, field) {
    const octets = new Uint8Array((values.length * width + 7) >> 3);
    for (let i = 0; i < values.length; i++) {
        const bit = i * width;
        octets[bit >> 3] |= field(i) << (8 - width - (bit & 7));
    }
    return octets;
}

/**
 * Eight ascending levels for `relative`: a few steps of Lloyd's algorithm (IEEE Trans. IT 28, 1982).
 * @param {Float32Array} relative
 */
function fitLevels(relative) {
    if (!relative.length) return new Float32Array(LEVELS).fill(1);
    const stride = 1 + Math.floor(relative.length / 8192);
    const sample = relative.filter((_, i) => i % stride === 0);
    const high = relative.reduce((a, b) => Math.max(a, b), 0);
    const first = Math.max(sample.reduce((a, b) => Math.min(a, b), Infinity), high * 1e-3, 1e-30);
    const ratio = Math.max(high, 1e-30) / first;
    let levels = Array.from({length: LEVELS}, (_, j) => first * ratio ** (j / (LEVELS - 1)));
    for (let step = 0; step < 6; step++) {
        const sums = new Array(LEVELS).fill(0);
        const members = new Array(LEVELS).fill(0);
        for (const value of sample) {
            let j = 0;
            while (j < LEVELS - 1 && (levels[j] + levels[j + 1]) / 2 < value) j++;
            sums[j] += value;
            members[j]++;
        }
        levels = levels.map((level, j) => (members[j] ? sums[j] / members[j] : level));
    }
    return Float32Array.from(levels, (level) => fromBfloat16(toBfloat16(level)));
}
