/**
 * edgeflock: a device in a browser, a worker or node.
 * @module
 */
export {Device} from "./device.js";
export {browserStorage, forget, identityOf, memoryStorage} from "./storage.js";
export {WorkerDevice} from "./workers.js";
