/**
 * Loops over vectors: several times as fast as the callbacks of typed arrays.
 * @module
 */

/** @param {Float32Array} vector */
export function allFinite(vector) {
    for (let k = 0; k < vector.length; k++) if (!Number.isFinite(vector[k])) return false;
    return true;
}

/**
 * The root mean square of vector[start..stop).
 * @param {Float32Array} vector
 * @param {number} start
 * @param {number} stop
 */
export function rms(vector, start, stop) {
    let sum = 0;
    for (let k = start; k < stop; k++) sum += vector[k] * vector[k];
    return Math.sqrt(sum / Math.max(1, stop - start));
}

/**
 * The `count`-th largest number, by Hoare's quickselect; `numbers` change their order.
 * @param {Float32Array} numbers
 * @param {number} count
 */
export function kthLargest(numbers, count) {
    const place = numbers.length - count;
    for (let low = 0, high = numbers.length - 1; low < high; ) {
        const pivot = numbers[(low + high) >> 1];
        let i = low;
        let j = high;
        while (i <= j) {
            while (numbers[i] < pivot) i++;
            while (numbers[j] > pivot) j--;
            if (i > j) break;
            const larger = numbers[i];
            numbers[i++] = numbers[j];
            numbers[j--] = larger;
        }
        if (place <= j) high = j;
        else if (place >= i) low = i;
        else break;
    }
    return numbers[place];
}
