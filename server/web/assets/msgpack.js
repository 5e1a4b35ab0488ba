// Reads one msgpack object (msgpack.org's specification), strictly: what is not whole, not of a frame, or
// goes on behind its end is refused. Nothing is made that the bytes do not pay for.

export class Malformed extends Error {}

const DEEPEST = 16;
const SHORT = 40; // bytes of a text below which a loop is faster than a TextDecoder

export function decode(buffer) {
    const bytes = new Uint8Array(buffer);
    const view = new DataView(buffer);
    const utf8 = new TextDecoder("utf-8", { fatal: true });
    let at = 0;

    function take(size) {
        const start = at;
        at += size;
        if (at > bytes.length) throw new Malformed("a frame ends early");
        return start;
    }

    function text(size) {
        const start = take(size);
        if (size <= SHORT) {
            let made = "";
            let byte = 0;
            let place = start;
            while (place < at && (byte = bytes[place]) < 128) {
                made += String.fromCharCode(byte);
                place += 1;
            }
            if (place === at) return made;
        }
        try {
            return utf8.decode(bytes.subarray(start, at));
        } catch {
            throw new Malformed("a text is not UTF-8");
        }
    }

    function list(count, depth) {
        if (depth > DEEPEST || count > bytes.length - at)
            throw new Malformed("a list is longer than its frame");
        const made = new Array(count);
        for (let n = 0; n < count; n += 1) made[n] = value(depth + 1);
        return made;
    }

    function map(count, depth) {
        if (depth > DEEPEST || 2 * count > bytes.length - at)
            throw new Malformed("a map is longer than its frame");
        const made = Object.create(null); // has no keys but its own, whatever they are called
        for (let n = 0; n < count; n += 1) {
            const key = value(depth + 1);
            if (typeof key !== "string" || key in made)
                throw new Malformed("a key is no text, or there twice");
            made[key] = value(depth + 1);
        }
        return made;
    }

    function value(depth) {
        const tag = bytes[take(1)];
        if (tag < 0x80) return tag;
        if (tag < 0x90) return map(tag & 0x0f, depth);
        if (tag < 0xa0) return list(tag & 0x0f, depth);
        if (tag < 0xc0) return text(tag & 0x1f);
        if (tag >= 0xe0) return tag - 0x100;
        switch (tag) {
            case 0xc0:
                return null;
            case 0xc2:
                return false;
            case 0xc3:
                return true;
            case 0xca:
                return view.getFloat32(take(4));
            case 0xcb:
                return view.getFloat64(take(8));
            case 0xcc:
                return view.getUint8(take(1));
            case 0xcd:
                return view.getUint16(take(2));
            case 0xce:
                return view.getUint32(take(4));
            case 0xcf:
                return Number(view.getBigUint64(take(8)));
            case 0xd0:
                return view.getInt8(take(1));
            case 0xd1:
                return view.getInt16(take(2));
            case 0xd2:
                return view.getInt32(take(4));
            case 0xd3:
                return Number(view.getBigInt64(take(8)));
            case 0xd9:
                return text(view.getUint8(take(1)));
            case 0xda:
                return text(view.getUint16(take(2)));
            case 0xdb:
                return text(view.getUint32(take(4)));
            case 0xdc:
                return list(view.getUint16(take(2)), depth);
            case 0xdd:
                return list(view.getUint32(take(4)), depth);
            case 0xde:
                return map(view.getUint16(take(2)), depth);
            case 0xdf:
                return map(view.getUint32(take(4)), depth);
            default:
                throw new Malformed("a frame has bytes, extensions or other kinds that no frame has");
        }
    }

    const whole = value(0);
    if (at !== bytes.length) throw new Malformed("something is behind the end of a frame");
    return whole;
}
