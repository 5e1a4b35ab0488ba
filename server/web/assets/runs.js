// The runs of a server that hosts several: a row each, with a link to the run's own page.

import { el, fill, say } from "./dom.js";
import { login_page } from "./login.js";
import { count, NOTHING, percent, size } from "./numbers.js";

const SECONDS = 2;
const at = (id) => document.getElementById(id);
const COLUMNS = {
    run: (row) => el("a", { href: `v1/runs/${row.name}/` }, row.name),
    state: (row) => row.state,
    model: (row) => (row.model ?? NOTHING).split(":").pop(),
    version: (row) => count(row.version),
    accuracy: (row) => percent(row.accuracy),
    devices: (row) => count(row.devices),
    ingress: (row) => size(row.ingress),
    egress: (row) => size(row.egress),
    labels: (row) => row.labels.join(" ") || NOTHING,
    "": (row) => row.reason,
};

let asks = true;

function table(rows) {
    const cells = (row) => Object.values(COLUMNS).map((cell) => el("td", {}, cell(row)));
    return el(
        "table",
        { class: "card parts runs" },
        el("thead", {}, el("tr", {}, ...Object.keys(COLUMNS).map((title) => el("th", { scope: "col" }, title)))),
        el("tbody", {}, ...rows.map((row) => el("tr", {}, ...cells(row)))),
    );
}

async function get(path) {
    const answer = await fetch(path, { signal: AbortSignal.timeout(20000) });
    return answer.json();
}

async function refresh() {
    if (asks) {
        try {
            const [who, list] = await Promise.all([get("v1/login"), get("v1/runs")]);
            at("login").hidden = who.role !== null;
            at("logout").hidden = !who.login;
            say(at("role"), who.role ?? "");
            say(at("link"), "");
            if (who.role === null && list.runs.length === 0) ask_login();
            else fill(at("page"), table(list.runs));
        } catch {
            say(at("link"), "no answer from the server");
        }
    }
    setTimeout(refresh, SECONDS * 1000);
}

function ask_login() {
    asks = false;
    fill(at("page"), login_page(() => location.reload(), ""));
}

at("login").addEventListener("click", ask_login);
at("logout").addEventListener("click", async () => {
    await fetch("v1/logout", { method: "POST" });
    location.reload();
});
refresh();
