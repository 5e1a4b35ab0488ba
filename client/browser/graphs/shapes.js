/**
 * Shape rules of operators: types and shapes of results from those of inputs (shared/graphs/shapes.py).
 *
 * A rule is a function (node, inputs) -> infos; an omitted input is null. It throws a RangeError for inputs that do
 * not fit together. Where a shape is the value of another tensor, that value must be known.
 * @module
 */
import {product} from "../layout.js";
import {BOOL, FLOAT, INT64, ITEM_BYTES, badGraph} from "./graph.js";

/**
 * `entries`: the whole numbers in a tensor, if they depend on shapes alone and are few.
 * @typedef {{type: number, shape: number[], entries?: number[] | null}} Info
 */

/** @param {string} why @returns {never} */
export function misfit(why) {
    throw new RangeError(why);
}

/** The entries of a shape, of axes or of bounds. @param {Info | null} info @returns {number[]} */
function numbers(info) {
    if (!info) return misfit("it lacks an input");
    if (!info.entries) throw badGraph("a shape in it depends on values, so its size is unknown before it runs");
    return info.entries;
}

/** Axes counted from 0. @param {number[]} axes @param {number} rank */
function axesOf(axes, rank) {
    const found = axes.map((axis) => (axis < 0 ? axis + rank : axis));
    if (found.some((axis) => !(axis >= 0 && axis < rank)) || new Set(found).size < found.length) {
        misfit(`axes [${axes}] of ${rank}`);
    }
    return found;
}

/** @param {number[]} sizes */
function nonNegative(sizes) {
    if (sizes.some((size) => !(size >= 0))) misfit(`a shape of [${sizes}]`);
    return sizes;
}

/** @param {any} node @param {string} name @param {number} [usual] @returns {number} */
export function integer(node, name, usual) {
    const value = node.attributes.get(name) ?? usual;
    return typeof value === "number" || typeof value === "bigint" ? Number(value) : misfit(`it lacks ${name}`);
}

/** @param {any} node @param {string} name @param {number[]} usual @returns {number[]} */
export function integers(node, name, usual) {
    const value = node.attributes.get(name) ?? usual;
    if (!Array.isArray(value) || (usual.length && value.length !== usual.length)) misfit(`${name} is ${value}`);
    return value.map(Number);
}

/** @param {...number[]} shapes @returns {number[]} */
export function broadcastShapes(...shapes) {
    const rank = Math.max(0, ...shapes.map((shape) => shape.length));
    return Array.from({length: rank}, (_, axis) => {
        const sizes = shapes.map((shape) => shape[axis - rank + shape.length] ?? 1).filter((size) => size !== 1);
        if (new Set(sizes).size > 1) misfit(`shapes ${JSON.stringify(shapes)}`);
        return sizes[0] ?? 1;
    });
}

const made = (type, shape) => [{type, shape}];
const one = (sizes, axis, size) => sizes.map((old, i) => (i === axis ? size : old));

export const likeFirst = (node, [x]) => made(x.type, x.shape);
export const broadcast = (node, inputs) =>
    made(inputs[0].type, broadcastShapes(...inputs.filter((t) => t).map((t) => t.shape)));
export const compare = (node, inputs) => made(BOOL, broadcast(node, inputs)[0].shape);
export const select = (node, inputs) => made(inputs[1].type, broadcast(node, inputs)[0].shape);

export function cast(node, [x]) {
    const type = integer(node, "to");
    return ITEM_BYTES.has(type) ? made(type, x.shape) : misfit(`entries of type ${type}`);
}

export function shapeOf(node, [x]) {
    const end = node.attributes.get("end");
    const sizes = x.shape.slice(integer(node, "start", 0), end === undefined ? undefined : Number(end));
    return [{type: INT64, shape: [sizes.length], entries: sizes}];
}

export const size = (node, [x]) => [{type: INT64, shape: [], entries: [product(x.shape)]}];

export const constantOfShape = (node, [x]) =>
    made(node.attributes.get("value")?.type ?? FLOAT, nonNegative(numbers(x)));

export function rangeOf(node, inputs) {
    const [first, end, step] = [0, 1, 2].map((i) => numbers(inputs[i])[0]);
    if (!step || [first, end, step].includes(/** @type {any} */ (undefined))) misfit("a range without a step");
    return made(inputs[0].type, [Math.max(0, Math.ceil((end - first) / step))]);
}

export function reshape(node, [x, target]) {
    let wanted = numbers(target).slice();
    if (!integer(node, "allowzero", 0))
        wanted = wanted.map((size, axis) => (size === 0 ? (x.shape[axis] ?? misfit("no such axis")) : size));
    const count = product(x.shape);
    const open = wanted.indexOf(-1);
    if (open >= 0) {
        const rest = product(wanted.filter((size) => size !== -1));
        wanted[open] = rest ? Math.floor(count / rest) : misfit("an open size beside none");
    }
    if (product(wanted) !== count) misfit(`${count} entries become a shape of [${wanted}]`);
    return made(x.type, nonNegative(wanted));
}

export const expand = (node, [x, target]) => made(x.type, broadcastShapes(x.shape, nonNegative(numbers(target))));

