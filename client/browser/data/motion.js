/**
 * The accelerometer as samples: windows of consecutive readings of x, y and z, in g, at the rate of the device.
 * @module
 */

const G = 9.80665;

/**
 * The number of readings in a sample of a model's input, and whether they are [3, n] or [n, 3]; null: no such input.
 * @param {number[]} input
 */
export function windowOf(input) {
  if (!input.length || input.length > 2) return null;
  const size = input.reduce((a, b) => a * b, 1);
  const readings = size / 3;
  if (!Number.isInteger(readings) || readings < 2) return null;
  if (input.length === 2 && !input.includes(3)) return null;
  return {readings, byAxis: input.length === 2 && input[0] === 3};
}

/** Ask the browser for the sensor, from within a tap. Throws an Error if there is none, or it may not be read. */
export async function allowMotion() {
  if (!globalThis.DeviceMotionEvent) throw new Error("this browser has no motion sensor");
  const asked = /** @type {any} */ (DeviceMotionEvent).requestPermission; // Safari has it
  if (asked && (await asked.call(DeviceMotionEvent)) !== "granted")
    throw new Error("the browser does not let this page read the motion sensor");
}

/** Records from `start` to `stop`. Windows overlap by half. */
export class MotionRecorder {
  /** @type {number[][]} */
  held = [];

  /**
   * @param {number[]} input the model's; `windowOf` knows it
   * @param {(x: Float32Array) => void} take gets each window
   */
  constructor(input, take) {
    const found = windowOf(input);
    if (!found) throw new Error(`the model takes samples of [${input.join(", ")}], which are no readings of three axes`);
    this.readings = found.readings;
    this.byAxis = found.byAxis;
    this.take = take;
    this.heard = (/** @type {DeviceMotionEvent} */ {accelerationIncludingGravity: a}) => {
      if (a && a.x !== null && a.y !== null && a.z !== null) this.add([a.x / G, a.y / G, a.z / G]);
    };
  }

  start() {
    this.held = [];
    addEventListener("devicemotion", this.heard);
  }

  stop() {
    removeEventListener("devicemotion", this.heard);
  }

  /** @param {number[]} reading */
  add(reading) {
    this.held.push(reading);
    if (this.held.length < this.readings) return;
    const n = this.readings;
    this.take(
      Float32Array.from({length: 3 * n}, (_, at) =>
        this.byAxis ? this.held[at % n][Math.floor(at / n)] : this.held[Math.floor(at / 3)][at % 3],
      ),
    );
    this.held = this.held.slice(Math.ceil(n / 2));
  }
}
