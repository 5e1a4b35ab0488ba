/**
 * The cost of a step before it runs: peak bytes and multiplications (shared/graphs/footprint.py).
 *
 * It visits each node for inputs of given shapes, and computes the values from which shapes come. Of all other
 * tensors it knows only type and shape.
 * @module
 */
import {product} from "../layout.js";
import {BOOL, INT32, INT64, ITEM_BYTES, allInputs, badGraph} from "./graph.js";
import {OPERATORS} from "./operators.js";
import {broadcastShapes, integer, integers, misfit, slices} from "./shapes.js";

/**
 * @typedef {import("./graph.js").Graph} Graph
 * @typedef {import("./graph.js").Node} Node
 * @typedef {import("./shapes.js").Info} Info
 */

const MOST_ENTRIES = 1 << 12;
/** Products of numbers with a magnitude below it do not overflow. */
const SAFE = 2 ** 31;
/** Multiplications that take as long as the start of an operator in a body. */
const START = 1 << 12;

const isWhole = (type) => type === INT64 || type === INT32 || type === BOOL;
const isSmall = (shape) => product(shape) <= MOST_ENTRIES;

/**
 * {octets, work, outputs} of `graph` for inputs of these shapes. Raises ServerFault if operators do not fit
 * together, or a shape depends on more than shapes.
 * @param {Graph} graph
 * @param {Record<string, number[]>} shapes of all its inputs
 */
export function footprint(graph, shapes) {
    /** @type {Map<string, Info>} */
    const tensors = new Map();
    for (const [name, constant] of graph.constants) tensors.set(name, {...constant, entries: entriesOf(constant)});
    for (const {name, type} of graph.inputs) tensors.set(name, {type, shape: shapes[name]});
    return visit(graph, tensors);
}

/**
 * @param {Graph} graph
 * @param {Map<string, Info>} tensors those from outside it, to which its own are added
 */
function visit(graph, tensors) {
    const outer = new Set(tensors.keys());
    const outputs = new Set(graph.outputs.map((port) => port.name));
    const last = new Map(graph.nodes.flatMap((node, number) => allInputs(node).map((name) => [name, number])));
    let allocated = 0;
    let octets = 0;
    let work = 0;
    graph.nodes.forEach((node, number) => {
        const {results, done, scratch} = compute(node, tensors);
        work += done;
        if (results.length < node.outputs.length) {
            throw badGraph(`${node.operator} gives ${results.length} results`);
        }
        node.outputs.forEach((name, i) => {
            if (!name) return;
            tensors.set(name, results[i]);
            allocated += bytesOf(results[i]);
        });
        octets = Math.max(octets, allocated + scratch);
        for (const name of new Set([...allInputs(node), ...node.outputs])) {
            const stays = (last.get(name) ?? -1) > number || !name || outputs.has(name) || outer.has(name);
            if (!stays) allocated -= bytesOf(/** @type {Info} */ (tensors.get(name)));
        }
    });
    return {
        octets,
        work,
        outputs: new Map(graph.outputs.map(({name}) => [name, /** @type {Info} */ (tensors.get(name))])),
    };
}

/** @param {Node} node @param {Map<string, Info>} tensors */
function compute(node, tensors) {
    const inputs = node.inputs.map((name) => (name ? /** @type {Info} */ (tensors.get(name)) : null));
    const {rule, work} = /** @type {import("./operators.js").Operator} */ (OPERATORS.get(node.operator));
    try {
        if (!rule) return scan(node, inputs, tensors);
        const results = rule(node, [...inputs, null, null, null, null, null]);
        const done = Math.max(1, work(node, inputs, results));
        return {results: [withEntries(node, inputs, results[0]), ...results.slice(1)], done, scratch: 0};
    } catch (error) {
        // A rule that reads an input that is not there raises a TypeError.
        if (!(error instanceof RangeError || error instanceof TypeError)) throw error;
        throw badGraph(
            `${node.operator} (${node.outputs.join(", ").slice(0, 80)}) does not fit its inputs: ${error.message}`,
        );
    }
}

/** A Scan's body takes the states and one step of the scanned inputs, and gives the next states and results. */
function scan(node, inputs, tensors) {
    const body = node.attributes.get("body");
    const scanned = integer(node, "num_scan_inputs");
    const states = inputs.length - scanned;
    if (!body || !(scanned >= 1) || states < 0 || inputs.includes(null)) {
        misfit(`it scans ${scanned} of ${inputs.length} inputs`);
    }
    if (body.inputs.length !== inputs.length || body.outputs.length < states) {
        misfit("its body takes or gives another number");
    }
    const steps = inputs[states].shape[0];
    if (steps === undefined || inputs.slice(states).some(({shape}) => shape[0] !== steps)) {
        misfit("the scanned inputs have different lengths");
    }
    for (const [name, count] of [
        ["scan_input_directions", scanned],
        ["scan_output_directions", body.outputs.length - states],
    ]) {
        const directions = integers(node, String(name), new Array(Number(count)).fill(0));
        if (directions.length !== count || directions.some((way) => way !== 0 && way !== 1)) {
            misfit(`${name} must be 0 or 1 each`);
        }
    }
    const step = inputs.map(({type, shape}, i) => ({type, shape: i < states ? shape : shape.slice(1)}));
    const inner = new Map(tensors);
    body.inputs.forEach((port, i) => {
        checkPort(port, step[i]);
        inner.set(port.name, step[i]);
    });
    const cost = visit(body, inner);
    const results = body.outputs.map((port, i) => {
        const found = /** @type {Info} */ (cost.outputs.get(port.name));
        checkPort(port, found);
        const isSame =
            i >= states ||
            (found.type === step[i].type &&
                String(found.shape) === String(step[i].shape) &&
                found.shape.length === step[i].shape.length);
        if (!isSame) misfit(`its state ${port.name} becomes [${found.shape}]`);
        return {type: found.type, shape: i < states ? found.shape : [steps, ...found.shape]};
    });
    return {results, done: steps * (cost.work + START * body.nodes.length), scratch: cost.octets};
}

