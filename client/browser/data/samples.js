// Samples that come one by one, as the `data` of a Device: random batches of those that are there by now.

export class Samples {
    // `shape` is of one sample. `least`: how many there are before the first batch. `most`: the oldest leave beyond it.
    constructor(shape, { least = 1, most = 100_000 } = {}) {
        this.shape = shape;
        this.least = least;
        this.most = most;
        this.x = [];
        this.y = [];
        this.data = async ({ batch }) => this.batch(batch);
    }

    get count() {
        return this.x.length;
    }

    // x is a Float32Array of `shape`. y: a class (whole number), or a number if `numbers` is set.
    add(x, y) {
        this.x.push(x);
        this.y.push(y);
        if (this.x.length > this.most) {
            this.x.shift();
            this.y.shift();
        }
    }

    numbers = false;

    // At most `wanted` samples, each once; null: there are too few yet.
    batch(wanted) {
        if (this.count < this.least || !this.count) return null;
        const count = Math.min(wanted, this.count);
        const size = this.x[0].length;
        const places = Array.from(this.x.keys());
        const x = new Float32Array(count * size);
        const y = new (this.numbers ? Float32Array : Int32Array)(count);
        for (let i = 0; i < count; i++) {
            const j = i + Math.floor(Math.random() * (places.length - i));
            [places[i], places[j]] = [places[j], places[i]];
            x.set(this.x[places[i]], i * size);
            y[i] = this.y[places[i]];
        }
        return { x, y, shape: this.shape };
    }
}
