"""What README.md and docs/ name is there: files, commands, make targets; and their numbers are those of the records."""

import re
from pathlib import Path

import pytest

from skinny_gemm import records
from skinny_gemm.cli import cli
from skinny_gemm.records import pruning, standing, store
from skinny_gemm.records.comparison import compare

ROOT = Path(__file__).resolve().parents[2]
README, MEASURING, CONTRIBUTING = (
    (ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "docs/measuring.md", "docs/contributing.md")
)


@pytest.mark.parametrize("page", ["README.md", *(f"docs/{path.name}" for path in sorted((ROOT / "docs").glob("*.md")))])
def test_every_link_leads_to_a_file(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    links = re.findall(r"""(?:\]\(|(?:src|href)=["'])(?!\w+:|#)([^)#\s"']+)""", text)
    assert [link for link in links if not ((ROOT / page).parent / link).is_file()] == []
    assert len(links) > 5 or page != "README.md"


@pytest.mark.parametrize("page", [README, MEASURING, CONTRIBUTING], ids=["README", "measuring", "contributing"])
def test_every_command_exists(page):
    """By name, with options that it has."""
    for name, arguments in re.findall(r"python -m skinny_gemm ([a-z]+)([^`\n]*)", page):
        options = {option for parameter in cli.commands[name].params for option in parameter.opts}
        assert set(re.findall(r"(?<!\S)--[a-z-]+", arguments)) <= options | {"--help"}, (name, arguments)


def test_every_campaign_exists():
    named = set(re.findall(r"20\d\d-\d\d-\d\d-[a-z0-9-]+", README + MEASURING))
    assert len(named) > 5 and named <= records.campaigns().keys()


def test_the_contributors_page_names_what_is_there():
    """Paths in backquotes; what stands in angle brackets is the contributor's to name."""
    paths = re.findall(r"`([\w./*-]+/[\w./*-]*|[\w-]+\.(?:py|md|toml|lock|json|csv))`", CONTRIBUTING)
    roots = ROOT, ROOT / "skinny_gemm"
    assert len(paths) > 40
    assert [path for path in paths if not any(any(root.glob(path.rstrip("/"))) for root in roots)] == []


def test_every_folder_and_module_exists():
    paths = re.findall(r"^\| `([^`]+)`(?:, `([^`]+)`)? \|", README.partition("## Where things are")[2], re.MULTILINE)
    named = [name for row in paths for name in row if name]
    assert len(named) > 10
    assert [n for n in named if not (ROOT / n).exists() and not (ROOT / "skinny_gemm" / n).exists()] == []


def test_every_make_target_exists():
    targets = set(re.findall(r"\bmake ([a-z-]+)", README))
    makefile = (ROOT / "Makefile").read_text()
    assert {"lab", "test"} <= targets
    assert [t for t in targets if not re.search(rf"^{t}:", makefile, re.MULTILINE)] == []


def test_the_readme_opens_with_a_picture_and_the_two_commands():
    opening = README.split("\n## ")[0]
    assert opening.startswith("![")
    assert "\n    make lab" in opening and "\n    make test" in opening


def test_ci_runs_the_command_of_the_readme():
    assert re.search(r"^make test\b", (ROOT / ".ci" / "run").read_text(), re.MULTILINE)


def test_the_measured_table_says_what_was_recorded():
    """Every number of the README's table is the best recorded one of its kernel in the campaign that it names."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    campaign = re.search(r"Recorded in `data/campaigns/([^`]+)`", text)[1]
    table = records.load()
    table = table[(table.campaign == campaign) & (table["mode"] == "chained")]
    header = "| N x K | M | warp split-K | stream | FlashInfer | cuBLAS | Triton |"
    lines = text[text.index(header) :].split("\n\n")[0].splitlines()[2:]
    assert lines
    for line in lines:
        shape, ms, *cells = (cell.strip(" *") for cell in line.strip("|").split("|"))
        n, k = map(int, shape.split("x"))
        for kernel, cell in zip(("warp-splitk", "stream", "flashinfer", "cublas", "triton"), cells, strict=True):
            rows = table[(table.kernel == kernel) & (table.n == n) & (table.k == k)]
            best = [
                rows.median_us[(rows.m == int(m)) | (kernel == "stream")].min()
                for m in (ms.split("/") if kernel != "stream" else ["0"])
            ]
            assert cell == " / ".join(f"{us:.2f}" for us in best), (shape, kernel)


def test_the_table_of_the_front_says_what_was_recorded():
    campaign = re.findall(r"Recorded in `data/campaigns/([^`]+)`", README)[1]
    table = records.load()
    table = table[(table.campaign == campaign) & (table.n == 560) & (table.k == 7168)]
    kernels = {"weight-stationary": "ws-gemm", "warp split-K": "warp-splitk", "cuBLAS": "cublas"}
    header = "| M | 1 | 2 | 4 | 8 | 16 | 32 | 64 |"
    lines = README[README.index(header) :].split("\n\n")[0].splitlines()[2:]
    assert len(lines) == 6
    for line in lines:
        name, *cells = (cell.strip(" *") for cell in line.strip("|").split("|"))
        kernel, _, mode = name.partition(", ")
        best = (
            table[(table.kernel == kernels[kernel]) & (table["mode"] == (mode or "chained"))]
            .groupby("m")
            .median_us.min()
        )
        assert cells == [f"{best[m]:.2f}" if m in best else "-" for m in (1, 2, 4, 8, 16, 32, 64)], name
    stream = table[(table.kernel == "stream") & (table["mode"] == "chained")].median_us.min()
    assert f"Only reading the weights takes {stream:.2f} chained" in README


def test_the_table_of_the_catalogue_says_what_was_recorded():
    campaign = re.findall(r"Recorded in `data/campaigns/([^`]+)`", README)[2]
    table = records.load()
    table = table[(table.campaign == campaign) & (table["mode"] == "chained") & (table.process == "quiet")]
    kernels = ["balanced-splitk", "wgmma-splitk"], ["stream"], ["flashinfer"], ["cublas"]
    header = "| N x K | balanced or wgmma split-K | stream | FlashInfer | cuBLAS |"
    lines = README[README.index(header) :].split("\n\n")[0].splitlines()[2:]
    assert len(lines) == 8
    for line in lines:
        shape, *cells = (cell.strip(" *") for cell in line.strip("|").split("|"))
        n, k = map(int, shape.split("x"))
        for names, cell in zip(kernels, cells, strict=True):
            rows = table[table.kernel.isin(names) & (table.n == n) & (table.k == k)]
            best = rows.groupby("m").median_us.min()
            ms = (0,) if names == ["stream"] else (8, 16, 32, 64)
            assert cell == " / ".join(f"{best[m]:.2f}" if m in best else "-" for m in ms), (shape, names)
    assert f"{len(set(zip(table.n, table.k, strict=True)))} weights" in README


def test_what_is_said_of_trust_follows_from_the_records():
    said = " ".join(MEASURING.split()).replace(" %", "%")
    repeats = re.findall(r"compare (2\S+) (2\S+)", said)[0]
    found = compare(*repeats)
    same = found.counts["SAME"] / len(found.pairs)
    assert found.same_commit and found.same_board and same >= 0.95
    assert f"{same:.0%} of {len(found.pairs)} points are the SAME" in said
    boards = re.search(r"Of `(\S+)` and `(\S+)`, an hour earlier on another", said)
    other = compare(boards[2], boards[1])
    assert boards[1] == repeats[1] and not other.same_board and f"{other.shares['SAME']:.0%} are the SAME" in said
    tokens = re.search(r"At M = 24 and 32, `(\S+)` and `(\S+)` share", said)
    wide = compare(tokens[2], tokens[1])
    changes = sorted(pair.change for pair in wide.pairs)
    assert f"share {len(changes):,} points" in said and changes[int(0.95 * len(changes))] < standing.NOISE
    assert f"95% of them move by less than {standing.NOISE:.0%}" in said and f"by up to {changes[-1]:.0%}" in said


def test_what_is_said_of_standing_follows_from_the_records():
    *_, total = [line for line in standing.standing(records.rows()) if " problems: " in line]
    ahead, _, problems, *_ = total.split()
    assert f"a lower median in {ahead} of {problems} problems" in " ".join(README.split())


def test_pruning_costs_what_is_said():
    campaign = re.search(r"pruning (2\S+)", MEASURING)[1]
    costs = pruning.costs_of(*store.read_campaign(store.campaign_folder(campaign)))
    worst = max(cost.cost for cost in costs)
    assert len(costs) == 9 and f"nothing was more than {worst:.1%} faster" in " ".join(MEASURING.split()).replace(
        " %", "%"
    )
