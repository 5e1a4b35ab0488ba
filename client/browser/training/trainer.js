/**
 * A device's update: local steps from a model, selection, coding (AdaComp, algorithm 1, lines 5 and 6).
 *
 * No sockets, no clock and no storage.
 * @module
 */
import {EMPTY, concat} from "../bytes.js";
import {encodeEntries} from "../codecs/entries.js";
import {LARGEST_STATISTIC, encodeF16} from "../codecs/values.js";
import {Diverged} from "../errors.js";
import {product} from "../layout.js";
import {allFinite} from "../vectors.js";
import {Calibration} from "./calibration.js";
import {Adafactor, LocalOptimizer} from "./optimizer.js";
import {NO_MEMORY, forgetEntries, select, takeBack} from "./selection.js";

/**
 * @typedef {import("../layout.js").Layout} Layout
 * @typedef {import("../records.js").Welcome} Welcome
 * @typedef {import("../records.js").Update} Update
 * @typedef {import("./backend.js").Batch} Batch
 * @typedef {import("./backend.js").Gradient} Gradient
 * @typedef {{gradient: (theta: Float32Array, batch: Batch) => Promise<Gradient>, step?: () => void}} Backend
 */

const MAX_NON_FINITE = 20;

export class Trainer {
    /**
     * @param {Backend} backend
     * @param {(count: number) => Promise<Batch>} take gives the next batch; it raises Stopped
     * @param {Layout} layout
     * @param {Welcome} welcome
     */
    constructor(backend, take, layout, welcome) {
        this.backend = backend;
        this.take = take;
        this.layout = layout;
        this.welcome = welcome;
        /** What updates left unsent. @type {import("./selection.js").Memory} */
        this.memory = this.memoryBefore = NO_MEMORY;
        this.calibration = welcome.balances ? new Calibration(layout.trained, welcome.batch) : null;
        this.adafactor = this.#newAdafactor();
        /** Gradients so far. */
        this.steps = 0;
        /** The part of right predictions of the last batch, if the loss knows it. @type {number | null} */
        this.right = null;
    }

    /**
     * The update `sequence` from theta, the model at version `base`: float32 [P + B], which is not changed.
     * @param {Float32Array} theta
     * @param {number} base
     * @param {number} sequence
     * @returns {Promise<Update>}
     */
    async step(theta, base, sequence) {
        this.memoryBefore = this.memory;
        const steps = await this.#descend(theta);
        const {trained} = this.layout;
        const importance = Math.fround(this.calibration?.importance ?? 1);
        const direction = importance === 1 ? steps.gradient : steps.gradient.map((d) => importance * d);
        const [selection, memory] = select(this.memory, direction, trained, this.welcome, theta, sequence, base);
        this.memory = memory;
        const {gradient, indices} = selection;
        const kept = indices ? Float32Array.from(indices, (index) => gradient[index]) : gradient;
        if (!allFinite(kept)) throw new Diverged("the update holds NaN or infinity: the model has diverged");
        const coded = encodeEntries(kept, indices, trained, selection.indexMode, selection.valueMode);
        return {
            ...coded,
            sequence,
            base,
            count: kept.length,
            values: concat(coded.values, encodeF16(steps.statistics)),
            loss: steps.loss,
            samples: steps.samples,
            held: 0,
            facts: null,
            pull: true,
            moments: (await this.adafactor?.report(base)) ?? EMPTY,
            labels: this.calibration?.report(base) ?? EMPTY,
        };
    }

    /** The last update was refused: its entries count as unsent. */
    takeBack() {
        this.memory = takeBack(this.memory);
    }

    /** The last update was too large: what was unsent before it counts. */
    undo() {
        this.memory = this.memoryBefore;
    }

    /** The model was set back: forget what earlier models left. */
    forget() {
        this.memory = this.memoryBefore = forgetEntries(this.memory);
        this.adafactor = this.#newAdafactor();
    }

    /**
     * Store the fleet's moments and labels of a Receipt.
     * @param {Uint8Array} moments
     * @param {Uint8Array} labels
     */
    async storeFleet(moments, labels) {
        this.calibration?.take(labels);
        await this.adafactor?.take(moments, this.calibration?.overlap ?? 1);
    }

    #newAdafactor() {
        const {adafactor, start} = this.welcome;
        return adafactor ? new Adafactor(this.layout.trained, adafactor, start) : null;
    }

    /** The sum of the run's local steps from theta on. */
    async #descend(theta) {
        const {localSteps, localRate} = this.welcome;
        const size = this.layout.trained.size;
        const local = new LocalOptimizer(theta.slice(0, size), this.welcome, this.adafactor);
        let here = theta;
        const sum = {
            loss: 0,
            samples: 0,
            gradient: new Float32Array(size),
            statistics: new Float32Array(this.layout.buffers),
        };
        for (let step = 1; step <= localSteps; step++) {
            const found = await this.#gradient(here);
            const direction = local.direction(here.subarray(0, size), found.gradient);
            sum.loss += found.loss / localSteps;
            sum.samples += found.samples;
            for (let k = 0; k < size; k++) sum.gradient[k] += direction[k];
            found.statistics.forEach((s, k) => (sum.statistics[k] += s / localSteps));
            if (step === localSteps) break;
            here = here.slice();
            for (let k = 0; k < size; k++) here[k] -= Math.fround(localRate * direction[k]);
        }
        return sum;
    }

    /** The gradient of the next batch that has a finite one. */
    async #gradient(theta) {
        for (let attempt = 0; attempt < MAX_NON_FINITE; attempt++) {
            const batch = await this.take(this.welcome.batch);
            const found = await this.backend.gradient(this.calibration?.shift(theta) ?? theta, batch);
            this.steps++;
            this.right = found.right;
            const isUsable =
                allFinite(found.gradient) && found.statistics.every((s) => Math.abs(s) <= LARGEST_STATISTIC);
            if (!isUsable) continue;
            this.calibration?.observe(found.gradient, batch.y);
            this.backend.step?.();
            return {...found, samples: batch.x.length / product(batch.shape)};
        }
        throw new Diverged(
            `${MAX_NON_FINITE} batches in a row gave no finite gradient: the model has diverged, or the data are broken`,
        );
    }
}
