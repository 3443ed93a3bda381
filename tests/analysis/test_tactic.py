"""One field changed: every value is there, recorded and modelled times are told apart, steps compare like with like.

Drawn from the synthetic campaign in tests/fixtures, whose times follow a formula.
"""

import re
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
from matplotlib.lines import Line2D

from skinny_gemm import device, records, tactics
from skinny_gemm.analysis.provenance import one_line
from skinny_gemm.figures import charts, style, views
from skinny_gemm.figures.panel import Labels
from skinny_gemm.figures.views import FIGURES, tactic_view
from skinny_gemm.problem import GemmProblem
from skinny_gemm.records import model
from tests.support.drawings import rectangles, texts

H200, B200 = device.get("h200"), device.get("b200")
PROBLEM = GemmProblem(8, 3584, 7168)
TACTIC = tactics.KERNELS["warp-splitk"].parse("32,8,256,4,2")  # recorded, as are its stages 2, 6 and 11
FIXTURES = Path(__file__).parents[1] / "fixtures"


def view_of(gpu=H200, tactic=TACTIC, problem=PROBLEM, mode="chained", kernel="warp-splitk"):
    return tactic_view(kernel, tactic, problem, gpu, mode, FIXTURES)


@pytest.fixture(scope="module")
def view():
    return view_of()


def test_every_value_of_every_field_has_its_time_or_a_reason(view):
    table = view.neighbours
    choices = TACTIC.choices(PROBLEM, H200)
    for name, values in choices.items():
        rows = table[table.control == name]
        assert set(rows.value) == set(values)
        for row in rows.itertuples():
            changed = replace(TACTIC, **{name: row.value})
            assert row.tactic == str(changed) and row.reason == (changed.why_not(PROBLEM, H200) or "")
            assert (row.source == "") == bool(row.reason) and np.isnan(row.median_us) == bool(row.reason)
    assert sorted(table[table.control == "M"].value.unique()) == [7, 8, 9]
    assert set(table.source) == {"", "recorded", "model"}


def test_recorded_rows_are_the_records_and_model_rows_the_model(view):
    error = model.fit_of("warp-splitk", "chained").held_out_p90_error
    recorded = {(r.tactic, r.m): r for r in view.table[view.table.kernel == "warp-splitk"].itertuples()}
    seen = 0
    for row in view.neighbours.itertuples():
        problem = replace(PROBLEM, m=row.m)
        if row.source == "recorded":
            record = recorded[row.tactic, row.m]
            assert (row.median_us, row.low_us, row.tbs) == (record.median_us, record.low_us, record.tbs)
            assert row.campaign == "synthetic"
            seen += 1
        elif row.source == "model":
            (time,) = model.times([TACTIC.parse(row.tactic)], [problem], H200, "chained")
            assert row.median_us == pytest.approx(time) and row.tbs == pytest.approx(problem.bytes / time * 1e-6)
            assert row.high_us == pytest.approx(time / (1 - error)) and row.low_tbs == pytest.approx(
                row.tbs * (1 - error)
            )
    assert seen > 6


def test_a_step_is_of_records_where_both_ends_have_one_and_never_mixed(view):
    table = view.neighbours
    times = {(r.control, r.value, r.source): r.median_us for r in table.itertuples()}
    said = set()
    for row in view.steps.itertuples():
        ends = [(row.control, row.before), (row.control, row.after)]
        if all((*end, "recorded") in times for end in ends):
            assert row.source == "recorded" and row.verdict in ("FASTER", "SLOWER", "SAME", "UNDECIDED")
        elif row.reason:
            assert row.source == "" and np.isnan(row.change)
        else:
            assert row.source == "model" and row.verdict == ""
        if row.source:
            before, after = (times[(*end, row.source)] for end in ends)
            assert row.change == pytest.approx(after / before - 1) and row.after_us == after
        said.add(row.source)
    assert said == {"recorded", "model"}
    moved = set(view.steps.control)
    assert moved == {"M", *(field.name for field in fields(TACTIC))}


