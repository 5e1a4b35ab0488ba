// The only way in which this page makes elements: whatever comes from outside becomes text, never markup.

const SVG = "http://www.w3.org/2000/svg";

export function el(name, attributes = {}, ...children) {
    return filled(document.createElement(name), attributes, children);
}

export function svg(name, attributes = {}, ...children) {
    return filled(document.createElementNS(SVG, name), attributes, children);
}

// Texts and elements in place of all that was there.
export function fill(element, ...children) {
    element.replaceChildren(...children.filter((child) => child !== null && child !== undefined));
    return element;
}

// The same, once for each key: what can be pressed stays while it says the same.
const keys = new WeakMap();

export function refill(element, key, make) {
    if (keys.get(element) === key) return;
    keys.set(element, key);
    fill(element, ...make());
}

// Set a text only if it is another one: most do not change from frame to frame.
export function say(element, text) {
    if (element.textContent !== text) element.textContent = text;
}

function filled(element, attributes, children) {
    for (const [key, value] of Object.entries(attributes)) {
        if (key === "on")
            for (const [event, heard] of Object.entries(value)) element.addEventListener(event, heard);
        else if (value === true) element.setAttribute(key, "");
        else if (value !== false && value !== null && value !== undefined) element.setAttribute(key, value);
    }
    return fill(element, ...children);
}
