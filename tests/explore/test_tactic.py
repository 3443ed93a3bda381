"""The tactic explorer without a browser: controls change, words and pictures follow.

- the controls are the tactic type's fields and legal values, for a kernel nobody has heard of too;
- an impossible combination is told in the tactic's own words and leaves the explorer usable;
- numbers on screen are recorded ones and say of which campaign; no data is said plainly;
- one change is one redraw, a callback that raises shows its sentence, Export writes what is on screen.
"""

import json
import re
from abc import abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pandas
import pytest

from skinny_gemm import device, records, tactics
from skinny_gemm.bench.task import Measurement
from skinny_gemm.explore import TacticExplorer
from skinny_gemm.figures import charts, views
from skinny_gemm.figures.panel import Labels
from skinny_gemm.problem import FrontProblem, GemmProblem
from skinny_gemm.records import model
from skinny_gemm.tactics import Footprint, Tactic
from tests.support.drawings import texts
from tests.support.widgets import text

FIXTURES = Path(__file__).parents[1] / "fixtures"
H200 = device.get("h200")


@pytest.fixture
def explorer():
    return TacticExplorer(FIXTURES)


def test_starts_at_the_default_tactic_with_recorded_data(explorer):
    default = tactics.KERNELS["warp-splitk"].default(explorer.problem, H200)
    assert explorer.tactic == default
    assert default.footprint(explorer.problem, H200).describe() in text(explorer.verdict)
    origin = "recorded  |  SYNTHETIC, not a measurement  |  campaign synthetic  |  commit 00000000"
    fit = model.fit_of("warp-splitk", "chained")
    assert text(explorer.status) == f"{origin}  |  dotted: model, {fit.describe()}"
    assert ">selected</text>" in explorer.bandwidth.value and "campaign synthetic" in explorer.bandwidth.value
    assert "campaign" not in explorer.smem.value, "what a tactic occupies was computed, not recorded"


def test_controls_offer_exactly_the_legal_values(explorer):
    legal = tactics.KERNELS["warp-splitk"].choices(explorer.problem, H200)
    assert {name: control.options for name, control in explorer.fields.items()} == legal
    explorer.model.value = None
    explorer.n.value, explorer.k.value = 64, 512
    legal = tactics.KERNELS["warp-splitk"].choices(GemmProblem(8, 64, 512), H200)
    assert {name: control.options for name, control in explorer.fields.items()} == legal
    assert explorer.tactic.why_not(explorer.problem, H200) is None or "Not possible" in text(explorer.verdict)


def test_an_impossible_combination_is_told_in_words(explorer):
    explorer.fields["stages"].value = 16
    assert "332,032 B of shared memory needed, 232,448 available" in text(explorer.verdict)
    assert explorer.smem.hidden, "its place is kept: nothing below it moves"
    explorer.fields["stages"].value = 6
    assert "OK" in text(explorer.verdict) and "svg" in explorer.smem.value and not explorer.smem.hidden


@pytest.mark.parametrize(("n", "k", "why"), [(2112, 2880, "K = 2880 is not a multiple"), (24, 512, "N = 24 is not")])
def test_a_shape_that_no_tactic_takes_says_why_and_recovers(explorer, n, k, why):
    before = explorer.tactic
    explorer.model.value = None
    explorer.n.value, explorer.k.value = n, k
    assert explorer.trouble.value == ""
    assert "no recorded data" in text(explorer.status) and "bench" not in text(explorer.status)
    explorer.default_button.click()
    assert why in text(explorer.trouble)
    explorer.n.value, explorer.k.value = 3584, 7168
    explorer.default_button.click()
    assert explorer.trouble.value == "" and explorer.tactic == before


def test_too_many_tokens(explorer):
    explorer.m.value = 33
    assert "M is 33, but this kernel takes 1 to 32 tokens" in text(explorer.verdict)


def test_no_recorded_data_is_said_plainly(explorer):
    explorer.device.value = "b200"
    assert "no recorded data: warp-splitk, 3584x7168" in explorer.bandwidth.value
    assert text(explorer.status).startswith("no recorded data for 3584x7168 on NVIDIA B200")
    assert "HBM datasheet 7.7" in explorer.bandwidth.value
    assert "HBM datasheet 7.7 TB/s" in explorer.roofline.value and "BF16 datasheet 2250" in explorer.roofline.value
    assert "bench warp-splitk --n 3584 --k 7168" in text(explorer.status)
    explorer.best_button.click()
    said = "No record of warp-splitk for N = 3584, K = 7168, M = 8, chained, cold weights on b200"
    assert said in text(explorer.trouble)


