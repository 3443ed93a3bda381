"""Figures: pure functions from data to a matplotlib `Figure`. Nothing here touches pyplot or global state."""
