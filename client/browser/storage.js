/**
 * Where a device keeps its identity, the update under way, and its personal layers.
 * @module
 */
import {DeviceError} from "./errors.js";

/**
 * Values are what structured clones hold, keys of WebCrypto that nobody can export among them.
 * @typedef {{get: (key: string) => Promise<any>, set: (key: string, value: any) => Promise<void>,
 *   delete: (key: string) => Promise<void>}} Storage
 */

/** In memory: it is gone with the process. @returns {Storage} */
export function memoryStorage() {
    const values = new Map();
    return {
        get: async (key) => values.get(key),
        set: async (key, value) => void values.set(key, structuredClone(value)),
        delete: async (key) => void values.delete(key),
    };
}

/**
 * In the browser's IndexedDB, in a database of this name.
 * @param {string} name
 * @returns {Storage}
 */
export function browserStorage(name = "edgeflock") {
    /** @type {Promise<IDBDatabase> | null} */
    let database = null;
    const opened = () => {
        const request = indexedDB.open(name, 1);
        request.onupgradeneeded = () => request.result.createObjectStore("values");
        return result(request).catch((error) => {
            throw new DeviceError(
                `this browser lets the page store nothing (${error?.message}): leave its private mode, or give storage: null`,
            );
        });
    };
    const perform = async (mode, act) => {
        database ??= opened();
        const transaction = (await database).transaction("values", mode);
        const found = await result(act(transaction.objectStore("values")));
        if (mode === "readwrite")
            await new Promise((resolve, reject) => {
                transaction.oncomplete = resolve;
                transaction.onabort = () => reject(transaction.error);
            });
        return found;
    };
    return {
        get: (key) => perform("readonly", (store) => store.get(key)),
        set: (key, value) => perform("readwrite", (store) => store.put(value, key)),
        delete: (key) => perform("readwrite", (store) => store.delete(key)),
    };
}

/** @param {IDBRequest} request @returns {Promise<any>} */
const result = (request) =>
    new Promise((resolve, reject) => {
        request.onsuccess = () => resolve(request.result);
        request.onerror = () => reject(request.error);
    });

/**
 * The stored identity of a server; null: the device has not joined.
 * @param {string} server
 * @param {Storage | string | null} storage
 */
export async function identityOf(server, storage = "edgeflock") {
    const found = await storageOf(storage).get(`identity ${new URL(server).href}`);
    return found ? {name: found.name} : null;
}

/** Forget all that is stored of a server. @param {string} server @param {Storage | string | null} storage */
export async function forget(server, storage = "edgeflock") {
    for (const what of ["identity", "name", "secret", "update", "personal"])
        await storageOf(storage).delete(`${what} ${new URL(server).href}`);
}

/** @param {Storage | string | null} storage @returns {Storage} */
export const storageOf = (storage) =>
    typeof storage === "string" ? browserStorage(storage) : (storage ?? memoryStorage());
