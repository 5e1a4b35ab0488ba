// The training page: says what will happen, starts on a tap, shows what it costs, and stops at once.

import { el, fill, say } from "../../assets/dom.js";
import { count, decimal, percent, size } from "../../assets/numbers.js";
import { Rest } from "./rest.js";

const at = (id) => document.getElementById(id);
const SERVER = new URL(".", location.href).href; // a server of several runs has a path for each
const ENGINE = new URL("../device/vendor/onnxruntime-web/ort.wasm.bundle.min.mjs", import.meta.url);
const STATES = {
    joining: "Joining",
    connecting: "Connecting",
    preparing: "Loading the model",
    training: "Training",
    waiting: "Waiting",
    paused: "Resting",
};
const ENDS = {
    stopped: "Stopped. Nothing more is computed or sent.",
    over: "Done: the model has all the updates that it needs. Thank you.",
    refused: "The server does not let this device take part.",
    failed: "It cannot go on.",
};

let token = "";
let device = null;
let sources = null;
const rest = new Rest((reason) => (reason ? device?.pause(reason) : device?.resume()));

// The fragment never reaches a server. It leaves the address bar, too, so that nobody reads or copies it there.
function take_token() {
    const given = new URLSearchParams(location.hash.slice(1)).get("token");
    if (location.hash) history.replaceState(null, "", location.pathname);
    token = given || token;
}

// One tab of a browser trains: all of them are the same device.
async function start() {
    const is_free = await navigator.locks.request(`edgeflock training ${SERVER}`, { ifAvailable: true }, async (lock) => {
        if (lock) await train();
        return lock !== null;
    });
    if (!is_free) return say(at("trouble"), "This device trains in another tab already.");
    running(false); // not before the lock is free, so that it can start again
    await known();
}

async function train() {
    say(at("trouble"), "");
    show("Connecting");
    running(true);
    try {
        const { WorkerDevice } = await import("../device/index.js");
        device = new WorkerDevice({
            server: SERVER,
            token,
            data: async (wish) => sources?.data(wish) ?? null,
            onEvent: heard,
        });
        const ended = device.start();
        if (rest.reason) device.pause(rest.reason);
        const { why, reason } = await ended;
        show(ENDS[why] ?? why, why === "refused" || why === "failed");
        if (why !== "stopped") say(at("trouble"), reason ?? "");
    } catch (error) {
        show(ENDS.failed, true);
        say(at("trouble"), String(error.message ?? error));
    }
    device = null;
    sources?.close();
    at("data").hidden = true;
}

function running(is) {
    at("start").hidden = is;
    at("stop").hidden = !is;
    at(is ? "stop" : "start").focus();
    say(at("start"), "Start again");
}

function heard(event) {
    if (event.kind === "state") show(STATES[event.state] ?? event.state, false, event.detail);
    else if (event.kind === "terms") welcomed(event);
    else if (event.kind === "step") meter(event);
}

function show(title, bad = false, detail = "") {
    say(at("state"), detail ? `${title}: ${detail}` : title);
    at("state").classList.toggle("bad", bad);
}

function welcomed(terms) {
    const { description, input, model, parameters } = terms;
    const name = model.split(":").at(-1);
    const learns = description?.numbers
        ? "It learns to predict a number"
        : description?.labels?.length
          ? `It learns to tell ${description.labels.slice(0, 8).join(", ")}${description.labels.length > 8 ? ", ..." : ""}`
          : "It learns from samples";
    const of = input ? ` of the shape ${input.join(" x ")}` : "";
    fill(
        at("about"),
        el("h2", { id: "about-title" }, `The model ${name}`),
        el("p", {}, `${learns}${of}. It has ${count(parameters)} numbers. Your data stay here.`),
    );
    at("data").hidden = at("meter").hidden = false;
    meter({});
    known();
    const key = JSON.stringify([model, input, description]);
    if (sources?.key === key) return; // what was given before the last stop still fits
    sources?.close();
    sources = null;
    import("./sources.js").then(({ build_sources }) => {
        sources = { key, ...build_sources(at("data"), terms, () => device?.wake()) };
    });
}

function meter({ steps = 0, updates = 0, loss = null, accuracy = null, sent = 0, received = 0 }) {
    const rows = { "Steps": count(steps), "Updates": count(updates), "Sent": size(sent), "Received": size(received), "Loss": decimal(loss) };
    if (accuracy !== null) rows["Accuracy"] = percent(accuracy);
    fill(at("meter"), el("dl", {}, ...Object.entries(rows).map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value)))));
}

// Whether this device is known here, and what may be forgotten.
async function known() {
    try {
        const { identityOf } = await import("../device/index.js");
        const identity = await identityOf(SERVER);
        say(at("identity"), identity ? `This browser takes part as ${identity.name}. Its key cannot be read, not even by this page.` : "");
        at("forget").hidden = !identity;
        return identity;
    } catch {
        return null; // the browser keeps nothing, as in some private windows
    }
}

// Why nothing can be started here; "": it can.
async function hindrance() {
    if (!isSecureContext)
        return "Over http:// a browser gives a page neither keys nor motion, so it cannot train. Ask the operator for an address that begins with https:// (server.certificate, or a proxy).";
    if (!globalThis.WebAssembly || !globalThis.indexedDB || !navigator.locks)
        return "This browser is too old to train; take a current one.";
    try {
        const answer = await fetch(ENGINE);
        return answer.ok ? "" : (await answer.json()).detail;
    } catch {
        return "The server does not answer; reload the page later.";
    }
}

async function begin() {
    take_token();
    if (device) return;
    at("start").disabled = true;
    const why = await hindrance();
    if (why) return show(why, true);
    if (!token && !(await known()) && !(await is_open()))
        return show("You need an invitation: scan the code, or open the whole address, that the operator gives you.");
    at("start").disabled = false;
    show("Nothing is computed yet.");
}

// Whether everybody may take part in the run.
async function is_open() {
    return (await fetch(`${SERVER}v1/status`, { credentials: "omit" })).status !== 401;
}

say(at("server"), location.host);
at("start").addEventListener("click", start);
at("stop").addEventListener("click", () => device?.stop());
at("metered").addEventListener("change", ({ target }) => {
    rest.metered_too = target.checked;
    rest.look();
});
at("forget").addEventListener("click", async () => {
    device?.stop();
    device = null;
    const { forget } = await import("../device/index.js");
    await forget(SERVER);
    token = "";
    await known();
    await begin();
});
addEventListener("hashchange", begin);
begin();
