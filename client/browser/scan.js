/**
 * A look at a MessagePack message before it is decoded: it is one whole object within limits.
 *
 * A list takes one byte on the wire and many in memory, so the number of containers is bounded, too.
 * @module
 */
import {ServerFault} from "./errors.js";

/** @typedef {{containers: number, array: number, text: number}} Limits */

/**
 * Raises ServerFault unless `octets` are one object without maps and extensions, within `limits`.
 * @param {Uint8Array} octets
 * @param {Limits} limits
 */
export function scan(octets, limits) {
    let at = 0;
    let containers = 0;
    const number = (size) => {
        if (at + size > octets.length) throw malformed();
        let value = 0;
        for (const end = at + size; at < end; at++) value = value * 256 + octets[at];
        return value;
    };
    for (let left = 1; left > 0; left--) {
        const first = number(1);
        if (first <= 0x7f || first >= 0xe0 || (first >= 0xc0 && first <= 0xc3 && first !== 0xc1)) continue;
        if ((first & 0xf0) === 0x90 || first === 0xdc || first === 0xdd) {
            const size = first < 0xa0 ? first & 15 : number(first === 0xdc ? 2 : 4);
            if (size > limits.array || ++containers > limits.containers) throw malformed("it holds too many lists");
            left += size;
        } else if ((first & 0xe0) === 0xa0 || (first >= 0xd9 && first <= 0xdb)) {
            const size = first < 0xc0 ? first & 31 : number(2 ** (first - 0xd9));
            if (size > limits.text) throw malformed("it holds a text that is too long");
            at += size;
        } else if (first >= 0xc4 && first <= 0xc6) {
            const size = number(2 ** (first - 0xc4));
            at += size;
        } else if (first >= 0xca && first <= 0xd3) at += first <= 0xcb ? 4 << (first - 0xca) : 1 << ((first - 0xcc) & 3);
        else throw malformed("it holds a map or an extension");
    }
    if (at !== octets.length) throw malformed();
}

const malformed = (why = "it is cut short, or has bytes after its end") =>
    new ServerFault(`the server sent a record that is not valid: ${why}`);
