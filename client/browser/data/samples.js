/**
 * Samples that come one by one, as the `data` of a Device: random batches of those that are there by now.
 * @module
 */
export class Samples {
  /** @type {Float32Array[]} */
  x = [];
  /** @type {number[]} */
  y = [];

  /**
   * @param {number[]} shape of one sample
   * @param {{least?: number, most?: number, numbers?: boolean}} options `least`: how many there are before the first
   * batch. `most`: beyond it the oldest leave. `numbers`: whether targets are numbers rather than classes.
   */
  constructor(shape, {least = 1, most = 100_000, numbers = false} = {}) {
    this.shape = shape;
    this.least = least;
    this.most = most;
    this.numbers = numbers;
    /** The `data` of a Device. */
    this.data = async (/** @type {{batch: number}} */ {batch}) => this.batch(batch);
  }

  get count() {
    return this.x.length;
  }

  /**
   * @param {Float32Array} x
   * @param {number} y a class 0, 1, ..., or a number
   */
  add(x, y) {
    this.x.push(x);
    this.y.push(y);
    if (this.count > this.most) {
      this.x.shift();
      this.y.shift();
    }
  }

  /**
   * At most `wanted` samples, each once; null: there are too few yet.
   * @param {number} wanted
   */
  batch(wanted) {
    if (!this.count || this.count < this.least) return null;
    const count = Math.min(wanted, this.count);
    const size = this.x[0].length;
    const taken = new Set();
    while (taken.size < count) taken.add(Math.floor(Math.random() * this.count));
    const x = new Float32Array(count * size);
    const y = new (this.numbers ? Float32Array : Int32Array)(count);
    [...taken].forEach((place, at) => {
      x.set(this.x[place], at * size);
      y[at] = this.y[place];
    });
    return {x, y, shape: this.shape};
  }
}
