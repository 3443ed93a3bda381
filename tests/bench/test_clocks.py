"""What the records keep of clocks: a dropped one flags the campaign."""

from skinny_gemm.bench.clocks import summary


def test_a_dropped_clock_flags_the_campaign():
    def sample(mhz, when="during", throttle=()):
        return {"when": when, "sm_mhz": mhz, "throttle": list(throttle)}

    assert not summary([sample(345, "before"), sample(1980), sample(1965)])["dropped"]
    slow = summary([sample(1980), sample(1700, throttle=["hardware slowdown"])])
    assert slow["dropped"] and slow["throttle"] == ["hardware slowdown"] and slow["sm_mhz_low"] == 1700
    assert summary([])["dropped"] is False
