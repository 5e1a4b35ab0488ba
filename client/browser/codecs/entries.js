/**
 * Selected entries of a vector, as an index stream and a value stream.
 * @module
 */
import {EMPTY} from "../bytes.js";
import {ServerFault} from "../errors.js";
import {decodeGrid, encodeGrid} from "./grid.js";
import {DENSE, GOLOMB, GRID, decodeIndices, encodeIndices} from "./indices.js";
import {SCALE, SIGN, decodeValues, encodeValues} from "./values.js";

/**
 * @typedef {import("../layout.js").Layout} Layout
 * @typedef {{indexMode: number, valueMode: number, indices: Uint8Array, values: Uint8Array}} Coded
 */

/**
 * Code the finite `entries` at the increasing `indices`; null: everywhere. Where a grid does not fit, or is no
 * shorter, Golomb's code with signs takes its place.
 * @param {Float32Array} entries
 * @param {Int32Array | null} indices
 * @param {Layout} layout of the trained parameters
 * @param {number} indexMode
 * @param {number} valueMode
 * @returns {Coded}
 */
export function encodeEntries(entries, indices, layout, indexMode, valueMode) {
    const counts = layout.counts(indices);
    if (indexMode === GRID) {
        const plain = encodeEntries(entries, indices, layout, GOLOMB, SIGN);
        const signed = indices && encodeGrid(indices, Uint8Array.from(entries, (entry) => (entry < 0 ? 1 : 0)), layout);
        if (!signed) return plain;
        const gridded = {indexMode, valueMode: SCALE, indices: signed, values: encodeValues(SCALE, entries, counts)};
        return length(gridded) <= length(plain) ? gridded : plain;
    }
    const values = encodeValues(valueMode, entries, counts);
    if (indices === null) return {indexMode: DENSE, valueMode, indices: EMPTY, values};
    return {indexMode, valueMode, indices: encodeIndices(indexMode, indices, layout.size), values};
}

/** @param {Coded} coded */
const length = (coded) => coded.indices.length + coded.values.length;

/**
 * {indices, values}: float32 values at increasing indices, null being all of them. They may be NaN or infinite.
 * Raises ServerFault unless the bytes are what they announce.
 * @param {{indexMode: number, valueMode: number, count: number, indices: Uint8Array}} coded
 * @param {Uint8Array} octets the value stream
 * @param {Layout} layout
 * @param {Int32Array | null} activity
 */
export function decodeEntries(coded, octets, layout, activity = null) {
    const {indexMode, valueMode, count} = coded;
    if (count > layout.size) throw new ServerFault(`${count} entries for ${layout.size} parameters`);
    if ((indexMode === GRID) !== (valueMode === SCALE)) {
        throw new ServerFault(`index mode ${indexMode} does not go with value mode ${valueMode}`);
    }
    if (indexMode === DENSE) {
        if (count !== layout.size || coded.indices.length) {
            throw new ServerFault(`${count} entries are not all of them`);
        }
        return {indices: null, values: decodeValues(valueMode, octets, layout.counts(null))};
    }
    if (indexMode === GRID) {
        const {indices, negative} = decodeGrid(coded.indices, count, layout, activity);
        const values = decodeValues(valueMode, octets, layout.counts(indices));
        return {indices, values: values.map((value, i) => (negative[i] ? -value : value))};
    }
    const indices = decodeIndices(indexMode, coded.indices, count, layout.size);
    return {indices, values: decodeValues(valueMode, octets, layout.counts(indices))};
}
