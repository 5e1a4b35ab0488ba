// Image files, read by the rules of `images:FOLDER`: the folder of a file is its class; 0 to 1, resized to the run's.

const KINDS = /\.(jpe?g|png|bmp|gif|webp)$/i;

export const is_image = (file) => KINDS.test(file.name) || /^image\/(jpeg|png|bmp|gif|webp)$/.test(file.type);

// The name of the folder that a file is in; "" if the browser does not say.
export const folder_of = (file) => (file.webkitRelativePath || "").split("/").at(-2) ?? "";

// Float32Array of `shape` [channels, height, width], 0 to 1, of a File or Blob. Throws an Error if it is no image.
export async function read_image(file, [channels, height, width]) {
    let bitmap;
    try {
        bitmap = await createImageBitmap(file, { resizeWidth: width, resizeHeight: height, resizeQuality: "medium" });
    } catch {
        throw new Error(`${file.name ?? "a file"} is no readable image; leave it out`);
    }
    const canvas = document.createElement("canvas");
    [canvas.width, canvas.height] = [width, height];
    const context = canvas.getContext("2d", { willReadFrequently: true });
    context.drawImage(bitmap, 0, 0);
    bitmap.close();
    return planes(context.getImageData(0, 0, width, height).data, channels, width * height);
}

// Grey is 0.299 R + 0.587 G + 0.114 B, as in Pillow.
export function planes(rgba, channels, size) {
    const x = new Float32Array(channels * size);
    for (let at = 0; at < size; at++) {
        const [r, g, b] = [rgba[4 * at], rgba[4 * at + 1], rgba[4 * at + 2]];
        if (channels === 1) x[at] = Math.round(0.299 * r + 0.587 * g + 0.114 * b) / 255;
        else [x[at], x[size + at], x[2 * size + at]] = [r / 255, g / 255, b / 255];
    }
    return x;
}
