/**
 * The first model of a run as a function of a seed: Philox4x64-10 (Salmon, Moraes, Dror and Shaw, SC 2011).
 *
 * docs/protocol.md, The first model, has each step. A 64-bit word is two 32-bit halves here.
 * @module
 */
import {ServerFault} from "../errors.js";
import {allFinite} from "../vectors.js";

export const CONSTANT = 0, UNIFORM = 1, NORMAL = 2;

/** @typedef {{seed: bigint, fillings: {kind: number, a: number, b: number}[]}} Start */

/**
 * theta at version 0: float32 [P + B]. Raises ServerFault if it overflows.
 * @param {Start} start
 * @param {import("../layout.js").Layout} layout
 */
export function generate(start, layout) {
    const theta = new Float32Array(layout.size);
    layout.tensors.forEach((tensor, t) => fill(theta.subarray(tensor.start, tensor.stop), start.fillings[t], start.seed, t));
    if (!allFinite(theta)) throw new ServerFault("the server's start overflows float32");
    return theta;
}

function fill(values, {kind, a, b}, seed, tensor) {
    if (kind === CONSTANT) return values.fill(a);
    const next = words(seed, tensor);
    const width = Math.fround(b - a);
    for (let i = 0; i < values.length; i++) {
        if (kind === UNIFORM) {
            const [high] = next();
            values[i] = a + Math.fround(width * ((high >>> 8) / 2 ** 24));
        } else {
            let sum = 0;
            for (let word = 0; word < 3; word++) {
                const [high, low] = next();
                sum += (high >>> 16) + (high & 0xffff) + (low >>> 16) + (low & 0xffff);
            }
            values[i] = a + Math.fround(b * ((sum - 393210) / 65536));
        }
    }
}

const M0 = [0xd2e7470e, 0xe14c6c93], M1 = [0xca5a8263, 0x95121157];
const W0 = [0x9e3779b9, 0x7f4a7c15], W1 = [0xbb67ae85, 0x84caa73b];

/**
 * A function that returns the next [upper, lower] halves of a tensor's words.
 * @param {bigint} seed
 * @param {number} tensor
 */
export function words(seed, tensor) {
    let block = 0;
    let used = 4;
    /** @type {number[][]} */
    let words = [];
    return () => {
        if (used === 4) {
            words = philox(++block, [Number(seed >> 32n), Number(seed & 0xffffffffn)], [0, tensor]);
            used = 0;
        }
        return words[used++];
    };
}

function philox(block, k0, k1) {
    let [c0, c1, c2, c3] = [[Math.floor(block / 2 ** 32), block >>> 0], [0, 0], [0, 0], [0, 0]];
    for (let round = 0; round < 10; round++) {
        const p = multiply(M0, c0);
        const q = multiply(M1, c2);
        c0 = [q[0] ^ c1[0] ^ k0[0], q[1] ^ c1[1] ^ k0[1]];
        c2 = [p[0] ^ c3[0] ^ k1[0], p[1] ^ c3[1] ^ k1[1]];
        c1 = [q[2], q[3]];
        c3 = [p[2], p[3]];
        k0 = add(k0, W0);
        k1 = add(k1, W1);
    }
    return [c0, c1, c2, c3];
}

/** The four 32-bit parts of a 128-bit product, the highest first. @param {number[]} a @param {number[]} b */
function multiply([ah, al], [bh, bl]) {
    const [h0, l0] = wide(al, bl);
    const [h1, l1] = wide(ah, bl);
    const [h2, l2] = wide(al, bh);
    const [h3, l3] = wide(ah, bh);
    const second = h0 + l1 + l2;
    const third = h1 + h2 + l3 + Math.floor(second / 2 ** 32);
    return [h3 + Math.floor(third / 2 ** 32), third >>> 0, second >>> 0, l0];
}

/** The upper and lower half of a product of two 32-bit numbers. @param {number} a @param {number} b */
function wide(a, b) {
    a >>>= 0;
    b >>>= 0;
    const low = (a & 0xffff) * b;
    const high = (a >>> 16) * b + Math.floor(low / 65536);
    return [Math.floor(high / 65536), Math.imul(a, b) >>> 0];
}

/** @param {number[]} a @param {number[]} b */
function add([ah, al], [bh, bl]) {
    const low = (al >>> 0) + bl;
    return [(ah + bh + (low > 0xffffffff ? 1 : 0)) >>> 0, low >>> 0];
}
