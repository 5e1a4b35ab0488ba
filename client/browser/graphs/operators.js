/**
 * The operators that a graph may have: those that the exporter writes, and their valid forms (operators.py).
 * @module
 */
import * as shapes from "./shapes.js";
import {product} from "../layout.js";

/**
 * `rule` gives types and shapes of results, null for a Scan; `work` multiplications, or visited entries.
 * @typedef {import("./shapes.js").Info} Info
 * @typedef {{rule: ((node: any, inputs: any) => Info[]) | null, inputs: number | null, outputs: number | null,
 *   attributes: Map<string, string>, texts: string[], work: (node: any, inputs: any, results: any) => number}} Operator
 */

const entries = (node, inputs, results) =>
    [...inputs, ...results].reduce((most, tensor) => Math.max(most, tensor ? product(tensor.shape) : 0), 0);
const products = (node, [{shape}], [result]) =>
    product(result.shape) * (Number(node.attributes.get("transA") ?? 0) ? shape[0] : shape[shape.length - 1]);
const taps = (node, [x, kernel], [result]) =>
    x.shape[0] * Math.max(product(x.shape.slice(2)), product(result.shape.slice(2))) * product(kernel.shape);
const window = (node, inputs, [result]) => product(result.shape) * product(node.attributes.get("kernel_shape"));

/** @type {Map<string, Operator>} */
export const OPERATORS = new Map();

/**
 * @param {string} names
 * @param {Operator["rule"]} rule
 * @param {number | null} inputs the most; null: any number
 * @param {string} [attributes] name:kind, ...
 * @param {Partial<Operator>} [more]
 */
function allow(names, rule, inputs, attributes = "", more = {}) {
    const kinds = new Map(attributes.split(" ").filter((one) => one).map((one) => /** @type {[string, string]} */ (one.split(":"))));
    for (const name of names.split(" ")) {
        OPERATORS.set(name, {rule, inputs, outputs: 1, attributes: kinds, texts: [], work: entries, ...more});
    }
}

const WINDOWS = "auto_pad:s kernel_shape:ints pads:ints strides:ints";
const NOTSET = ["NOTSET"];

allow(
    "Abs Cos Erf Exp Floor HardSwish Identity Log Mish Neg Not Reciprocal Relu Round Sigmoid Sign Sin Softplus Sqrt Tanh",
    shapes.likeFirst, 1,
);
allow("Add Div Max Min Mul PRelu Pow Sub", shapes.broadcast, 2);
allow("And Equal Greater GreaterOrEqual Less LessOrEqual Or", shapes.compare, 2);
allow("ReduceL2 ReduceLogSumExp ReduceMean ReduceMin ReduceSum", shapes.reduce, 2, "keepdims:i noop_with_empty_axes:i");
allow("LogSoftmax Softmax", shapes.likeFirst, 1, "axis:i");
allow("Celu Elu LeakyRelu", shapes.likeFirst, 1, "alpha:f");
allow("ArgMax", shapes.argMax, 1, "axis:i keepdims:i select_last_index:i");
allow("AveragePool", shapes.pool, 1, `${WINDOWS} ceil_mode:i count_include_pad:i`, {texts: NOTSET, work: window});
allow("BatchNormalization", shapes.likeFirst, 5, "epsilon:f momentum:f");
allow("Cast", shapes.cast, 1, "to:i");
allow("Clip", shapes.likeFirst, 3);
allow("Concat", shapes.concat, null, "axis:i");
allow("ConstantOfShape", shapes.constantOfShape, 1, "value:t");
allow("Conv", shapes.conv, 3, `${WINDOWS} dilations:ints group:i`, {texts: NOTSET, work: taps});
allow("ConvTranspose", shapes.convTranspose, 3, `${WINDOWS} dilations:ints output_padding:ints group:i`, {texts: NOTSET, work: taps});
allow("CumSum", shapes.likeFirst, 2, "exclusive:i reverse:i");
allow("Expand", shapes.expand, 2);
allow("Gather", shapes.gather, 2, "axis:i");
allow("GatherElements", shapes.gatherElements, 2, "axis:i");
allow("GatherND", shapes.gatherNd, 2, "batch_dims:i");
allow("Gelu", shapes.likeFirst, 1, "approximate:s", {texts: ["none", "tanh"]});
allow("Gemm", shapes.gemm, 3, "alpha:f beta:f transA:i transB:i", {work: products});
allow("HardSigmoid", shapes.likeFirst, 1, "alpha:f beta:f");
allow("LayerNormalization", shapes.layerNorm, 3, "axis:i epsilon:f stash_type:i", {outputs: 3});
allow("MatMul", shapes.matmul, 2, "", {work: products});
allow("MaxPool", shapes.pool, 1, `${WINDOWS} dilations:ints ceil_mode:i storage_order:i`, {texts: NOTSET, work: window});
allow("Pad", shapes.pad, 3, "mode:s", {texts: ["constant"]});
allow("RandomUniformLike", shapes.likeFirst, 1, "high:f low:f");
allow("Range", shapes.rangeOf, 3);
allow("ReduceMax", shapes.reduce, 2, "keepdims:i");
allow("Reshape", shapes.reshape, 2, "allowzero:i");
allow("Scan", null, null, "body:g num_scan_inputs:i scan_input_directions:ints scan_output_directions:ints", {outputs: null});
allow("ScatterElements", shapes.likeFirst, 3, "axis:i reduction:s", {texts: ["none"]});
allow("ScatterND", shapes.likeFirst, 3, "reduction:s", {texts: ["none", "add"]});
allow("Shape", shapes.shapeOf, 1, "start:i end:i");
allow("Size", shapes.size, 1);
allow("Slice", shapes.slice, 5);
allow("Split", shapes.split, 2, "axis:i num_outputs:i", {outputs: null});
allow("Squeeze", shapes.squeeze, 2);
allow("Tile", shapes.tile, 2);
allow("Transpose", shapes.transpose, 1, "perm:ints");
allow("Unsqueeze", shapes.unsqueeze, 2);
allow("Where", shapes.select, 3);
