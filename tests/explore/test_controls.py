"""The control of one tactic field: buttons for few values, a slider for many, and the value is kept or the nearest."""

import pytest

from skinny_gemm.explore import controls


def test_a_few_choices_are_buttons_and_many_a_slider():
    control = controls.Choice("field", lambda _: None)
    assert control.value is None
    control.offer((1, 2))
    assert type(control.children[0]).__name__ == "ToggleButtons" and control.value == 1
    control.value = 2
    control.offer(tuple(range(3, 12)))
    assert type(control.children[0]).__name__ == "SelectionSlider" and control.value == 3, "the nearest"
    control.offer(())
    assert control.children[0].disabled and control.value == 3
    with pytest.raises(ValueError, match="field is 99"):
        control.value = 99
