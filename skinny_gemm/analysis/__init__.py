"""Readings of traces and records as tables and sentences: what a figure draws and a review says. Nothing is drawn."""
