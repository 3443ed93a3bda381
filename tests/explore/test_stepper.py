"""The cursor: to the next and the previous moment, in any order and doubled, and no further than the last."""

from skinny_gemm.explore import SwizzleExplorer
from skinny_gemm.explore.stepper import WINDOW, Stepper


def test_it_steps_from_moment_to_moment():
    cursor = Stepper(SwizzleExplorer(), "time", 500, lambda: [300, 40, 900, 300])
    cursor.slider.max = 1000
    seen = []
    for button in (cursor.back, cursor.back, cursor.back, cursor.forward, cursor.forward, cursor.forward):
        button.click()
        seen.append(cursor.value)
    assert seen == [300, 40, 40, 300, 900, 900]


def test_what_a_step_raises_is_told_by_the_explorer():
    explorer = SwizzleExplorer()
    cursor = Stepper(explorer, "time", 0, lambda: 1 / 0)
    cursor.forward.click()
    assert "division by zero" in explorer.trouble.value and cursor.value == 0


def test_the_window_is_around_the_cursor_and_starts_at_0():
    cursor = Stepper(SwizzleExplorer(), "time", 500, list)
    assert cursor.window() == (500 - WINDOW // 2, 500 + WINDOW // 2)
    cursor.value = 10
    assert cursor.window() == (0, WINDOW)
