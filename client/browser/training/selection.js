/**
 * Which entries of a gradient to send, and the memory of the rest (AdaComp, error feedback, ScaDLES, Gaia).
 *
 * shared/selection.py and client/training/selector.py have the sources and the reasons.
 * @module
 */
import {CODEBOOK4, SCALE, SIGN, roundHalfEven} from "../codecs/values.js";
import {GOLOMB} from "../codecs/indices.js";
import {kthLargest} from "../vectors.js";

/**
 * @typedef {import("../layout.js").Layout} Layout
 * @typedef {import("../records.js").Welcome} Welcome
 *
 * What earlier updates left: `corrected` is the gradient with the memory at the last selection, `sent` the indices
 * of it that were sent (null: all), `base` the last update's version, `interval` the mean number of versions
 * between `intervals` of them, `norms` moving averages of [|g|^2, |selected|^2].
 * @typedef {{corrected: Float32Array | null, sent: Int32Array | null, base: number | null, interval: number,
 *   intervals: number, norms: number[] | null}} Memory
 *
 * @typedef {{gradient: Float32Array, indices: Int32Array | null, indexMode: number, valueMode: number}} Selection
 */

const INTERVALS = 10;
const HORIZON = 1000;
const GROWTH = 8, MAX_FACTOR = 16;
const NORM_WEIGHT = 0.1;

/** @type {Memory} */
export const NO_MEMORY = {corrected: null, sent: null, base: null, interval: 0, intervals: 0, norms: null};

/**
 * The memory without unsent entries: only the device's interval remains.
 * @param {Memory} memory
 * @returns {Memory}
 */
export const forgetEntries = (memory) => ({...memory, corrected: null, sent: null, norms: null});

/**
 * The memory once the last update was refused: its entries count as unsent.
 * @param {Memory} memory
 * @returns {Memory}
 */
export const takeBack = (memory) => ({...memory, sent: new Int32Array(0)});

/**
 * [selection, memory]: what to send of `gradient`, float32 [P], which is not changed.
 * @param {Memory} memory
 * @param {Float32Array} gradient
 * @param {Layout} layout of the trained parameters
 * @param {Welcome} welcome
 * @param {Float32Array} theta the model of the gradient
 * @param {number} sequence of the update
 * @param {number} base the version of theta
 * @returns {[Selection, Memory]}
 */
export function select(memory, gradient, layout, welcome, theta, sequence, base) {
    const modes = {indexMode: welcome.indices, valueMode: welcome.values};
    if (welcome.select >= 1 && welcome.significance === null) {
        return [{gradient, indices: null, ...modes}, NO_MEMORY];
    }
    const passed = memory.base === null ? 0 : base - memory.base;
    const corrected = recall(memory, welcome.feedback ** (Math.max(1, passed) / HORIZON), gradient);
    const advanced = advance(memory, base);
    let indices;
    if (welcome.significance === null) {
        const fraction = growFraction(welcome.select, advanced.interval, welcome.selectInterval, layout);
        indices = selectLargest(corrected, layout, fraction, welcome.balance);
    } else {
        const threshold = Math.fround(welcome.significance / (welcome.decays ? Math.sqrt(sequence) : 1));
        indices = selectSignificant(corrected, theta, threshold);
    }
    /** @type {Selection} */
    let selection = {gradient: corrected, indices, ...modes};
    let norms = null;
    if (welcome.threshold) {
        norms = followNorms(memory.norms, corrected, indices);
        if (!(Math.abs(norms[0] - norms[1]) <= welcome.threshold * norms[0])) selection = whole(selection);
    }
    const next = {...advanced, corrected: null, sent: null, norms};
    return [selection, welcome.feedback ? {...next, corrected, sent: selection.indices} : next];
}

/** The gradient plus what is left of the memory, as a new array. */
function recall({corrected, sent}, decay, gradient) {
    if (corrected === null || sent === null) return gradient.slice();
    const part = Math.fround(decay);
    const sum = new Float32Array(gradient.length);
    for (let k = 0; k < sum.length; k++) sum[k] = Math.fround(corrected[k] * part) + gradient[k];
    for (const index of sent) sum[index] = 0 + gradient[index];
    return sum;
}

/** @param {Memory} memory @param {number} base */
function advance(memory, base) {
    if (memory.base === null) return {...memory, base};
    const intervals = Math.min(INTERVALS, memory.intervals + 1);
    const interval = memory.interval + (Math.max(1, base - memory.base) - memory.interval) / intervals;
    return {...memory, base, interval, intervals};
}

/** @param {Layout} layout */
function growFraction(fraction, interval, usual, layout) {
    if (!usual || interval <= usual) return fraction;
    const limit = Math.min(0.5, MAX_FACTOR / Math.sqrt(layout.size));
    return Math.max(fraction, Math.min(limit, fraction * Math.min(GROWTH, interval / usual)));
}

/**
 * How many entries each tensor of n sends: its share of fraction P, as n^balance; 1 to n.
 * @param {Layout} layout
 * @param {number} fraction
 * @param {number} balance
 */
export function quotas(layout, fraction, balance) {
    const sizes = layout.counts(null);
    const weights = sizes.map((size) => (size ? size ** balance : 0));
    const sum = weights.reduce((all, weight) => all + weight, 0);
    return weights.map((weight, t) => {
        const share = roundHalfEven(fraction * ((layout.size * weight) / sum));
        return Math.min(Math.max(1, share), sizes[t]);
    });
}

/**
 * Increasing indices of the largest |entries| of each tensor, without zeros; one index if all are zero.
 * @param {Float32Array} gradient
 * @param {Layout} layout
 * @param {number} fraction
 * @param {number} balance
 */
export function selectLargest(gradient, layout, fraction, balance) {
    const shares = quotas(layout, fraction, balance);
    const found = [];
    for (const [t, {start, stop}] of layout.tensors.entries()) {
        if (stop === start) continue;
        const magnitudes = new Float32Array(stop - start);
        for (let i = 0; i < magnitudes.length; i++) magnitudes[i] = Math.abs(gradient[start + i]);
        const threshold = kthLargest(magnitudes, shares[t]);
        let equal = shares[t];
        for (let k = start; k < stop; k++) if (Math.abs(gradient[k]) > threshold) equal--;
        for (let k = start; k < stop; k++) {
            const magnitude = Math.abs(gradient[k]);
            if (magnitude > threshold || (magnitude > 0 && magnitude === threshold && equal-- > 0)) found.push(k);
        }
    }
    return Int32Array.from(found.length ? found : [0]);
}

function selectSignificant(corrected, theta, threshold) {
    const found = [];
    corrected.forEach((entry, k) => {
        if (Math.abs(entry) > Math.fround(threshold * Math.abs(theta[k]))) found.push(k);
    });
    return Int32Array.from(found);
}

function followNorms(norms, gradient, indices) {
    const newest = [gradient.reduce((all, entry) => all + entry * entry, 0), 0];
    for (const index of indices) newest[1] += gradient[index] * gradient[index];
    return norms === null ? newest : norms.map((norm, i) => norm + NORM_WEIGHT * (newest[i] - norm));
}

/** All of the gradient, if a selection loses too much. A coding of means alone would lose as much. */
function whole(selection) {
    if (selection.valueMode !== SIGN && selection.valueMode !== SCALE) return {...selection, indices: null};
    return {...selection, indices: null, indexMode: GOLOMB, valueMode: CODEBOOK4};
}
