/**
 * Gradients by onnxruntime-web: the training step is a plain graph that the server exported and this device checked.
 * @module
 */
import * as ort from "../vendor/onnxruntime-web/ort.wasm.bundle.min.mjs";
import {DeviceError, messageOf, printable} from "../errors.js";
import {product} from "../layout.js";
import {INT64} from "../graphs/graph.js";
import {StepGraph} from "../graphs/step.js";

ort.env.wasm.numThreads = 1;
ort.env.wasm.proxy = false;

/**
 * `gradient` float32 [P] and `statistics` float32 [B] of a batch; `right` is the part of right predictions, or null.
 * @typedef {{loss: number, gradient: Float32Array, statistics: Float32Array, right: number | null}} Gradient
 * @typedef {import("../layout.js").Layout} Layout
 * @typedef {{x: Float32Array, y: Int32Array | Float32Array, shape: number[]}} Batch
 */

export class Backend {
    /**
     * Check a graph and load it. Raises ServerFault for a graph that no training step needs.
     * @param {Uint8Array} octets
     * @param {Layout} layout
     * @param {number} memory that a step's tensors may take, in bytes
     */
    static async load(octets, layout, memory) {
        const graph = new StepGraph(octets, layout, memory);
        const backend = new Backend(graph, layout);
        try {
            const options = /** @type {any} */ ({executionProviders: ["wasm"], logSeverityLevel: 4});
            backend.session = await ort.InferenceSession.create(graph.octets, options);
        } catch (error) {
            throw new DeviceError(`onnxruntime cannot load the server's graph: ${printable(messageOf(error))}`);
        }
        return backend;
    }

    /** Use `load`. @param {StepGraph} graph @param {Layout} layout */
    constructor(graph, layout) {
        this.graph = graph;
        this.layout = layout;
        /** @type {any} */
        this.session = null;
    }

    /**
     * The gradient of the mean loss over a batch at theta, float32 [P + B], which is not changed.
     * @param {Float32Array} theta
     * @param {Batch} batch
     * @returns {Promise<Gradient>}
     */
    async gradient(theta, {x, y, shape}) {
        const count = x.length / product(shape);
        const port = /** @type {import("../graphs/graph.js").Port} */ (this.graph.inputs.get("y"));
        const targets = [count, ...port.shape.slice(1).map(Number)];
        if (y.length !== product(targets)) {
            throw new DeviceError(
                `the model takes ${product(targets)} targets for ${count} samples, the data have ${y.length}`,
            );
        }
        this.graph.measure({x: [count, ...shape], y: targets});
        /** @type {Record<string, any>} */
        const feeds = {};
        for (const {name, shape, start, stop} of this.layout.tensors) {
            const input = `theta/${name}`;
            if (this.graph.inputs.has(input))
                feeds[input] = new ort.Tensor("float32", theta.subarray(start, stop), shape);
        }
        feeds.x = new ort.Tensor("float32", x, [count, ...shape]);
        feeds.y =
            port.type === INT64
                ? new ort.Tensor(
                      "int64",
                      BigInt64Array.from(y, (label) => BigInt(Math.trunc(label))),
                      targets,
                  )
                : new ort.Tensor("float32", Float32Array.from(y), targets);
        let outputs;
        try {
            outputs = await this.session.run(feeds);
        } catch (error) {
            const data = `inputs of ${JSON.stringify([count, ...shape])}`;
            throw new DeviceError(`the model cannot train on ${data}: ${printable(messageOf(error))}`);
        }
        const gradient = new Float32Array(this.layout.trained.size);
        const statistics = new Float32Array(this.layout.buffers);
        for (const {name, start, buffer} of this.layout.tensors) {
            if (buffer) statistics.set(outputs[`buffer/${name}`].data, start - gradient.length);
            else gradient.set(outputs[`gradient/${name}`].data, start);
        }
        return {loss: outputs.loss.data[0], gradient, statistics, right: outputs.right?.data[0] ?? null};
    }

    /** Free the session's memory. */
    async close() {
        await this.session?.release();
    }
}
