/**
 * Bytes <-> a graph, of a safe subset of ONNX only (shared/graphs/reading.py and writing.py).
 *
 * onnxruntime gets what `writeGraph` makes of the graph that `readGraph` found, so its parser can find nothing else.
 * @module
 */
import {concat} from "../bytes.js";
import {printable} from "../errors.js";
import {product} from "../layout.js";
import {BOOL, IR_VERSION, ITEM_BYTES, OPSET, badGraph} from "./graph.js";
import {OPERATORS} from "./operators.js";
import {FIXED32, OCTETS, VARINT, field, fixed32, readMessage} from "./protobuf.js";

/**
 * @typedef {import("./graph.js").Graph} Graph
 * @typedef {import("./graph.js").Node} Node
 * @typedef {import("./graph.js").Constant} Constant
 * @typedef {import("./graph.js").Port} Port
 * @typedef {import("./protobuf.js").Fields} Fields
 */

const LARGEST_GRAPH = 1 << 24;
const MAX_NODES = 1 << 15, MAX_CONSTANTS = 1 << 16, MAX_PORTS = 20_002, MAX_OPERANDS = 1 << 12;
const MAX_RANK = 8, MAX_NAME = 1000;

/** @type {Fields} */
const MODEL = {1: ["ir_version", VARINT], 7: ["graph", OCTETS], 8: ["opset_import", OCTETS, true]};
/** @type {Fields} */
const OPSET_IMPORT = {1: ["domain", OCTETS], 2: ["version", VARINT]};
/** @type {Fields} */
const BODY = {1: ["node", OCTETS, true], 2: ["name", OCTETS], 11: ["input", OCTETS, true], 12: ["output", OCTETS, true]};
/** @type {Fields} */
const GRAPH = {...BODY, 5: ["initializer", OCTETS, true]};
/** @type {Fields} */
const NODE = {
    1: ["input", OCTETS, true], 2: ["output", OCTETS, true], 3: ["name", OCTETS], 4: ["op_type", OCTETS],
    5: ["attribute", OCTETS, true], 7: ["domain", OCTETS],
};
/** @type {Fields} */
const ATTRIBUTE = {
    1: ["name", OCTETS], 2: ["f", FIXED32], 3: ["i", VARINT], 4: ["s", OCTETS], 5: ["t", OCTETS], 6: ["g", OCTETS],
    8: ["ints", VARINT, true], 20: ["type", VARINT],
};
/** @type {Fields} */
const TENSOR = {1: ["dims", VARINT, true], 2: ["data_type", VARINT], 8: ["name", OCTETS], 9: ["raw_data", OCTETS]};
/** @type {Fields} */
const PORT = {1: ["name", OCTETS], 2: ["type", OCTETS]};
/** The field of an attribute's value -> its type. @type {Record<string, number>} */
const KINDS = {f: 1, i: 2, s: 3, t: 4, g: 5, ints: 7};

/**
 * The graph in a ModelProto. Raises ServerFault, which names the problem.
 * @param {Uint8Array} octets
 * @returns {Graph}
 */
export function readGraph(octets) {
    if (octets.length > LARGEST_GRAPH) {
        throw badGraph(`it has ${octets.length} bytes; at most ${LARGEST_GRAPH} are taken`);
    }
    const model = readMessage(octets, MODEL, "the model");
    if (Number(one(model, "ir_version", "the model")) !== IR_VERSION) {
        throw badGraph(`its ir_version is not ${IR_VERSION}`);
    }
    if (model.opset_import.length !== 1) {
        throw badGraph(`it imports ${model.opset_import.length} sets of operators, not one`);
    }
    const opset = readMessage(model.opset_import[0], OPSET_IMPORT, "opset_import");
    if (opset.domain.some((domain) => domain.length)) {
        throw badGraph("it imports operators of another domain than ONNX");
    }
    if (Number(one(opset, "version", "opset_import")) !== OPSET) {
        throw badGraph(`its operators are not of version ${OPSET}`);
    }
    const graph = graphOf(one(model, "graph", "the model"), false, "the graph");
    const bodies = graph.nodes.flatMap((node) => node.attributes.get("body")?.nodes.length ?? 0);
    if (bodies.reduce((all, count) => all + count, graph.nodes.length) > MAX_NODES) {
        throw badGraph("it has too many nodes");
    }
    checkOrder(graph, new Set(), new Set());
    return graph;
}

/** @returns {Graph} */
function graphOf(octets, isBody, label) {
    const parts = readMessage(octets, isBody ? BODY : GRAPH, label);
    text(one(parts, "name", label), `${label}'s name`);
    const constants = parts.initializer ?? [];
    atMost(MAX_NODES, parts.node, `${label}'s nodes`);
    atMost(MAX_CONSTANTS, constants, `${label}'s constants`);
    atMost(MAX_PORTS, parts.input, `${label}'s inputs`);
    atMost(MAX_PORTS, parts.output, `${label}'s outputs`);
    /** @type {Map<string, Constant>} */
    const named = new Map();
    for (const part of constants) {
        const [name, constant] = constantOf(part, "a constant");
        if (!name || named.has(name)) {
            throw badGraph(`it has a constant without a name, or two of the name ${name}`);
        }
        named.set(name, constant);
    }
    const nodes = parts.node.map((node) => nodeOf(node, isBody));
    return {nodes, constants: named, inputs: parts.input.map(portOf), outputs: parts.output.map(portOf)};
}