def lines_of(figure, color) -> list[Line2D]:
    return [a for a in [*figure.artists, *figure.lines] if isinstance(a, Line2D) and a.get_color() == color]


def test_the_fields_are_drawn_as_tabled(view):
    fig, table = view.fields(), view.neighbours
    said = texts(fig)
    values = {field.name: TACTIC.in_words(field.name, getattr(TACTIC, field.name)) for field in fields(TACTIC)}
    assert {f"{name} = {value}" for name, value in values.items()} | {"first", "after the last tile"} <= set(said)
    assert {"recorded", "model and its 90 % error", "not possible", "HBM ceiling"} <= set(said)
    mine = table[table.control != "M"]
    for source, color in (("recorded", style.LIGHT.blue), ("model", style.LIGHT.sky)):
        drawn = np.concatenate([line.get_ydata() for line in lines_of(fig, color)])
        for tbs in mine.tbs[mine.source == source]:
            assert np.isclose(drawn, tbs).any(), source
    assert all(line.get_linestyle() == ":" for line in lines_of(fig, style.LIGHT.sky)), "the model is dotted"
    assert all(line.get_linestyle() == "None" for line in lines_of(fig, style.LIGHT.blue)), "records are points"


@pytest.mark.parametrize("kernel", tactics.KERNELS)
def test_the_fields_of_every_kernel_are_on_the_page_above_the_key(kernel):
    kind = tactics.KERNELS[kernel]
    problem = kind.problem(GemmProblem(8, 560, 7168))
    fig = view_of(tactic=kind.heuristic(problem, H200), problem=problem, kernel=kernel).fields()
    labels = [artist for artist in fig.artists if isinstance(artist, Labels)]
    at = {text: y for each in labels for text, y in zip(each.texts, heights(each), strict=True)}
    assert 0 < at["HBM ceiling"] == min(at.values()) and max(at.values()) < fig.bbox.height
    assert sum(" = " in text for text in at) == len(fields(kind))


def heights(labels):
    """Where on the page its texts are, in pixels."""
    return labels.get_transform().transform(labels.points)[:, 1]


def test_a_field_of_many_values_shows_those_near_the_possible_ones():
    kind = tactics.KERNELS["ws-gemm"]
    front = kind.problem(GemmProblem(8, 560, 7168))
    view = view_of(tactic=kind.parse("7,2,8,3,8,1"), problem=front, kernel="ws-gemm")
    staged = view.neighbours[view.neighbours.control == "staged"]
    possible = staged.value[staged.reason == ""]
    shown = views._near_possible(list(staged.itertuples()))
    assert len(staged.value.unique()) > 50 and set(possible) <= set(shown) and len(shown) <= len(possible) + 6


def test_the_steps_are_written_and_filled_only_from_records(view):
    fig, table = view.sensitivity(), view.steps
    said = " | ".join(texts(fig))
    for row in table.itertuples():
        before, after = (TACTIC.in_words(row.control, value) for value in (row.before, row.after))
        assert f"{row.control} {before} → {after}" in said
        if row.source:
            assert f"{row.before_us:.2f} → {row.after_us:.2f} us ({row.source}" in said
    assert "filled: both ends recorded; outlined: model, 90 % of whose times were within" in said
    visible = table[(table.source == "recorded")]
    assert rectangles(fig, style.LIGHT.blue) == len(visible)


def test_what_the_model_does_not_have_is_told_as_such(view):
    (row,) = view.steps[view.steps.control == "trigger"].itertuples()
    assert (row.source, row.change) == ("model", 0), "nothing recorded with the other trigger"
    told = [text for text in texts(view.sensitivity()) if "knows no difference" in text]
    assert told == [f"0.0 %: {row.before_us:.2f} → {row.after_us:.2f} us (model, which knows no difference)"]


def test_a_change_that_rounds_to_nothing_has_no_sign():
    assert [views._percent(v) for v in (0.0004, -0.0004, 0.013, -0.5)] == ["0.0 %", "0.0 %", "+1.3 %", "-50.0 %"]


