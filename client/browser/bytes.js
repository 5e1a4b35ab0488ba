/**
 * Octets: base64url, hexadecimal, CRC-32, and zlib streams within a limit.
 * @module
 */

export const EMPTY = new Uint8Array(0);

/**
 * One array of all parts.
 * @param {...Uint8Array} parts
 */
export function concat(...parts) {
    const whole = new Uint8Array(parts.reduce((size, part) => size + part.length, 0));
    let at = 0;
    for (const part of parts) {
        whole.set(part, at);
        at += part.length;
    }
    return whole;
}

/** @param {string} text */
export const utf8 = (text) => new TextEncoder().encode(text);

/**
 * base64url without padding.
 * @param {Uint8Array} octets
 */
export function toBase64url(octets) {
    const text = btoa(String.fromCharCode(...octets));
    return text.replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, "");
}

/**
 * The octets of a text in base64url; null if it is not in its one form.
 * @param {string} text
 */
export function fromBase64url(text) {
    if (!/^[\w-]*$/.test(text)) return null;
    try {
        const octets = Uint8Array.from(atob(text.replaceAll("-", "+").replaceAll("_", "/")), (c) => c.charCodeAt(0));
        return toBase64url(octets) === text ? octets : null;
    } catch {
        return null;
    }
}

/** @param {Uint8Array} octets */
export const toHex = (octets) => Array.from(octets, (octet) => octet.toString(16).padStart(2, "0")).join("");

/**
 * SHA-256, or null where the page is not a secure context.
 * @param {Uint8Array} octets
 */
export async function sha256(octets) {
    const subtle = globalThis.crypto?.subtle;
    if (!subtle) return null;
    return new Uint8Array(await subtle.digest("SHA-256", /** @type {BufferSource} */ (octets)));
}

const CRC = Uint32Array.from({length: 256}, (_, octet) => {
    for (let bit = 0; bit < 8; bit++) octet = (octet >>> 1) ^ (octet & 1 ? 0xedb88320 : 0);
    return octet;
});

/**
 * zlib's crc32 of `octets`, continued from `before`: an unsigned 32-bit number.
 * @param {Uint8Array} octets
 */
export function crc32(octets, before = 0) {
    let register = ~before;
    for (const octet of octets) register = (register >>> 8) ^ CRC[(register ^ octet) & 255];
    return ~register >>> 0;
}

/**
 * A zlib stream (RFC 1950) of `octets`.
 * @param {Uint8Array} octets
 */
export async function deflate(octets) {
    return collect(stream(octets).pipeThrough(new CompressionStream("deflate")), Infinity);
}

/**
 * The `size` bytes of a zlib stream; null if it is damaged or of another length. It never holds more than that.
 * @param {Uint8Array} octets
 * @param {number} size
 */
export async function inflate(octets, size) {
    try {
        const found = await collect(stream(octets).pipeThrough(new DecompressionStream("deflate")), size);
        return found?.length === size ? found : null;
    } catch {
        return null;
    }
}

/**
 * All bytes of a stream; null, and the stream is cancelled, once they are more than `limit`.
 * @param {ReadableStream<Uint8Array>} source
 * @param {number} limit
 * @param {(octets: number) => void} [count] gets the length of each part
 */
export async function collect(source, limit, count) {
    const reader = source.getReader();
    const parts = [];
    let size = 0;
    for (;;) {
        const {done, value} = await reader.read();
        if (done) return concat(...parts);
        size += value.length;
        count?.(value.length);
        if (size > limit) {
            reader.cancel().catch(() => {});
            return null;
        }
        parts.push(value);
    }
}

/**
 * @param {Uint8Array} octets
 * @returns {ReadableStream<any>}
 */
const stream = (octets) => new Blob([/** @type {BlobPart} */ (octets)]).stream();