/** @returns {Node} */
function nodeOf(octets, isInBody) {
    const parts = readMessage(octets, NODE, "a node");
    const operator = text(one(parts, "op_type", "a node"), "an operator");
    const form = OPERATORS.get(operator);
    if (!form) throw badGraph(`it has an operator ${operator}, which no training step needs`);
    if (isInBody && operator === "Scan") throw badGraph("it has a body within a body");
    if (parts.domain.some((domain) => domain.length)) {
        throw badGraph(`${operator} is of another domain than ONNX`);
    }
    atMost(form.inputs ?? MAX_OPERANDS, parts.input, `${operator}'s inputs`);
    atMost(form.outputs ?? MAX_OPERANDS, parts.output, `${operator}'s outputs`);
    const attributes = new Map();
    for (const part of parts.attribute) {
        const [name, value] = attributeOf(part, operator, form);
        if (attributes.has(name)) throw badGraph(`${operator} has two of the attribute ${name}`);
        attributes.set(name, value);
    }
    // The name of a node is for people alone, and is not kept.
    const names = (list) => list.map((name) => text(name, `an operand of ${operator}`));
    return {operator, inputs: names(parts.input), outputs: names(parts.output), attributes};
}

function attributeOf(octets, operator, form) {
    const label = `an attribute of ${operator}`;
    const parts = readMessage(octets, ATTRIBUTE, label);
    const name = text(one(parts, "name", label), label);
    const kind = form.attributes.get(name);
    if (!kind) throw badGraph(`${operator} has an attribute ${name}, which none needs`);
    if (Number(one(parts, "type", label)) !== KINDS[kind]) {
        throw badGraph(`${operator}'s attribute ${name} is of another type`);
    }
    for (const other of Object.keys(KINDS)) {
        if (other !== kind && parts[other].length) {
            throw badGraph(`${operator}'s attribute ${name} has a value in ${other}, too`);
        }
    }
    if (kind === "ints") {
        atMost(MAX_OPERANDS, parts.ints, label);
        return [name, parts.ints.map(signed)];
    }
    const value = one(parts, kind, label);
    if (kind === "i") return [name, signed(value)];
    if (kind === "f") return [name, {float: value}];
    if (kind === "g") return [name, graphOf(value, true, label)];
    if (kind === "t") return [name, constantOf(value, label)[1]];
    const word = String.fromCharCode(...value.subarray(0, 20));
    if (!form.texts.includes(word)) {
        throw badGraph(`${operator}'s attribute ${name} is ${printable(word)}, which none needs`);
    }
    return [name, word];
}

/** @returns {[string, Constant]} */
function constantOf(octets, label) {
    const parts = readMessage(octets, TENSOR, label);
    const name = parts.name.length ? text(parts.name[0], label) : "";
    const type = Number(one(parts, "data_type", label));
    const size = ITEM_BYTES.get(type);
    if (!size) throw badGraph(`${label} ${name} has entries of type ${type}, which none needs`);
    const shape = shapeOf(parts.dims, `${label} ${name}`);
    const data = one(parts, "raw_data", label);
    if (data.length !== product(shape) * size) {
        throw badGraph(`${label} ${name} has ${data.length} bytes for a shape of [${shape}]`);
    }
    if (type === BOOL && data.some((octet) => octet > 1)) {
        throw badGraph(`${label} ${name} has a truth that is neither 0 nor 1`);
    }
    return [name, {type, shape, octets: data}];
}

/** @returns {number[]} */
function shapeOf(dimensions, label) {
    atMost(MAX_RANK, dimensions, `the dimensions of ${label}`);
    const shape = dimensions.map(Number);
    if (!shape.every((size) => size < 2 ** 40)) throw badGraph(`${label} has a shape of [${shape}]`);
    return shape;
}

/** @returns {Port} */
function portOf(octets) {
    const parts = readMessage(octets, PORT, "an input or output");
    const name = text(one(parts, "name", "an input or output"), "an input or output");
    const ofType = readMessage(one(parts, "type", name), {1: ["tensor_type", OCTETS]}, name);
    const tensor = readMessage(one(ofType, "tensor_type", name), {1: ["elem_type", VARINT], 2: ["shape", OCTETS]}, name);
    const type = Number(one(tensor, "elem_type", name));
    if (!ITEM_BYTES.has(type)) throw badGraph(`${name} has entries of type ${type}, which none needs`);
    const {dim} = readMessage(one(tensor, "shape", name), {1: ["dim", OCTETS, true]}, name);
    atMost(MAX_RANK, dim, `the dimensions of ${name}`);
    return {name, type, shape: dim.map((dimension) => dimensionOf(dimension, name))};
}

