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


GOAL = 0.95
COMMON = dict(
    data=(x, y),
    updates=1500,
    evaluate_every=50,
    coordination=ef.AdaComp(learning_rate=0.2, window=1024),
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
# Twenty of each make. All train the same model on the same data; what differs is how fast they compute and
# how far away they are.

# %%
makes = {}
for make in ("raspberry-pi-zero-2w", "raspberry-pi-4", "jetson-orin"):
    makes[make] = ef.Fleet(Net, devices=20, profile=make, **COMMON).run(seed=0)
    print(row(f"20 {make}", makes[make]))

# %%
ef.plot(**makes, against="time")

# %% [markdown]
# ## How many?
#
# More devices make more updates a second, each from a model that more of the others have changed meanwhile.

# %%
sizes = {}
for devices in (5, 20, 80):
    sizes[f"{devices} Pis"] = ef.Fleet(Net, devices=devices, profile="raspberry-pi-4", **COMMON).run(seed=0)
    print(row(f"{devices} raspberry-pi-4", sizes[f"{devices} Pis"]))

# %%
ef.plot(**sizes, against="time")

# %% [markdown]
# ## What about the ones that come and go?
#
# Three quarters are Pis that stay. The rest are laptops that leave after some ten seconds, are away for
# twenty, and now and then do not come back.

# %%
mixed = ef.Fleet(
    Net,
    devices=20,
    classes={
        "pi": {"profile": "raspberry-pi-4", "share": 3},
        "laptop": {"profile": "laptop", "session_s": 10, "away_s": 20, "crash": 0.002},
    },
    **COMMON,
).run(seed=0)
print(row("15 Pis and 5 laptops", mixed))
for name, of in mixed.outcome.classes.items():
    print(f"{of.devices} {name}: {of.updates} updates")

# %%
ef.plot(**{"20 Pis": sizes["20 Pis"], "15 Pis and 5 laptops": mixed}, against="time")

# %% [markdown]
# ## The bill
#
# The dearest link is metered by the byte. The preset `record` sends the least that we know of, for more
# computing on the devices.

# %%
record = ef.Fleet(Net, devices=20, profile="raspberry-pi-4", compression="record", **COMMON).run(seed=0)
print(row("as it comes", sizes["20 Pis"]))
print(row("record", record))

# %%
ef.plot(usual=sizes["20 Pis"], record=record, against="bytes")

# %% [markdown]
# The same seed is the same run, bit for bit: what is found here can be shown to somebody else. As a file,
# `edgeflock fleet FILE.toml` runs it with several seeds and writes a report.