def test_without_records_the_model_is_drawn_and_says_so(explorer):
    explorer.device.value = "b200"
    assert ">scaled model<" in explorer.bandwidth.value, "its error here is not known"
    assert ">model</text>" in explorer.roofline.value
    assert "dotted: model, scaled from NVIDIA H200 by the ceilings and there fitted to" in text(explorer.status)
    facts = explorer.view.provenance()
    assert facts["source"] == "model" and facts["model"].endswith("scaled to NVIDIA B200")
    assert "selected</text>" not in explorer.bandwidth.value
    explorer.mode.value = "exposed"
    assert ">model" not in explorer.bandwidth.value + explorer.roofline.value
    assert "model" not in text(explorer.status)


def busy_is_offered(explorer) -> bool:
    return explorer.process.layout.display != "none"


def test_the_process_is_chosen_where_both_were_recorded_and_never_mixed(explorer):
    assert not busy_is_offered(explorer) and explorer.view.process == "quiet"
    explorer.projection.value = next(s for s in explorer.shapes if (s.n, s.k) == (2304, 1536))
    assert busy_is_offered(explorer) and explorer.process.value == explorer.view.process == "busy"
    assert set(explorer.view.table.process) == {"busy"} and "chained, busy process" in explorer.bandwidth.value
    explorer.best_button.click()
    assert explorer.tactic.stages == 4 and "recorded, busy process" in text(explorer.status)
    explorer.process.value = "quiet"
    assert set(explorer.view.table.process) == {"quiet"} and "busy" not in explorer.bandwidth.value
    explorer.best_button.click()
    assert explorer.tactic.stages == 6 and "busy" not in text(explorer.status)
    explorer.m.value = 16
    assert explorer.process.value == "quiet", "the choice stays as long as the weight does"
    explorer.mode.value = "isolated"
    assert not busy_is_offered(explorer) and explorer.trouble.value == ""
    explorer.mode.value = "chained"
    assert busy_is_offered(explorer) and explorer.process.value == "busy"
    explorer.kernel.value = "ws-gemm"
    assert not busy_is_offered(explorer) and explorer.view.process == "quiet", "it was not recorded at all"


def test_only_the_charts_on_show_are_drawn(explorer, monkeypatch):
    drawn = []
    for name in ("bandwidth", "roofline", "fields", "sensitivity"):
        method = getattr(views.TacticView, name)
        monkeypatch.setattr(views.TacticView, name, lambda self, n=name, m=method: drawn.append(n) or m(self))
    explorer.m.value = 9
    assert drawn == ["bandwidth", "roofline"]
    for title, name in (("against each field", "fields"), ("sensitivity", "sensitivity")):
        drawn.clear()
        explorer.shown.value = title
        explorer.m.value += 1
        assert drawn == [name, name] and explorer.trouble.value == ""
        assert [t for t, chart in explorer.charts.items() if chart.layout.display != "none"] == [title]


def test_the_charts_of_neighbours_follow_the_selection(explorer):
    explorer.shown.value = "against each field"
    assert ">stages = 11</text>" in explorer.against_fields.value and "dotted: model" in explorer.against_fields.value
    explorer.fields["stages"].value = 4
    assert ">stages = 4</text>" in explorer.against_fields.value
    explorer.shown.value = "sensitivity"
    assert ">stages 4 → 3</text>" in explorer.sensitivity.value and ">stages 4 → 5</text>" in explorer.sensitivity.value
    explorer.fields["stages"].value = 16
    assert explorer.sensitivity.hidden and explorer.trouble.value == "", "the verdict says why"
    explorer.fields["stages"].value = 6
    assert not explorer.sensitivity.hidden and ">stages 6 → 5</text>" in explorer.sensitivity.value


