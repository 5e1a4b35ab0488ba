/**
 * The device's side of a session, across reconnects: one question at a time, asked again until it is answered.
 * @module
 */
import {EMPTY, collect, sha256, toHex} from "../bytes.js";
import {
    ConnectionLost,
    DeviceError,
    Refused,
    RunOver,
    RunReplaced,
    ServerFault,
    messageOf,
    printable,
} from "../errors.js";
import {decodeRecord, encodeGoodbye, encodeHello, encodePull, encodeTelemetry, encodeUpdate} from "../records.js";
import {layoutOf, longestMessage} from "../terms.js";
import {join, prove} from "./identity.js";
import {untilAnswered} from "./retrying.js";
import {connect, statusError} from "./socket.js";

/**
 * @typedef {import("../records.js").Welcome} Welcome
 * @typedef {import("../records.js").Model} Model
 * @typedef {import("../records.js").Receipt} Receipt
 * @typedef {import("./identity.js").Identity} Identity
 */

const LONGEST_WELCOME = 1 << 24;
const LONGEST_GRAPH = 1 << 24;
const ANSWER_SECONDS = 300;
const GRAPH_SECONDS = 1800;
/** After a silence `/livez` is asked, which must answer within so many seconds. */
const LIVEZ_SECONDS = 3;
/** A proxy may drop a connection that was silent for a minute. */
const HEARTBEAT_SECONDS = 50;
/** The longest delay, in seconds, that a server may ask for. */
const LONGEST_ASKED = 300;

