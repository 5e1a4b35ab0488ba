/**
 * The Web Worker of a WorkerDevice (workers.js): a Device whose events, and wishes for data, go to the page.
 * @module
 */
import {Device} from "./device.js";
import {DeviceError} from "./errors.js";

/** @type {Device | null} */
let device = null;
/** Gets the page's next samples. @type {(samples: any) => void} */
let given = () => {};

/** @param {MessageEvent} event */
onmessage = async ({data: [command, argument]}) => {
    if (command === "start") {
        const ask = ({batch}) =>
            new Promise((resolve, reject) => {
                given = ({samples, error}) => (error ? reject(new DeviceError(error)) : resolve(samples));
                postMessage(["take", {batch}]);
            });
        const onEvent = (event) => postMessage(["event", event]);
        device = new Device({...argument, data: argument.data ?? ask, onEvent});
        postMessage(["ended", await device.start()]);
    } else if (command === "samples") given(argument);
    else if (command === "stop") device?.stop();
    else if (command === "pause") device?.pause(argument);
    else if (command === "resume") device?.resume();
    else if (command === "wake") device?.wake();
};
