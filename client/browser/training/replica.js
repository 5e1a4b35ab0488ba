/**
 * The device's copy of the model, and what it needs to decode the next difference.
 * @module
 */
import {crc32} from "../bytes.js";
import {followActivity, initialActivity} from "../codecs/activity.js";
import {decodeEntries} from "../codecs/entries.js";
import {DENSE} from "../codecs/indices.js";
import {decodeF16} from "../codecs/values.js";
import {ServerFault} from "../errors.js";
import {allFinite} from "../vectors.js";
import {generate} from "./start.js";

/**
 * @typedef {import("../layout.js").Layout} Layout
 * @typedef {import("../records.js").Model} Model
 */

export class Replica {
    /**
     * @param {Layout} layout
     * @param {import("./start.js").Start | null} start how to make version 0; null: it is pulled
     */
    constructor(layout, start) {
        this.layout = layout;
        /** @type {number | null} */
        this.version = start === null ? null : 0;
        /** float32 [P + B]. It is replaced or changed by `take` only. */
        this.theta = start === null ? new Float32Array(layout.size) : generate(start, layout);
        this.chain = 0;
        /** @type {Int32Array} */
        this.activity = initialActivity(layout.trained);
    }

    /** What tells the server exactly what this device holds. */
    get held() {
        return this.chain & 0xffff || Number(this.chain !== 0);
    }

    /**
     * Apply a whole model or a difference. Raises ServerFault if it cannot be applied; then nothing has changed.
     * @param {Model} model
     */
    take(model) {
        const isWhole = model.base === null && model.indexMode === DENSE;
        if (!isWhole && (model.base === null || model.base !== this.version)) {
            throw new ServerFault(
                `the server sent a difference to version ${model.base}, and this device has ${this.version}`,
            );
        }
        if (model.changes && !isWhole) this.#add(model);
        else {
            const {indices, values} = decodeEntries(model, model.values, this.layout);
            if (!allFinite(values)) throw new ServerFault("the server's model holds NaN or infinity");
            if (indices === null) this.theta = values;
            else indices.forEach((index, i) => (this.theta[index] = values[i]));
            this.activity = initialActivity(this.layout.trained);
        }
        if (!model.changes) this.chain = 0;
        else if (model.count) this.chain = crc32(model.values, crc32(model.indices, isWhole ? 0 : this.chain));
        this.version = model.version;
    }

    /** Add a lossy difference; new running statistics may follow its values. */
    #add(model) {
        const {trained, buffers} = this.layout;
        const end = model.values.length - 2 * buffers;
        const decode = (octets) => decodeEntries(model, octets, trained, this.activity);
        let found;
        let statistics = null;
        try {
            found = decode(model.values);
        } catch (error) {
            if (!buffers || end < 0) throw error;
            found = decode(model.values.subarray(0, end));
            statistics = decodeF16(model.values.subarray(end));
        }
        const {indices, values} = found;
        if (!allFinite(values) || (statistics && !allFinite(statistics))) {
            throw new ServerFault("the server's difference holds NaN or infinity");
        }
        const {theta} = this;
        if (indices === null) values.forEach((value, k) => (theta[k] += value));
        else indices.forEach((index, i) => (theta[index] += values[i]));
        this.activity = followActivity(this.activity, indices, trained);
        if (statistics) theta.set(statistics, trained.size);
    }
}
