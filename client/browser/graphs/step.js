/**
 * Checks of a server's training step: it has this layout, and the device has memory for it (shared/graphs/step.py).
 * @module
 */
import {footprint} from "./footprint.js";
import {FLOAT, INT64, badGraph} from "./graph.js";
import {DeviceError} from "../errors.js";
import {readGraph, writeGraph} from "./reading.js";

const RIGHT = "right";
const MAX_WORK = 2 ** 44;
const TRIAL_SAMPLES = 2;

/** @typedef {import("../layout.js").Layout} Layout */

export class StepGraph {
    /**
     * Read and check a graph that computes a training step of a layout, and nothing else. Raises ServerFault.
     * @param {Uint8Array} octets
     * @param {Layout} layout
     * @param {number} memory that a step may take, in bytes
     */
    constructor(octets, layout, memory) {
        this.graph = readGraph(octets);
        this.memory = memory;
        /** What the runtime reads instead of the server's bytes. */
        this.octets = writeGraph(this.graph);
        this.inputs = new Map(this.graph.inputs.map((port) => [port.name, port]));
        /** @type {Set<string>} */
        this.measured = new Set();
        const wanted = outputsOf(this.graph, layout);
        checkPorts(this.graph, layout, wanted);
        const {outputs} = this.try(TRIAL_SAMPLES);
        for (const [name, shape] of wanted) {
            const {type, shape: found} = /** @type {import("./shapes.js").Info} */ (outputs.get(name));
            if (type !== FLOAT || !isSame(found, shape)) {
                throw badGraph(`it gives ${name} as [${found}], the layout has [${shape}]`);
            }
        }
    }

    /** Check a step on so many samples. @param {number} samples */
    try(samples) {
        const shape = (name) => [samples, .../** @type {number[]} */ (this.inputs.get(name)?.shape.slice(1))];
        return this.measure({x: shape("x"), y: shape("y")});
    }

    /**
     * Check that a step on inputs of these shapes fits the memory, and return its footprint. Raises ServerFault.
     * @param {{x: number[], y: number[]}} batch
     */
    measure(batch) {
        const key = JSON.stringify(batch);
        for (const name of /** @type {const} */ (["x", "y"])) {
            const port = /** @type {import("./graph.js").Port} */ (this.inputs.get(name));
            const fits =
                batch[name].length === port.shape.length &&
                port.shape.every((size, i) => i === 0 || size === batch[name][i]);
            if (!fits) throw badGraph(`it takes ${name} as [${port.shape}], the data have [${batch[name]}]`);
        }
        if (this.measured.has(key)) return {outputs: new Map()};
        const theta = this.graph.inputs.map((port) => [port.name, port.shape]);
        const cost = footprint(this.graph, {...Object.fromEntries(theta), ...batch});
        const samples = batch.x[0];
        if (!(cost.octets <= this.memory)) {
            throw badGraph(
                `a step on ${samples} samples takes ${Math.ceil(cost.octets / 2 ** 20)} MiB, this device has ${this.memory / 2 ** 20} for it`,
            );
        }
        if (!(cost.work <= MAX_WORK)) {
            throw badGraph(
                `a step on ${samples} samples takes ${cost.work} operations, at most ${MAX_WORK} are taken`,
            );
        }
        this.measured.add(key);
        return cost;
    }
}

const isSame = (a, b) => a.length === b.length && a.every((size, i) => size === b[i]);

/** The outputs of a step -> their shapes. @returns {Map<string, number[]>} */
function outputsOf(graph, layout) {
    const tensors = layout.tensors.map(({name, shape, buffer}) => [
        `${buffer ? "buffer" : "gradient"}/${name}`,
        shape,
    ]);
    const right = graph.outputs.some(({name}) => name === RIGHT) ? [[RIGHT, []]] : [];
    return new Map([["loss", []], ...tensors, ...right]);
}

/** Inputs and outputs have the names, types and shapes of a step of the layout. */
function checkPorts(graph, layout, wanted) {
    const theta = new Map(layout.tensors.map(({name, shape}) => [`theta/${name}`, shape]));
    const inputs = new Map(graph.inputs.map((port) => [port.name, port]));
    if (graph.inputs.some(({name}) => name.startsWith("x/"))) {
        throw badGraph("it takes several inputs, and the data of a browser have one");
    }
    for (const [name, types] of /** @type {[string, number[]][]} */ ([
        ["x", [FLOAT]],
        ["y", [FLOAT, INT64]],
    ])) {
        const port = inputs.get(name);
        if (!port) throw badGraph(`it asks for no ${name}`);
        if (name === "x" && port.type === INT64) {
            throw new DeviceError(
                "this model takes whole numbers such as tokens, and a browser's data are not: take part with an " +
                    "installed device (edgeflock client)",
            );
        }
        const isBatch =
            port.shape.length > 0 && port.shape.every((size, i) => typeof size === (i ? "number" : "string"));
        if (!types.includes(port.type) || !isBatch) {
            throw badGraph(`it takes ${name} as [${port.shape}] of type ${port.type}, which is no batch`);
        }
        inputs.delete(name);
    }
    for (const port of inputs.values()) checkPort("takes", port, theta.get(port.name));
    for (const name of wanted.keys())
        if (!graph.outputs.some((port) => port.name === name)) throw badGraph(`it does not give ${name}`);
    for (const port of graph.outputs) checkPort("gives", port, wanted.get(port.name));
}

function checkPort(verb, {name, type, shape}, expected) {
    if (!expected) throw badGraph(`it ${verb} ${name}, which the layout does not have`);
    if (type !== FLOAT || !isSame(shape, expected)) {
        throw badGraph(`it ${verb} ${name} as [${shape}] of type ${type}, the layout has float [${expected}]`);
    }
}
