#!/bin/bash
# Records $1, a new file, in 90 seconds: a server with two devices, watched by `edgeflock top` while an admin takes
# a checkpoint and halves the learning rate. PYTHONPATH names the code; script(1) is the terminal.
url=http://127.0.0.1:18475 recording=$(realpath "$1")
cd "$(mktemp -d)" || exit 1
timeout 110 python -m edgeflock server --set server.port=18475 --set server.host=127.0.0.1 \
    --set server.directory=edgeflock-run --set server.open=true --set local.batch=64 \
    --set model.module=edgeflock.client.zoo:DigitsLinear --set model.data=digits: --set evaluation.every=2 \
    --set coordination.window=64 &
until curl -s "$url/readyz" >/dev/null; do sleep 0.5; done
export TERM=xterm-256color
timeout -s INT 90 script -qc "stty cols 120 rows 40; python -m edgeflock top $url \
    --interval 0.5 --record $recording" /dev/null >/dev/null < <(sleep 89) &
sleep 4
timeout 75 python -m edgeflock client --server "$url" --name pi-1 --data "digits:?part=1/2" &
timeout 62 python -m edgeflock client --server "$url" --name pi-2 --data "digits:?part=2/2" &
sleep 40
act="Authorization: Bearer $(cat edgeflock-run/admin-token)"
curl -s -X POST -H "$act" "$url/v1/checkpoint"
sleep 8
curl -s -X POST -H "$act" -H "Content-Type: application/json" -d '{"value": 0.05}' \
    "$url/v1/learning_rate"
wait
