/**
 * Index mode 3 of docs/protocol.md: indices and signs in one arithmetic-coded stream.
 *
 * The chances come from earlier decisions, in integers below 2^53, so that all machines agree.
 * @module
 */
import {ServerFault} from "../errors.js";

const SPARSEST = 64, SPARE = 1024;
const EVEN = 1 << 15;
const SURE = 63570;
/** More entries than this could take a product beyond 2^53. */
const MOST = 1 << 21;

/** @typedef {import("../layout.js").Layout} Layout */

/**
 * The stream of `indices` with the signs `negative`; null if they are too scattered for this code.
 * @param {Int32Array} indices
 * @param {Uint8Array} negative
 * @param {Layout} layout of the trained parameters
 * @param {Int32Array | null} activity
 */
export function encodeGrid(indices, negative, layout, activity = null) {
    if (!indices.length) return new Uint8Array(0);
    if (indices.length > MOST) return null;
    const coder = new Coder(null);
    if (!code(coder, layout, activity, indices.slice(), negative.slice())) return null;
    const octets = coder.end();
    return isPlausible(octets.length, indices.length) ? octets : null;
}

/**
 * {indices, negative} of a stream of `count` entries. Raises ServerFault unless it is what an encoder writes.
 * @param {Uint8Array} octets
 * @param {number} count
 * @param {Layout} layout of the trained parameters
 * @param {Int32Array | null} activity
 */
export function decodeGrid(octets, count, layout, activity = null) {
    if (!isPlausible(octets.length, count) || count > Math.min(layout.size, MOST)) {
        throw new ServerFault(`${octets.length} bytes of a grid do not hold ${count} entries`);
    }
    const indices = new Int32Array(count);
    const negative = new Uint8Array(count);
    if (!count && octets.length) throw new ServerFault("no entries take no bytes of a grid");
    if (count) {
        const coder = new Coder(octets);
        const fits = code(coder, layout, activity, indices, negative);
        if (!fits || !coder.isAtEnd()) throw new ServerFault("a grid is not a stream that an encoder writes");
    }
    return {indices, negative};
}

const isPlausible = (octets, count) => count <= 8 * octets && octets <= 8 * count + 64;

/** A carryless binary range coder (G. N. N. Martin, 1979): it writes, or reads `octets`. */
class Coder {
    /** @param {Uint8Array | null} octets */
    constructor(octets) {
        this.octets = octets;
        /** @type {number[]} */
        this.out = [];
        this.low = 0;
        this.high = 0xffffffff;
        this.shifted = 0;
        this.code = 0;
        if (octets) for (let i = 0; i < 4; i++) this.code = this.code * 256 + (octets[i] ?? 0);
    }

    /** Code `bit`, which is 1 with the chance `chance` / 65536, and return it. */
    bit(bit, chance) {
        chance = Math.min(Math.max(chance, 16), 65520);
        const middle = this.low + Math.floor(((this.high - this.low) * chance) / 65536);
        if (this.octets) bit = this.code <= middle ? 1 : 0;
        if (bit) this.high = middle;
        else this.low = middle + 1;
        while (this.low >>> 24 === this.high >>> 24) {
            if (this.octets) this.code = (this.code % 0x1000000) * 256 + (this.octets[this.shifted + 4] ?? 0);
            else this.out.push(this.low >>> 24);
            this.low = (this.low % 0x1000000) * 256;
            this.high = (this.high % 0x1000000) * 256 + 255;
            this.shifted++;
        }
        return bit;
    }

    /** Code 0 <= number <= limit in Elias's gamma code. */
    number(number, limit) {
        let width = 0;
        while (2 ** (width + 1) <= limit + 1 && this.bit(number + 1 >= 2 ** (width + 1) ? 1 : 0, EVEN)) width++;
        let value = 1;
        for (let place = width - 1; place >= 0; place--) {
            value = 2 * value + this.bit(Math.floor((number + 1) / 2 ** place) % 2, EVEN);
        }
        return value - 1;
    }

    /** Code flags, `ones` of which are 1. */
    flags(flags, ones) {
        const hits = [0, 0, 0, 0];
        const seen = [0, 0, 0, 0];
        let context = 0;
        for (let j = 0; j < flags.length; j++) {
            const left = flags.length - j;
            if (ones > 0 && ones < left) {
                const share = 4 * Math.floor((ones * 65536) / left);
                flags[j] = this.bit(flags[j], Math.floor((hits[context] * 65536 + share) / (seen[context] + 4)));
            } else flags[j] = Math.min(ones, 1);
            hits[context] += flags[j];
            seen[context]++;
            context = ((context << 1) & 2) | flags[j];
            ones -= flags[j];
        }
    }

    /** Flags of `lines` lines, whose activity says how the ones are shared; with `slots` a line may have several. */
    lines(flags, ones, activity, line, lines, slots) {
        let total = 0;
        if (activity) for (let i = line; i < line + lines; i++) total += activity[i];
        if (!total) return this.flags(flags, ones);
        const hits = new Array(16).fill(0);
        const seen = new Array(16).fill(0);
        let left = total + lines;
        let repeat = 0;
        for (let j = 0; j < flags.length; j++) {
            let context = repeat;
            for (let relative = Math.floor((4 * activity[line] * lines) / total); relative && context < 14; ) {
                context += 2;
                relative = Math.floor(relative / 2);
            }
            const weight = activity[line] + 1;
            if (ones > 0 && ones < flags.length - j) {
                const share = ones * weight;
                const part = Math.floor((share * 65536) / (slots ? share + left : left));
                const chance = hits[context] * 65536 + 16 * (slots ? part : Math.min(part, SURE));
                flags[j] = this.bit(flags[j], Math.floor(chance / (seen[context] + 16)));
                hits[context] += flags[j];
                seen[context]++;
            } else flags[j] = Math.min(ones, 1);
            ones -= flags[j];
            repeat = flags[j] & slots;
            if (!repeat) {
                left -= weight;
                line++;
            }
        }
    }

