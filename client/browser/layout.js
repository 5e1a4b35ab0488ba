/**
 * The place of each tensor of a model in the flat vector theta: P parameters, then B running statistics.
 * @module
 */
import {encode} from "./vendor/msgpack/index.mjs";
import {sha256, EMPTY} from "./bytes.js";

/**
 * theta[start..stop) as a matrix of `rows` x `columns`, a vector being one row. `line` is the place of its first
 * row among the rows and columns of all tensors.
 * @typedef {{name: string, shape: number[], start: number, stop: number, buffer: boolean, rows: number,
 *   columns: number, line: number}} Tensor
 */

/** @param {number[]} sizes */
export const product = (sizes) => sizes.reduce((all, size) => all * size, 1);

export class Layout {
    /** @param {Tensor[]} tensors */
    constructor(tensors) {
        this.tensors = tensors;
        const last = tensors[tensors.length - 1];
        /** P + B, or P of `trained`. */
        this.size = last.stop;
        /** How many rows and columns all tensors have. */
        this.lines = last.line + last.rows + last.columns;
        const trained = tensors.filter((tensor) => !tensor.buffer);
        /** The layout of the P parameters alone. @type {Layout} */
        this.trained = trained.length === tensors.length ? this : new Layout(trained);
        /** B. */
        this.buffers = this.size - this.trained.size;
    }

    /**
     * The layout of checked [name, shape] and [name, shape, true], as a Welcome has them.
     * @param {[string, number[], boolean?][]} shapes
     */
    static of(shapes) {
        let start = 0;
        let line = 0;
        return new Layout(
            shapes.map(([name, shape, buffer = false]) => {
                const [rows, ...rest] = shape.length > 1 ? shape : [1, ...shape];
                const tensor = {name, shape, start, stop: start + product(shape), buffer, rows, columns: product(rest), line};
                start = tensor.stop;
                line += tensor.rows + tensor.columns;
                return tensor;
            }),
        );
    }

    /**
     * How many of the increasing `indices` each tensor has; null: all entries.
     * @param {ArrayLike<number> | null} indices
     */
    counts(indices) {
        if (indices === null) return this.tensors.map((tensor) => tensor.stop - tensor.start);
        let at = 0;
        return this.tensors.map(({stop}) => {
            const first = at;
            while (at < indices.length && indices[at] < stop) at++;
            return at - first;
        });
    }

    /** The 16 bytes that name the layout; none where the page is not a secure context. */
    async digest() {
        const shapes = this.tensors.map(({name, shape, buffer}) => (buffer ? [name, shape, true] : [name, shape]));
        return (await sha256(encode(shapes)))?.slice(0, 16) ?? EMPTY;
    }
}
