/**
 * Index modes of docs/protocol.md: strictly increasing indices <-> bytes (the grid is in grid.js).
 * @module
 */
import {ServerFault} from "../errors.js";

export const DENSE = 0, RAW = 1, GOLOMB = 2, GRID = 3, RUNS = 4;

const LARGEST_PARAMETER = 2 ** 31;

/**
 * @param {number} mode RAW, GOLOMB or RUNS
 * @param {Int32Array} indices below `size`
 * @param {number} size
 */
export function encodeIndices(mode, indices, size) {
    if (mode === RAW) return new Uint8Array(Uint32Array.from(indices).buffer);
    const gaps = indices.map((index, i) => index - (i ? indices[i - 1] : -1) - 1);
    if (mode === RUNS) return encodeRuns(indices, gaps);
    const uniform = Math.min(Math.max(1, Math.round(0.693 * (size / gaps.length - 0.5))), LARGEST_PARAMETER);
    const parameters = gaps.length ? [uniform, uniform >>> 1, uniform >>> 2].map((m) => Math.max(1, m)) : [1];
    const costs = parameters.map((parameter) => golombBits(gaps, parameter));
    return encodeGolomb(gaps, parameters[costs.indexOf(Math.min(...costs))]);
}

/**
 * The `count` indices, strictly increasing and below `size`. Raises ServerFault before it holds more than the
 * bytes allow.
 * @param {number} mode
 * @param {Uint8Array} octets
 * @param {number} count
 * @param {number} size
 */
export function decodeIndices(mode, octets, count, size) {
    if (count > size) throw new ServerFault(`${count} entries for ${size} parameters`);
    const read = {[RAW]: decodeRaw, [GOLOMB]: decodeGolomb, [RUNS]: decodeRuns}[mode];
    if (!read) throw new ServerFault(`index mode ${mode} is unknown to this device`);
    const indices = new Int32Array(count);
    let filled = 0;
    read(octets, count, (index) => {
        if (index >= size) throw new ServerFault(`an index lies outside the ${size} parameters`);
        if (filled && index <= indices[filled - 1]) throw new ServerFault("indices must be strictly increasing");
        indices[filled++] = index;
    });
    return indices;
}

function decodeRaw(octets, count, add) {
    if (octets.length !== 4 * count) throw new ServerFault(`${count} raw indices take ${4 * count} bytes`);
    const view = new DataView(octets.buffer, octets.byteOffset, octets.length);
    for (let i = 0; i < count; i++) add(view.getUint32(4 * i, true));
}

function decodeGolomb(octets, count, add) {
    if (count > 8 * octets.length) throw new ServerFault(`${octets.length} bytes cannot hold ${count} indices`);
    const [parameter, offset] = readLeb128(octets, 0);
    if (parameter < 1 || parameter > LARGEST_PARAMETER) {
        throw new ServerFault("a Golomb stream has a bad parameter");
    }
    const [bits, cutoff] = remainderCode(parameter);
    let end = offset + Math.ceil((count * Math.max(bits - 1, 0)) / 8);
    if (end > octets.length) throw new ServerFault("the prefix plane is cut short");
    const remainders = new Float64Array(count);
    const prefixes = bitReader(octets, offset);
    let extras = 0;
    for (let i = 0; i < count; i++) {
        remainders[i] = prefixes(bits - 1);
        if (bits && remainders[i] >= cutoff) extras++;
    }
    const extra = bitReader(octets, end);
    end += Math.ceil(extras / 8);
    if (end > octets.length) throw new ServerFault("the extra plane is cut short");
    const unary = bitReader(octets, end);
    let left = 8 * (octets.length - end);
    let index = -1;
    for (let i = 0; i < count; i++) {
        if (bits && remainders[i] >= cutoff) remainders[i] = 2 * remainders[i] + extra(1) - cutoff;
        let quotient = 0;
        for (; left > 0 && !unary(1); left--) quotient++;
        if (left-- <= 0) throw new ServerFault(`the unary plane holds ${i} indices, not the announced ${count}`);
        index += quotient * parameter + remainders[i] + 1;
        add(index);
    }
    let rest = 0;
    const padding = left;
    while (left-- > 0) rest |= unary(1);
    if (padding >= 8 || rest) throw new ServerFault("the unary plane holds more than was announced");
}

