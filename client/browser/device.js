/**
 * A device: it joins a run, pulls the model, trains on its own data, and pushes updates until the run is over.
 * @module
 */
import {EMPTY, sha256, toHex} from "./bytes.js";
import {check, sourceOf} from "./source.js";
import {DeviceError, Diverged, Refused, RunOver, RunReplaced, ServerFault, Stopped, printable} from "./errors.js";
import {storageOf} from "./storage.js";
import {layoutOf, personalLayout} from "./terms.js";
import {Backend} from "./training/backend.js";
import {unpackFirst} from "./training/first.js";
import {PersonalBackend, wholeLayout} from "./training/personal.js";
import {Replica} from "./training/replica.js";
import {Trainer} from "./training/trainer.js";
import {join, parseToken} from "./transport/identity.js";
import {Link} from "./transport/link.js";
import {delay, untilAnswered} from "./transport/retrying.js";

/**
 * @typedef {import("./source.js").Samples} Samples
 * @typedef {import("./source.js").Source} Source
 * @typedef {import("./storage.js").Storage} Storage
 * @typedef {import("./records.js").Welcome} Welcome
 * @typedef {import("./records.js").Update} Update
 *
 * @typedef {{kind: "state", state: "joining" | "connecting" | "preparing" | "training" | "waiting" | "paused" |
 *   "ended", detail: string}} StateEvent
 * @typedef {{kind: "terms", model: string, loss: string, input: number[] | null, parameters: number, batch: number,
 *   description: import("./records.js").Description | null}} TermsEvent
 * @typedef {{kind: "step", updates: number, steps: number, samples: number, loss: number, accuracy: number | null,
 *   sent: number, received: number, seconds: number}} StepEvent
 * @typedef {{kind: "ended", why: "stopped" | "over" | "refused" | "failed", reason: string}} EndedEvent
 * @typedef {StateEvent | TermsEvent | StepEvent | EndedEvent} DeviceEvent
 *
 * @typedef {Object} Options
 * @property {string} server its http(s) URL
 * @property {string | null} [token] to join with; none: the identity in storage, or an open run
 * @property {string} [name] default: the stored one, or a random one
 * @property {Samples | Source} data
 * @property {Storage | string | null} [storage] or the name of an IndexedDB database; null: memory alone
 * @property {(event: DeviceEvent) => void} [onEvent]
 * @property {number} [memory] bytes that the model, and those that a step's tensors may take
 * @property {number} [patience] seconds without any answer of the server after which the device gives up
 * @property {number} [quiet] seconds of silence after which the device looks whether the server lives
 */

const MAX_TOO_LARGE = 3;
const DATA_SECONDS = 1;
const FACTS_SECONDS = 5;
/** The shortest time between two writes of personal layers, to spare the storage. */
const PERSONAL_SECONDS = 10;

export class Device {
    #abort = new AbortController();
    /** @type {Link | null} */
    #link = null;
    #paused = "";
    #wake = () => {};
    #factsDue = 0;
    /** @type {PersonalBackend | null} */
    #personal = null;
    #keptAt = 0;
    #state = "";
    #progress = {updates: 0, steps: 0, samples: 0};

    /** @param {Options} options */
    constructor({
        server,
        token = null,
        name = "",
        data,
        storage = null,
        onEvent = () => {},
        memory = 2 ** 29,
        patience = 600,
        quiet = 8,
    }) {
        this.server = new URL(server.endsWith("/") ? server : `${server}/`);
        this.token = token;
        this.name = name;
        this.source = sourceOf(data);
        this.storage = storageOf(storage);
        this.onEvent = onEvent;
        this.limits = {memory, patience, quiet};
    }

