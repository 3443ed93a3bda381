"""Shared memory drawn to scale over the SM that the CTAs share."""

from matplotlib.figure import Figure

from ..analysis.resources import smem_table
from ..device import Device
from ..tactics import Footprint
from . import style
from .panel import Panel

KB = 1024


def smem_map(footprint: Footprint, device: Device, theme: style.Theme = style.LIGHT) -> Figure:
    """The shared memory of one SM with every CTA that fits, region by region."""
    fig = style.figure(12, 1.75, theme)
    ctas = footprint.ctas_per_sm
    many = f"{ctas} CTAs fit" if ctas != 1 else "1 CTA fits"
    panel = draw_smem(fig, 0.25, 0.95, 11.4, footprint, device, theme)
    panel.title(f"shared memory of an SM: {device.smem_per_sm // KB} KB, {many}" if ctas else "no CTA fits on an SM", 6)
    return fig


def draw_smem(
    fig: Figure,
    left: float,
    bottom: float,
    width: float,
    footprint: Footprint,
    device: Device,
    theme: style.Theme = style.LIGHT,
) -> Panel:
    """The map in `fig`, `left`, `bottom` and `width` in inches; the key takes half an inch below. Returns the panel."""
    table = smem_table(footprint, device)
    names = [name for name, _, _ in footprint.regions]
    panel = Panel(fig, left, bottom, width, 0.42, theme, x=(0, device.smem_per_sm / KB), y=(0, 1))
    look = {
        name: dict(facecolor=theme.series[i % 7], hatch=style.HATCHES[i % 8], edgecolor=theme.paper, linewidth=0.6)
        for i, name in enumerate(names)
    }
    look["reserved"] = dict(facecolor=theme.ink, edgecolor=theme.paper, linewidth=0.4)
    for name, rows in table[table.region.isin(look) & (table.bytes > 0)].groupby("region", sort=False):
        boxes = [(r.start / KB, 0, r.bytes / KB, 1) for r in rows.itertuples()]
        panel.boxes(boxes, look[name]["facecolor"], **look[name])
    panel.frame("lrbt")
    step = 16 if device.smem_per_sm > 128 * KB else 8
    marks = range(0, device.smem_per_sm // KB + 1, step)
    panel.ticks("x", marks, [f"{kb} KB" if kb else "0" for kb in marks], grid=False)
    sizes = {name: size for name, _, size in footprint.regions if size} | {"reserved": device.smem_reserved_per_cta}
    at = 0.0
    for name, size in sizes.items():
        text = f"{name} {_size(size)}"
        panel.key([(text, look[name])], at, -0.52, 0)
        at += 0.55 + 0.077 * len(text)  # inches: the box, a gap, and what a character is wide on average
    return panel


def _size(size: int) -> str:
    return f"{size / KB:.4g} KB" if size >= KB else f"{size} B"
