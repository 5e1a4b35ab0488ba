// A page of your own that takes part in a run: open it as https://YOUR-HOST/example/#server=https://...&token=ef1....
import {WorkerDevice} from "../index.js";

const given = new URLSearchParams(location.hash.slice(1));
const log = document.getElementById("log");
let device;

// Samples of two numbers in two classes. A function is asked for each batch; arrays {x, y, shape} do as well.
function data({batch}) {
  const x = Float32Array.from({length: 2 * batch}, () => 2 * Math.random() - 1);
  const y = Int32Array.from({length: batch}, (_, i) => (x[2 * i] * x[2 * i + 1] > 0 ? 1 : 0));
  return {x, y, shape: [2]};
}

function onEvent(event) {
  if (event.kind === "state") log.textContent = `${event.state} ${event.detail}`;
  else if (event.kind === "step") {
    const {updates, loss, sent, received} = event;
    log.textContent = `${updates} updates, loss ${loss.toFixed(3)}, ${sent} bytes sent, ${received} received`;
  } else if (event.kind === "ended") log.textContent = `${event.why}: ${event.reason}`;
}

document.getElementById("start").onclick = () => {
  device = new WorkerDevice({server: given.get("server"), token: given.get("token"), data, onEvent});
  device.start();
};
document.getElementById("stop").onclick = () => device?.stop();