def test_best_recorded_sets_the_fastest_tactic(explorer):
    explorer.m.value = 16
    explorer.best_button.click()
    table = records.load(FIXTURES)
    mine = table[(table.kernel == "warp-splitk") & (table.n == 3584) & (table.m == 16) & (table["mode"] == "chained")]
    assert str(explorer.tactic) == mine.loc[mine.median_us.idxmin()].tactic


def test_modes_are_never_mixed(explorer):
    chained = explorer.view.table
    explorer.mode.value = "isolated"
    assert set(explorer.view.table["mode"]) == {"isolated"} and set(chained["mode"]) == {"chained"}


def test_choosing_a_model_sets_the_weight(explorer):
    model = next(value for label, value in explorer.model.options if label == "DeepSeek V3 TP8")
    explorer.model.value = model
    assert (explorer.n.value, explorer.k.value) == (explorer.projection.value.n, explorer.projection.value.k)
    assert explorer.n.disabled
    explorer.projection.index = 2
    assert (explorer.n.value, explorer.k.value) == (4096, 512)
    explorer.model.value = None
    assert not explorer.n.disabled


def test_one_change_is_one_redraw(explorer, monkeypatch):
    drawn = []
    monkeypatch.setattr(explorer, "draw", lambda: drawn.append(explorer.problem))
    explorer.m.value = 5
    explorer.projection.index = 0
    explorer.model.value = explorer.model.options[2][1]
    assert len(drawn) == 3


def test_a_callback_that_raises_shows_its_sentence_and_where(explorer, monkeypatch):
    def fail(*_, **__):
        raise RuntimeError("the <chart> broke")

    monkeypatch.setattr(charts, "bandwidth_panel", fail)
    explorer.m.value = 9
    assert "the &lt;chart&gt; broke" in explorer.trouble.value and "in fail" in explorer.trouble.value
    monkeypatch.undo()
    explorer.m.value = 10
    assert explorer.trouble.value == ""


def test_export_writes_what_is_on_screen(explorer, tmp_path, monkeypatch):
    monkeypatch.setenv("SKINNY_GEMM_EXPORTS", str(tmp_path))
    explorer.m.value = 4
    explorer.export_button.click()
    assert explorer.trouble.value == "" and "warp-splitk-3584x7168-m4-bandwidth" in explorer.exported.value
    facts = json.loads((tmp_path / "warp-splitk-3584x7168-m4-bandwidth.json").read_text())
    assert facts["campaign"] == "synthetic" and facts["source"] == "recorded" and facts["m"] == 4
    assert facts["tactic"] == str(explorer.tactic)
    assert json.loads((tmp_path / "warp-splitk-3584x7168-m4-smem.json").read_text())["source"] == "model"
    assert {p.suffix for p in tmp_path.iterdir()} == {".svg", ".pdf", ".png", ".csv", ".json"}
    for name, source in (("tactic-fields", "recorded"), ("sensitivity", "model")):
        facts = json.loads((tmp_path / f"warp-splitk-3584x7168-m4-{name}.json").read_text())
        assert facts["source"] == source and facts["model"].startswith("fitted to")


def test_compile_tells_the_registers(explorer):
    assert "press Compile" in text(explorer.numbers)
    explorer.model.value = None
    explorer.n.value, explorer.k.value = 16, 512
    explorer.default_button.click()
    explorer.compile_button.click()
    assert explorer.trouble.value == ""
    assert re.search(r"\d+ per thread, 0 B spilled", text(explorer.numbers))


class FakeMachine:
    """Takes the place of the GPU: 20 us at every M, and 5 us more behind a producer of 5."""

    def __init__(self, gpu, shapes, process="quiet"):
        self.measured, self.before, self.process = [], lambda: None, process

    def measure(self, task):
        self.before()
        self.measured.append(task.point.m)
        assert task.point.process == self.process
        exposed = task.point.mode == "exposed"
        samples = records.ExposedSamples([10.0] * 12, [5.0] * 12) if exposed else [20.0] * 12
        return Measurement(samples, 1e-3, 51_000_000)


@pytest.fixture
def with_gpu(monkeypatch):
    """An explorer of a small weight that nobody recorded, on a machine with an H200."""
    monkeypatch.setattr(device, "current", lambda: H200)
    explorer = TacticExplorer(FIXTURES, machine=FakeMachine)
    explorer.model.value = None
    explorer.n.value, explorer.k.value = 32, 512
    explorer.default_button.click()
    return explorer


