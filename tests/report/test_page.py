"""The HTML page of a report."""

from __future__ import annotations

import json
import re
import sys
from importlib import resources

from folders import write_run
from reading import page_of, text_of

from fedtaco.records import QUANTITIES, Decision
from fedtaco.report.output import write_report
from fedtaco.report.page import SCRIPTS
from fedtaco.report.page_data import build_page_data
from fedtaco.report.run_reader import find_runs


def test_expulsions_and_dropped_uploads_are_listed_with_reasons(tmp_path):
    folder = write_run(
        tmp_path / "a",
        expelled={1: 2},
        dropped={1: {0: "the upload is not finite"}, 3: {0: "the upload is not finite"}},
        detector="paper",
        parameters={"taco.kappa": 0.1},
        freeloaders=(1, 2),
        decisions={
            2: [Decision(1, "expelled", "copy", 3.1e-14, 1e-8, "the upload contains only what the client received")]
        },
    )
    data = build_page_data([folder])
    (expulsion,), (dropped,) = data.expulsions, data.dropped
    assert (expulsion.client, dropped.client) == (1, 0)
    assert (data.script["runs"][0]["expelled"], data.script["runs"][0]["freeloaders"]) == ([0], [0, 1])
    assert data.script["runs"][0]["values"]["alpha"][0] == [0.11, 0.12, None]
    text = text_of(page_of([folder]))
    assert "taco, seed 0: 1 client with dropped uploads" in text
    assert "taco, seed 0: 1 client expelled Client 1, after round 2: 2 strikes; the upload contains only" in text
    assert "what the client received (copy 3.1e-14, threshold 1e-08). A freeloader." in text
    assert "Client 0, rounds 1, 3: the upload is not finite." in text
    quiet = text_of(page_of([write_run(tmp_path / "b")]))
    assert "No client was expelled." in quiet
    assert "No upload was dropped." in quiet


SWINGING = (0.2, 0.5, *(0.8, 0.7) * 5)


def test_warnings_and_swings_are_described(tmp_path):
    warnings = {3: "weights amplify a disagreement", 4: "weights amplify it", 9: "and again"}
    folder = write_run(tmp_path / "a", accuracies=SWINGING, rounds=12, warnings=warnings)
    text = text_of(page_of([folder]))
    assert (
        "Stability taco, seed 0: After round 3, weights amplify a disagreement. The warning was repeated in 2 rounds. "
        "The accuracy swings from round 4 on; its range over the last ten rounds is 10.0 percentage points." in text
    )
    assert "70.0 ↕ %" in text
    quiet = page_of([write_run(tmp_path / "b")])
    assert '<section aria-labelledby="stability" hidden>' in quiet
    assert "↕" not in text_of(quiet)


def test_a_run_that_swings_as_much_as_fedavg_is_not_marked(tmp_path):
    usual = tuple(0.8 + 0.4 * (accuracy - 0.8) for accuracy in SWINGING)
    runs = {"fedavg": (usual, 0), "taco": (SWINGING, 0), "stem": (SWINGING, 1)}
    for method, (accuracies, seed) in runs.items():
        write_run(tmp_path / method, method, accuracies=accuracies, rounds=12, seed=seed)
    sentences = build_page_data(find_runs(tmp_path)).stability
    assert [sentence.partition(":")[0] for sentence in sentences] == ["fedavg, seed 0", "stem, seed 1"]
    rows = {row.name: row.summary.swinging for row in build_page_data(find_runs(tmp_path)).results.rows}
    assert rows == {"fedavg": 1, "taco": 0, "stem": 1}


def test_the_gain_has_a_curve_where_it_was_recorded(tmp_path):
    write_run(tmp_path / "a", gains=(1.5, 2.0, 3.0))
    write_run(tmp_path / "b", "fedavg")
    curves = {method["name"]: method["curves"] for method in build_page_data(find_runs(tmp_path)).script["methods"]}
    assert curves["taco"]["gain"]["mean"] == [1.5, 2.0, 3.0]
    assert "gain" not in curves["fedavg"]


