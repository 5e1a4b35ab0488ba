"""The server: hosts the model, admits updates, journals them, applies them."""
