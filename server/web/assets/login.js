// A token is shown once, for a cookie that this script cannot read.

import { el, say } from "./dom.js";

export function login_page(done, why) {
    const field = el("input", {
        type: "password",
        autocomplete: "current-password",
        "aria-label": "Token",
        placeholder: "ef1...",
        required: true,
        spellcheck: "false",
    });
    const trouble = el("p", { class: "trouble", role: "alert" }, why);
    const button = el("button", { type: "submit", class: "main" }, "Log in");
    const form = el(
        "form",
        { class: "card login" },
        el("img", { src: "assets/icon.svg", alt: "", width: 44, height: 44 }),
        el("h1", {}, "edgeflock"),
        el("p", { class: "dim" }, "A viewer's token shows the run, an admin's acts on it too."),
        field,
        trouble,
        button,
        el(
            "p",
            { class: "dim small" },
            "The admin's is in the run's directory, in ",
            el("code", {}, "admin-token"),
            ". Another: ",
            el("code", {}, "edgeflock token create --role viewer"),
        ),
    );
    form.addEventListener("submit", async (event) => {
        event.preventDefault();
        button.disabled = true;
        say(trouble, "");
        try {
            const answer = await fetch("v1/login", {
                method: "POST",
                headers: { "Content-Type": "application/json" },
                body: JSON.stringify({ token: field.value }),
                signal: AbortSignal.timeout(20000),
            });
            field.value = "";
            if (answer.ok) {
                done();
                return;
            }
            say(trouble, (await answer.json()).detail);
        } catch {
            say(trouble, "no answer from the server");
        }
        button.disabled = false;
        field.focus();
    });
    setTimeout(() => field.focus());
    return form;
}
