/**
 * Attempts until there is an answer, with exponential back-off and full jitter (M. Brooker, 2015).
 * @module
 */
import {ConnectionLost, DeviceError, Refused} from "../errors.js";

const LONGEST_DELAY = 30;

/**
 * The result of the first attempt that is answered. Raises what no repetition can help, and DeviceError after
 * `patience` seconds.
 * @template T
 * @param {() => Promise<T>} attempt
 * @param {{signal: AbortSignal, patience: number, onRetry: (reason: string) => void}} options
 * @param {() => void} [clean] called after a failure
 * @returns {Promise<T>}
 */
export async function untilAnswered(attempt, {signal, patience, onRetry}, clean = () => {}) {
    const began = Date.now();
    for (let bound = 0.5; ; bound = Math.min(LONGEST_DELAY, 2 * bound)) {
        signal.throwIfAborted();
        try {
            return await attempt();
        } catch (error) {
            signal.throwIfAborted();
            if (!(error instanceof ConnectionLost || (error instanceof Refused && error.isTransient))) throw error;
            clean();
            if (Date.now() - began >= patience * 1000) {
                throw new DeviceError(`${error.message}; given up after ${patience} s`);
            }
            const seconds = Math.random() * bound + (error instanceof Refused ? error.seconds : 0);
            onRetry(`${error.message}; trying again in ${seconds.toFixed(1)} s`);
            await delay(seconds, signal);
        }
    }
}

/** @param {number} seconds @param {AbortSignal} signal */
export function delay(seconds, signal) {
    return new Promise((resolve, reject) => {
        const stop = () => {
            clearTimeout(timer);
            reject(signal.reason);
        };
        const timer = setTimeout(() => {
            signal.removeEventListener("abort", stop);
            resolve(undefined);
        }, seconds * 1000);
        if (signal.aborted) stop();
        else signal.addEventListener("abort", stop, {once: true});
    });
}
