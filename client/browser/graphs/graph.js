/**
 * A training step as a list of operators (shared/graphs/graph.py).
 * @module
 */
import {ServerFault} from "../errors.js";

export const FLOAT = 1, INT32 = 6, INT64 = 7, BOOL = 9, DOUBLE = 11;
export const OPSET = 20, IR_VERSION = 10;

/** Bytes of an entry, by the number of its type. */
export const ITEM_BYTES = new Map([[FLOAT, 4], [INT32, 4], [INT64, 8], [BOOL, 1], [DOUBLE, 8]]);

/**
 * @typedef {{type: number, shape: number[], octets: Uint8Array}} Constant
 * @typedef {number | bigint | string | number[] | Float | Constant | Graph} Attribute
 * @typedef {{float: Uint8Array}} Float four little-endian bytes
 * @typedef {{operator: string, inputs: string[], outputs: string[], attributes: Map<string, any>}} Node
 * @typedef {{name: string, type: number, shape: (number | string)[]}} Port a text stands for any size
 * @typedef {{nodes: Node[], constants: Map<string, Constant>, inputs: Port[], outputs: Port[]}} Graph
 */

/** @param {string} reason */
export const badGraph = (reason) => new ServerFault(`the server's graph is not one that this device takes: ${reason}`);

/**
 * The inputs of a node, and the outer names that its body takes.
 * @param {Node} node
 * @returns {string[]}
 */
export function allInputs({inputs, attributes}) {
    /** @type {Graph | undefined} */
    const body = attributes.get("body");
    if (!body) return inputs;
    const own = new Set([...body.inputs.map((port) => port.name), ...body.nodes.flatMap((node) => node.outputs)]);
    return [...inputs, ...body.nodes.flatMap((node) => node.inputs).filter((name) => !own.has(name))];
}
