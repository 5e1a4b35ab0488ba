// The table of devices. Only the rows that are seen exist, so that thousands cost no more than dozens.

import { drop, pause, resume } from "./actions.js";
import { Chips } from "./chips.js";
import { COLUMNS, sense, STATES } from "./columns.js";
import { el, fill, refill, say } from "./dom.js";
import { count } from "./numbers.js";
import { parse } from "./query.js";
import { of, state } from "./state.js";

const HEIGHT = 36;
const NARROW = { name: 104, state: 24 }; // pixels on a phone, where the state is a sign alone
const natural = new Intl.Collator("en", { numeric: true, sensitivity: "base" });

export class Fleet {
    constructor() {
        this.sort = "name";
        this.backwards = false;
        this.only = "";
        this.shown = [];
        this.order = { joined: -1, places: new Map() };
        this.search = el("input", {
            type: "search",
            placeholder: "Filter: pi  state:paused  loss>1.5  temp>=75  !class:laptop",
            "aria-label": "Filter",
            spellcheck: "false",
            autocomplete: "off",
            on: { input: () => this.render() },
        });
        this.chips = new Chips("State", (name) => {
            this.only = name;
            this.render();
        });
        this.marking = false;
        this.marks = new Set(); // names
        this.marked = el("div", { class: "acts marks" });
        this.trouble = el("p", { class: "trouble", role: "alert" });
        this.head = el("div", { class: "row head", role: "row" });
        this.body = el("div", { class: "rows", role: "rowgroup" });
        this.window = el("div", { class: "window", tabindex: "0" }, this.body);
        this.foot = el("p", { class: "foot" });
        this.first = 0; // the first column behind the state
        this.next = 0; // and that of the columns after those that fit
        this.more = el(
            "button",
            {
                type: "button",
                class: "quiet",
                on: {
                    click: () => {
                        this.first = this.next;
                        this.render();
                    },
                },
            },
            "More columns \u203a",
        );
        this.table = el(
            "div",
            { class: "card table", role: "table", "aria-label": "Devices" },
            this.head,
            this.window,
        );
        this.element = el(
            "div",
            { class: "fleet" },
            el("div", { class: "toolbar" }, this.chips.element, this.search, this.marked),
            this.trouble,
            this.table,
            el("div", { class: "below" }, this.foot, this.more),
        );
        this.window.addEventListener("scroll", () => this.paint(), { passive: true });
        addEventListener("resize", () => {
            if (this.element.isConnected) this.render();
        });
        this.pool = [];
    }

    // What an admin does to several devices at once: mark them, then act.
    offer() {
        if (state.role !== "admin") this.marking = false;
        if (this.marks.size) {
            const known = new Set([...state.devices.values()].map((row) => of(row, "name")));
            for (const name of this.marks) if (!known.has(name)) this.marks.delete(name);
        }
        const many = this.marks.size;
        const key = `${state.role} ${this.marking} ${many} ${this.shown.length}`;
        const button = (title, click, more = {}) =>
            el("button", { type: "button", on: { click }, ...more }, title);
        const act = (what) => () => what([...this.marks].sort(natural.compare));
        const again = (change) => () => {
            change();
            this.render();
        };
        refill(this.marked, key, () => {
            if (state.role !== "admin") return [];
            const mode = again(() => {
                this.marking = !this.marking;
                this.marks.clear();
            });
            if (!this.marking) return [button("Mark devices", mode)];
            const all = again(() => {
                for (const row of this.shown) this.marks.add(of(row, "name"));
            });
            return [
                el("span", { class: "dim", role: "status" }, `${count(many)} marked`),
                button("Mark all shown", all, { disabled: !this.shown.length }),
                button("Pause", act(pause), { disabled: !many }),
                button("Resume", act(resume), { disabled: !many }),
                button("Drop", act(drop), { disabled: !many, class: "grave" }),
                button("Done", mode, { class: "quiet" }),
            ];
        });
    }

    // A row is a link to its device; while devices are marked, it is what marks it.
    mark(event) {
        if (!this.marking) return;
        event.preventDefault();
        const name = event.currentTarget.dataset.name;
        if (!this.marks.delete(name)) this.marks.add(name);
        this.render();
    }

