"""Measuring on real hardware: timing, ceilings, peers, sweeps, and the records that they leave under data/campaigns."""