    /**
     * Take part until the run is over, the device is stopped, or something fails. It never rejects.
     * @returns {Promise<{why: EndedEvent["why"], reason: string}>}
     */
    async start() {
        const stopped = new Promise((_, reject) =>
            this.#signal.addEventListener("abort", () => reject(new Stopped())),
        );
        const ending = await Promise.race([this.#run(), stopped]).catch((error) => endingOf(error));
        if (!this.#signal.aborted) {
            const kind = {over: "finished", failed: "error", refused: "error"}[ending.why] ?? "retired";
            this.#link?.leave(`${kind}: ${ending.reason}`);
            this.#abort.abort(new Stopped());
        }
        this.#tell("ended", ending.reason);
        this.onEvent({kind: "ended", ...ending});
        return ending;
    }

    /** End at once: nothing is computed or sent after this. */
    stop() {
        this.#link?.leave("retired: stopped by its owner");
        this.#abort.abort(new Stopped());
    }

    /** Rest after the step under way. @param {string} reason one line for the server's operators */
    pause(reason) {
        this.#paused = printable(reason, 90) || "paused";
        this.#link?.report({paused: this.#paused});
    }

    resume() {
        this.#paused = "";
        this.#link?.report({});
        this.#wake();
    }

    /** Ask for data now, if the device waits for some. */
    wake() {
        this.#wake();
    }

    get #signal() {
        return this.#abort.signal;
    }

    /** @param {StateEvent["state"]} state */
    #tell(state, detail = "") {
        if (state === "training" && this.#state === "training") return;
        this.#state = state;
        this.onEvent({kind: "state", state, detail});
    }

    async #run() {
        const stored = await this.storage.get(this.#key("identity"));
        const isMine = stored && (!this.name || stored.name === this.name);
        try {
            return await this.#runAs(isMine ? stored : await this.#join());
        } catch (error) {
            // A server that was set up anew does not know the stored identity, but may have given a token.
            if (!(error instanceof Refused && error.code === "unauthorized" && isMine && this.token)) throw error;
            return await this.#runAs(await this.#join());
        }
    }

    /** @param {import("./transport/identity.js").Identity | null} identity */
    async #runAs(identity) {
        this.#link?.leave("retired: it has another identity");
        const secret = (await this.storage.get(this.#key("secret"))) ?? EMPTY;
        this.#signal.throwIfAborted();
        const link = (this.#link = new Link({
            ...this.#retries,
            server: this.server,
            name: identity?.name ?? this.name,
            facts: factsOfMachine(),
            identity,
            secret,
            memory: this.limits.memory,
            quiet: this.limits.quiet,
            onRenewed: (renewed) => this.storage.set(this.#key("identity"), renewed),
        }));
        for (;;) {
            this.#tell("connecting");
            try {
                return await this.#takePart(link);
            } catch (error) {
                if (!(error instanceof RunReplaced)) throw error;
            }
        }
    }

    get #retries() {
        const {patience} = this.limits;
        return {
            signal: this.#signal,
            patience,
            onRetry: (/** @type {string} */ reason) => this.#tell("connecting", reason),
        };
    }