export class Link {
    /**
     * @param {{server: URL, name: string, facts: Object, identity: Identity | null, secret: Uint8Array, memory: number,
     *   patience: number, quiet: number, signal: AbortSignal, onRetry: (reason: string) => void,
     *   onRenewed: (identity: Identity) => Promise<void>}} options as of a Device
     */
    constructor(options) {
        this.options = options;
        this.identity = options.identity;
        this.secret = options.secret;
        this.layout = EMPTY;
        /** What the next heartbeat tells of the device. @type {Object} */
        this.facts = {};
        this.run = "";
        /** @type {import("./socket.js").RecordSocket | null} */
        this.socket = null;
        this.longest = LONGEST_WELCOME;
        this.counts = {sent: 0, received: 0};
        /** When the last message was sent, by Date.now(). */
        this.lastSent = 0;
        this.heartbeat = setInterval(() => this.#beat(), 5000);
    }

    /** Bytes of messages and downloads so far. */
    get traffic() {
        const {sent, received} = this.counts;
        return {sent: sent + (this.socket?.sent ?? 0), received: received + (this.socket?.received ?? 0)};
    }

    /** Begin: the terms of the run. @returns {Promise<Welcome>} */
    async join() {
        this.#hangUp();
        this.run = "";
        const welcome = await this.#untilAnswered(() => this.#dial());
        this.run = welcome.run;
        return welcome;
    }

    /** @param {number | null} base @param {number} held @returns {Promise<Model>} */
    pull(base, held) {
        return this.#ask(encodePull(base, held), "Model");
    }

    /** @param {import("../records.js").Update} update @returns {Promise<Receipt>} */
    push(update) {
        return this.#ask(encodeUpdate(update), "Receipt");
    }

    /** Tell the device's facts, unless the last ones were the same, or nobody listens. @param {Object} facts */
    report(facts) {
        const isNew = JSON.stringify(facts) !== JSON.stringify(this.facts);
        this.facts = facts;
        if (isNew && this.run) this.#send(encodeTelemetry(facts));
    }

    /** Say why the device leaves, and hang up at once. @param {string} reason */
    leave(reason) {
        clearInterval(this.heartbeat);
        this.#send(encodeGoodbye(reason));
        this.#hangUp();
    }

    /** The training step, as ONNX. @returns {Promise<Uint8Array>} */
    async graph() {
        const graph = await this.#untilAnswered(() => this.#get("v1/graphs/step", LONGEST_GRAPH, GRAPH_SECONDS));
        if (!graph) throw new DeviceError("the server has no graph of this model");
        return graph;
    }

    /**
     * The file of the first model; null if the server has another one now.
     * @param {import("../records.js").Weights} weights
     */
    async firstModel(weights) {
        const path = `v1/start?device=${encodeURIComponent(this.options.name)}`;
        const file = await this.#untilAnswered(() => this.#get(path, weights.size, ANSWER_SECONDS));
        const digest = file && (await sha256(file));
        return digest && toHex(digest) === toHex(weights.digest) ? file : null;
    }

    async #ask(octets, expected) {
        const answer = await this.#untilAnswered(async () => {
            const why = this.socket?.error; // of a session that ended while nobody waited for an answer
            if (why && !(why instanceof ConnectionLost)) throw why;
            if (!this.socket || why) {
                const welcome = await this.#dial();
                if (welcome.run !== this.run) throw new RunReplaced("the server has another run now");
            }
            return this.#answer(octets);
        });
        if (answer.tag !== expected) {
            throw new ServerFault(`the server answered with a ${answer.tag}, where a ${expected} was due`);
        }
        return answer;
    }

    /** Send a message and return the record that answers it. */
    async #answer(octets) {
        const socket = /** @type {import("./socket.js").RecordSocket} */ (this.socket);
        this.#send(octets);
        const record = decodeRecord(await this.#awaited(socket));
        if (record.tag === "Refusal") {
            throw new Refused(record.code, record.detail, Math.min(record.seconds, LONGEST_ASKED));
        }
        if (record.tag === "Stop") throw new RunOver(printable(record.reason));
        return record;
    }

    /** The next message, as long as the server shows that it lives. */
    async #awaited(socket) {
        const message = socket.next();
        const {quiet} = this.options;
        for (let waited = quiet; waited <= ANSWER_SECONDS; waited += quiet) {
            let timer;
            const silence = new Promise((resolve) => (timer = setTimeout(resolve, quiet * 1000)));
            const found = await Promise.race([message, silence]).finally(() => clearTimeout(timer));
            if (found) return found;
            if (!(await this.#lives())) throw new ConnectionLost(`the server has sent nothing for ${waited} s`);
        }
        throw new ConnectionLost(`the server has not answered for ${ANSWER_SECONDS} s`);
    }

    async #lives() {
        try {
            const response = await this.#fetch("livez", LIVEZ_SECONDS, {mode: "no-cors", cache: "no-store"});
            response.body?.cancel().catch(() => {});
            return true;
        } catch {
            return false;
        }
    }

    /** Start a session. */
    async #dial() {
        this.#hangUp();
        const {server, signal, memory, name, facts} = this.options;
        const socket = await connect(server, this.identity?.credential ?? "", this.longest, signal);
        this.socket = socket;
        const {challenge} = socket;
        const proof = this.identity && challenge.length === 32 ? await prove(this.identity, challenge) : EMPTY;
        const {layout, secret} = this;
        const welcome = await this.#answer(encodeHello({name, layout, facts, secret, proof}));
        if (welcome.tag !== "Welcome") throw new ServerFault(`the server answered a Hello with a ${welcome.tag}`);
        const longest = longestMessage(layoutOf(welcome, memory));
        if (longest > this.longest) {
            this.longest = longest;
            return this.#dial();
        }
        socket.longest = longest;
        this.secret = welcome.secret;
        if (socket.rotates && this.identity) await this.#renew(this.identity);
        if (this.facts.paused) this.#send(encodeTelemetry(this.facts)); // the report may be lost with the last session
        return welcome;
    }

    /** Get another key and credential. After a failure the next session tries again. */
    async #renew(before) {
        const {server, signal, onRenewed} = this.options;
        try {
            const {pin, graph, credential, name} = before;
            this.identity = await join(server, credential, name, {pin, graph, before}, signal);
            await onRenewed(this.identity);
        } catch (error) {
            this.options.onRetry(`the key was not replaced: ${printable(messageOf(error))}`);
        }
    }

    #untilAnswered(attempt) {
        return untilAnswered(attempt, this.options, () => this.#hangUp());
    }

    /** A body of at most `limit` bytes; null: 404. */
    async #get(path, limit, seconds) {
        /** @type {Record<string, string>} */
        const headers = this.identity ? {Authorization: `Bearer ${this.identity.credential}`} : {};
        const response = await this.#fetch(path, seconds, {headers, cache: "no-cache", redirect: "error"});
        const count = (size) => (this.counts.received += size);
        if (response.status === 404) return null;
        if (response.status === 422) throw new DeviceError(await detailOf(response));
        if (!response.ok) throw statusError(response.status);
        const body = await collect(/** @type {ReadableStream} */ (response.body), limit, count).catch(unreachable);
        if (!body) throw new ServerFault(`the server sent more than ${limit} bytes of ${path.split("?")[0]}`);
        return body;
    }

    /** @param {string} path @param {number} seconds @param {RequestInit} options */
    #fetch(path, seconds, options) {
        const signal = AbortSignal.any([this.options.signal, AbortSignal.timeout(seconds * 1000)]);
        return fetch(new URL(path, this.options.server), {...options, credentials: "omit", signal}).catch(
            unreachable,
        );
    }

    #send(octets) {
        if (!this.socket || this.socket.error) return;
        this.lastSent = Date.now();
        this.socket.send(octets);
    }

    #beat() {
        if (this.run && Date.now() - this.lastSent >= HEARTBEAT_SECONDS * 1000)
            this.#send(encodeTelemetry(this.facts));
    }

    #hangUp() {
        this.socket?.close();
        ({sent: this.counts.sent, received: this.counts.received} = this.traffic);
        this.socket = null;
    }
}

/** @param {any} error @returns {never} */
function unreachable(error) {
    throw new ConnectionLost(
        `the server cannot be reached (${printable(error?.cause?.code ?? error?.message ?? error, 80)})`,
    );
}

async function detailOf(response) {
    const body = await collect(response.body, 1 << 16);
    try {
        return printable(JSON.parse(new TextDecoder().decode(body ?? EMPTY)).detail);
    } catch {
        return `the server has no graph of this model (it answers ${response.status})`;
    }
}
