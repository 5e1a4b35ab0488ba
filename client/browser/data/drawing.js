/**
 * Drawn characters, scaled as the data sets that models know: `digits:` for 8 x 8, and MNIST for other sizes.
 * @module
 */

const BITMAP = 32; // digits: counts ink in blocks of a bitmap of this size
const BOX = 20 / 28; // the part of an MNIST image that its digit fills

/**
 * The [channels, height, width] of a model's input that is a square image; null: it is none.
 * @param {number[]} input
 */
export function imageShape(input) {
  const [channels, height, width] =
    input.length === 3 ? input : input.length === 2 ? [1, ...input] : [1, Math.sqrt(input[0]), Math.sqrt(input[0])];
  const isImage = input.length && input.length <= 3 && Number.isInteger(height) && height === width && height >= 8;
  return isImage && [1, 3].includes(channels) ? [channels, height, width] : null;
}

/**
 * A drawing of n x n pixels as the model's x, 0 to 1; null: nothing is drawn.
 * @param {Float32Array} ink [n, n], 0 to 1
 * @param {number} n
 * @param {number[]} shape [channels, size, size]
 */
export function scaled(ink, n, shape) {
  const box = bounds(ink, n);
  if (!box) return null;
  const [channels, size] = shape;
  const plane = size === 8 ? inBlocks(ink, n, box, size) : centred(ink, n, box, size);
  const sample = new Float32Array(channels * size * size);
  for (let channel = 0; channel < channels; channel++) sample.set(plane, channel * size * size);
  return sample;
}

/**
 * [left, top, width, height] of all that is drawn; null: nothing is.
 * @param {Float32Array} ink
 * @param {number} n
 */
function bounds(ink, n) {
  let [left, top, right, bottom] = [n, n, -1, -1];
  for (let y = 0; y < n; y++)
    for (let x = 0; x < n; x++)
      if (ink[y * n + x] > 0.1)
        [left, top, right, bottom] = [Math.min(left, x), Math.min(top, y), Math.max(right, x), Math.max(bottom, y)];
  return right < 0 ? null : [left, top, right - left + 1, bottom - top + 1];
}

/**
 * The mean ink of the square from (x, y) with sides `side`, in the drawing's pixels.
 * @param {Float32Array} ink
 * @param {number} n
 * @param {number} x
 * @param {number} y
 * @param {number} side
 */
function mean(ink, n, x, y, side) {
  let [sum, count] = [0, 0];
  for (let row = Math.floor(y); row < Math.max(y + side, Math.floor(y) + 1); row++)
    for (let column = Math.floor(x); column < Math.max(x + side, Math.floor(x) + 1); column++) {
      count++;
      if (row >= 0 && column >= 0 && row < n && column < n) sum += ink[row * n + column];
    }
  return sum / count;
}

/**
 * The drawing fills a bitmap of 32 x 32 black or white pixels; each number is the part of its block that is black.
 * @param {Float32Array} ink
 * @param {number} n
 * @param {number[]} box
 * @param {number} size
 */
function inBlocks(ink, n, [left, top, width, height], size) {
  const side = Math.max(width, height) / BITMAP;
  const [x0, y0] = [left - (BITMAP * side - width) / 2, top - (BITMAP * side - height) / 2];
  const block = BITMAP / size;
  const plane = new Float32Array(size * size);
  for (let y = 0; y < BITMAP; y++)
    for (let x = 0; x < BITMAP; x++)
      if (mean(ink, n, x0 + x * side, y0 + y * side, side) > 0.4)
        plane[Math.floor(y / block) * size + Math.floor(x / block)] += 1 / (block * block);
  return plane;
}

/**
 * The drawing fills 20/28 of the image, in greys, and its centre of mass is the image's centre.
 * @param {Float32Array} ink
 * @param {number} n
 * @param {number[]} box
 * @param {number} size
 */
function centred(ink, n, [left, top, width, height], size) {
  const side = Math.max(width, height) / Math.round(size * BOX);
  let [sum, cx, cy] = [0, 0, 0];
  for (let y = top; y < top + height; y++)
    for (let x = left; x < left + width; x++) {
      const weight = ink[y * n + x];
      [sum, cx, cy] = [sum + weight, cx + weight * (x + 0.5), cy + weight * (y + 0.5)];
    }
  const [x0, y0] = [cx / sum - (size / 2) * side, cy / sum - (size / 2) * side];
  return Float32Array.from({length: size * size}, (_, at) =>
    mean(ink, n, x0 + (at % size) * side, y0 + Math.floor(at / size) * side, side),
  );
}
