export class StepGraph {
  constructor(octets, layout, memory) { this.octets = octets; this.inputs = {has: (_) => true, get: (_) => /** @type {any} */ ({type: 7, shape: ["b"]})}; }
  measure(_) {}
}
