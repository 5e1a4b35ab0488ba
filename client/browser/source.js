/**
 * Where batches come from: arrays in memory, or a function of the owner's.
 * @module
 */
import {DeviceError} from "./errors.js";
import {product} from "./layout.js";

/**
 * n samples: x in C order [n, ...shape], y of whole numbers for classes, or of floats.
 * @typedef {{x: Float32Array, y: Int32Array | Float32Array, shape: number[]}} Samples
 * @typedef {(wish: {batch: number}) => Samples | null | Promise<Samples | null>} Source
 */

/**
 * A Source of what the owner gave. Raises DeviceError for arrays that do not fit together.
 * @param {Samples | Source} data
 * @returns {Source}
 */
export const sourceOf = (data) => (typeof data === "function" ? data : shuffled(check(data)));

/**
 * Samples as given, if they fit together and the run. Raises DeviceError.
 * @param {Samples} samples
 * @param {number[] | null} [input] the shape of a sample that the run wants
 */
export function check(samples, input = null) {
    const {x, y, shape} = samples ?? {};
    if (
        !(x instanceof Float32Array) ||
        !(y instanceof Int32Array || y instanceof Float32Array) ||
        !Array.isArray(shape)
    ) {
        throw new DeviceError("data must be {x: Float32Array, y: Int32Array or Float32Array, shape: [...]}");
    }
    const count = x.length / product(shape);
    if (!(count >= 1) || !Number.isInteger(count) || !y.length || y.length % count) {
        throw new DeviceError(
            `data have ${x.length} numbers in x and ${y.length} in y for samples of shape ${JSON.stringify(shape)}`,
        );
    }
    if (input && JSON.stringify(input) !== JSON.stringify(shape)) {
        throw new DeviceError(
            `the run trains on samples of shape ${JSON.stringify(input)}, the data have ${JSON.stringify(shape)}`,
        );
    }
    return samples;
}

/**
 * Batches drawn without replacement, shuffled anew after each pass.
 * @param {Samples} samples
 * @param {() => number} random
 * @returns {Source}
 */
export function shuffled({x, y, shape}, random = Math.random) {
    const size = product(shape);
    const targets = (y.length * size) / x.length;
    const order = Uint32Array.from({length: x.length / size}, (_, i) => i);
    let at = order.length;
    const next = () => {
        if (at === order.length) {
            at = 0;
            for (let i = order.length - 1; i > 0; i--) {
                const j = Math.floor(random() * (i + 1));
                [order[i], order[j]] = [order[j], order[i]];
            }
        }
        return order[at++];
    };
    return ({batch}) => {
        const Kind = y instanceof Int32Array ? Int32Array : Float32Array;
        const taken = {x: new Float32Array(batch * size), y: new Kind(batch * targets), shape};
        for (let i = 0; i < batch; i++) {
            const row = next();
            taken.x.set(x.subarray(row * size, (row + 1) * size), i * size);
            taken.y.set(y.subarray(row * targets, (row + 1) * targets), i * targets);
        }
        return taken;
    };
}
