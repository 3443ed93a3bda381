"""The control of one tactic field: buttons for few values, a slider for many, each value in its words; the value is
kept or the nearest.
"""

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


def test_values_are_shown_in_words():
    control = controls.Choice("field", lambda _: None, lambda value: f"{value} of them")
    for options in ((1, 2), (2, 3), tuple(range(3, 12))):
        control.offer(options)
        assert [label for label, _ in control.children[0].options] == [f"{value} of them" for value in options]
        control.value = options[1]
        assert control.value == control.children[0].value == options[1]