    render() {
        const rows = this.select();
        this.columns = this.fitting();
        this.shown = rows;
        this.offer();
        this.heads();
        this.body.style.height = `${rows.length * HEIGHT}px`;
        const above = this.window.getBoundingClientRect().top + scrollY;
        const room = Math.max(HEIGHT * 3, innerHeight - above - 64);
        this.window.style.height = `${Math.min(rows.length * HEIGHT + 1, room)}px`;
        const all = state.devices.size;
        say(
            this.foot,
            !all
                ? ""
                : rows.length === all
                  ? `${count(all)} device${all === 1 ? "" : "s"}`
                  : `${count(rows.length)} of ${count(all)} device${all === 1 ? "" : "s"}`,
        );
        this.table.hidden = !rows.length;
        if (!all) say(this.foot, "No device has joined yet. On each one: edgeflock client join URL TOKEN");
        else if (!rows.length) say(this.foot, "No device is like that.");
        this.paint();
    }

    select() {
        const states = new Map(Object.keys(STATES).map((name) => [name, 0]));
        for (const row of state.devices.values())
            states.set(of(row, "state"), (states.get(of(row, "state")) ?? 0) + 1);
        this.choose(states);
        say(this.trouble, "");
        let rows = [...state.devices.values()];
        if (this.only) rows = rows.filter((row) => of(row, "state") === this.only);
        if (this.search.value.trim()) {
            try {
                rows = rows.filter(parse(this.search.value, texts, fields()));
            } catch (error) {
                say(this.trouble, error.message);
            }
        }
        return this.sorted(rows);
    }

    choose(states) {
        const known = [...states].filter(([name, many]) => many || name === this.only);
        const buttons = known.map(([name, many]) => [name, name, many, STATES[name] ?? ""]);
        this.chips.show([["", "All", state.devices.size, ""], ...buttons], this.only);
    }

    // What is not known comes last, whichever way it is sorted.
    sorted(rows) {
        const key = this.sort;
        const places = this.places();
        const value = key === "name" ? (row) => places.get(row[state.at.id]) : (row) => of(row, key);
        const sign = this.backwards ? -1 : 1;
        const keyed = rows.map((row) => [value(row), places.get(row[state.at.id]), row]);
        keyed.sort(([a, an], [b, bn]) => {
            if (a === b) return an - bn;
            if (a === null) return 1;
            if (b === null) return -1;
            return (a < b ? -1 : 1) * sign;
        });
        return keyed.map((entry) => entry[2]);
    }

    // Names in order, pi-2 before pi-10: worked out only when there are others.
    places() {
        if (this.order.joined !== state.joined) {
            const rows = [...state.devices.values()].sort((a, b) =>
                natural.compare(of(a, "name"), of(b, "name")),
            );
            this.order = {
                joined: state.joined,
                places: new Map(rows.map((row, place) => [row[state.at.id], place])),
            };
        }
        return this.order.places;
    }

    // The columns that fit, those first of which any device tells something.
    fitting() {
        const rows = [...state.devices.values()];
        const told = COLUMNS.filter(
            (column) =>
                ["name", "state"].includes(column.key) || rows.some((row) => of(row, column.key) !== null),
        );
        let room = (this.element.clientWidth || 1000) - 26;
        const narrow = innerWidth <= 620;
        if (this.first > told.length - 3) this.first = 0;
        const chosen = [];
        for (const column of [...told.slice(0, 2), ...told.slice(2 + this.first)]) {
            const width = narrow ? (NARROW[column.key] ?? 68) : column.width;
            if (width > room) break;
            room -= width;
            chosen.push(column);
        }
        const end = this.first + chosen.length - 2;
        this.next = end < told.length - 2 ? end : 0;
        this.more.hidden = chosen.length === told.length;
        this.template = chosen
            .map((column, n) =>
                n === 0
                    ? "minmax(96px, 2fr)"
                    : narrow && column.key === "state"
                      ? "16px"
                      : `minmax(${column.key === "state" ? 88 : 52}px, 1fr)`,
            )
            .join(" ");
        return chosen;
    }