export function tile(node, [x, repeats]) {
    const times = numbers(repeats);
    if (times.length !== x.shape.length) misfit("repeats of other axes");
    return made(x.type, nonNegative(x.shape.map((old, axis) => old * times[axis])));
}

export function transpose(node, [x]) {
    const order = (node.attributes.get("perm") ?? x.shape.map((_, axis) => x.shape.length - 1 - axis)).map(Number);
    if (
        order.length !== x.shape.length ||
        new Set(order).size < order.length ||
        order.some((axis) => !(axis in x.shape))
    ) {
        misfit(`[${order}] is no order of ${x.shape.length} axes`);
    }
    return made(
        x.type,
        order.map((axis) => x.shape[axis]),
    );
}

export function unsqueeze(node, [x, where]) {
    const axes = numbers(where);
    const shape = x.shape.slice();
    for (const axis of axesOf(axes, shape.length + axes.length).sort((a, b) => a - b)) shape.splice(axis, 0, 1);
    return made(x.type, shape);
}

export function squeeze(node, [x, where]) {
    const dropped = where
        ? axesOf(numbers(where), x.shape.length)
        : [...x.shape.keys()].filter((axis) => x.shape[axis] === 1);
    if (dropped.some((axis) => x.shape[axis] !== 1)) misfit(`axes [${dropped}] are not all 1`);
    return made(
        x.type,
        x.shape.filter((_, axis) => !dropped.includes(axis)),
    );
}

export function concat(node, inputs) {
    const parts = inputs.filter((tensor) => tensor);
    const [axis] = axesOf([integer(node, "axis")], parts[0].shape.length);
    const others = parts.map(({shape}) => JSON.stringify([shape.slice(0, axis), shape.slice(axis + 1)]));
    if (new Set(others).size > 1) misfit("parts of other shapes");
    return made(
        parts[0].type,
        one(
            parts[0].shape,
            axis,
            parts.reduce((all, {shape}) => all + shape[axis], 0),
        ),
    );
}

export function split(node, [x, sizesAt]) {
    const [axis] = axesOf([integer(node, "axis", 0)], x.shape.length);
    const count = node.outputs.length;
    const each = Math.ceil(x.shape[axis] / count);
    const sizes = sizesAt
        ? numbers(sizesAt)
        : node.outputs.map((_, i) => (i < count - 1 ? each : x.shape[axis] - each * (count - 1)));
    if (integer(node, "num_outputs", count) !== count) misfit("another number of outputs");
    if (sizes.length !== count || sizes.reduce((all, size) => all + size, 0) !== x.shape[axis]) {
        misfit(`${x.shape[axis]} apart as [${sizes}]`);
    }
    return sizes.map((size) => ({type: x.type, shape: nonNegative(one(x.shape, axis, size))}));
}

export function slice(node, inputs) {
    const shape = inputs[0].shape.slice();
    for (const [axis, part] of slices(inputs, shape)) shape[axis] = part.length;
    return made(inputs[0].type, shape);
}

/**
 * For Slice: axis -> {first, step, length} of what stays.
 * @returns {Map<number, {first: number, step: number, length: number}>}
 */
export function slices([, startsAt, endsAt, axesAt, stepsAt], old) {
    const starts = numbers(startsAt);
    const ends = numbers(endsAt);
    const axes = axesAt ? numbers(axesAt) : [...starts.keys()];
    const steps = stepsAt ? numbers(stepsAt) : starts.map(() => 1);
    if ([ends, axes, steps].some((list) => list.length !== starts.length)) misfit("slices of other lengths");
    return new Map(
        axesOf(axes, old.length).map((axis, i) => {
            const step = steps[i];
            if (!step) misfit("a step of 0");
            if (step < 0 && starts[i] < -old[axis]) misfit(`down from ${starts[i]}`);
            const [low, high] = step > 0 ? [0, old[axis]] : [-1, old[axis] - 1];
            const bound = (place) => Math.min(Math.max(place < 0 ? place + old[axis] : place, low), high);
            const first = bound(starts[i]);
            return [axis, {first, step, length: Math.max(0, Math.ceil((bound(ends[i]) - first) / step))}];
        }),
    );
}

export function pad(node, [x, sidesAt, , axesAt]) {
    const sides = numbers(sidesAt);
    const axes = axesAt ? axesOf(numbers(axesAt), x.shape.length) : [...x.shape.keys()];
    if (sides.length !== 2 * axes.length) misfit("sides of other axes");
    const shape = x.shape.slice();
    axes.forEach((axis, i) => (shape[axis] += sides[i] + sides[axes.length + i]));
    return made(x.type, nonNegative(shape));
}

export function gather(node, [x, where]) {
    const [axis] = axesOf([integer(node, "axis", 0)], x.shape.length);
    return made(x.type, [...x.shape.slice(0, axis), ...where.shape, ...x.shape.slice(axis + 1)]);
}

export const gatherElements = (node, [x, where]) => made(x.type, where.shape);