function decodeRuns(octets, count, add) {
    let offset = 0;
    let index = 0;
    let found = 0;
    while (offset < octets.length) {
        const [gap, next] = readLeb128(octets, offset);
        const [length, end] = readLeb128(octets, next);
        if (found + length + 1 > count) {
            throw new ServerFault(`the runs hold more than the announced ${count} indices`);
        }
        index += gap + (offset ? 1 : 0);
        for (let i = 0; i <= length; i++) add(index++);
        found += length + 1;
        offset = end;
    }
    if (found !== count) throw new ServerFault(`the runs hold ${found} indices, not the announced ${count}`);
}

function encodeRuns(indices, gaps) {
    const octets = [];
    for (let i = 0; i < indices.length; ) {
        let last = i;
        while (last + 1 < indices.length && gaps[last + 1] === 0) last++;
        leb128(octets, i ? gaps[i] - 1 : gaps[i]);
        leb128(octets, last - i);
        i = last + 1;
    }
    return Uint8Array.from(octets);
}

function encodeGolomb(gaps, parameter) {
    const [bits, cutoff] = remainderCode(parameter);
    const head = [];
    leb128(head, parameter);
    const [prefix, extra, unary] = [bitWriter(), bitWriter(), bitWriter()];
    for (const gap of gaps) {
        const remainder = gap % parameter;
        const isLong = remainder >= cutoff;
        const shifted = remainder + cutoff;
        if (bits > 1) prefix.write(isLong ? Math.floor(shifted / 2) : remainder, bits - 1);
        if (bits && isLong) extra.write(shifted % 2, 1);
        for (let q = Math.floor(gap / parameter); q > 0; q--) unary.write(0, 1);
        unary.write(1, 1);
    }
    return Uint8Array.from([...head, ...prefix.octets, ...extra.octets, ...unary.octets]);
}

function golombBits(gaps, parameter) {
    const [bits, cutoff] = remainderCode(parameter);
    let cost = gaps.length * Math.max(bits, 1);
    for (const gap of gaps) cost += Math.floor(gap / parameter) + (bits && gap % parameter >= cutoff ? 1 : 0);
    return cost;
}

/** (b, u): the longest remainder code in bits, and how many remainders take one bit less. */
function remainderCode(parameter) {
    const bits = parameter > 1 ? 32 - Math.clz32(parameter - 1) : 0;
    return [bits, 2 ** bits - parameter];
}

/** Returns a function (width) -> the next field, most significant bit first; bits beyond the end are 0. */
function bitReader(octets, offset) {
    let bit = 8 * offset;
    return (width) => {
        let field = 0;
        for (; width > 0; width--, bit++) field = field * 2 + ((octets[bit >> 3] >> (7 - (bit & 7))) & 1);
        return field;
    };
}

function bitWriter() {
    const octets = [];
    let bit = 0;
    return {
        octets,
        write(field, width) {
            for (let place = width - 1; place >= 0; place--, bit++) {
                if (!(bit & 7)) octets.push(0);
                octets[bit >> 3] |= ((field >>> place) & 1) << (7 - (bit & 7));
            }
        },
    };
}

function leb128(octets, number) {
    for (; number > 127; number = Math.floor(number / 128)) octets.push((number % 128) | 128);
    octets.push(number);
}

function readLeb128(octets, offset) {
    let number = 0;
    for (let i = 0; i < 5 && offset + i < octets.length; i++) {
        number += (octets[offset + i] & 127) * 128 ** i;
        if (octets[offset + i] < 128) return [number, offset + i + 1];
    }
    throw new ServerFault("a number of an index stream is cut short or too long");
}