function dimensionOf(octets, name) {
    const parts = readMessage(octets, {1: ["dim_value", VARINT], 2: ["dim_param", OCTETS]}, name);
    if (parts.dim_value.length && parts.dim_param.length) {
        throw badGraph(`a dimension of ${name} is both a number and a name`);
    }
    if (parts.dim_param.length) return text(parts.dim_param[0], `a dimension of ${name}`);
    return shapeOf([one(parts, "dim_value", name)], name)[0];
}

/** Every name is made once, and before its use; names of a body are used in that body only. */
function checkOrder(graph, outer, all) {
    const visible = new Set([...outer, ...graph.constants.keys()]);
    for (const name of graph.constants.keys()) all.add(name);
    const define = (name) => {
        if (!name || all.has(name) || visible.has(name)) {
            throw badGraph(`it has two of the name ${name}, or none`);
        }
        visible.add(name);
        all.add(name);
    };
    graph.inputs.forEach(({name}) => define(name));
    for (const {operator, inputs, outputs, attributes} of graph.nodes) {
        const missing = inputs.find((name) => name && !visible.has(name));
        if (missing) throw badGraph(`${operator} takes ${missing}, which nothing before it makes`);
        if (attributes.has("body")) checkOrder(attributes.get("body"), visible, all);
        outputs.filter((name) => name).forEach(define);
    }
    const outputs = new Set();
    for (const {name} of graph.outputs) {
        if (!visible.has(name) || outer.has(name)) throw badGraph(`it gives ${name}, which nothing makes`);
        if (outputs.has(name)) throw badGraph(`it has two of the name ${name}`);
        outputs.add(name);
    }
}

function one(parts, name, label) {
    if (!parts[name].length) throw badGraph(`${label} has no ${name}`);
    return parts[name][0];
}

function atMost(limit, values, label) {
    if (values.length > limit) throw badGraph(`${label} are ${values.length}; at most ${limit} are taken`);
}

/** @returns {string} */
function text(octets, label) {
    let name = "\n";
    try {
        if (octets.length <= MAX_NAME) name = new TextDecoder("utf-8", {fatal: true, ignoreBOM: true}).decode(octets);
    } catch {
        // It is no UTF-8.
    }
    if (/[\p{C}\p{Zl}\p{Zp}]|(?! )\p{Zs}/u.test(name)) {
        throw badGraph(`${label} has a name that is too long, or no text`);
    }
    return name;
}

/** The int64 of a varint; a bigint where a number would not be exact. @param {bigint} value */
function signed(value) {
    const number = BigInt.asIntN(64, value);
    return Number.isSafeInteger(Number(number)) ? Number(number) : number;
}

/**
 * A ModelProto of the graph, without texts that are only for people.
 * @param {Graph} graph
 */
export function writeGraph(graph) {
    return concat(field(1, IR_VERSION), field(7, write(graph)), field(8, concat(field(1, ""), field(2, OPSET))));
}

/** @param {Graph} graph */
function write({nodes, constants, inputs, outputs}) {
    return concat(
        ...nodes.map((node) => field(1, writeNode(node))),
        field(2, "step"),
        ...Array.from(constants, ([name, constant]) => field(5, writeTensor(constant, name))),
        ...inputs.map((port) => field(11, writePort(port))),
        ...outputs.map((port) => field(12, writePort(port))),
    );
}

/** @param {Node} node */
function writeNode({operator, inputs, outputs, attributes}) {
    return concat(
        ...inputs.map((name) => field(1, name)),
        ...outputs.map((name) => field(2, name)),
        field(4, operator),
        ...Array.from(attributes, ([name, value]) => field(5, writeAttribute(name, value))),
    );
}

function writeAttribute(name, value) {
    const head = field(1, name);
    const typed = (kind, ...parts) => concat(head, ...parts, field(20, KINDS[kind]));
    if (typeof value === "number" || typeof value === "bigint") return typed("i", field(3, value));
    if (typeof value === "string") return typed("s", field(4, value));
    if (Array.isArray(value)) return typed("ints", ...value.map((number) => field(8, number)));
    if (value.float) return typed("f", fixed32(2, value.float));
    return value.nodes ? typed("g", field(6, write(value))) : typed("t", field(5, writeTensor(value, "")));
}

/** @param {Constant} constant @param {string} name */
function writeTensor({type, shape, octets}, name) {
    return concat(...shape.map((size) => field(1, size)), field(2, type), ...(name ? [field(8, name)] : []), field(9, octets));
}

/** @param {Port} port */
function writePort({name, type, shape}) {
    const dimensions = shape.map((size) => field(1, typeof size === "number" ? field(1, size) : field(2, size)));
    return concat(field(1, name), field(2, field(1, concat(field(1, type), field(2, concat(...dimensions))))));
}
