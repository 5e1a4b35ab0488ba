// The accelerometer as samples: windows of consecutive readings of x, y and z, in g, at the rate of the device.

const G = 9.80665;

// The number of readings in a sample of a model's input, and whether they are [3, n] or [n, 3]; null: no such input.
export function window_of(input) {
    if (!input.length || input.length > 2) return null;
    const size = input.reduce((a, b) => a * b, 1);
    const readings = size / 3;
    if (!Number.isInteger(readings) || readings < 2) return null;
    if (input.length === 2 && !input.includes(3)) return null;
    return { readings, by_axis: input.length === 2 && input[0] === 3 };
}

// Ask the browser for the sensor, from within a tap. Throws an Error if there is none, or the visitor does not want it.
export async function allow_motion() {
    if (!globalThis.DeviceMotionEvent) throw new Error("this browser has no motion sensor");
    if (DeviceMotionEvent.requestPermission && (await DeviceMotionEvent.requestPermission()) !== "granted")
        throw new Error("the browser does not let this page read the motion sensor");
}

// Records from `start` to `stop`. `take` gets a Float32Array for each window; windows overlap by half.
export class MotionRecorder {
    constructor(input, take) {
        Object.assign(this, window_of(input));
        this.take = take;
        this.held = [];
        this.heard = ({ accelerationIncludingGravity: a }) => a && a.x !== null && this.add([a.x / G, a.y / G, a.z / G]);
    }

    start() {
        this.held = [];
        addEventListener("devicemotion", this.heard);
    }

    stop() {
        removeEventListener("devicemotion", this.heard);
    }

    add(reading) {
        this.held.push(reading);
        if (this.held.length < this.readings) return;
        const n = this.readings;
        this.take(
            Float32Array.from({ length: 3 * n }, (_, at) =>
                this.by_axis ? this.held[at % n][Math.floor(at / n)] : this.held[Math.floor(at / 3)][at % 3],
            ),
        );
        this.held = this.held.slice(Math.ceil(n / 2));
    }
}
