"""Torch modules: how they are built and called, their losses, and adapters. Loaded only with torch."""