    /** The stream that was written. */
    end() {
        return Uint8Array.from(this.low ? [...this.out, (this.low >>> 24) + 1] : this.out);
    }

    /** Whether all of the stream was read, and it ends as a writer ends it. */
    isAtEnd() {
        const length = this.shifted + Math.min(this.low, 1);
        const octets = /** @type {Uint8Array} */ (this.octets);
        return octets.length === length && (length === this.shifted || octets[length - 1] === (this.low >>> 24) + 1);
    }
}

/** Code all entries. Writing takes `indices` and `negative`, reading fills them. False: they cannot be coded. */
function code(coder, layout, activity, indices, negative) {
    const weights = layout.tensors.map(({rows, columns}) => Math.floor(Math.sqrt(rows * columns)));
    let rest = weights.reduce((all, weight) => all + weight, 0);
    let first = 0;
    for (const [t, tensor] of layout.tensors.entries()) {
        const size = tensor.rows * tensor.columns;
        const left = indices.length - first;
        const share = Math.min(Math.floor((2 * left * weights[t] + rest) / Math.max(2 * rest, 1)), size);
        rest -= weights[t];
        let count = 0;
        while (!coder.octets && first + count < indices.length && indices[first + count] < tensor.stop) count++;
        if (rest > 0) {
            const excess = count - share;
            const folded = coder.number(excess > 0 ? 2 * excess - 1 : -2 * excess, 2 * size);
            count = share + (folded % 2 ? (folded + 1) / 2 : -folded / 2);
        } else count = left;
        if (count < 0 || count > Math.min(size, left)) return false;
        if (count && !codeMatrix(coder, tensor, activity, indices, negative, first, count)) return false;
        first += count;
    }
    return true;
}

/** Code the `count` entries of one tensor, from number `first` on. */
function codeMatrix(coder, {rows, columns, start, line}, activity, indices, negative, first, count) {
    const writes = !coder.octets;
    const slots = new Uint8Array(rows + count - 1);
    const flags = new Uint8Array(columns);
    if (writes) {
        for (let e = 0; e < count; e++) {
            const place = indices[first + e] - start;
            slots[e + Math.floor(place / columns)] = 1;
            flags[place % columns] = 1;
        }
    }
    coder.lines(slots, count, activity, line, rows, 1);
    const counts = new Int32Array(rows);
    const begins = new Int32Array(rows);
    begins[0] = first;
    let row = 0;
    for (const slot of slots) {
        if (slot) counts[row]++;
        else {
            row++;
            begins[row] = begins[row - 1] + counts[row - 1];
        }
    }
    const filled = [];
    for (row = 0; row < rows; row++) if (counts[row]) filled.push(row);
    filled.sort((a, b) => counts[b] - counts[a] || a - b);
    const widest = counts[filled[0]];
    const used = flags.reduce((all, flag) => all + flag, 0);
    const width = widest + coder.number(used - widest, Math.min(columns, count) - widest);
    if (width > columns || filled.length * width > SPARSEST * count + SPARE) return false;
    coder.lines(flags, width, activity, line + rows, columns, 0);
    const active = [];
    const rank = new Int32Array(columns);
    for (let j = 0; j < columns; j++) if (flags[j]) rank[j] = active.push(j);

    const hits = new Array(128).fill(0);
    const seen = new Array(128).fill(0);
    const sums = new Int32Array(width + 1); // place 0 is left of the first column
    let cells = new Uint8Array(width + 1);
    let above = new Uint8Array(width + 1);
    let alike = 10;
    let pairs = 11;
    for (let done = 0; done < filled.length; done++) {
        row = filled[done];
        let place = begins[row];
        const end = place + counts[row];
        let sign = -1;
        cells.fill(0);
        if (writes) for (let e = place; e < end; e++) cells[rank[indices[e] - start - row * columns]] = 1;
        for (let j = 1; j <= width && place < end; j++) {
            const ones = end - place;
            const left = width + 1 - j;
            if (ones < left) {
                const prior = Math.floor((ones * 65536) / left);
                const a = 8 * Math.floor((8 * sums[j]) / (done + 1)) + (prior >> 13);
                const b = 64 + 8 * Math.min(sums[j], 7) + 4 * cells[j - 1] + 2 * above[j - 1] + above[j];
                const chance =
                    Math.floor((hits[a] * 65536 + prior) / (seen[a] + 1)) + Math.floor((hits[b] * 65536 + prior) / (seen[b] + 1));
                seen[a]++;
                seen[b]++;
                if (!coder.bit(cells[j], chance >> 1)) continue;
                hits[a]++;
                hits[b]++;
            }
            cells[j] = 1;
            sums[j]++;
            if (sign < 0) sign = coder.bit(negative[place], EVEN);
            else {
                const chance = Math.floor(((sign ? alike : pairs - alike) * 65536) / pairs);
                const before = sign;
                sign = coder.bit(negative[place], chance);
                alike += sign === before ? 1 : 0;
                pairs++;
            }
            indices[place] = start + row * columns + active[j - 1];
            negative[place++] = sign;
        }
        [cells, above] = [above, cells];
    }
    return sums.subarray(1).every((sum) => sum > 0);
}
