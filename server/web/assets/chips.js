// A row of buttons of which one is chosen. They stay the same elements, so that a click is never lost to a frame.

import { el, say } from "./dom.js";
import { count } from "./numbers.js";

export class Chips {
    // `choose(key)` is called with that of the button that was pressed.
    constructor(about, choose) {
        this.choose = choose;
        this.buttons = new Map();
        this.element = el("div", { class: "chips", role: "group", "aria-label": about });
    }

    // [key, title, how many or null, sign or ""] of each button, in order, and the key of the chosen one.
    show(wanted, chosen) {
        for (const [key, button] of this.buttons) {
            if (!wanted.some((one) => one[0] === key)) {
                button.element.remove();
                this.buttons.delete(key);
            }
        }
        wanted.forEach(([key, title, many, sign], place) => {
            const button = this.buttons.get(key) ?? this.made(key, title, sign);
            if (this.element.children[place] !== button.element) {
                this.element.insertBefore(button.element, this.element.children[place] ?? null);
            }
            say(button.many, many === null ? "" : count(many));
            button.element.setAttribute("aria-pressed", String(key === chosen));
        });
    }

    made(key, title, sign) {
        const many = el("small", {});
        const element = el(
            "button",
            { type: "button", on: { click: () => this.choose(key) } },
            sign ? el("i", { class: `sign ${key}` }, sign) : null,
            `${title} `,
            many,
        );
        this.buttons.set(key, { element, many });
        return { element, many };
    }
}