    heads() {
        this.head.style.gridTemplateColumns = this.template;
        refill(this.head, `${this.columns.map((column) => column.key)} ${this.sort} ${this.backwards}`, () =>
            this.columns.map((column) => {
                const here = this.sort === column.key;
                const click = () => {
                    this.backwards = here ? !this.backwards : !column.text;
                    this.sort = column.key;
                    this.render();
                };
                return el(
                    "span",
                    {
                        role: "columnheader",
                        "aria-sort": here ? (this.backwards ? "descending" : "ascending") : "none",
                        class: column.text ? "" : "number",
                    },
                    el(
                        "button",
                        { type: "button", title: column.about, on: { click } },
                        column.key === "state" ? el("span", { class: "doing" }, column.title) : column.title,
                        here ? (this.backwards ? " \u2193" : " \u2191") : "",
                    ),
                );
            }),
        );
    }

    paint() {
        const first = Math.max(0, Math.floor(this.window.scrollTop / HEIGHT) - 4);
        const seen = Math.ceil((this.window.clientHeight || HEIGHT * 20) / HEIGHT) + 8;
        const rows = this.shown.slice(first, first + seen);
        while (this.pool.length < rows.length) this.pool.push(
                el("a", { class: "row", role: "row", on: { click: (event) => this.mark(event) } }),
            );
        rows.forEach((row, n) => this.line(this.pool[n], row, first + n));
        const wanted = this.pool.slice(0, rows.length);
        if (this.body.childElementCount !== wanted.length) fill(this.body, ...wanted);
    }

    line(line, row, place) {
        line.style.transform = `translateY(${place * HEIGHT}px)`;
        line.style.gridTemplateColumns = this.template;
        line.setAttribute("href", `#device/${encodeURIComponent(of(row, "name"))}`);
        line.dataset.name = of(row, "name");
        line.classList.toggle("away", of(row, "state") === "away");
        line.classList.toggle("marked", this.marks.has(of(row, "name")));
        const same = line.childElementCount === this.columns.length;
        if (!same)
            fill(
                line,
                ...this.columns.map((column) =>
                    el(
                        "span",
                        { role: "cell", class: column.text ? "" : "number" },
                        ...(column.key === "state" ? [el("i", {}), el("span", { class: "doing" })] : []),
                    ),
                ),
            );
        this.columns.forEach((column, n) => {
            const cell = line.children[n];
            const value = of(row, column.key);
            const text = column.form(value, state.time, (key) => of(row, key));
            if (column.key === "state") {
                if (!cell.firstChild || cell.firstChild.nodeName !== "I")
                    fill(cell, el("i", {}), el("span", { class: "doing" }));
                cell.firstChild.className = `sign ${value}`;
                say(cell.firstChild, STATES[value] ?? "");
                say(cell.lastChild, text);
                cell.className = "";
                cell.title = of(row, "paused_because") ?? "";
                return;
            }
            if (column.key === "name") {
                const wrong = state.wrong.get(value);
                const low = of(row, "undervoltage") ? " \u21af" : "";
                say(cell, `${wrong ? `${SIGNS[wrong.severity]} ` : ""}${text}${low}`);
                cell.className = wrong ? GRAVITY[wrong.severity] : "";
                cell.title = wrong ? `${text}: ${wrong.kind}, ${wrong.text}` : text;
                return;
            }
            say(cell, text);
            cell.className = `${column.text ? "" : "number"} ${sense(column.key, value)}`;
            cell.title = column.text ? text : "";
        });
    }
}

const SIGNS = { critical: "\u2715", warning: "\u25b2", notice: "\u25cb" }; // as in `edgeflock top`
const GRAVITY = { critical: "bad", warning: "warn", notice: "" };

const texts = (row) => ["name", "state", "class", "backend", "labels", "paused_because"].map((key) => of(row, key));

// By their names in `edgeflock status --json`, and by the titles of `edgeflock top`.
function fields() {
    const all = Object.create(null);
    for (const key of state.columns) all[key] = (row) => of(row, key);
    for (const [title, key] of [
        ["device", "name"],
        ["temp", "temperature"],
        ["batt", "battery"],
        ["stale", "staleness"],
        ["in", "ingress"],
        ["out", "egress"],
        ["stand", "standing"],
        ["label", "labels"],
        ["version", "edgeflock"],
        ["~loss", "smoothed_loss"],
        ["upd/s", "updates_per_s"],
    ])
        all[title] = all[key];
    all.seen = (row) => (of(row, "last_seen") === null ? null : state.time - of(row, "last_seen"));
    return all;
}
