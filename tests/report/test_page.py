"""The page of a report, as it is read."""

from __future__ import annotations

import json
import re
import sys

from folders import write_run
from reading import page_of, text_of

from fedtaco.records import Decision
from fedtaco.report.gather import gather
from fedtaco.report.page import write_report
from fedtaco.report.runs import find_runs


def test_detections_and_left_out_uploads_are_listed_with_reasons(tmp_path):
    folder = write_run(
        tmp_path / "a",
        expelled={1: 2},
        dropped={1: {0: "the upload is not finite"}, 3: {0: "the upload is not finite"}},
        detector="paper",
        parameters={"taco.kappa": 0.1},
        freeloaders=(1, 2),
        decisions={
            2: [Decision(1, "expelled", "copy", 3.1e-14, 1e-8, "the upload is made of what the client was sent")]
        },
    )
    data = gather([folder])
    (detection,), (dropped,) = data["detections"], data["dropped"]
    assert (detection["client"], detection["round"], detection["freeloader"]) == (1, 2, True)
    assert dropped["rounds"] == [1, 3]
    assert (data["runs"][0]["expelled"], data["runs"][0]["freeloaders"]) == ([0], [0, 1])
    assert data["runs"][0]["grids"]["alpha"][0] == [0.11, 0.12, None]
    text = text_of(page_of([folder]))
    assert "taco, seed 0: 1 client expelled Client 1, after round 2: 2 strikes; the upload is made of what" in text
    assert "the client was sent (copy 3.1e-14, threshold 1e-08). A freeloader." in text
    assert "Client 0, rounds 1, 3: the upload is not finite." in text
    quiet = text_of(page_of([write_run(tmp_path / "b")]))
    assert "No client was expelled." in quiet
    assert "No upload was left out." in quiet


def test_long_lists_are_cut(tmp_path):
    clients = 300
    folder = write_run(tmp_path / "a", groups=("A",) * clients, expelled=dict.fromkeys(range(clients), 1))
    assert len(gather([folder])["detections"]) == clients
    assert "And 100 more." in text_of(page_of([folder]))


def test_a_method_that_stopped_early_says_why(tmp_path):
    write_run(tmp_path / "a", "fedprox", stopped="Round 4 of fedprox: the run has diverged.")
    write_run(tmp_path / "b", "taco")
    text = text_of(page_of(find_runs(tmp_path)))
    assert "fedprox (stopped early) – – ×" in text
    assert "seed 0: Round 4 of fedprox: the run has diverged." in text
    assert "taco ends highest, at 90.0 %" in text
    assert "taco ends at 90.0 %" in text_of(page_of(find_runs(tmp_path / "b")))


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


def test_the_page_holds_all_it_needs(tmp_path):
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
        "import sys; from pathlib import Path; from fedtaco.report.page import write_report;"
        "from fedtaco.report.runs import find_runs;"
        f"write_report(find_runs(Path({str(tmp_path)!r})), Path({str(tmp_path / 'r.html')!r}));"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", probe], check=False).returncode == 0


def test_the_page_says_which_versions_made_the_runs(tmp_path):
    ran_by = {
        "engine": "serial",
        "versions": [{"from_round": 1, "python": "3.11.7", "torch": "2.13.0", "numpy": "2.4.6"}],
    }
    text = text_of(page_of([write_run(tmp_path / "a", ran_by=ran_by)]))
    assert "made by version fedtaco 0.1.0 schema 1 python 3.11.7 torch 2.13.0 numpy 2.4.6" in text
