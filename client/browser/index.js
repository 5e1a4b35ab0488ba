/**
 * edgeflock: a device in a browser, a worker or node.
 * @module
 */
export {Device, forget, identityOf} from "./device.js";
export {browserStorage, memoryStorage} from "./storage.js";
export {WorkerDevice} from "./workers.js";