def test_measure_live_appears_only_where_a_gpu_is(explorer, with_gpu):
    assert explorer.live_button.layout.display == "none" and with_gpu.live_button.layout.display == ""
    with_gpu.device.value = "b200"
    with_gpu.live_button.click()
    assert "The GPU here is NVIDIA H200, but NVIDIA B200 is on screen." in text(with_gpu.trouble)


def test_live_points_are_drawn_and_say_so(with_gpu):
    with_gpu.m.value = 5
    with_gpu.measure().join(30)
    assert with_gpu.trouble.value == "" and with_gpu.live.m.tolist() == [1, 2, 4, 5, 8, 16, 32], "64 are too many"
    assert with_gpu.progress.value == 7 and with_gpu.cancel_button.layout.display == "none"
    assert "hollow: measured live" in with_gpu.bandwidth.value and "7 measured live" in text(with_gpu.status)
    assert with_gpu.view.provenance()["source"] == "live"
    with_gpu.k.value = 256
    assert "measured live" not in with_gpu.bandwidth.value


def test_exposed_points_state_the_difference(with_gpu):
    with_gpu.mode.value = "exposed"
    with_gpu.measure().join(30)
    assert set(with_gpu.live.median_us) == {5.0} and set(with_gpu.live["mode"]) == {"exposed"}
    assert ">bytes over exposed time, TB/s<" in with_gpu.bandwidth.value
    assert ">roofline over exposed time, TFLOP/s<" in with_gpu.roofline.value
    with_gpu.mode.value = "chained"
    assert "hollow" not in with_gpu.bandwidth.value, "modes are never mixed"
    assert ">bandwidth, TB/s<" in with_gpu.bandwidth.value


def test_live_points_are_of_the_process_on_screen(with_gpu):
    with_gpu.n.value, with_gpu.k.value = 2304, 1536
    with_gpu.default_button.click()
    with_gpu.measure().join(30)
    assert with_gpu.trouble.value == "" and set(with_gpu.live.process) == {"busy"}
    assert "hollow" in with_gpu.bandwidth.value and "measured live" in text(with_gpu.status)
    with_gpu.process.value = "quiet"
    assert "hollow" not in with_gpu.bandwidth.value and "measured live" not in text(with_gpu.status)


def test_a_front_is_measured_live_up_to_64_tokens(with_gpu):
    with_gpu.kernel.value = "ws-gemm"
    with_gpu.n.value, with_gpu.k.value = 288, 7168
    with_gpu.default_button.click()
    with_gpu.measure().join(30)
    legal = [m for m in (1, 2, 4, 8, 16, 32, 64) if with_gpu.tactic.why_not(GemmProblem(m, 288, 7168), H200) is None]
    assert with_gpu.trouble.value == "" and with_gpu.live.m.tolist() == legal and max(legal) > 8


def test_a_cancelled_sweep_keeps_what_it_measured(with_gpu, monkeypatch):
    machine = FakeMachine(None, None)
    monkeypatch.setattr(with_gpu, "machine", lambda *_: machine)
    machine.before = lambda: with_gpu.cancel_button.click() if len(machine.measured) == 2 else None
    with_gpu.measure().join(30)
    assert with_gpu.live.m.tolist() == [1, 2, 4] and not with_gpu.live_button.disabled


def test_a_failed_measurement_is_told_in_words(with_gpu, monkeypatch):
    machine = FakeMachine(None, None)
    machine.measure = lambda point: (_ for _ in ()).throw(ValueError("wrong result: relative error 1.0"))
    monkeypatch.setattr(with_gpu, "machine", lambda *_: machine)
    with_gpu.measure().join(30)
    assert "wrong result" in text(with_gpu.trouble) and not with_gpu.live_button.disabled


def test_the_view_of_a_script_is_the_view_of_the_explorer(explorer):
    view = views.tactic_view("warp-splitk", explorer.tactic, explorer.problem, H200, data_dir=FIXTURES)
    assert view.provenance() == explorer.view.provenance() and view.table.equals(explorer.view.table)
    with pytest.raises(ValueError, match="mode is 'fast'"):
        views.tactic_view("warp-splitk", explorer.tactic, explorer.problem, H200, mode="fast")


