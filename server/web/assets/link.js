// The feed: one WebSocket, opened again with growing pauses for as long as the page lives.

import { decode } from "/assets/msgpack.js";

const SECONDS = 1; // between frames
const FIRST = 1;
const LONGEST = 30;
const UNAUTHORIZED = 4401;

export class Link {
    // `heard(frame)` gets each frame, `ended()` is called once the server wants a login.
    constructor(heard, ended) {
        this.heard = heard;
        this.ended = ended;
        this.phase = "connecting"; // or live, waiting
        this.arrived = 0; // performance.now() of the last frame
        this.again = 0; // and of the next attempt
        this.why = "";
        this.pause = FIRST;
        this.socket = null;
        this.timer = 0;
    }

    open() {
        this.phase = this.arrived ? "waiting" : "connecting";
        const url = `${location.protocol === "https:" ? "wss" : "ws"}://${location.host}/v1/feed?interval=${SECONDS}`;
        const socket = new WebSocket(url);
        socket.binaryType = "arraybuffer";
        this.socket = socket;
        socket.onmessage = (message) => {
            try {
                this.heard(decode(message.data));
                this.arrived = performance.now();
                this.phase = "live";
                this.pause = FIRST;
            } catch (error) {
                this.why = error.message;
                console.error(error);
                socket.close();
            }
        };
        socket.onclose = (closing) => {
            if (this.socket !== socket) return;
            if (closing.code === UNAUTHORIZED) {
                this.close();
                this.ended();
                return;
            }
            this.wait();
        };
    }

    async wait() {
        this.phase = "waiting";
        const pause = this.pause * (0.75 + Math.random() / 2);
        this.pause = Math.min(LONGEST, this.pause * 2);
        this.again = performance.now() + pause * 1000;
        this.timer = setTimeout(() => this.open(), pause * 1000);
        // A browser does not tell why a WebSocket was refused; a question does.
        const timer = this.timer;
        try {
            const answer = await fetch("/v1/login");
            if (this.timer !== timer) return;
            if (answer.status === 401) {
                this.close();
                this.ended();
            } else this.why = answer.ok ? "the feed was refused" : (await answer.json()).detail;
        } catch {
            this.why = "no answer";
        }
    }

    close() {
        clearTimeout(this.timer);
        this.timer = 0;
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
