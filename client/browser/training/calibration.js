/**
 * Corrects for labels that devices hold unevenly: adjusts logits, and weighs rare classes more.
 *
 * client/training/calibration.py has the formulas and their sources; docs/protocol.md, Labels, the rules.
 * @module
 */
import {EMPTY} from "../bytes.js";
import {MAX_CLASSES, decodeShares, encodeShares} from "../codecs/moments.js";

const EVIDENCE = 2;
const ROUNDING_ERROR = 1e-4;
const MIN_FLEET_PART = 0.01;
const PRIOR_SAMPLES = 2;
const MAX_WEIGHT = 10;
const RARE_WEIGHT = 2;
const NOISY = 10;
const CLEAR = 32;
const EARLY_REPORTS = 8;
const MIN_VERSIONS = 160;
const EVERY = 4;

/** Says which of a device's updates have a report. */
export class ReportSchedule {
    /** @param {(update: number) => boolean} isEarly of updates, counted from 1, that always have one */
    constructor(isEarly) {
        this.isEarly = isEarly;
        this.updates = 0;
        this.reported = 0;
    }

    /** @param {number} base the version from which the next update was made */
    isDue(base) {
        this.updates++;
        const isLate = this.updates % EVERY === 0 && base - this.reported >= MIN_VERSIONS;
        if (!isLate && !this.isEarly(this.updates)) return false;
        this.reported = base;
        return true;
    }
}

export class Calibration {
    /**
     * @param {import("../layout.js").Layout} layout of the trained parameters
     * @param {number} batch samples of a gradient
     */
    constructor(layout, batch = 1) {
        this.clarity = Math.min(1, Math.max(0, (batch - NOISY) / (CLEAR - NOISY)));
        /** Tensors that may be the output's bias, and how many gradients confirmed it. */
        this.evidence = new Map(
            layout.tensors
                .filter(({shape, start, stop}) => shape.length === 1 && stop - start >= 2 && stop - start <= MAX_CLASSES)
                .map((tensor) => [tensor, 0]),
        );
        /** @type {import("../layout.js").Tensor | null} */
        this.bias = null;
        this.schedule = new ReportSchedule((update) => update <= EARLY_REPORTS);
        /** Labels of each class so far. @type {number[]} */
        this.counts = [];
        /** r. @type {number[] | null} */
        this.adjustment = null;
        this.overlap = 1;
        this.importance = 1;
    }

    /** theta with r added to its output's bias: a copy, unless r is not known. @param {Float32Array} theta */
    shift(theta) {
        if (!this.adjustment || !this.bias) return theta;
        const shifted = theta.slice();
        this.adjustment.forEach((r, k) => (shifted[/** @type {any} */ (this.bias).start + k] += Math.fround(r)));
        return shifted;
    }

    /**
     * Record a batch of targets and the gradient of its loss.
     * @param {Float32Array} gradient
     * @param {Int32Array | Float32Array} y
     */
    observe(gradient, y) {
        if (y instanceof Float32Array) return;
        const labelled = y.filter((label) => label >= 0);
        const largest = labelled.reduce((a, b) => Math.max(a, b), -1);
        if (largest < 0 || largest >= MAX_CLASSES) return;
        const counts = new Array(largest + 1).fill(0);
        for (const label of labelled) counts[label]++;
        if (!this.bias) this.#search(gradient, counts.map((count) => count / labelled.length));
        counts.forEach((count, label) => (this.counts[label] = (this.counts[label] ?? 0) + count));
        for (let label = 0; label < this.counts.length; label++) this.counts[label] ??= 0;
    }

    /** The device's shares to send with the update just made from `base`; usually none. @param {number} base */
    report(base) {
        const isDue = this.schedule.isDue(base);
        const own = this.#labelCounts();
        return isDue && own ? encodeShares(own.map((count) => count / sum(own))) : EMPTY;
    }

    /** Store q and e of a Receipt. @param {Uint8Array} octets */
    take(octets) {
        if (!octets.length) return;
        const [fleet, lately] = decodeShares(octets);
        const own = this.#labelCounts();
        if (own?.length !== fleet.length) return;
        const prior = PRIOR_SAMPLES * own.length;
        const shares = own.map((count, k) => (count + prior * fleet[k]) / (sum(own) + prior));
        this.overlap = sum(shares.map((share, k) => Math.min(share, fleet[k])));
        const kept = Math.max(MIN_FLEET_PART, (1 - this.overlap) ** 2);
        this.adjustment = fleet.map((q, k) => (q > 0 ? Math.log(((1 - kept) * shares[k] + kept * q) / q) : 0));
        const rare = fleet.map((q, k) => (q > 0 ? Math.min(MAX_WEIGHT, q / Math.max(lately[k], q / MAX_WEIGHT)) : 0));
        this.importance = Math.min(MAX_WEIGHT, Math.max(1 / MAX_WEIGHT, sum(rare.map((r, k) => r * shares[k]))));
        if (this.importance < RARE_WEIGHT) this.importance /= 1 + 2 * (this.clarity * Math.max(0, 1 - 2 * this.overlap)) ** 2;
    }

    #labelCounts() {
        if (!this.bias) return null;
        const classes = this.bias.stop - this.bias.start;
        if (this.counts.length > classes || !this.counts.length) return null;
        return Array.from({length: classes}, (_, k) => this.counts[k] ?? 0);
    }

    /** Exclude tensors that are not the output's bias: its gradient is the mean prediction less the shares. */
    #search(gradient, shares) {
        for (const tensor of [...this.evidence.keys()]) {
            const ofBias = Array.from(gradient.subarray(tensor.start, tensor.stop));
            if (ofBias.every((entry) => Math.abs(entry) < ROUNDING_ERROR)) continue;
            const mean = ofBias.map((entry, k) => entry + (shares[k] ?? 0));
            const fits = shares.length <= mean.length && mean.every((part) => part >= -ROUNDING_ERROR);
            if (!fits || Math.abs(sum(mean) - 1) > ROUNDING_ERROR) {
                this.evidence.delete(tensor);
                continue;
            }
            this.evidence.set(tensor, (this.evidence.get(tensor) ?? 0) + 1);
            if (this.evidence.get(tensor) === EVIDENCE) this.bias = tensor;
        }
    }
}

/** @param {number[]} numbers */
const sum = (numbers) => numbers.reduce((all, one) => all + one, 0);
