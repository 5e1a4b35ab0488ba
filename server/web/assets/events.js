// What happened, the newest first.

import { Chips } from "./chips.js";
import { el, fill, say } from "./dom.js";
import { clock, count, date } from "./numbers.js";
import { parse } from "./query.js";
import { state } from "./state.js";

const MOST = 300;
const GRAVE = {
    warning: "warn",
    refused: "warn",
    left: "",
    diverged: "bad",
    dropped: "warn",
    finished: "ok",
    joined: "ok",
};

export class Events {
    constructor() {
        this.kind = "";
        this.chips = new Chips("Kind", (kind) => {
            this.kind = kind;
            this.render(true);
        });
        this.search = el("input", {
            type: "search",
            placeholder: "Filter: pi-3  kind:refused  !kind:round",
            "aria-label": "Filter",
            spellcheck: "false",
            autocomplete: "off",
            on: { input: () => this.render(true) },
        });
        this.trouble = el("p", { class: "trouble", role: "alert" });
        this.list = el("ol", { class: "card events" });
        this.foot = el("p", { class: "foot" });
        this.element = el(
            "div",
            {},
            el("div", { class: "toolbar" }, this.chips.element, this.search),
            this.trouble,
            this.list,
            this.foot,
        );
        this.drawn = null;
    }

    render(anew = false) {
        if (!anew && this.drawn === state.events) return;
        this.drawn = state.events;
        const kinds = new Map();
        for (const [, kind] of state.events) kinds.set(kind, (kinds.get(kind) ?? 0) + 1);
        const buttons = [...kinds].sort().map(([kind, many]) => [kind, kind, many, ""]);
        this.chips.show([["", "All", state.events.length, ""], ...buttons], this.kind);
        let events = this.kind ? state.events.filter((event) => event[1] === this.kind) : state.events;
        say(this.trouble, "");
        if (this.search.value.trim()) {
            try {
                events = events.filter(
                    parse(this.search.value, (event) => [event[1], event[2], event[3]], {
                        kind: (event) => event[1],
                        device: (event) => event[2],
                        text: (event) => event[3],
                    }),
                );
            } catch (error) {
                say(this.trouble, error.message);
            }
        }
        fill(this.list, ...lines(events.slice(-MOST).reverse()));
        this.list.hidden = !events.length;
        say(
            this.foot,
            !state.events.length
                ? "Nothing has happened yet."
                : !events.length
                  ? "No event is like that."
                  : events.length > MOST
                    ? `the newest ${MOST} of ${count(events.length)}`
                    : "",
        );
    }
}

export function lines(events) {
    return events.map(([time, kind, device, text]) =>
        el(
            "li",
            {},
            el("time", { title: date(time) }, clock(time)),
            el("span", { class: `kind ${GRAVE[kind] ?? ""}` }, kind),
            device === null ? null : el("a", { href: `#device/${encodeURIComponent(device)}` }, device),
            el("span", { class: "text" }, text),
        ),
    );
}
