# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # My fleet, emulated before I buy it
#
# How many Raspberry Pis does it take, how long do they train, and what does the mobile contract have to
# bear? An emulated fleet is the real server, real devices and real messages, on a clock that jumps: hours
# on sixty machines are seconds here. Bytes are exact. Seconds are a model of each machine and its link,
# from published figures ([docs/fleet.md](../../docs/fleet.md)).

# %%
import numpy as np
from sklearn.datasets import load_digits
from torch import nn

import edgeflock as ef

x, y = load_digits(return_X_y=True)
x = (x / 16).astype(np.float32)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))

    def forward(self, x):
        return self.layers(x)


GOAL = 0.9
COMMON = dict(
    data=(x, y),
    updates=800,
    batch=20,
    evaluate_every=50,
    coordination={"learning_rate": 0.1, "window": 1024},
)


def reached(run):
    """The first evaluation that reaches the goal."""
    return next((one for one in run.evaluations if one.accuracy >= GOAL), None)


def row(name, run):
    at = reached(run)
    if at is None:
        return f"{name:28} does not get to {GOAL:.0%}"
    return f"{name:28} {at.time:6.1f} s {at.version:6} updates {(at.ingress + at.egress) / 1e6:6.2f} MB"


# %% [markdown]
# ## Which machine?
#
# Ten of each make. All train the same model on the same data; what differs is how fast they compute and how
# far away they are.

# %%
makes = {}
for make in ("raspberry-pi-zero-2w", "raspberry-pi-4"):
    makes[make] = ef.Fleet(Net, devices=10, profile=make, **COMMON).run(seed=0)
    print(row(f"10 {make}", makes[make]))

# %%
ef.plot(**makes, against="time")

# %% [markdown]
# ## How many?
#
# More devices make more updates a second, each from a model that more of the others have changed meanwhile.

# %%
sizes = {"10 Pis": makes["raspberry-pi-4"]}
for devices in (5, 20):
    sizes[f"{devices} Pis"] = ef.Fleet(Net, devices=devices, profile="raspberry-pi-4", **COMMON).run(seed=0)
for name, run in sizes.items():
    print(row(name, run))

# %%
ef.plot(**sizes, against="time")

# %% [markdown]
# ## What about the ones that come and go?
#
# Eight are Pis that stay. Two are laptops that leave after some second, are away for another, and now and
# then do not come back. A laptop is faster while it is there.

# %%
mixed = ef.Fleet(
    Net,
    devices=10,
    classes={
        "pi": {"profile": "raspberry-pi-4", "share": 4},
        "laptop": {"profile": "laptop", "session_s": 1, "away_s": 1, "crash": 0.002},
    },
    **COMMON,
).run(seed=0)
print(row("8 Pis and 2 laptops", mixed))
for name, of in mixed.outcome.classes.items():
    print(f"{of.devices} {name}: {of.updates} updates")

# %%
ef.plot(**{"10 Pis": sizes["10 Pis"], "8 Pis and 2 laptops": mixed}, against="time")

# %% [markdown]
# ## The bill
#
# The dearest link is metered by the byte. Devices send a small part of each gradient, of 4,810 parameters
# some 70; here beside it a third of these, which is less an update, and more updates.

# %%
less = ef.Fleet(Net, devices=10, profile="raspberry-pi-4", compression={"select": 0.005}, **COMMON).run(
    seed=0
)
print(row("as it comes", sizes["10 Pis"]))
print(row("a third of that", less))

# %%
ef.plot(usual=sizes["10 Pis"], less=less, against="bytes")

# %% [markdown]
# The same seed is the same run, bit for bit: what is found here can be shown to somebody else. As a file,
# `edgeflock fleet FILE.toml` runs it with several seeds and writes a report.
