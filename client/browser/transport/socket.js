/**
 * One WebSocket of a session: whole binary messages in both directions, their lengths and their bytes.
 *
 * A browser cannot send a credential in the request, so the device shows it in its first frame. Node's `ws` can.
 * A browser has no limit on the length of a message either: only node refuses a longer one by its announced length.
 * @module
 */
import {EMPTY, fromBase64url} from "../bytes.js";
import {CLOSE_CODES, ConnectionLost, DeviceError, Refused, ServerFault} from "../errors.js";
import {encodeCredential, decodeRecord} from "../records.js";

/** Messages that may wait to be read: a server answers one question at a time. */
const MOST_WAITING = 4;
const CONNECT_SECONDS = 20;
export const PROTOCOL_NAME = "edgeflock-credential";

/**
 * Connect. Raises Refused, ConnectionLost or DeviceError.
 * @param {URL} server
 * @param {string} credential empty: none
 * @param {number} longest message, in bytes
 * @param {AbortSignal} signal
 */
export async function connect(server, credential, longest, signal) {
    const url = new URL("v1/session", server);
    url.protocol = url.protocol.replace("http", "ws");
    const socket = new RecordSocket(longest);
    const isNative = Boolean(globalThis.WebSocket);
    const opening = isNative ? openNative(socket, url, credential) : openNode(socket, url, credential, longest);
    const giveUp = () => socket.fail(new ConnectionLost("the server does not answer"));
    const timer = setTimeout(giveUp, CONNECT_SECONDS * 1000);
    signal.addEventListener("abort", giveUp, {once: true});
    try {
        await Promise.race([opening, socket.failed]).catch(async (error) => {
            throw isNative && error instanceof ConnectionLost && (await answers(server, signal)) ? unopened(server, credential) : error;
        });
        if (isNative && credential) await showCredential(socket, credential);
        return socket;
    } finally {
        clearTimeout(timer);
        signal.removeEventListener("abort", giveUp);
    }
}

/** Whether the server answers a request that needs no WebSocket. */
const answers = (server, signal) =>
    fetch(new URL("livez", server), {mode: "no-cors", credentials: "omit", cache: "no-store", signal}).then(
        () => true,
        () => false,
    );

/** A browser does not say why a WebSocket did not open. */
function unopened({protocol}, credential) {
    const tokenless = credential ? "" : "this device has no token, ";
    const distrust = protocol === "https:" ? "this browser does not accept the server's certificate for one, " : "";
    return new ConnectionLost(
        `the server answers, but no WebSocket opens: ${tokenless}${distrust}a proxy passes none on, or ` +
            "server.origins lacks this page; ask the operator for an address with a public certificate",
    );
}

async function showCredential(socket, credential) {
    socket.send(encodeCredential(credential));
    const answer = decodeRecord(await socket.next());
    if (answer.tag === "Refusal") throw new Refused(answer.code, answer.detail, answer.seconds);
    if (answer.tag !== "Challenge") {
        throw new ServerFault(`the server answered a credential with a ${answer.tag}`);
    }
    socket.challenge = answer.challenge;
    socket.rotates = answer.rotate;
}

export class RecordSocket {
    /** @param {number} longest */
    constructor(longest) {
        this.longest = longest;
        /** What the device's key must sign; empty: nothing. */
        this.challenge = EMPTY;
        /** Whether the server wants the device to have another key. */
        this.rotates = false;
        this.sent = 0;
        this.received = 0;
        /** @type {Uint8Array[]} */
        this.waiting = [];
        /** @type {any} */
        this.line = null;
        /** @type {Error | null} */
        this.error = null;
        this.wake = () => {};
        /** Rejects once the session has failed. @type {Promise<never>} */
        this.failed = new Promise((_, reject) => (this.reject = reject));
        this.failed.catch(() => {});
    }

    /** Use this WebSocket. @param {any} line */
    attach(line) {
        this.line = line;
        line.binaryType = "arraybuffer";
        line.onmessage = ({data}) => this.#receive(data);
        line.onclose = ({code}) => this.fail(reasonOf(code));
        line.onerror = (event) => {
            if (/max payload/i.test(event?.message ?? ""))
                this.fail(new ServerFault(`the server sent a message of more than ${this.longest} bytes`));
        };
        return new Promise((resolve) => (line.onopen = resolve));
    }

    /** @param {Uint8Array} octets */
    send(octets) {
        if (this.error) return;
        this.sent += octets.length;
        this.line.send(octets);
    }

    /** The next message. Raises why there will be none. */
    async next() {
        // No race with `failed`: it would keep what each race leaves, for as long as the session lasts.
        while (!this.waiting.length && !this.error) {
            await new Promise((resolve) => (this.wake = () => resolve(null)));
        }
        const message = this.waiting.shift();
        if (!message) throw this.error;
        return message;
    }

    /** End the session for this reason, unless it has ended. @param {Error} error */
    fail(error) {
        if (this.error) return;
        this.error = error;
        this.reject(error);
        this.wake();
        try {
            this.line?.close(1000);
        } catch {
            this.line?.terminate?.();
        }
    }

    close() {
        this.fail(new ConnectionLost("the connection is closed"));
    }

    #receive(data) {
        if (this.error) return;
        if (typeof data === "string") {
            return this.fail(new ServerFault("the server sent a text message, where all are binary"));
        }
        this.received += data.byteLength;
        if (data.byteLength > this.longest) {
            return this.fail(
                new ServerFault(
                    `the server sent a message of ${data.byteLength} bytes; this run needs ${this.longest} at most`,
                ),
            );
        }
        if (this.waiting.length === MOST_WAITING) {
            return this.fail(new ServerFault("the server sends messages that nobody asked for"));
        }
        this.waiting.push(new Uint8Array(data));
        this.wake();
    }
}

function openNative(socket, url, credential) {
    return socket.attach(new WebSocket(url, credential ? [PROTOCOL_NAME] : []));
}

async function openNode(socket, url, credential, longest) {
    const {default: Line} = await import("ws");
    const headers = credential ? {Authorization: `Bearer ${credential}`} : {};
    const line = new Line(url, {headers, maxPayload: longest, perMessageDeflate: false, followRedirects: false});
    line.on("upgrade", ({headers: answer}) => {
        socket.challenge = fromBase64url(String(answer["edgeflock-challenge"] ?? "")) ?? EMPTY;
        socket.rotates = "edgeflock-rotate" in answer;
    });
    line.on("unexpected-response", (request, {statusCode}) => {
        request.destroy();
        socket.fail(statusError(statusCode));
    });
    await socket.attach(line);
}

/** @param {number | undefined} status */
export function statusError(status) {
    if (status === 401) {
        return new Refused(
            "unauthorized",
            "the server does not let this device in: it has not joined, or was revoked",
        );
    }
    if (status === 403) {
        return new DeviceError(
            "the server does not accept this device or its page (it answers 403): ask its operator",
        );
    }
    if (!status || status >= 500 || [408, 425, 429].includes(status)) {
        return new ConnectionLost(`the server takes no devices now (it answers ${status})`);
    }
    return new DeviceError(`this is no Edgeflock server, or a proxy stands in the way (it answers ${status})`);
}

/** @param {number} code of a close frame */
function reasonOf(code) {
    if (code === 1009) return new Refused("frame-too-large", "the server takes no update of this size");
    const refusal = CLOSE_CODES.get(code);
    if (refusal) return new Refused(refusal, "the server closed the session");
    return new ConnectionLost("the server closed the connection, or cannot be reached");
}
