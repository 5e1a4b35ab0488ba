/**
 * The errors of a device. Each is one line for the person who looks on.
 * @module
 */

/** Anything that ends the device's part in one line. */
export class DeviceError extends Error {}

/** The server sent something that no server may send: the device leaves. */
export class ServerFault extends DeviceError {}

/** The model or the data diverged. */
export class Diverged extends DeviceError {}

/** The run is over. */
export class RunOver extends DeviceError {}

/** The server now has another run: the device begins again. */
export class RunReplaced extends DeviceError {}

/** The connection broke, or nothing came: the device tries again. */
export class ConnectionLost extends DeviceError {}

/** The owner stopped the device. */
export class Stopped extends DeviceError {
    constructor() {
        super("stopped by its owner");
    }
}

/** The server refused a request; `code` is one of docs/protocol.md. */
export class Refused extends DeviceError {
    /**
     * @param {string} code
     * @param {string} detail
     * @param {number} seconds before which another attempt is no use
     */
    constructor(code, detail, seconds = 0) {
        super(`${printable(code, 40)}: ${printable(detail)}`);
        this.code = code;
        this.seconds = seconds;
    }

    /** Whether another attempt may succeed. */
    get isTransient() {
        return TRANSIENT.has(this.code);
    }
}

const TRANSIENT = new Set([
    "no-room", "quarantined", "run-diverged", "too-many-devices", "too-slow", "unavailable",
]);

/** The close codes of docs/protocol.md that end a session, by what the server means. */
export const CLOSE_CODES = new Map([
    [4400, "malformed"], [4401, "unauthorized"], [4403, "dropped"], [4404, "unknown-record"],
    [4405, "unexpected-record"], [4408, "too-slow"], [4409, "superseded"], [4412, "layout-mismatch"],
    [4413, "frame-too-large"], [4422, "too-many-refused"], [4423, "name-in-use"], [4424, "run-diverged"],
    [4425, "quarantined"], [4426, "protocol-version"], [4429, "too-many-devices"], [4503, "unavailable"],
    [4507, "no-room"],
]);

/**
 * A text of the other end as one line of at most `longest` characters.
 * @param {unknown} text
 */
export function printable(text, longest = 300) {
    const line = String(text).replace(/[\p{C}\p{Zl}\p{Zp}]+/gu, " ").trim();
    return line.length > longest ? `${line.slice(0, longest)}...` : line;
}

/** The message of whatever was thrown. @param {any} error @returns {string} */
export const messageOf = (error) => String(error?.message ?? error);