def test_the_page_follows_the_declared_quantities(tmp_path):
    """A quantity is declared in records/quantities.py alone: heat maps, menu, labels and scales follow."""
    folder = write_run(tmp_path / "a")
    island = embedded_in(page_of([folder]))
    assert [one["name"] for one in island["quantities"]] == [one.name for one in QUANTITIES]
    assert {one["name"]: one["scale"] for one in island["quantities"]}["cosine"] == "signed"
    assert set(island["runs"][0]["values"]) == {one.name for one in QUANTITIES}
    assets = resources.files("fedtaco.report")
    template = "".join(assets.joinpath(name).read_text(encoding="utf-8") for name in ("page.html", *SCRIPTS))
    for quantity in QUANTITIES:
        assert quantity.title not in template
        assert f'"{quantity.name}"' not in template


def embedded_in(page):
    return json.loads(re.search(r'<script id="data" type="application/json">(.*?)</script>', page, re.S)[1])


def test_long_lists_are_cut(tmp_path):
    clients = 300
    folder = write_run(tmp_path / "a", groups=("A",) * clients, expelled=dict.fromkeys(range(clients), 1))
    assert len(build_page_data([folder]).expulsions) == clients
    assert "And 100 more." in text_of(page_of([folder]))


def test_a_method_that_stopped_early_says_why(tmp_path):
    write_run(tmp_path / "a", "fedprox", stopped="Round 4 of fedprox: the run has diverged.")
    write_run(tmp_path / "b", "taco")
    text = text_of(page_of(find_runs(tmp_path)))
    assert "fedprox (stopped early) – – ×" in text
    assert "seed 0: Round 4 of fedprox: the run has diverged." in text
    assert "taco ends at 90.0 % test accuracy in one seed. fedprox diverged." in text


def test_names_from_a_run_cannot_break_out_of_the_page(tmp_path):
    evil = '</script><script>alert("&1")</script><!--data-->'
    folder = write_run(
        tmp_path / "a",
        evil,
        groups=(evil, "A", "A"),
        dropped={1: {0: evil}},
        stopped=evil,
        dataset=evil,
        partition=evil,
        parameters={evil: evil},
        ran_by={"engine": evil, "reason": evil},
    )
    page = page_of([folder])
    assert "<script>alert" not in page
    assert page.count("</script>") == 3
    island = re.search(r'<script id="data" type="application/json">(.*?)</script>', page, re.S)[1]
    assert not set("<>&") & set(island)
    assert json.loads(island)["methods"][0]["name"] == evil
    assert evil in text_of(page)


def test_the_page_is_self_contained(tmp_path):
    out = tmp_path / "report.html"
    write_report([write_run(tmp_path / "a")], out)
    page = out.read_text(encoding="utf-8")
    assert page.count("<!--") == page.count("<!--", page.index("<script>"))
    assert not re.search(r'(?:src|href)="(?!#|data:)', page[: page.index("<script>")])
    assert "default-src 'none'" in page
    assert len(page) < 8_000_000


def test_reading_for_a_report_needs_no_torch(tmp_path):
    import subprocess

    write_run(tmp_path / "a")
    probe = (
        "import sys; from pathlib import Path; from fedtaco.report.output import write_report;"
        "from fedtaco.report.run_reader import find_runs;"
        f"write_report(find_runs(Path({str(tmp_path)!r})), Path({str(tmp_path / 'r.html')!r}));"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", probe], check=False).returncode == 0


def test_the_page_says_which_versions_made_the_runs(tmp_path):
    ran_by = {
        "engine": "serial",
        "reason": "chosen by name",
        "versions": [{"from_round": 1, "python": "3.11.7", "torch": "2.13.0", "numpy": "2.4.6"}],
    }
    text = text_of(page_of([write_run(tmp_path / "a", ran_by=ran_by)]))
    assert "software version fedtaco 0.1.0 schema 6 python 3.11.7 torch 2.13.0 numpy 2.4.6" in text
