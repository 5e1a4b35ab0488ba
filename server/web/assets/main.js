// The page: who looks, what is shown, and how fresh it is.

import { checkpoint, invite, learning_rate, roll_back, tell } from "./actions.js";
import { Device } from "./device.js";
import { el, fill, refill, say } from "./dom.js";
import { Events } from "./events.js";
import { Findings } from "./findings.js";
import { Fleet } from "./fleet.js";
import { Link } from "./link.js";
import { login_page } from "./login.js";
import { count, rate, size, span } from "./numbers.js";
import { Overview } from "./overview.js";
import { reduce, remember, state, sums } from "./state.js";

const at = (id) => document.getElementById(id);
const link = new Link(welcomed, heard, (why) => ask_login(state.run ? `Log in again: ${why}.` : ""));
const DAY = 86400;
const pages = { overview: new Overview(), fleet: new Fleet(), events: new Events(), device: new Device() };
const findings = new Findings();
let edition = "";
let due = false;

// Before each connection. A server of another version has another page.
function welcomed(said) {
    if (edition && edition !== said.edition) location.reload();
    edition = said.edition;
    at("login").hidden = said.login || said.role === "admin";
    at("logout").hidden = !said.login;
}

function heard(frame) {
    if (state.run && frame.run && frame.run.run !== state.run.run) location.reload();
    const anew = frame.type === "snapshot";
    reduce(frame);
    if (anew) history();
    later();
}

async function history() {
    try {
        const answer = await fetch("v1/history");
        if (answer.ok) {
            remember(await answer.json());
            later();
        }
    } catch {
        // The next snapshot asks again.
    }
}

// One painting for all that comes before the screen's next; none while nobody looks.
function later() {
    if (due) return;
    due = true;
    requestAnimationFrame(() => {
        due = false;
        paint();
    });
}

function paint() {
    if (!state.run) return;
    const [name, rest] = where();
    const page = pages[name];
    if (name === "device") page.open(rest);
    if (at("page").firstElementChild !== page.element) {
        fill(at("page"), page.element);
        scrollTo(0, 0);
    }
    header(name);
    page.render();
}

function where() {
    const [name, rest = ""] = location.hash.slice(1).split("/", 2);
    try {
        return name in pages ? [name, decodeURIComponent(rest)] : ["overview", ""];
    } catch {
        return ["overview", ""];
    }
}

function header(name) {
    const { overview, run } = state;
    at("top").hidden = false;
    const model = run.model.split(":").at(-1);
    const good = { diverged: "bad", finished: "ok" }[overview.state] ?? "run";
    fill(
        at("run"),
        el("b", {}, model),
        el("span", { class: "dim" }, run.run.slice(0, 8)),
        el("span", { class: `pill ${good}` }, overview.state),
    );
    document.title = `${overview.state === "training" ? "" : `${overview.state}: `}${model} - edgeflock`;
    health(overview, run);
    findings.render();
    const here = name === "device" ? "fleet" : name;
    refill(at("tabs"), state.role, () => [
        ...["overview", "fleet", "events"].map((to) => el("a", { href: `#${to}` })),
        state.role === "admin" ? acts : null,
    ]);
    const titles = ["Overview", `Fleet ${count(state.devices.size)}`, `Events ${count(state.events.length)}`];
    titles.forEach((title, n) => {
        const tab = at("tabs").children[n];
        say(tab, title);
        tab.setAttribute("aria-current", tab.hash === `#${here}` ? "page" : "false");
    });
    say(at("role"), state.role);
}

const act = (title, what) => el("button", { type: "button", class: "quiet", on: { click: what } }, title);
const acts = el(
    "span",
    { class: "acts" },
    act("Learning rate", learning_rate),
    act("Checkpoint", checkpoint),
    act("Roll back", roll_back),
    act("Invite", invite),
);

