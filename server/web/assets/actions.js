// What an admin does to the run: asked for, confirmed, done over the server's interface, its outcome told.

import { el } from "/assets/dom.js";
import { state } from "/assets/state.js";

const device = (name) => `/v1/devices/${encodeURIComponent(name)}`;

export async function pause(name) {
    const because = await ask(
        `Pause ${name}?`,
        "It trains no more until somebody resumes it. Why? Everybody who watches sees it.",
        "Pause",
        { input: { placeholder: "too hot", maxlength: 200 } },
    );
    if (because !== null)
        await act(`${device(name)}/pause`, { because: because.trim() }, `${name} is paused`);
}

export async function resume(name) {
    if ((await ask(`Resume ${name}?`, "Its updates count again from now on.", "Resume")) !== null)
        await act(`${device(name)}/resume`, {}, `${name} goes on`);
}

export async function drop(name) {
    const about = "Its session ends, and the server refuses its name until somebody resumes it.";
    if ((await ask(`Drop ${name}?`, about, "Drop", { grave: true })) !== null)
        await act(`${device(name)}/drop`, {}, `${name} is dropped`);
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
    else await act("/v1/learning_rate", { value }, `the learning rate is ${value}`);
}

export async function checkpoint() {
    if (
        (await ask(
            "Checkpoint now?",
            "The server writes a snapshot of the model to its journal.",
            "Write it",
        )) !== null
    )
        await act("/v1/checkpoint", {}, "a checkpoint is written");
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
            "/v1/rollback",
            { version },
            (done) => `the model of version ${done.of} again, as version ${done.version}`,
        );
}

async function act(path, body, outcome) {
    try {
        const answer = await fetch(path, {
            method: "POST",
            headers: { "Content-Type": "application/json" },
            body: JSON.stringify(body),
        });
        const said = await answer.json();
        if (answer.ok) tell(typeof outcome === "function" ? outcome(said) : outcome, false);
        else tell(`It was not done: ${said.detail}`, true);
    } catch {
        tell("It is not known whether it was done: the connection was lost", true);
    }
}

// What was typed, "" where there is nothing to type, null if it is not to be.
function ask(title, about, verb, { grave = false, input = null } = {}) {
    const field = input && el("input", { type: "text", autocomplete: "off", ...input });
    const form = el(
        "form",
        {},
        el("h2", {}, title),
        el("p", {}, about),
        field,
        el(
            "div",
            { class: "acts" },
            el("button", { type: "button", class: "quiet", on: { click: () => dialog.close() } }, "Cancel"),
            el("button", { type: "submit", class: grave ? "grave" : "main" }, verb),
        ),
    );
    const dialog = el("dialog", { "aria-label": title }, form);
    document.body.append(dialog);
    return new Promise((resolve) => {
        let answer = null;
        form.addEventListener("submit", (event) => {
            event.preventDefault();
            answer = field ? field.value : "";
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