    /** The identity that the token gives; null without one, for an open run. */
    async #join() {
        const random = () => `browser-${toHex(crypto.getRandomValues(new Uint8Array(4)))}`;
        const isChosen = Boolean(this.name);
        this.name ||= (await this.storage.get(this.#key("name"))) ?? random();
        const {token} = this;
        if (token) {
            this.#tell("joining");
            const {pin, graph} = parseToken(token);
            const attempt = () => join(this.server, token, this.name, {pin, graph: toHex(graph)}, this.#signal);
            const identity = await untilAnswered(attempt, this.#retries).catch((error) => {
                if (isChosen || !(error instanceof Refused && error.code === "name-in-use")) throw error;
                this.name = random();
                return untilAnswered(attempt, this.#retries);
            });
            await this.storage.set(this.#key("identity"), identity);
        }
        await this.storage.set(this.#key("name"), this.name);
        return token ? this.storage.get(this.#key("identity")) : null;
    }

    /** @param {string} what */
    #key(what) {
        return `${what} ${this.server.href}`;
    }

    /** Take part in one run. @param {Link} link */
    async #takePart(link) {
        const welcome = await link.join();
        await this.storage.set(this.#key("secret"), welcome.secret);
        const layout = layoutOf(welcome, this.limits.memory);
        link.layout = await layout.digest();
        const {model, loss, input, data: description, batch} = welcome;
        this.onEvent({kind: "terms", model, loss, input, description, batch, parameters: layout.trained.size});
        this.#tell("preparing");
        const replica = new Replica(layout, welcome.start);
        if (welcome.weights) {
            const first = await unpackFirst(welcome.weights, layout, (weights) => link.firstModel(weights));
            if (first) replica.take(first);
        }
        const graph = await link.graph();
        const own = personalLayout(welcome, layout, this.limits.memory);
        const backend = await Backend.load(graph, wholeLayout(layout, own), this.limits.memory);
        try {
            backend.graph.try(welcome.batch); // before a batch takes memory
            const pinned = link.identity?.graph;
            if (pinned && pinned !== toHex((await sha256(backend.graph.octets)) ?? EMPTY)) {
                throw new DeviceError("the server's graph is not the one that the token names");
            }
            const sequence = await this.#resend(link, welcome);
            const kept = await this.storage.get(this.#key("personal"));
            const stored = kept?.run === welcome.run ? kept.theta : null;
            this.#personal = own && new PersonalBackend(backend, layout.trained.size, own, welcome, stored);
            const trainer = new Trainer(this.#personal ?? backend, () => this.#take(welcome), layout, welcome);
            replica.take(await link.pull(replica.version, replica.held));
            return await this.#train(link, welcome, replica, trainer, sequence);
        } finally {
            await this.#keepPersonal(welcome, 0);
            this.#personal = null;
            await backend.close();
        }
    }

    /** Pull, train, push, until the run is over. */
    async #train(link, welcome, replica, trainer, sequence) {
        for (let tooLarge = 0; ;) {
            if (await this.#rest()) replica.take(await link.pull(replica.version, replica.held));
            const began = performance.now();
            const update = await trainer.step(replica.theta, replica.version, sequence + 1);
            const seconds = (performance.now() - began) / 1000;
            this.#signal.throwIfAborted();
            Object.assign(update, {held: replica.held, facts: this.#facts(seconds)});
            await this.storage.set(this.#key("update"), {run: welcome.run, update});
            await this.#keepPersonal(welcome);
            let receipt;
            try {
                receipt = await link.push(update);
            } catch (error) {
                if (!(error instanceof Refused)) throw error;
                if (error.code === "base-expired" || error.code === "base-in-future") {
                    trainer.takeBack();
                    const model = await link.pull(replica.version, replica.held);
                    replica.take(model);
                    if (model.base === null) trainer.forget();
                } else if (error.code === "step-too-large") {
                    if (++tooLarge === MAX_TOO_LARGE) {
                        throw new Diverged(`${MAX_TOO_LARGE} updates in a row were refused: ${error.message}`);
                    }
                    trainer.undo();
                    replica.take(await link.pull(replica.version, replica.held));
                } else throw error;
                continue;
            }
            if (receipt.sequence !== update.sequence) {
                throw new ServerFault("the server sent a receipt for another update");
            }
            ({sequence} = update);
            tooLarge = 0;
            this.#count(update, trainer, link, seconds);
            await trainer.storeFleet(receipt.moments, receipt.labels);
            replica.take(receipt.model ?? (await link.pull(replica.version, replica.held)));
        }
    }

    /** Store the personal layers, in a run that has such, unless they were stored just now. */
    async #keepPersonal({run}, seconds = PERSONAL_SECONDS) {
        if (!this.#personal || Date.now() < this.#keptAt + seconds * 1000) return;
        this.#keptAt = Date.now();
        await this.storage.set(this.#key("personal"), {run, theta: this.#personal.theta});
    }

    /** Send the update of an earlier process again. Returns the last number that the server has. */
    async #resend(link, welcome) {
        const {run, update} = (await this.storage.get(this.#key("update"))) ?? {};
        if (run !== welcome.run || update.sequence <= welcome.sequence) return welcome.sequence;
        try {
            await link.push({...update, facts: null, held: 0, pull: false});
            this.#progress.updates++;
            this.#progress.samples += update.samples;
            return update.sequence;
        } catch (error) {
            if (!(error instanceof Refused)) throw error;
            return welcome.sequence;
        }
    }

    /** The next batch. @param {Welcome} welcome @returns {Promise<Samples>} */
    async #take({batch, input}) {
        for (let waits = false; ;) {
            this.#signal.throwIfAborted();
            const samples = await this.source({batch});
            this.#signal.throwIfAborted();
            if (samples) {
                this.#tell("training");
                return check(samples, input);
            }
            if (!waits) this.#tell("waiting", "it has no samples yet");
            waits = true;
            await this.#woken(DATA_SECONDS);
        }
    }

    /** Wait while paused; whether the device did, so that its model is old. */
    async #rest() {
        if (!this.#paused) {
            this.#tell("training");
            return false;
        }
        while (this.#paused) {
            this.#tell("paused", this.#paused);
            this.#link?.report({paused: this.#paused});
            await this.#woken(60);
        }
        this.#tell("training");
        return true;
    }

    async #woken(seconds) {
        const timer = new AbortController();
        const woken = new Promise((resolve) => (this.#wake = () => resolve(undefined)));
        await Promise.race([woken, delay(seconds, AbortSignal.any([this.#signal, timer.signal]))]);
        timer.abort();
    }

    #facts(seconds) {
        if (Date.now() < this.#factsDue) return null;
        this.#factsDue = Date.now() + FACTS_SECONDS * 1000;
        const facts = {step: Math.round(seconds * 1000) / 1000};
        return this.#paused ? {...facts, paused: this.#paused} : facts;
    }

    #count(update, trainer, link, seconds) {
        const progress = this.#progress;
        progress.updates++;
        progress.samples += update.samples;
        progress.steps = trainer.steps;
        this.onEvent({
            kind: "step",
            ...progress,
            loss: update.loss,
            accuracy: trainer.right,
            ...link.traffic,
            seconds,
        });
    }
}

function factsOfMachine() {
    const {hardwareConcurrency: cores, deviceMemory} = /** @type {any} */ (globalThis.navigator ?? {});
    return {
        class: "browser",
        backend: "onnxruntime-web",
        ...(cores && {cores}),
        ...(deviceMemory && {memory: deviceMemory * 1024}),
    };
}

function endingOf(error) {
    if (error instanceof Stopped) return {why: "stopped", reason: error.message};
    if (error instanceof RunOver) return {why: "over", reason: error.message};
    if (error instanceof Refused) return {why: "refused", reason: error.message};
    return {
        why: "failed",
        reason: printable(
            error instanceof DeviceError ? error.message : `${error?.name}: ${error?.message ?? error}`,
        ),
    };
}
