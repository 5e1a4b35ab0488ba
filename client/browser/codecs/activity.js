/**
 * The activity of rows and columns in the differences that a device received (docs/protocol.md, Activity).
 * @module
 */

/** @typedef {import("../layout.js").Layout} Layout */

const LIMIT = 255;

/** @param {Layout} layout of the trained parameters */
export const initialActivity = (layout) => new Int32Array(layout.lines);

/**
 * The activity after a difference with entries at `indices`; null: at all of them, which tells nothing.
 * @param {Int32Array} activity
 * @param {Int32Array | null} indices
 * @param {Layout} layout of the trained parameters
 */
export function followActivity(activity, indices, layout) {
    if (!indices?.length) return activity;
    const entries = new Int32Array(activity.length);
    let t = 0;
    for (const index of indices) {
        while (index >= layout.tensors[t].stop) t++;
        const {start, line, rows, columns} = layout.tensors[t];
        const row = Math.floor((index - start) / columns);
        entries[line + row]++;
        entries[line + rows + (index - start - row * columns)]++;
    }
    return activity.map((before, i) => before - (before >> 3) + 16 * Math.min(entries[i], LIMIT));
}
