/**
 * The part of protobuf's wire format that a graph needs, with one valid encoding of each message.
 * @module
 */
import {concat, utf8} from "../bytes.js";
import {badGraph} from "./graph.js";

export const VARINT = 0, OCTETS = 2, FIXED32 = 5;

/**
 * Number -> [name, wire type, whether it is repeated].
 * @typedef {Record<number, [string, number, boolean?]>} Fields
 */

/**
 * The values of a message by the names of its fields, numbers as bigint. Raises ServerFault for a field that is
 * unknown, of another wire type, or repeated though single, and for numbers in a longer form than they need.
 * @param {Uint8Array} octets
 * @param {Fields} fields
 * @param {string} message its name in errors
 * @returns {Record<string, any[]>}
 */
export function readMessage(octets, fields, message) {
    /** @type {Record<string, any[]>} */
    const values = {};
    for (const [name] of Object.values(fields)) values[name] = [];
    let at = 0;
    const varint = () => {
        let number = 0n;
        for (let length = 0; length < 10; length++, at++) {
            if (at >= octets.length) throw badGraph(`${message} is cut short`);
            number |= BigInt(octets[at] & 127) << BigInt(7 * length);
            if (octets[at] < 128) {
                if ((octets[at] === 0 && length) || number >> 64n) break;
                at++;
                return number;
            }
        }
        throw badGraph(`${message} has a number in a longer form than it needs`);
    };
    while (at < octets.length) {
        const tag = varint();
        const number = Number(tag >> 3n);
        const wire = Number(tag & 7n);
        const field = fields[number];
        if (!field) throw badGraph(`${message} has a field ${number}, which none may have`);
        const [name, expected, isRepeated] = field;
        if (wire !== expected) throw badGraph(`${message}: ${name} is of wire type ${wire}, not ${expected}`);
        if (values[name].length && !isRepeated) throw badGraph(`${message} has two of ${name}`);
        if (wire === VARINT) {
            values[name].push(varint());
            continue;
        }
        const length = wire === FIXED32 ? 4 : Number(varint());
        if (length > octets.length - at) throw badGraph(`${message} is cut short`);
        values[name].push(octets.subarray(at, at + length));
        at += length;
    }
    return values;
}

/**
 * One field: a number as a varint, anything else as bytes with their length.
 * @param {number} number
 * @param {number | bigint | string | Uint8Array} value
 */
export function field(number, value) {
    if (typeof value === "number" || typeof value === "bigint") {
        return Uint8Array.from([...varintOf((number << 3) | VARINT), ...varintOf(BigInt.asUintN(64, BigInt(value)))]);
    }
    const octets = typeof value === "string" ? utf8(value) : value;
    return concat(Uint8Array.from([...varintOf((number << 3) | OCTETS), ...varintOf(octets.length)]), octets);
}

/** One field of four bytes. @param {number} number @param {Uint8Array} octets */
export const fixed32 = (number, octets) => concat(Uint8Array.from(varintOf((number << 3) | FIXED32)), octets);

/** @param {number | bigint} value */
function varintOf(value) {
    const octets = [];
    let number = BigInt(value);
    for (; number > 127n; number >>= 7n) octets.push(Number(number & 127n) | 128);
    octets.push(Number(number));
    return octets;
}