@dataclass(frozen=True)
class Another(Tactic):
    """A kernel that exists only here."""

    kernel: ClassVar[str] = "another"
    width: int
    depth: int

    def why_not(self, problem, device):
        return "width and depth are the same" if self.width == self.depth else None

    def grid(self, problem):
        return self.width, 1, 1

    def footprint(self, problem, device):
        return Footprint((("tile", 0, 4096),), 4096, 128, self.width, 2, 1, 4096 * self.depth)

    @classmethod
    def enumerate(cls, problem, device):
        return [cls(w, d) for w in (1, 2) for d in range(1, 9) if w != d]

    @classmethod
    def heuristic(cls, problem, device):
        return cls(1, 3)


def test_a_second_kernel_appears_by_its_registry_entry_alone(monkeypatch):
    registered = tuple(tactics.KERNELS)
    monkeypatch.setitem(tactics.KERNELS, "another", Another)
    explorer = TacticExplorer(FIXTURES)
    assert explorer.kernel.options == (*registered, "another")
    explorer.kernel.value = "another"
    assert {name: control.options for name, control in explorer.fields.items()} == {
        "width": (1, 2),
        "depth": tuple(range(1, 9)),
    }
    assert explorer.tactic == Another(1, 3) and "tile 4 KB" in explorer.smem.value
    explorer.fields["width"].value = 2
    explorer.fields["depth"].value = 2
    assert "width and depth are the same" in text(explorer.verdict)
    assert "no recorded data: another" in explorer.bandwidth.value
    explorer.kernel.value = "warp-splitk"
    assert set(explorer.fields) == {"output_tile", "token_tile", "k_tile", "stages", "b_loader_warps", "trigger"}
    buttons = explorer.fields["trigger"].children[0]
    assert [label for label, _ in buttons.options] == ["first", "after the last tile"] and buttons.value == 0


def test_the_front_kernel_has_seven_fields_and_takes_64_tokens(explorer):
    explorer.model.value = None
    explorer.n.value, explorer.k.value = 560, 7168
    explorer.kernel.value = "ws-gemm"
    kind = tactics.KERNELS["ws-gemm"]
    assert isinstance(explorer.problem, FrontProblem) and explorer.problem.valid == 112
    assert explorer.tactic == kind.default(explorer.problem, H200), "a new kernel starts at its default"
    for m in (1, 9, 64):
        explorer.m.value = m
        legal = kind.choices(explorer.problem, H200)
        assert {name: control.options for name, control in explorer.fields.items()} == legal and len(legal) == 7
    explorer.default_button.click()
    assert "OK" in text(explorer.verdict) and explorer.m.max == 64
    explorer.fields["tg"].value = 8
    explorer.fields["ks"].value = 1
    said = text(explorer.verdict)
    assert "Not possible" in said and explorer.tactic.why_not(explorer.problem, H200) in said and explorer.smem.hidden
    assert "no recorded data: ws-gemm, 560x7168" in explorer.bandwidth.value


def test_a_kernel_that_a_device_cannot_run_is_refused_there_in_words(explorer):
    explorer.kernel.value = "wgmma-splitk"
    explorer.m.value = 32
    explorer.default_button.click()
    assert "OK" in text(explorer.verdict) and not explorer.smem.hidden
    explorer.device.value = "rtx5090"
    assert "sm_120a, but only sm_90a has wgmma" in text(explorer.verdict) and explorer.smem.hidden
    explorer.kernel.value = "balanced-splitk"
    assert "OK" in text(explorer.verdict)
    explorer.kernel.value, explorer.device.value = "wgmma-splitk", "h200"
    assert "OK" in text(explorer.verdict) and explorer.trouble.value == ""


def test_every_kernel_can_be_chosen_at_every_m_without_a_record(explorer):
    """Charts of as many fields as a kernel has stay on their page."""
    for kernel, kind in tactics.KERNELS.items():
        explorer.kernel.value = kernel
        for m in (8, kind.max_m):
            explorer.m.value = m
            explorer.default_button.click()
            assert explorer.trouble.value == "" and "OK" in text(explorer.verdict), (kernel, m)
            fields = explorer.view.fields()
            at = [a.get_transform().transform(a.points)[:, 1] for a in fields.artists if isinstance(a, Labels)]
            assert 0 <= min(map(min, at)) and max(map(max, at)) <= fields.bbox.height, kernel
        if kernel != "warp-splitk":
            assert f"no recorded data: {kernel}, 3584x7168" in explorer.bandwidth.value
    assert explorer.m.max == max(kind.max_m for kind in tactics.KERNELS.values())


