# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # A first run
#
# A server and four devices in this notebook train a small network on handwritten digits. On real machines
# each device is `edgeflock client` on its own data, and nothing else changes: the same server, the same
# messages, the same bytes.

# %%
import asyncio
import tempfile

import numpy as np
from sklearn.datasets import load_digits
from torch import nn

import edgeflock as ef

x, y = load_digits(return_X_y=True)
x = (x / 16).astype(np.float32)
order = np.random.default_rng(0).permutation(len(y))
held_out, training = order[:360], order[360:]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))

    def forward(self, x):
        return self.layers(x)


model = ef.Model(Net, loss="cross_entropy")

# %% [markdown]
# ## Train
#
# The server keeps its run in a folder: whoever serves that folder again goes on from there. Each device has
# a quarter of the data, and shows it to nobody: what travels is a small part of each gradient. A notebook
# has an event loop already, so that `await` stands in a cell.


# %%
async def trained(updates=800, **settings):
    """The model after so many updates of four devices."""
    with tempfile.TemporaryDirectory() as folder:
        server = ef.Server(
            model,
            directory=folder,
            updates=updates,
            evaluate=(x[held_out], y[held_out]),
            evaluate_every=0.1,
            **settings,
        )
        async with server, asyncio.TaskGroup() as group:
            for part in ef.deal(x[training], y[training], 4):
                device = ef.Client(server.url, token=server.token, data=part, backend="torch", model=model)
                group.create_task(device.run())
            async for event in server.events():
                if event.kind in ("joined", "finished"):
                    print(event.kind, event.device or "", event.text)
            return await server.until()


result = await trained(coordination={"learning_rate": 0.3})
print(f"{result.accuracy:.1%} of the held-out digits after {result.version} updates")

# %%
ef.plot(result)

# %% [markdown]
# ## What it cost
#
# Traffic is counted at the server's socket, in both directions. Beside it the same run with gradients as
# they are: all of each, in float32, answered with the whole model.

# %%
plain = await trained(
    coordination={"learning_rate": 0.3},
    compression={"select": 1.0, "values": "f32", "feedback": 0.0},
    downlink={"mode": "exact"},
)
for name, run in (("as it comes", result), ("whole gradients", plain)):
    last = run.evaluations[-1]
    print(
        f"{name:15} {run.accuracy:.1%}, {last.ingress / 1e6:.2f} MB to the server, "
        f"{last.egress / 1e6:.2f} MB from it"
    )

figure = ef.plot(compressed=result, whole=plain, against="bytes")
figure.axes[0].set_xscale("log")
figure

# %% [markdown]
# ## Use the model
#
# It is an ordinary torch module, or a safetensors file.

# %%
import torch

net = result.module()
with torch.no_grad():
    guesses = net(torch.from_numpy(x[held_out][:10])).argmax(1)
print("it says  ", *guesses.tolist())
print("they are ", *y[held_out][:10])

with tempfile.TemporaryDirectory() as folder:
    result.save(f"{folder}/digits.safetensors")

# %% [markdown]
# On a machine of its own the server is `edgeflock server` with the same settings in a file, and each device
# runs `edgeflock client join URL TOKEN` once and then `edgeflock client --data ...`. The
# [README](../../README.md) goes through it.
