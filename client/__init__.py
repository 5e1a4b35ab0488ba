"""The client: pulls the model, trains on the device's data, pushes compressed updates."""
