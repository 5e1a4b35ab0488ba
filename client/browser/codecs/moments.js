/**
 * Second moments by rows and columns, and shares of classes, as updates and receipts carry them.
 *
 * Shazeer and Stern, "Adafactor: adaptive learning rates with sublinear memory cost", ICML 2018, section 3.
 * @module
 */
import {deflate, inflate} from "../bytes.js";
import {ServerFault} from "../errors.js";
import {decodeF16, encodeF16} from "./values.js";

/** @typedef {import("../layout.js").Layout} Layout */

const ONE = 128;
export const MAX_CLASSES = 1 << 12;
const ROUNDING = 0.05;

/**
 * The row and column means of `squares`: float32 [lines].
 * @param {Float32Array} squares
 * @param {Layout} layout of the trained parameters
 */
export function factor(squares, layout) {
    const means = new Float64Array(layout.lines);
    for (const {start, rows, columns, line} of layout.tensors) {
        for (let row = 0, k = start; row < rows; row++) {
            for (let column = 0; column < columns; column++, k++) {
                means[line + row] += squares[k] / columns;
                means[line + rows + column] += squares[k] / rows;
            }
        }
    }
    return Float32Array.from(means);
}

/**
 * sqrt(V) of `means`, V = R C^T / mean(R): float32 [P].
 * @param {Float32Array} means
 * @param {Layout} layout of the trained parameters
 */
export function roots(means, layout) {
    const spread = new Float32Array(layout.size);
    for (const {start, rows, columns, line} of layout.tensors) {
        let sum = 0;
        for (let row = 0; row < rows; row++) sum += means[line + row];
        const mean = Math.fround(sum / rows);
        if (!(mean > 0)) continue;
        const ofColumns = means.subarray(line + rows, line + rows + columns).map(Math.sqrt);
        for (let row = 0, k = start; row < rows; row++) {
            const ofRow = Math.fround(Math.sqrt(Math.fround(means[line + row] / mean)));
            for (let column = 0; column < columns; column++, k++) spread[k] = ofRow * ofColumns[column];
        }
    }
    return spread;
}

/** @param {Float32Array} means */
export function encodeMoments(means) {
    return deflate(
        Uint8Array.from(means, (mean) => {
            if (!(mean > 0)) return 0;
            return Math.max(1, Math.min(255, Math.floor(Math.log2(mean) + 0.5) + ONE));
        }),
    );
}

/**
 * @param {Uint8Array} octets
 * @param {Layout} layout of the trained parameters
 */
export async function decodeMoments(octets, layout) {
    const levels = await inflate(octets, layout.lines);
    if (!levels) throw new ServerFault(`the second moments of this model are ${layout.lines} bytes, deflated`);
    return Float32Array.from(levels, (level) => (level ? 2 ** (level - ONE) : 0));
}

/** @param {number[]} shares */
export const encodeShares = (shares) => encodeF16(shares);

/**
 * Two rows of shares, each with a sum of 1: of the devices, and of the latest updates.
 * @param {Uint8Array} octets
 */
export function decodeShares(octets) {
    const classes = octets.length / 4;
    if (!Number.isInteger(classes) || classes < 2 || classes > MAX_CLASSES) {
        throw new ServerFault(`${octets.length} bytes are no shares of classes`);
    }
    const numbers = Array.from(decodeF16(octets));
    return [numbers.slice(0, classes), numbers.slice(classes)].map((row) => {
        const sum = row.reduce((all, share) => all + share, 0);
        if (!row.every((share) => share >= 0 && share < Infinity) || !(Math.abs(sum - 1) <= ROUNDING)) {
            throw new ServerFault("shares of classes must be numbers from 0 to 1 whose sum is 1");
        }
        return row.map((share) => share / sum);
    });
}
