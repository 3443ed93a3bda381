"""The state of the measuring process, which every small launch feels: quiet, or busy as a serving engine's is.

Once a process has used its fourth CUDA stream, all its launches of small kernels take longer, for good and in graphs
too. Seen on H200: `torch.mm` of 2304x1536 at M = 16 went from 5.12 to 5.46 us, warp split-K by 1 to 10 %, and its
tactics changed places. The streams of a quiet process are counted here:

1. PyTorch's current one, the default: fills the weights, computes references, checks results;
2. the timer's, one however many timers there are (`graphs`): captures and replays, and launches once before;
3. none of ours: left for one that a library may use of its own accord.
"""

STREAMS = 8  #: that a process uses to become busy: twice as many as it takes
MEANINGS = {  #: of each of `records.PROCESSES`, as campaign.json says it
    "quiet": "used PyTorch's current stream and the timer's, no other",
    "busy": f"used {STREAMS} more streams, with a small kernel on each, before anything was measured",
}
_state = "quiet"  # of this process


def enter(process: str) -> None:
    """Makes this process a `quiet` or `busy` one; ValueError if it is busy already and is to be quiet."""
    global _state
    if process == "quiet" and _state == "busy":
        raise ValueError(
            "This process is busy and stays so: only a new one is quiet; in a notebook, restart the kernel."
        )
    if process == "busy" and _state == "quiet":
        use_streams()
    _state = process


def use_streams() -> None:
    """Launches a small kernel on each of `STREAMS` streams that are nobody else's, and waits for all."""
    import torch

    for stream in [torch.cuda.Stream() for _ in range(STREAMS)]:
        with torch.cuda.stream(stream):
            torch.ones(1, device="cuda")
    torch.cuda.synchronize()
