// What an admin does to the run: asked for, confirmed, done over the server's interface, its outcome told.

import { el, svg } from "./dom.js";
import { state } from "./state.js";

const NAMED = 8; // devices that a question names

// What is done to devices is asked once, however many they are.

export async function pause(names) {
    const because = await ask(
        `Pause ${called(names)}?`,
        `${listed(names, "It trains", "They train")} no more until somebody resumes ${names.length > 1 ? "them" : "it"}. Why? Everybody who watches sees it.`,
        "Pause",
        { input: { placeholder: "too hot", maxlength: 200 } },
    );
    if (because !== null)
        await each(names, "pause", { because: because.trim() }, (name) => `${name} is paused`);
}

export async function resume(names) {
    const about = `${listed(names, "Its", "Their")} updates count again from now on.`;
    if ((await ask(`Resume ${called(names)}?`, about, "Resume")) !== null)
        await each(names, "resume", {}, (name) => `${name} goes on`);
}

export async function drop(names) {
    const about =
        names.length > 1
            ? `${listed(names, "", "Their")} sessions end, and the server refuses their names until somebody resumes them.`
            : "Its session ends, and the server refuses its name until somebody resumes it.";
    if ((await ask(`Drop ${called(names)}?`, about, "Drop", { grave: true })) !== null)
        await each(names, "drop", {}, (name) => `${name} is dropped`);
}

export async function pardon(names) {
    const about = `The defence forgets how ${names.length > 1 ? "they stand" : "it stands"}, and begins anew.`;
    if ((await ask(`Pardon ${called(names)}?`, about, "Pardon")) !== null)
        await each(names, "pardon", {}, (name) => `${name} begins anew`);
}

const called = (names) => (names.length === 1 ? names[0] : `${names.length} devices`);

// "pi-1, pi-2 and 3 more. They train", of one "It trains".
function listed(names, one, many) {
    if (names.length === 1) return one;
    const more = names.length - NAMED;
    return `${names.slice(0, NAMED).join(", ")}${more > 0 ? ` and ${more} more` : ""}. ${many}`;
}

// One after the other; what is refused of some does not keep the others from it.
async function each(names, what, body, outcome) {
    const path = (name) => `v1/devices/${encodeURIComponent(name)}/${what}`;
    if (names.length === 1) return act(path(names[0]), body, outcome(names[0]));
    const refused = [];
    for (const name of names) {
        const trouble = await tried(path(name), body);
        if (typeof trouble === "string") refused.push(`${name}: ${trouble}`);
    }
    const done = names.length - refused.length;
    if (done) tell(`Done for ${done} of ${names.length} device${names.length === 1 ? "" : "s"}`, false);
    if (refused.length) tell(`It was not done: ${refused.slice(0, NAMED).join("; ")}`, true);
}

export async function learning_rate() {
    const present = state.run.config.coordination?.learning_rate;
    const text = await ask(
        "Learning rate",
        "All devices' updates count with it from the next one on, and it is journaled.",
        "Set it",
        { input: { value: present ?? "", inputmode: "decimal", required: true } },
    );
    if (text === null) return;
    const value = Number(text);
    if (!text.trim() || !Number.isFinite(value)) tell(`"${text}" is not a number`, true);
    else await act("v1/learning_rate", { value }, `the learning rate is ${value}`);
}

export async function checkpoint() {
    if (
        (await ask(
            "Checkpoint now?",
            "The server writes a snapshot of the model to its journal.",
            "Write it",
        )) !== null
    )
        await act("v1/checkpoint", {}, "a checkpoint is written");
}

export async function roll_back() {
    const text = await ask(
        "Go back to an earlier model?",
        "The model of that version becomes the next one, and what came after it counts no more. Journaled.",
        "Go back",
        { grave: true, input: { placeholder: "version", inputmode: "numeric", required: true } },
    );
    if (text === null) return;
    const version = Number(text.replaceAll(",", ""));
    if (!text.trim() || !Number.isInteger(version)) tell(`"${text}" is no version`, true);
    else
        await act(
            "v1/rollback",
            { version },
            (done) => `the model of version ${done.of} again, as version ${done.version}`,
        );
}

// A token for devices in browsers, as a code to scan: only this page shows it, and only once.
export async function invite() {
    const about = "Whoever opens the address within a day takes part as a device. For how many devices?";
    const many = await ask("Invite a browser", about, "For many", { other: "For one" });
    if (many === null) return;
    const said = await tried("v1/invitation", { reusable: many === "" });
    if (typeof said === "string") tell(`It was not done: ${said}`, true);
    else {
        const picture = el("div", {}, said.code && code(said.code), el("p", { class: "dim small" }, said.hindrance));
        await ask("Scan it, or open the address", said.page, "Done", { picture });
    }
}

function code(rows) {
    const cells = rows.flatMap((row, y) => [...row].map((cell, x) => (cell === "1" ? `M${x} ${y}h1v1h-1z` : "")));
    return svg(
        "svg",
        { class: "code", viewBox: `0 0 ${rows.length} ${rows.length}`, role: "img", "aria-label": "QR code" },
        svg("path", { d: cells.join(""), "shape-rendering": "crispEdges" }),
    );
}

async function act(path, body, outcome) {
    const said = await tried(path, body);
    if (typeof said === "string") tell(`It was not done: ${said}`, true);
    else tell(typeof outcome === "function" ? outcome(said) : outcome, false);
}

// What the server answers, or a text that says why it was not done.
async function tried(path, body) {
    try {
        const answer = await fetch(path, {
            method: "POST",
            headers: { "Content-Type": "application/json" },
            body: JSON.stringify(body),
        });
        const said = await answer.json();
        return answer.ok ? said : String(said.detail);
    } catch {
        return "the connection was lost, and nobody knows whether it was";
    }
}

// What was typed, "" where there is nothing to type, null if it is not to be, false for the other choice.
function ask(title, about, verb, { grave = false, input = null, other = "", picture = null } = {}) {
    const field = input && el("input", { type: "text", autocomplete: "off", ...input });
    const form = el(
        "form",
        {},
        el("h2", {}, title),
        el("p", {}, about),
        field,
        picture,
        el(
            "div",
            { class: "acts" },
            picture ? null : el("button", { type: "button", class: "quiet", on: { click: () => dialog.close() } }, "Cancel"),
            other && el("button", { type: "submit", value: "other" }, other),
            el("button", { type: "submit", class: grave ? "grave" : "main" }, verb),
        ),
    );
    const dialog = el("dialog", { "aria-label": title }, form);
    document.body.append(dialog);
    return new Promise((resolve) => {
        let answer = null;
        form.addEventListener("submit", (event) => {
            event.preventDefault();
            answer = field ? field.value : event.submitter?.value !== "other" && "";
            dialog.close();
        });
        dialog.addEventListener("close", () => {
            dialog.remove();
            resolve(answer);
        });
        dialog.showModal();
        if (field) field.select();
    });
}

export function tell(text, bad) {
    const toast = el("p", { class: bad ? "bad" : "ok" }, text);
    document.getElementById("toasts").append(toast);
    setTimeout(() => toast.remove(), bad ? 12000 : 5000);
}
