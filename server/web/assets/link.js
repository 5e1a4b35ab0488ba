// The feed: one WebSocket, opened again with growing pauses for as long as the page lives.

import { decode } from "./msgpack.js";

const SECONDS = 1; // between frames
const FIRST = 1;
const LONGEST = 30;
const PATIENCE = 15; // seconds that an answer or a frame may take; twice as many after each that did not come
const MOST_PATIENCE = 240;

export class Link {
    // `welcomed(said)` gets what the server says of the login before each connection, `heard(frame)` each frame,
    // and `ended(why)` is called once the server wants a login: then nothing more is tried.
    constructor(welcomed, heard, ended) {
        this.welcomed = welcomed;
        this.heard = heard;
        this.ended = ended;
        this.phase = "closed"; // or connecting, live, waiting
        this.arrived = 0; // performance.now() of the last frame
        this.again = 0; // and of the next attempt
        this.why = "";
        this.pause = FIRST;
        this.patience = PATIENCE;
        this.socket = null;
        this.timer = 0; // of the next attempt, or of the end of patience
        this.attempt = 0;
    }

    // A browser does not tell why a WebSocket was refused; a question does, so it comes first.
    async open() {
        this.close();
        this.phase = this.arrived || this.why ? "waiting" : "connecting";
        const attempt = this.attempt;
        let answer = null;
        let said = {};
        try {
            answer = await fetch("v1/login", { signal: AbortSignal.timeout(this.patience * 1000) });
            said = await answer.json();
        } catch {
            // A proxy before a server that is away answers with something else.
        }
        if (attempt !== this.attempt) return;
        if (answer?.status === 401) {
            this.close();
            this.ended(said.detail);
        } else if (answer?.ok) {
            this.welcomed(said);
            this.listen();
        } else this.wait(said.detail ?? "no answer");
    }

    listen() {
        const url = new URL(`v1/feed?interval=${SECONDS}`, document.baseURI);
        url.protocol = url.protocol === "https:" ? "wss:" : "ws:";
        const socket = new WebSocket(url);
        socket.binaryType = "arraybuffer";
        this.socket = socket;
        this.expect();
        socket.onmessage = (message) => {
            if (this.socket !== socket) return;
            try {
                this.heard(decode(message.data));
            } catch (error) {
                console.error(error);
                this.wait(error.message);
                return;
            }
            this.arrived = performance.now();
            this.phase = "live";
            this.pause = FIRST;
            this.patience = PATIENCE;
            this.expect();
        };
        socket.onclose = () => {
            if (this.socket === socket)
                this.wait(this.phase === "live" ? "connection lost" : "the feed was refused");
        };
    }

    // A server that hangs, or a line that is gone, does not close the socket.
    expect() {
        clearTimeout(this.timer);
        this.timer = setTimeout(() => {
            this.patience = Math.min(MOST_PATIENCE, this.patience * 2); // it may be a slow line
            this.wait("no answer");
        }, this.patience * 1000);
    }

    wait(why) {
        this.close();
        this.phase = "waiting";
        this.why = why;
        const pause = this.pause * (0.75 + Math.random() / 2);
        this.pause = Math.min(LONGEST, this.pause * 2);
        this.again = performance.now() + pause * 1000;
        this.timer = setTimeout(() => this.open(), pause * 1000);
    }

    close() {
        this.attempt += 1;
        this.phase = "closed";
        clearTimeout(this.timer);
        const socket = this.socket;
        this.socket = null;
        if (socket) socket.close();
    }

    get age() {
        return this.arrived ? (performance.now() - this.arrived) / 1000 : Infinity;
    }

    get stalled() {
        return this.phase === "live" && this.age > Math.max(3, 3 * SECONDS);
    }
}