def test_the_other_kernel_is_drawn_beside_the_chosen_one(explorer):
    """A campaign of a front measures warp split-K beside it, which is then a rival like the peers."""
    table = explorer.view.table
    front = table[table.kernel == "warp-splitk"].assign(kernel="ws-gemm", tactic="1,1,16,0,0,1")
    from dataclasses import replace

    both = replace(explorer.view, table=pandas.concat([table, front]))
    assert {"selected", "best tactic", "cublas", "ws-gemm"} <= set(texts(both.bandwidth()))
    turned = replace(both, kernel="ws-gemm", tactic=tactics.KERNELS["ws-gemm"].parse("1,1,16,0,0,1"))
    assert {"selected", "cublas", "warp-splitk"} <= set(texts(turned.bandwidth())) & set(texts(turned.roofline()))


def test_a_kernel_that_cannot_be_made_is_told_and_leaves_the_controls(monkeypatch):
    incomplete = type("Incomplete", (Another,), {"grid": abstractmethod(lambda self, problem: None)})
    monkeypatch.setitem(tactics.KERNELS, "incomplete", incomplete)
    explorer = TacticExplorer(FIXTURES)
    before = explorer.tactic
    explorer.kernel.value = "incomplete"
    assert "abstract" in text(explorer.trouble) and "TypeError" in text(explorer.trouble)
    assert {name: control.value for name, control in explorer.fields.items()} == vars(before)
    explorer.kernel.value = "warp-splitk"
    assert explorer.trouble.value == "" and explorer.tactic == before


def test_points_of_several_campaigns_are_the_newest_and_all_are_named(tmp_path):
    import shutil

    folder = tmp_path / "campaigns"
    shutil.copytree(FIXTURES / "campaigns" / "synthetic", folder / "synthetic")
    shutil.copytree(FIXTURES / "campaigns" / "synthetic", folder / "zlater")
    for name in ("campaign.json", "records.csv"):
        path = folder / "zlater" / name
        path.write_text(path.read_text().replace("synthetic,h200", "zlater,h200").replace('"synthetic"', '"zlater"'))
    rows = (folder / "zlater" / "records.csv").read_text().splitlines()
    peers = [rows[0], *(row for row in rows if ",cublas," in row)]
    (folder / "zlater" / "records.csv").write_text("\n".join(peers) + "\n")
    explorer = TacticExplorer(tmp_path)
    table = explorer.view.table
    assert set(table.campaign[table.kernel == "cublas"]) == {"zlater"}
    assert set(table.campaign[table.kernel == "warp-splitk"]) == {"synthetic"}
    assert re.search("campaign synthetic.*commit 0+  and  campaign zlater.*commit 0+", text(explorer.status))
    facts = explorer.view.provenance()
    assert facts["campaign"] == "synthetic" and facts["campaigns"] == {"synthetic": "00000000", "zlater": "00000000"}
    assert "campaign synthetic and 1 more" in explorer.bandwidth.value


def test_the_footer_names_the_campaign_of_the_selected_tactic(explorer):
    """Even where most points are another campaign's."""
    from dataclasses import replace

    view, tactic = explorer.view, str(explorer.tactic)
    earlier = view.campaigns[0]
    later = replace(earlier, id="later", commit="f" * 40, ceilings={"hbm_read_tbs": 4.25})
    table = view.table.assign(campaign=view.table.campaign.mask(view.table.tactic == tactic, "later"))
    mixed = replace(view, table=table, campaigns=(earlier, later))
    facts = mixed.provenance()
    assert (facts["campaign"], facts["commit"]) == ("later", "ffffffff")
    assert facts["campaigns"] == {"synthetic": "00000000", "later": "ffffffff"}
    assert "HBM read 4.25 (isolated)" in texts(mixed.bandwidth())
    assert replace(mixed, tactic=replace(view.tactic, stages=2)).provenance()["campaign"] == "synthetic"