def test_without_records_all_is_the_models_and_says_so():
    view = view_of(B200)
    assert set(view.neighbours.source) <= {"model", ""} and set(view.steps.source) <= {"model", ""}
    for stem, (fig, data, facts) in view.figures().items():
        assert facts["source"] == "model" and facts["device"] == B200.title
        if not stem.endswith("smem"):
            assert facts["model"].endswith("scaled to NVIDIA B200")
            assert set(data.source) <= {"model", ""} and any("model" in text for text in texts(fig))
            assert "recorded" not in texts(fig) and "selected" not in texts(fig)
    assert rectangles(view.sensitivity(), style.LIGHT.blue) == 0
    assert any(text.endswith("% on NVIDIA H200") for text in texts(view.sensitivity())), "its error here is not known"
    assert "scaled model" in texts(view.bandwidth()) and "%" not in "".join(texts(view.bandwidth()))
    assert "scaled model, others' error" in texts(view.fields()) and "model and its 90 % error" not in texts(
        view.fields()
    )


def test_exposed_launches_have_no_model():
    view = view_of(mode="exposed")
    assert view.curve is None and "model" not in view.provenance()
    assert set(view.neighbours.source) <= {"recorded", ""}
    assert "not recorded, and no model" in " ".join(texts(view.sensitivity()))
    assert not lines_of(view.fields(), style.LIGHT.sky)


def test_the_curve_is_beside_the_records_with_its_error(view):
    error = model.fit_of("warp-splitk", "chained").held_out_p90_error
    assert view.curve.m.tolist() == list(range(1, 33)), "every M that the tactic takes"
    fig = view.bandwidth()
    (line,) = lines_of(fig, style.LIGHT.sky)
    np.testing.assert_allclose(line.get_ydata(), view.curve.tbs)
    assert line.get_linestyle() == ":" and f"model, 90 % ±{100 * error:.0f} %" in texts(fig)
    blue = np.concatenate([line.get_ydata() for line in lines_of(fig, style.LIGHT.blue)])
    assert not np.isclose(blue[:, None], view.curve.tbs.to_numpy()).any(), "never in a recorded line"
    intensity = [replace(PROBLEM, m=m).intensity for m in view.curve.m]
    points = lines_of(view.roofline(), style.LIGHT.sky)
    drawn = next(line for line in points if len(line.get_xdata()) == len(intensity))
    np.testing.assert_allclose(10 ** drawn.get_ydata(), intensity * view.curve.tbs)


def test_ridges_are_where_ceilings_meet():
    fig = style.figure(7, 4)
    memory, compute = {"HBM read": 4.0, "L2 read": 8.0}, {"BF16 mma": 600.0}
    charts.draw_roofline(fig, (1, 1, 5, 2), [], memory, compute, PROBLEM, "roofline")
    assert {"HBM ridge 150", "L2 ridge 75"} <= set(texts(fig))


def test_figures_say_of_each_row_whether_it_was_recorded(view):
    figures = view.figures()
    assert [stem.removeprefix(f"{view.stem}-") for stem in figures] == list(FIGURES)
    for name in ("bandwidth", "roofline"):
        _, data, facts = figures[f"{view.stem}-{name}"]
        assert set(data.source) == {"recorded", "model"} and facts["source"] == "recorded"
        assert facts["model"] == model.fit_of("warp-splitk", "chained").describe()
        assert (data.source == "model").sum() == len(view.curve)
    steps = figures[f"{view.stem}-sensitivity"]
    assert re.match("fitted to", steps[2]["model"]) and steps[2]["campaign"] == "synthetic"