export function gatherNd(node, [x, where]) {
    if (!where.shape.length) misfit("places without a depth");
    const depth = where.shape[where.shape.length - 1] + integer(node, "batch_dims", 0);
    return made(x.type, [...where.shape.slice(0, -1), ...x.shape.slice(depth)]);
}

export function reduce(node, [x, axesAt]) {
    const isWhole = !axesAt || !numbers(axesAt).length;
    if (isWhole && integer(node, "noop_with_empty_axes", 0)) return made(x.type, x.shape);
    const axes = isWhole ? [...x.shape.keys()] : axesOf(numbers(axesAt), x.shape.length);
    return made(x.type, dropAxes(x.shape, axes, integer(node, "keepdims", 1)));
}

export function argMax(node, [x]) {
    return made(
        INT64,
        dropAxes(x.shape, axesOf([integer(node, "axis", 0)], x.shape.length), integer(node, "keepdims", 1)),
    );
}

const dropAxes = (old, axes, keeps) =>
    old.map((size, axis) => (axes.includes(axis) ? 1 : size)).filter((_, axis) => keeps || !axes.includes(axis));

export function layerNorm(node, [x]) {
    const [axis] = axesOf([integer(node, "axis", -1)], x.shape.length);
    const statistics = {type: FLOAT, shape: x.shape.map((size, i) => (i < axis ? size : 1))};
    return [{type: x.type, shape: x.shape}, statistics, statistics].slice(0, node.outputs.length);
}

export function matmul(node, [{type, shape: a}, {shape: b}]) {
    const left = a.length > 1 ? a : [1, ...a];
    const right = b.length > 1 ? b : [...b, 1];
    if (!a.length || !b.length || left[left.length - 1] !== right[right.length - 2]) {
        misfit(`[${a}] times [${b}]`);
    }
    const outer = broadcastShapes(left.slice(0, -2), right.slice(0, -2));
    return made(type, [
        ...outer,
        ...(a.length > 1 ? left.slice(-2, -1) : []),
        ...(b.length > 1 ? right.slice(-1) : []),
    ]);
}

export function gemm(node, inputs) {
    const [[m, k], [rows, n]] = ["transA", "transB"].map((name, i) => {
        const {shape} = inputs[i];
        if (shape.length !== 2) misfit("no matrix");
        return integer(node, name, 0) ? shape.slice().reverse() : shape;
    });
    return k === rows ? made(inputs[0].type, [m, n]) : misfit(`${m} x ${k} times ${rows} x ${n}`);
}

export function conv(node, [x, w]) {
    if (x.shape[1] === undefined || x.shape[1] !== w.shape[1] * integer(node, "group", 1)) {
        misfit("channels of another number");
    }
    return made(x.type, [x.shape[0], w.shape[0], ...windows(node, x.shape.slice(2), w.shape.slice(2))]);
}

export function convTranspose(node, [x, w]) {
    const rank = x.shape.length - 2;
    const all = (name, usual, count = rank) => integers(node, name, new Array(Math.max(0, count)).fill(usual));
    const [strides, dilations, more, pads] = [
        all("strides", 1),
        all("dilations", 1),
        all("output_padding", 0),
        all("pads", 0, 2 * rank),
    ];
    if (rank < 0 || w.shape.length !== rank + 2 || x.shape[1] !== w.shape[0]) {
        misfit("channels of another number");
    }
    if ([strides, dilations, more].some((list) => list.length !== rank) || pads.length !== 2 * rank) {
        misfit("windows of other axes");
    }
    const sizes = x.shape
        .slice(2)
        .map(
            (size, i) =>
                (size - 1) * strides[i] +
                (w.shape[i + 2] - 1) * dilations[i] +
                1 +
                more[i] -
                pads[i] -
                pads[rank + i],
        );
    return made(x.type, nonNegative([x.shape[0], w.shape[1] * integer(node, "group", 1), ...sizes]));
}

export function pool(node, [x]) {
    if (x.shape.length < 2) misfit("no channels");
    return made(x.type, [
        ...x.shape.slice(0, 2),
        ...windows(node, x.shape.slice(2), integers(node, "kernel_shape", [])),
    ]);
}

/** The number of positions of a kernel along each axis. */
function windows(node, sizes, kernel) {
    const rank = sizes.length;
    const ones = sizes.map(() => 1);
    const [strides, dilations] = [integers(node, "strides", ones), integers(node, "dilations", ones)];
    const pads = integers(
        node,
        "pads",
        [...sizes, ...sizes].map(() => 0),
    );
    if ([kernel, strides, dilations].some((list) => list.length !== rank) || pads.length !== 2 * rank) {
        misfit("windows of other axes");
    }
    return sizes.map((size, i) => {
        const [before, after] = [pads[i], pads[rank + i]];
        const span = size + before + after - (kernel[i] - 1) * dilations[i] - 1;
        if (strides[i] < 1 || kernel[i] < 1 || dilations[i] < 1 || Math.min(before, after) < 0 || span < 0) {
            misfit(`a window of ${kernel[i]} on ${size}`);
        }
        return (integer(node, "ceil_mode", 0) ? Math.ceil(span / strides[i]) : Math.floor(span / strides[i])) + 1;
    });
}