function checkPort({name, type, shape}, tensor) {
    const fits =
        shape.length === tensor.shape.length &&
        shape.every((size, i) => typeof size === "string" || size === tensor.shape[i]);
    if (type !== tensor.type || !fits) misfit(`${name} is [${tensor.shape}], its body has [${shape}]`);
}

const bytesOf = ({type, shape}) => product(shape) * (ITEM_BYTES.get(type) ?? 0);

/**
 * The entries of a constant, if a shape may come from them.
 * @param {import("./graph.js").Constant} constant
 */
function entriesOf({type, shape, octets}) {
    if (!isWhole(type) || !isSmall(shape)) return null;
    const aligned = octets.slice().buffer;
    if (type === BOOL) return Array.from(octets);
    return type === INT32 ? Array.from(new Int32Array(aligned)) : Array.from(new BigInt64Array(aligned), Number);
}

/**
 * `result` with its entries, if they can be known.
 * @param {Node} node
 * @param {(Info | null)[]} inputs
 * @param {Info} result
 */
function withEntries(node, inputs, result) {
    const known = result.entries ?? null;
    if (known !== null) {
        return isWhole(result.type) && isSmall(result.shape) ? result : {...result, entries: null};
    }
    const evaluate = ENTRIES[node.operator];
    const isKnown =
        evaluate && isSmall(result.shape) && isWhole(result.type) && inputs.every((one) => !one || one.entries);
    const entries = isKnown ? evaluate(node, inputs, result) : null;
    if (entries?.length !== product(result.shape)) return result;
    const convert = {[BOOL]: Number, [INT32]: (value) => value | 0, [INT64]: (value) => value}[result.type];
    return {
        ...result,
        entries: result.type === BOOL ? entries.map((value) => (value ? 1 : 0)) : entries.map(convert),
    };
}

/** `operation` on whole numbers, entry by entry; null where machine integers might overflow. */
const arithmetic = (operation) => (node, inputs, result) => {
    const operands = inputs.filter((one) => one);
    if (!operands.every(({entries}) => entries.every((value) => Math.abs(value) < SAFE))) return null;
    const views = operands.map(({shape, entries}) => spread(entries, shape, result.shape));
    const found = views[0].map((_, i) => operation(...views.map((view) => view[i])));
    return found.every(Number.isFinite) ? found : null;
};

/** Entries of `shape`, repeated to the shape `wanted`. */
function spread(entries, shape, wanted) {
    broadcastShapes(shape, wanted);
    const steps = wanted.map((_, axis) => {
        const own = axis - wanted.length + shape.length;
        return own < 0 || shape[own] === 1 ? 0 : product(shape.slice(own + 1));
    });
    return Array.from({length: product(wanted)}, (_, i) => {
        let place = 0;
        for (let axis = wanted.length - 1; axis >= 0; axis--) {
            place += (i % wanted[axis]) * steps[axis];
            i = Math.floor(i / wanted[axis]);
        }
        return entries[place];
    });
}

const same = (node, [x]) => x.entries;

/** The entries of `shape` at `places`, a list of places for each axis. */
function pick(entries, shape, places) {
    return places
        .reduceRight(
            (rest, own, axis) => {
                const step = product(shape.slice(axis + 1));
                return own.flatMap((place) => rest.map((offset) => place * step + offset));
            },
            [0],
        )
        .map((place) => entries[place]);
}

/** @type {Record<string, ((node: any, inputs: any, result: Info) => number[] | null) | undefined>} */
const ENTRIES = {
    Add: arithmetic((a, b) => a + b),
    Sub: arithmetic((a, b) => a - b),
    Mul: arithmetic((a, b) => a * b),
    Div: arithmetic((a, b) => Math.trunc(a / b)),
    Equal: arithmetic((a, b) => Number(a === b)),
    Where: arithmetic((truth, a, b) => (truth ? a : b)),
    Cast: same,
    Identity: same,
    Reshape: same,
    Squeeze: same,
    Unsqueeze: same,
    Slice(node, inputs) {
        const parts = slices(/** @type {any} */ ([...inputs, null, null, null]), inputs[0].shape);
        const places = inputs[0].shape.map((size, axis) => {
            const {first, step, length} = parts.get(axis) ?? {first: 0, step: 1, length: size};
            return Array.from({length}, (_, i) => first + i * step);
        });
        return pick(inputs[0].entries, inputs[0].shape, places);
    },
    Gather(node, [x, where]) {
        const axis = (integer(node, "axis", 0) + x.shape.length) % x.shape.length;
        const size = x.shape[axis];
        if (where.entries.some((place) => place < -size || place >= size)) misfit("a place beyond the end");
        const places = x.shape.map((size) => Array.from({length: size}, (_, i) => i));
        return pick(
            x.entries,
            x.shape,
            one(
                places,
                axis,
                where.entries.map((place) => (place < 0 ? place + size : place)),
            ),
        );
    },
    Concat(node, inputs) {
        const parts = inputs.filter((tensor) => tensor);
        const axis = (integer(node, "axis") + parts[0].shape.length) % parts[0].shape.length;
        const rows = product(parts[0].shape.slice(0, axis));
        return Array.from({length: rows}, (_, row) =>
            parts.flatMap(({entries}) =>
                entries.slice((row * entries.length) / rows, ((row + 1) * entries.length) / rows),
            ),
        ).flat();
    },
};

const one = (list, place, value) => list.map((old, i) => (i === place ? value : old));
