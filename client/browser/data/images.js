/**
 * Image files, read by the rules of `images:FOLDER`: the folder of a file is its class; 0 to 1, resized to the run's.
 * @module
 */

const KINDS = /\.(jpe?g|png|bmp|gif|webp)$/i;

/** @param {File} file */
export const isImage = (file) => KINDS.test(file.name) || /^image\/(jpeg|png|bmp|gif|webp)$/.test(file.type);

/**
 * The name of the folder that a file is in; "" if the browser does not say.
 * @param {File} file
 */
export const folderOf = (file) => (file.webkitRelativePath || "").split("/").at(-2) ?? "";

/**
 * A file as the model's x of the shape [channels, height, width], 0 to 1. Throws an Error if it is no image.
 * @param {File} file
 * @param {number[]} shape
 */
export async function readImage(file, [channels, height, width]) {
  let bitmap;
  try {
    bitmap = await createImageBitmap(file, {resizeWidth: width, resizeHeight: height, resizeQuality: "medium"});
  } catch {
    throw new Error(`${file.name ?? "a file"} is no readable image; leave it out`);
  }
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [width, height];
  const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d", {willReadFrequently: true}));
  context.drawImage(bitmap, 0, 0);
  bitmap.close();
  return planes(context.getImageData(0, 0, width, height).data, channels, width * height);
}

/**
 * Grey is 0.299 R + 0.587 G + 0.114 B, as in Pillow.
 * @param {Uint8ClampedArray} rgba
 * @param {number} channels 1 or 3
 * @param {number} size pixels
 */
export function planes(rgba, channels, size) {
  const x = new Float32Array(channels * size);
  for (let at = 0; at < size; at++) {
    const [r, g, b] = [rgba[4 * at], rgba[4 * at + 1], rgba[4 * at + 2]];
    if (channels === 1) x[at] = Math.round(0.299 * r + 0.587 * g + 0.114 * b) / 255;
    else [x[at], x[size + at], x[2 * size + at]] = [r / 255, g / 255, b / 255];
  }
  return x;
}
