/**
 * Version 0 of a run that begins with weights of its own, from the server's file (docs/protocol.md, Loading it).
 * @module
 */
import {EMPTY, inflate} from "../bytes.js";
import {DENSE} from "../codecs/indices.js";
import {F16, F32, INT8, sizeOf} from "../codecs/values.js";
import {ServerFault} from "../errors.js";

/** Bytes of a number, by the value modes of whole models. @type {Record<number, number>} */
const WIDTHS = {[F32]: 4, [F16]: 2, [INT8]: 1};

/**
 * The Model that `load` finds in the file; null: pull the model. Raises ServerFault for a file that is too long.
 * @param {import("../records.js").Weights} weights
 * @param {import("../layout.js").Layout} layout
 * @param {(weights: import("../records.js").Weights) => Promise<Uint8Array | null>} load
 * @returns {Promise<import("../records.js").Model | null>}
 */
export async function unpackFirst(weights, layout, load) {
    const {mode, size} = weights;
    const width = WIDTHS[mode];
    if (!width) throw new ServerFault(`no first model comes in value mode ${mode}`);
    const stream = sizeOf(mode, layout.counts(null));
    if (size > stream + (stream >> 10) + 64) {
        throw new ServerFault(`the server announces a first model of ${size} bytes`);
    }
    const file = weights.load ? await load(weights) : null;
    if (!file) return null;
    const planes = await inflate(file, stream);
    if (!planes) throw new ServerFault("the server's first model is not what it announced");
    const numbers = stream / width;
    const values = new Uint8Array(stream);
    for (let i = 0; i < stream; i++) values[i] = planes[(i % width) * numbers + Math.floor(i / width)];
    const changes = mode !== F32;
    return {
        tag: "Model",
        version: 0,
        base: null,
        count: layout.size,
        indices: EMPTY,
        values,
        changes,
        indexMode: DENSE,
        valueMode: mode,
    };
}
