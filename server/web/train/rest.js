// When this device should rest: while nobody looks, on a low battery, and on connections that cost money.

const LOWEST = 0.2; // charge of the battery, below which it rests unless it is plugged in

export class Rest {
    // `changed` gets the reasons for a rest as one line; "": there are none.
    constructor(changed) {
        this.changed = changed;
        this.metered_too = false;
        this.battery = null;
        this.said = "";
        document.addEventListener("visibilitychange", () => this.look());
        navigator.connection?.addEventListener?.("change", () => this.look());
        navigator.getBattery?.().then((battery) => {
            this.battery = battery;
            for (const event of ["levelchange", "chargingchange"]) battery.addEventListener(event, () => this.look());
            this.look();
        }, () => {}); // this browser does not say
    }

    get reason() {
        const reasons = [];
        const { connection } = navigator;
        if (document.hidden) reasons.push("the page is hidden");
        if (this.battery && !this.battery.charging && this.battery.level < LOWEST)
            reasons.push(`battery ${Math.round(this.battery.level * 100)}%`);
        if (connection?.saveData && !this.metered_too) reasons.push("data saver is on");
        else if (connection?.type === "cellular" && !this.metered_too) reasons.push("mobile data");
        return reasons.join(", ");
    }

    look() {
        const { reason } = this;
        if (reason !== this.said) this.changed((this.said = reason));
    }
}