function health(overview, run) {
    const rows = [...state.devices.values()];
    const up = rows.filter((row) => !["away", "paused"].includes(row[state.at.state])).length;
    const target = run.updates_target;
    const [left, part] = progress(overview, run);
    const meter =
        part === null ? null : el("progress", { max: 1, value: part.toFixed(4), "aria-label": "Progress" });
    fill(
        at("health"),
        item("version", count(overview.version), target ? `of ${count(target)}` : "", meter),
        item("updates/s", rate(overview.updates_per_s)),
        overview.state === "training" && part !== null
            ? item("time left", left === null ? "\u2013" : span(left))
            : null,
        overview.began === null ? null : item("so far", span(Math.max(1, state.time - overview.began))),
        item(
            "devices up",
            count(up),
            `of ${count(overview.devices)}`,
            null,
            up ? "" : "warn",
        ),
        overview.began === null ? null : item("a day and device", ...daily(overview)),
        overview.privacy ? item(...privacy(overview.privacy)) : null,
        overview.tasks
            ? item("shards done", count(overview.tasks[1]), `of ${count(overview.tasks[0])}`)
            : null,
    );
}

// Differential privacy: a PrivacySpent as [name, epsilon so far, the budget and delta].
function privacy([, epsilon, delta, budget]) {
    const of = budget ? `of ${budget}, ` : "";
    return ["epsilon", epsilon === null ? "infinite" : epsilon.toPrecision(3), `${of}delta ${delta.toPrecision(2)}`];
}

// [seconds left, part that is done] by what ends the run first: its updates, or its time; null: nobody knows.
function progress({ version, began, updates_per_s }, { updates_target, config }) {
    const ends = [];
    if (updates_target) {
        const left = updates_per_s > 0 ? Math.max(0, updates_target - version) / updates_per_s : Infinity;
        ends.push([left, version / updates_target]);
    }
    const seconds = config.end?.seconds ?? 0;
    if (seconds) {
        const past = began === null ? 0 : state.time - began;
        ends.push([began === null ? Infinity : Math.max(0, seconds - past), past / seconds]);
    }
    if (!ends.length) return [null, null];
    const [left, part] = ends.sort(([a, done], [b, other]) => a - b || other - done)[0];
    return [Number.isFinite(left) ? left : null, Math.min(1, Math.max(0, part))];
}

// Bytes up and down of a device in a day, at the pace so far.
function daily(overview) {
    const share = DAY / Math.max(1, state.time - overview.began) / Math.max(1, overview.devices);
    const [up, down] = sums();
    return [`\u2191 ${size(up * share)}`, `\u2193 ${size(down * share)}`];
}

function item(title, value, rest = "", more = null, sense = "") {
    return el(
        "span",
        { class: "item" },
        el("small", {}, title),
        el("span", {}, el("b", { class: sense }, value), rest ? ` ${rest}` : ""),
        more,
    );
}

// How fresh it is, in a word, and how good that is.
function freshness() {
    const old = Number.isFinite(link.age) ? `, data ${span(link.age)} old` : "";
    if (link.phase === "waiting") {
        const again = (link.again - performance.now()) / 1000;
        return ["bad", `${link.why}${old}, ${again > 0 ? `again in ${Math.ceil(again)}s` : "connecting"}`];
    }
    if (link.phase === "connecting") return ["warn", "connecting"];
    return link.stalled ? ["warn", `stalled${old}`] : ["ok", "live"];
}

// Looked at also while nothing comes.
setInterval(() => {
    if (link.phase === "closed") return;
    const [good, text] = freshness();
    say(at("link"), text);
    at("link").className = good;
    document.body.classList.toggle("old", good === "bad" || link.stalled);
    if (good === "bad" && !state.run) fill(at("page"), el("p", { class: "placeholder" }, text));
}, 250);

function ask_login(why = "") {
    link.close();
    state.run = null;
    at("top").hidden = true;
    document.body.classList.remove("old");
    fill(at("page"), login_page(() => location.reload(), why)); // what was known may be of another run
}

at("logout").addEventListener("click", async () => {
    try {
        await fetch("v1/logout", { method: "POST" });
        location.reload();
    } catch {
        tell("You are not logged out: no answer from the server", true);
    }
});
at("login").addEventListener("click", () => ask_login());
addEventListener("hashchange", later);
fill(at("findings"), findings.element);
at("runs").hidden = !location.pathname.startsWith("/v1/runs/");
link.open();
