/**
 * Directions of a device's own steps: sgd, Nesterov's momentum, Adam, FedProx, and Adafactor, the default.
 *
 * client/training/local_optimizer.py has the formulas, their sources and the reasons for the constants. Sums of
 * squares are in double precision here, so that directions agree with its float32 ones to a relative 1e-5.
 * @module
 */
import {EMPTY} from "../bytes.js";
import {decodeMoments, encodeMoments, factor, roots} from "../codecs/moments.js";
import {rms} from "../vectors.js";
import {ReportSchedule} from "./calibration.js";
import {CONSTANT, UNIFORM} from "./start.js";

/**
 * @typedef {import("../layout.js").Layout} Layout
 * @typedef {import("../records.js").Welcome} Welcome
 */

const MIN_SCALE = 0.05;
const MAX_SCALE = 1.5;
const MAX_RMS = 1.5;
const MAX_ENTRY = 10;
const WARM_UP = 10;
const TINY = Math.fround(1e-30);
const LARGEST = Math.fround(1e18);

/** Divides each entry of a gradient by its usual size (Shazeer and Stern, ICML 2018). */
export class Adafactor {
    /**
     * @param {Layout} layout of the trained parameters
     * @param {number} decay
     * @param {import("./start.js").Start | null} start of the run; null: the first theta tells the scales
     */
    constructor(layout, decay, start) {
        this.layout = layout;
        this.decay = decay;
        this.own = new Float32Array(layout.lines);
        /** @type {Float32Array | null} */
        this.fleet = null;
        this.firstRms = start ? layout.tensors.map((_, t) => rmsOf(start.fillings[t])) : null;
        this.ownWeight = 0.5;
        this.steps = 0;
        this.schedule = new ReportSchedule((update) => (update & (update - 1)) === 0);
    }

    /**
     * d of `gradient` at theta, as a new array.
     * @param {Float32Array} theta
     * @param {Float32Array} gradient
     */
    direction(theta, gradient) {
        const usual = this.steps >= WARM_UP ? this.#roots() : null;
        const direction = new Float32Array(gradient.length);
        const squares = new Float32Array(gradient.length);
        for (let k = 0; k < gradient.length; k++) {
            const bound = usual && usual[k] > 0 ? Math.min(LARGEST, Math.fround(usual[k] * MAX_ENTRY)) : LARGEST;
            direction[k] = clip(gradient[k], bound);
            squares[k] = direction[k] * direction[k];
        }
        this.steps++;
        const own = factor(squares, this.layout);
        const weight = Math.fround(1 - this.decay);
        for (let i = 0; i < own.length; i++) this.own[i] += Math.fround(weight * Math.fround(own[i] - this.own[i]));
        const spread = this.#roots();
        const scales = this.layout.tensors.map(({start, stop}) => rms(theta, start, stop));
        this.firstRms ??= scales;
        for (const [t, {start, stop}] of this.layout.tensors.entries()) {
            for (let k = start; k < stop; k++) {
                direction[k] = clip(Math.fround(direction[k] / Math.fround(spread[k] + TINY)), MAX_ENTRY);
            }
            const largest = MAX_SCALE * Math.max(MIN_SCALE, this.firstRms[t]);
            const length = Math.max(1, rms(direction, start, stop) / MAX_RMS);
            const times = Math.fround(Math.max(MIN_SCALE, Math.min(scales[t], largest)) / length);
            for (let k = start; k < stop; k++) direction[k] *= times;
        }
        return direction;
    }

    /** The second moments to send with the update just made from `base`; usually none. @param {number} base */
    async report(base) {
        return this.schedule.isDue(base) ? encodeMoments(this.#means()) : EMPTY;
    }

    /**
     * Store the fleet's moments of a Receipt.
     * @param {Uint8Array} octets
     * @param {number} overlap of the device's labels and the fleet's
     */
    async take(octets, overlap) {
        this.ownWeight = Math.fround(overlap ** 2 / 2);
        if (octets.length) this.fleet = await decodeMoments(octets, this.layout);
    }

    #means() {
        const part = Math.fround(1 - this.decay ** this.steps);
        return this.own.map((mean) => mean / part);
    }

    #roots() {
        const means = this.#means();
        const {fleet, ownWeight} = this;
        if (!fleet) return roots(means, this.layout);
        const rest = Math.fround(1 - ownWeight);
        return roots(means.map((mean, i) => Math.fround(ownWeight * mean) + Math.fround(rest * fleet[i])), this.layout);
    }
}

/** The gradients of one update's steps as directions. */
export class LocalOptimizer {
    /**
     * @param {Float32Array} theta the model's parameters, which are not changed
     * @param {Welcome} welcome
     * @param {Adafactor | null} adafactor
     */
    constructor(theta, welcome, adafactor) {
        this.start = theta;
        this.welcome = welcome;
        this.adafactor = adafactor;
        this.first = new Float32Array(theta.length);
        this.second = new Float32Array(theta.length);
        this.steps = 0;
    }

    /**
     * @param {Float32Array} theta
     * @param {Float32Array} gradient
     */
    direction(theta, gradient) {
        const {proximal, momentum, adam} = this.welcome;
        if (proximal) {
            gradient = gradient.map((g, k) => g + Math.fround(proximal * Math.fround(theta[k] - this.start[k])));
        }
        if (this.adafactor) return this.adafactor.direction(theta, gradient);
        this.steps++;
        if (adam) return this.#adam(gradient);
        if (!momentum) return gradient;
        this.first = gradient.map((g, k) => Math.fround(momentum * this.first[k]) + g);
        return gradient.map((g, k) => g + Math.fround(momentum * this.first[k]));
    }

    #adam(gradient) {
        const [a, b] = [0.9, 0.999].map((beta) => Math.fround((1 - beta) / (1 - beta ** this.steps)));
        this.first = this.first.map((m, k) => m + Math.fround(a * Math.fround(gradient[k] - m)));
        this.second = this.second.map((s, k) => s + Math.fround(b * Math.fround(Math.fround(gradient[k] * gradient[k]) - s)));
        return this.first.map((m, k) => m / Math.fround(Math.fround(Math.sqrt(this.second[k])) + Math.fround(1e-8)));
    }
}

const clip = (x, bound) => Math.max(-bound, Math.min(bound, x));

/** The root mean square of a tensor of the first model. */
function rmsOf({kind, a, b}) {
    if (kind === CONSTANT) return Math.abs(a);
    return kind === UNIFORM ? Math.sqrt((a * a + a * b + b * b) / 3) : Math.hypot(a, b);
}
