# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Training on streams
#
# A device may train on what comes in, when it comes in. Here three vibration sensors watch a machine each;
# a model is to tell a sound bearing from a worn one. Every device trains on its own readings as they
# arrive, and none of them leaves it.

# %%
import asyncio
import tempfile

import numpy as np
from torch import nn

import edgeflock as ef

POINTS = 32


def reading(random, speed):
    """(32 points of vibration, whether the bearing is worn): a worn one rattles at a higher frequency."""
    worn = int(random.integers(2))
    t = np.arange(POINTS) / POINTS
    wave = np.sin(2 * np.pi * (speed * t + random.random()))
    rattle = 0.7 * worn * np.sin(2 * np.pi * (3.7 * speed * t + random.random()))
    return (wave + rattle + 0.3 * random.standard_normal(POINTS)).astype(np.float32), worn


def many(samples, seed):
    random = np.random.default_rng(seed)
    x, y = zip(*(reading(random, random.uniform(2, 4)) for _ in range(samples)), strict=True)
    return np.stack(x), np.array(y)


held_out = many(500, seed=1)

# %% [markdown]
# ## A sensor is a generator
#
# It yields one sample after the other, as fast as they come: 300 a second from one sensor, 100 and 30 from
# the others, of which the slow one has a loose contact. An async generator runs in this loop; an ordinary
# one, which may block, gets a thread.


# %%
async def sensor(rate, broken=0.0):
    random = np.random.default_rng(rate)
    while True:
        await asyncio.sleep(1 / rate)
        x, y = reading(random, random.uniform(2, 4))
        if random.random() < broken:
            x[0] = np.nan
        yield x, y


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv1d(1, 8, 5, padding=2), nn.ReLU(), nn.Flatten(), nn.Linear(8 * POINTS, 2)
        )

    def forward(self, x):
        return self.layers(x.unsqueeze(1))


model = ef.Model(Net, loss="cross_entropy")
RATES = {"fast": 300, "middle": 100, "slow": 30}

# %% [markdown]
# ## Train until it is good enough
#
# Batches are what arrived, between 4 and 16 samples. Nobody waits for the slow sensor, and an update of few
# samples counts for less: `base_batch` says how many count as one whole. A stream has no end, so that the
# notebook says when it is enough.


# %%
async def train(enough):
    with tempfile.TemporaryDirectory() as folder:
        async with ef.Server(
            model,
            directory=f"{folder}/run",
            evaluate=held_out,
            evaluate_every=0.25,
            coordination={"learning_rate": 0.2, "base_batch": 16},
            on_update=updates.append,
        ) as server:
            devices = [
                ef.Client(
                    server.url,
                    token=server.token,
                    name=name,
                    data=sensor(rate, broken=0.1 if name == "slow" else 0.0),
                    backend="torch",
                    model=model,
                    batch_min=4,
                    batch_max=16,
                    directory=folder,
                )
                for name, rate in RATES.items()
            ]
            training = [asyncio.create_task(device.run()) for device in devices]
            result = await server.until(stop=lambda now: now.accuracy >= enough)
            for one in training:
                one.cancel()
            await asyncio.wait(training)
        return result, devices


updates = []
result, devices = await train(enough=0.95)
print(f"{result.accuracy:.1%} after {result.version} updates")
for name, device in zip(RATES, devices, strict=True):
    print(f"{name}: {sum(one.device == name for one in updates)} updates; {device.account}")

# %%
ef.plot(result, against="time")

# %% [markdown]
# Each sample is accounted for. What the slow sensor got wrong is in its quarantine, a file beside the
# device, and nobody has trained on it: one bad sample costs one sample.
# [docs/streams.md](../../docs/streams.md) tells of brokers, files and buffers, which a data URI names:
# `mqtt://`, `kafka://`, `csv:`, `http://` and others.
#
# ## Twenty of them, emulated
#
# Before there are twenty sensors they can be emulated: here by day they bring 40 samples a second, by night
# 4, and a day takes twenty seconds. Beside them as many that always bring 22.

# %%
x, y = many(3000, seed=2)
common = dict(
    data=(x, y),
    evaluate=held_out,
    devices=20,
    seconds=25,
    evaluate_every=20,
    coordination={"learning_rate": 0.05, "base_batch": 16, "window": 1024},
)
emulated = {
    name: ef.Fleet(
        model, classes={"sensor": {"profile": "raspberry-pi-4", "rate": rate, "batch_min": 4}}, **common
    ).run(seed=0)
    for name, rate in {"by day and night": "sine:4..40/20s", "always": 22}.items()
}
ef.plot(**emulated, against="time")
