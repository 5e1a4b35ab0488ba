/**
 * A device's own key and credential, and its proofs (docs/protocol.md, Joining).
 *
 * WebCrypto keeps the key so that no script can read it, not even this one.
 * @module
 */
import {EMPTY, collect, concat, fromBase64url, sha256, toBase64url, utf8} from "../bytes.js";
import {ConnectionLost, DeviceError, Refused, ServerFault, printable} from "../errors.js";

/**
 * @typedef {{name: string, credential: string, realm: Uint8Array, pin: Uint8Array, graph: string,
 *   key: CryptoKeyPair}} Identity
 */

const NO_PIN = new Uint8Array(32);
const LONGEST_ANSWER = 1 << 14;

/**
 * {pin, graph} of a token: the server's key, and the digest of the one graph to train in hexadecimal, or empty.
 * @param {string} token
 */
export function parseToken(token) {
    const [prefix, ...parts] = token.split(".");
    const octets = parts.map(fromBase64url);
    const [secret, pin, graph] = octets;
    const isWhole = prefix === "ef1" && (parts.length === 2 || parts.length === 3) && secret?.length === 24 && pin;
    if (!isWhole || ![0, 32].includes(pin.length) || (parts.length === 3 && graph?.length !== 32)) {
        throw new DeviceError("the token is not whole: copy all of it, also a dot at its end");
    }
    return {pin: pin.length ? pin : NO_PIN, graph: graph ?? new Uint8Array(0)};
}

/**
 * A new identity for `name`, by a token; or by the credential of `before`, whose key is replaced.
 * @param {URL} server
 * @param {string} bearer
 * @param {string} name
 * @param {{pin: Uint8Array, graph: string, before?: Identity}} known
 * @param {AbortSignal} signal
 * @returns {Promise<Identity>}
 */
export async function join(server, bearer, name, {pin, graph, before}, signal) {
    const key = await newKey();
    const open = new Uint8Array(await crypto.subtle.exportKey("raw", key.publicKey));
    const digest = /** @type {Uint8Array} */ (await sha256(utf8(bearer)));
    const words = concat(utf8("edgeflock join 1\n"), digest, pin, open, utf8(name));
    /** @type {Record<string, string>} */
    const body = {name, key: toBase64url(open), proof: toBase64url(await sign(key, words))};
    if (before) body.before = toBase64url(await sign(before.key, words));
    const answer = await post(new URL("v1/join", server), bearer, body, signal);
    const {credential} = answer;
    const realm = typeof answer.realm === "string" ? fromBase64url(answer.realm) : null;
    if (typeof credential !== "string" || !/^[\x21-\x7e]{1,200}$/.test(credential) || realm?.length !== 16) {
        throw new ServerFault("the server let this device join without a credential");
    }
    return {name, credential, realm, pin, graph, key};
}

/**
 * The signature of a session's challenge.
 * @param {Identity} identity
 * @param {Uint8Array} challenge
 */
export function prove({key, realm, pin, name}, challenge) {
    return sign(key, concat(utf8("edgeflock session 1\n"), challenge, realm, pin, utf8(name)));
}

async function newKey() {
    if (!globalThis.crypto?.subtle) {
        throw new DeviceError(
            "this page is not served by https, so that its device can have no key: open it by https",
        );
    }
    try {
        return /** @type {CryptoKeyPair} */ (await crypto.subtle.generateKey("Ed25519", false, ["sign", "verify"]));
    } catch {
        throw new DeviceError("this browser has no Ed25519 keys, which a device needs: a newer one has them");
    }
}

/** @param {CryptoKeyPair} key @param {Uint8Array} words */
async function sign(key, words) {
    return new Uint8Array(await crypto.subtle.sign("Ed25519", key.privateKey, /** @type {BufferSource} */ (words)));
}

async function post(url, bearer, body, signal) {
    const response = await fetch(url, {
        method: "POST",
        headers: {Authorization: `Bearer ${bearer}`, "Content-Type": "application/json"},
        body: JSON.stringify(body),
        credentials: "omit",
        redirect: "error",
        signal: AbortSignal.any([signal, AbortSignal.timeout(60_000)]),
    }).catch(() => {
        throw new ConnectionLost("the server cannot be reached");
    });
    const text = new TextDecoder().decode(
        (await collect(/** @type {ReadableStream} */ (response.body), LONGEST_ANSWER)) ?? EMPTY,
    );
    let answer = null;
    try {
        answer = JSON.parse(text);
    } catch {
        // An answer that is no JSON has no credential.
    }
    if (response.ok && answer && typeof answer === "object") return answer;
    const {code = `status ${response.status}`, detail = "the server does not let this device join"} = answer ?? {};
    throw new Refused(printable(code, 40), printable(detail));
}
