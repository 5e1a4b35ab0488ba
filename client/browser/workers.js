/**
 * A Device in a Web Worker, so that the page stays smooth.
 * @module
 */
import {messageOf} from "./errors.js";

/** After this a worker that computes is ended, though it has not said goodbye. */
const GOODBYE_MILLISECONDS = 1000;

/** As Device, but `storage` is a name or null, and `data` of a function come from the page's thread. */
export class WorkerDevice {
    #worker;
    #onEvent;
    #source;
    #end = (/** @type {any} */ ending) => {};

    /** @param {import("./device.js").Options} options */
    constructor({onEvent = () => {}, data, storage = "edgeflock", ...options}) {
        this.#onEvent = onEvent;
        this.#source = typeof data === "function" ? data : null;
        this.#worker = new Worker(new URL("./worker.js", import.meta.url), {type: "module"});
        this.#worker.onmessage = (event) => this.#receive(event.data);
        this.#worker.onerror = ({message}) => this.#finish({why: "failed", reason: message || "its worker does not load"});
        this.settings = {...options, storage, data: this.#source ? null : data};
    }

    /** Take part, as Device does. @returns {Promise<{why: string, reason: string}>} */
    start() {
        return new Promise((resolve) => {
            this.#end = resolve;
            this.#post("start", this.settings);
        });
    }

    stop() {
        this.#post("stop");
        setTimeout(() => this.#worker.terminate(), GOODBYE_MILLISECONDS);
        this.#finish({why: "stopped", reason: "stopped by its owner"});
    }

    /** @param {string} reason */
    pause(reason) {
        this.#post("pause", reason);
    }

    resume() {
        this.#post("resume");
    }

    wake() {
        this.#post("wake");
    }

    async #receive([kind, argument]) {
        if (kind === "event") {
            if (argument.kind !== "ended") this.#onEvent(argument);
        } else if (kind === "ended") {
            this.#worker.terminate();
            this.#finish(argument);
        } else if (kind === "take") {
            try {
                this.#post("samples", {samples: await this.#source?.(argument)});
            } catch (error) {
                this.#post("samples", {error: messageOf(error)});
            }
        }
    }

    /** Say once how it ended; nothing comes after it. */
    #finish(ending) {
        this.#onEvent({kind: "ended", ...ending});
        this.#onEvent = () => {};
        this.#end(ending);
    }

    /** @param {string} command @param {any} [argument] */
    #post(command, argument) {
        this.#worker.postMessage([command, argument]);
    }
}
