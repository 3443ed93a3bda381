"""Readings of traces and records as tables: what a figure draws and a review says, without a line of drawing."""
