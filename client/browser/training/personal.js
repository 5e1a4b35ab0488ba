/**
 * A device's personal layers: it trains them with each gradient, and the server never gets them
 * (docs/protocol.md, Personal layers; client/training/personal.py).
 * @module
 */
import {Layout} from "../layout.js";
import {allFinite} from "../vectors.js";
import {Adafactor} from "./optimizer.js";
import {generate} from "./start.js";

/**
 * The layout of the whole model: the shared parameters, the personal ones, the running statistics.
 * @param {Layout} shared
 * @param {Layout | null} own
 */
export function wholeLayout(shared, own) {
    if (!own) return shared;
    const tensors = [...shared.trained.tensors, ...own.tensors, ...shared.tensors.slice(shared.trained.tensors.length)];
    return Layout.of(tensors.map(({name, shape, buffer}) => [name, shape, buffer]));
}

/** A backend of the shared layers, over one of the whole model. */
export class PersonalBackend {
    /**
     * @param {import("./trainer.js").Backend} backend of the whole model
     * @param {number} shared how many parameters the shared layers have
     * @param {Layout} own of the personal layers
     * @param {import("../records.js").Welcome} welcome
     * @param {unknown} stored the layers that the device has trained before, if they are of this run
     */
    constructor(backend, shared, own, {personal, adafactor, localRate}, stored) {
        const {start} = /** @type {{start: import("./start.js").Start}} */ (personal);
        const isOwn = stored instanceof Float32Array && stored.length === own.size && allFinite(stored);
        this.backend = backend;
        this.shared = shared;
        /** The personal layers. @type {Float32Array} */
        this.theta = isOwn ? stored : generate(start, own);
        this.adafactor = adafactor ? new Adafactor(own, adafactor, start) : null;
        this.rate = localRate;
        /** The gradient of the personal layers at the last call. @type {Float32Array} */
        this.last = new Float32Array(own.size);
    }

    /** The gradient of the shared layers. `step` uses that of the personal ones. */
    async gradient(theta, batch) {
        const {shared} = this;
        const stop = shared + this.theta.length;
        const whole = new Float32Array(theta.length + this.theta.length);
        whole.set(theta.subarray(0, shared));
        whole.set(this.theta, shared);
        whole.set(theta.subarray(shared), stop);
        const found = await this.backend.gradient(whole, batch);
        this.last = found.gradient.subarray(shared);
        return {...found, gradient: found.gradient.slice(0, shared)};
    }

    /** Train the personal layers by the last gradient, unless it or its step is not finite. */
    step() {
        if (!allFinite(this.last)) return;
        const direction = this.adafactor?.direction(this.theta, this.last) ?? this.last;
        const theta = this.theta.map((value, k) => value - Math.fround(Math.fround(this.rate) * direction[k]));
        if (allFinite(theta)) this.theta = theta;
    }
}