def test_an_impossible_tactic_has_no_neighbours():
    view = view_of(tactic=replace(TACTIC, stages=16))
    with pytest.raises(ValueError, match="cannot run: 332,032 B of shared memory needed"):
        view.fields()
    assert [stem.rpartition("-")[2] for stem in view.figures()] == ["bandwidth", "roofline"]
    unsupported = view_of(tactic=None, problem=GemmProblem(8, 2112, 2880))
    with pytest.raises(ValueError, match="K = 2880"):
        unsupported.sensitivity()


class TestProcesses:
    """Of 2304x1536, M = 1 and 8 were recorded in a quiet and in a busy process, isolated launches in a quiet one."""

    PROBLEM = GemmProblem(8, 2304, 1536)
    TACTIC = tactics.KERNELS["warp-splitk"].parse("32,8,256,6,2")

    def view_of(self, mode="chained", process=None):
        return tactic_view("warp-splitk", self.TACTIC, self.PROBLEM, H200, mode, FIXTURES, process)

    def test_a_view_is_of_one_process_the_busy_one_if_recorded(self):
        quiet, busy = self.view_of(process="quiet"), self.view_of()
        assert (busy.process, set(busy.table.process), set(busy.table.m)) == ("busy", {"busy"}, {0, 1, 8})
        assert (quiet.process, set(quiet.table.process), set(quiet.table.m)) == ("quiet", {"quiet"}, {0, 1, 8, 16})
        assert self.view_of("isolated").process == "quiet" and view_of().process == "quiet"
        assert self.view_of("isolated", "busy").table.empty
        with pytest.raises(ValueError, match="process is 'idle', but must be one of quiet, busy"):
            self.view_of(process="idle")

    @pytest.mark.parametrize("process", ["quiet", "busy"])
    def test_its_neighbours_and_limits_are_of_that_process(self, process):
        view = self.view_of(process=process)
        rows = [row for row in records.store.read_rows(FIXTURES / "campaigns/synthetic-states/records.csv")
                if (row.mode, row.process) == ("chained", process)]  # fmt: skip
        times = {row.tactic: row.median_us for row in rows if row.m == 8 and row.is_ours}
        told = view.neighbours[(view.neighbours.source == "recorded") & (view.neighbours.m == 8)]
        assert len(times) == 3 and dict(zip(told.tactic, told.median_us, strict=False)) == times
        stream = next(row.median_us for row in rows if row.kernel == "stream")
        assert view.limits()["stream bound"] == pytest.approx(self.PROBLEM.weight_bytes / stream * 1e-6)

    def test_files_name_a_busy_process_and_no_quiet_model(self, monkeypatch):
        fitted = {key: fit for key, fit in model.fits().items() if key[2] == "quiet"}
        monkeypatch.setattr(model, "fits", lambda: fitted)
        quiet, busy = self.view_of(process="quiet"), self.view_of()
        assert busy.provenance()["process"] == "busy" and "process" not in quiet.provenance()
        assert "recorded, chained, busy process, campaign synthetic-states" in one_line(busy.provenance())
        assert "recorded, chained, campaign synthetic-states" in one_line(quiet.provenance())
        assert busy.status().startswith("recorded, busy process  |  ") and quiet.status().startswith("recorded  |  ")
        assert quiet.fit and busy.fit is None, "a quiet process says nothing of it"
        assert set(busy.plotted.process) == {"busy"} and set(quiet.plotted.process) == {"quiet"}
        nothing = self.view_of("isolated", "busy").status()
        assert "(isolated launches, busy process)" in nothing and "--n 2304 --k 1536 --processes busy" in nothing

    def test_the_model_of_a_busy_process_is_its_own(self, monkeypatch):
        fits = model.fits()
        start = dict(fits["warp-splitk", "chained", "quiet"].coefficients)
        slower = replace(fits["warp-splitk", "chained", "quiet"], coefficients=start | {"start": 2 * start["start"]})
        monkeypatch.setattr(model, "fits", lambda: {**fits, ("warp-splitk", "chained", "busy"): slower})
        quiet, busy = self.view_of(process="quiet"), self.view_of()
        assert busy.fit is slower and (busy.curve.median_us > quiet.curve.median_us).all()
