"""The report in a real browser: headless Chromium, driven as a reader would use the page."""

from __future__ import annotations

import random
import re
import shutil
from xml.etree import ElementTree

import pytest
from folders import write_run
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.select import Select
from selenium.webdriver.support.wait import WebDriverWait

import fedtaco
from fedtaco.records import ClientEvaluation
from fedtaco.report.charts import POINTS
from fedtaco.report.output import write_report
from fedtaco.report.page import read_plotly, render
from fedtaco.report.page_data import build_page_data
from fedtaco.report.run_reader import SIDE, find_runs

pytestmark = pytest.mark.browser

FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--window-size=1280,900",
)
DARK = [{"name": "prefers-color-scheme", "value": "dark"}]
EVALUATIONS = ClientEvaluation(0, 9, 0.31, 2.0, 0.93, 0.5), ClientEvaluation(2, 9, 0.97, 0.1, 1.0, 0.0)
CHARTS = ("first", "second", "own", "clients", "labels")
SHOWN = """return document.getElementById(arguments[0]).data
    .filter(trace => trace.meta !== undefined && trace.visible).map(trace => trace.name)"""


@pytest.fixture(scope="module")
def driver(tmp_path_factory):
    chromium, chromedriver = shutil.which("chromium"), shutil.which("chromedriver")
    if not chromium or not chromedriver:
        pytest.fail("These tests need a browser: apt-get install chromium chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    browser = webdriver.Chrome(options=options, service=Service(chromedriver))
    yield browser
    browser.quit()


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """A small report: three methods, one of them over two seeds, with a freeloader that is expelled."""
    folder = tmp_path_factory.mktemp("runs")
    for method, seed in (("fedavg", 0), ("taco", 0), ("taco", 1), ("stem", 0)):
        caught = {"expelled": {1: 2}, "freeloaders": (1,)} if (method, seed) == ("taco", 1) else {}
        accuracies = tuple(0.3 + 0.1 * number + 0.05 * seed for number in range(6))
        common = {"seed": seed, "accuracies": accuracies, "rounds": 6, "validation": True, "metrics": {"f1": 0.5}}
        if method != "fedavg":
            common["evaluations"] = EVALUATIONS
        write_run(folder / f"{method}-{seed}", method, **common, **caught)
    out = folder / "report.html"
    write_report(find_runs(folder), out)
    return out.as_uri()


@pytest.fixture
def browser(driver):
    yield driver
    driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def opened(browser, address):
    """Open a page, wait until all is drawn, and return after how many milliseconds curves were shown and all drawn."""

    browser.get(address)
    WebDriverWait(browser, 20).until(lambda it: it.execute_script("return document.documentElement.dataset.drawn"))
    stamps = "const { shown, drawn } = document.documentElement.dataset; return [shown, drawn].map(Number)"
    return tuple(browser.execute_script(stamps))


def complaints(browser):
    return [entry for entry in browser.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")]


def element(browser, selector):

    return browser.find_element(By.CSS_SELECTOR, selector)


def choose(browser, selector, text):

    Select(element(browser, selector)).select_by_visible_text(text)


def wide(browser, width):
    metrics = {"width": width, "height": 844, "deviceScaleFactor": 2, "mobile": True}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)


def test_all_charts_are_drawn_without_errors_or_warnings(browser, page):
    opened(browser, page)
    for chart in ("first", "second"):
        drawn = "return document.querySelectorAll(arguments[0]).length"
        assert browser.execute_script(drawn, f"#{chart} .scatterlayer path.js-line") == 6
        assert browser.execute_script(drawn, f"#{chart} .scatterlayer path.js-fill") == 3
    for chart in ("clients", "labels"):
        assert browser.execute_script(f"return document.querySelector('#{chart} .hm image').href.baseVal.length") > 100
        assert "NaN" not in element(browser, f"#{chart}").get_attribute("innerHTML")
    fetched = browser.execute_script("return performance.getEntriesByType('resource').map(it => it.name)")
    assert [name for name in fetched if name.startswith("http")] == []
    assert complaints(browser) == []


def test_over_correction_is_a_heat_map_around_one(browser, tmp_path):
    indices = {1: [None] * 3, 2: [0.5, 0.8, 1.2], 3: [0.25, 1.5, None]}
    folders = [write_run(tmp_path / "fedavg", "fedavg"), write_run(tmp_path / "taco", over_correction=indices)]
    write_report(folders, tmp_path / "report.html")
    opened(browser, (tmp_path / "report.html").as_uri())
    choose(browser, "#quantity", "over-correction index")
    assert element(browser, "#clients-note").text.startswith("No values: the run was not diagnosed")
    choose(browser, "#method", "taco")
    cells = "const [{ z, zmin, zmax }] = document.getElementById('clients').data; return [z, zmin, zmax]"
    assert browser.execute_script(cells) == [[[None, 0.8, 1.5], [None, 1.2, None], [None, 0.5, 0.25]], 0, 2]
    assert element(browser, "#clients-note").text.startswith("Step along the correction over the step that is best")
    assert "over-correction index, taco" in element(browser, "#clients").get_attribute("aria-label")
    fills = "return getComputedStyle(document.querySelector('#clients .hm image')).visibility"
    assert browser.execute_script(fills) == "visible"
    choose(browser, "#quantity", "α, TACO's coefficient")
    assert "Step along" not in element(browser, "#clients-note").text
    assert complaints(browser) == []


def test_a_method_is_hidden_and_shown_in_both_charts(browser, page):
    opened(browser, page)
    button = element(browser, "button.method[data-method='2']")
    assert (button.text, button.get_attribute("aria-pressed")) == ("taco", "true")
    button.click()
    assert button.get_attribute("aria-pressed") == "false"
    for chart in ("first", "second"):
        assert browser.execute_script(SHOWN, chart) == ["fedavg", "stem"]
        lines = f"return document.querySelectorAll('#{chart} .scatterlayer path.js-line').length"
        assert browser.execute_script(lines) == 4
    assert "off" in element(browser, "tr[data-method='2']").get_attribute("class")
    button.click()
    assert browser.execute_script(SHOWN, "second") == ["fedavg", "stem", "taco"]
    element(browser, "#none").click()
    assert browser.execute_script(SHOWN, "first") == []
    element(browser, "#all").click()
    assert browser.execute_script(SHOWN, "first") == ["fedavg", "stem", "taco"]
    assert complaints(browser) == []


def test_everything_can_be_done_with_the_keyboard(browser, page):

    opened(browser, page)
    reached = []
    for _ in range(40):
        browser.switch_to.active_element.send_keys(Keys.TAB)
        active = browser.switch_to.active_element
        if active.tag_name == "body":
            break
        reached.append(active.get_attribute("id") or active.text)
        if active.text == "stem":
            active.send_keys(Keys.ENTER)
            outline = browser.execute_script("return getComputedStyle(document.activeElement).outlineStyle")
            assert outline == "solid"
    assert reached[:7] == ["Skip to the results", "theme", "fedavg", "stem", "taco", "all", "none"]
    assert {"first-view", "second-view", "quantity", "method", "run", "partition", "result-table"} <= set(reached)
    assert {"own-method", "own-table"} <= set(reached)
    assert (reached.count("SVG"), reached.count("CSV"), reached.count("LaTeX")) == (5, 1, 1)
    assert browser.execute_script(SHOWN, "first") == ["fedavg", "taco"]


def test_light_and_dark_follow_the_system_and_the_button(browser, page):
    ground = "return getComputedStyle(document.body).backgroundColor"
    ink = "return document.getElementById('first').layout.font.color"
    opened(browser, page)
    light = browser.execute_script(ground), browser.execute_script(ink)
    assert element(browser, "#theme").text == "Dark mode"
    element(browser, "#theme").click()
    dark = browser.execute_script(ground), browser.execute_script(ink)
    assert light[0] == "rgb(255, 255, 255)"
    assert dark != light
    assert element(browser, "#theme").text == "Light mode"
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": DARK})
    opened(browser, page)
    assert (browser.execute_script(ground), browser.execute_script(ink)) == dark
    assert element(browser, "#theme").text == "Light mode"
    element(browser, "#theme").click()
    assert (browser.execute_script(ground), browser.execute_script(ink)) == light
    assert complaints(browser) == []


def test_a_run_and_a_quantity_can_be_chosen(browser, page):
    opened(browser, page)
    heat = "return document.getElementById('clients').data[0].z"
    assert browser.execute_script(heat)[0][0] == 0.11
    choose(browser, "#quantity", "norm of the upload")
    assert browser.execute_script(heat)[0] == [1, 2, 3, 4, 5, 6]
    choose(browser, "#method", "taco")
    choose(browser, "#run", "seed 1")
    assert browser.execute_script(heat)[0] == [1, 2, None, None, None, None]
    assert "✕: expelled." in element(browser, "#clients-note").text
    names = browser.execute_script("return document.getElementById('clients').layout.yaxis.ticktext")
    assert names == ["A 1 ⚑ ✕", "A 2", "B 0"]
    assert complaints(browser) == []


def test_accuracies_on_own_samples_are_drawn_for_the_chosen_method(browser, page):
    opened(browser, page)
    bars = """return document.getElementById('own').data.map(trace => [trace.name,
        trace.y.flatMap((count, bin) => count ? [[bin, count]] : [])])"""
    one_seed = [["global model", [[6, 1], [19, 1]]], ["fine-tuned", [[18, 1], [19, 1]]]]
    two_seeds = [["global model", [[6, 2], [19, 2]]], ["fine-tuned", [[18, 2], [19, 2]]]]
    assert [option.text for option in Select(element(browser, "#own-method")).options] == ["stem", "taco"]
    assert browser.execute_script(bars) == one_seed
    choose(browser, "#own-method", "taco")
    assert browser.execute_script(bars) == two_seeds
    rows = element(browser, "#own-table").text.splitlines()
    assert rows[1].startswith("stem 64.0 %")
    assert rows[4].startswith("taco, fine-tuned 96.5 %")
    assert complaints(browser) == []


def test_own_metrics_can_be_chosen(browser, page):
    opened(browser, page)
    choose(browser, "#second-view", "F1 over rounds")
    assert browser.execute_script("return document.getElementById('second').data[1].y") == [0.5] * 6
    choose(browser, "#second-view", "Training loss over rounds")
    assert browser.execute_script("return document.getElementById('second').data[1].y")[:2] == [1, 0.5]
    assert complaints(browser) == []


def test_accuracy_and_loss_can_be_chosen_over_rounds_and_seconds(browser, page):
    opened(browser, page)
    chart = """const { data, layout } = document.getElementById(arguments[0]);
        return [data[1].x, data[1].y, layout.yaxis.title.text]"""
    titles = [one.text for one in Select(element(browser, "#first-view")).options]
    assert titles == [
        f"{name} over {axis}"
        for axis in ("rounds", "client seconds")
        for name in ("Test accuracy", "Test loss", "Balanced accuracy", "Training loss", "Held-out accuracy", "F1")
    ]
    x, y, title = browser.execute_script(chart, "second")
    assert (x[-1], y[0], title) == (12, pytest.approx(0.3), "test accuracy")
    for choice, expected in (("Held-out accuracy", 0.15), ("Test loss", 0.7)):
        choose(browser, "#first-view", f"{choice} over rounds")
        x, y, title = browser.execute_script(chart, "first")
        assert (x[-1], y[0], title) == (6, pytest.approx(expected), choice.lower())
    assert "NaN" not in element(browser, "#first").get_attribute("innerHTML")
    assert browser.execute_script(chart, "second")[2] == "test accuracy"
    assert complaints(browser) == []


def test_gain_camps_warning_and_swing_mark_are_shown(browser, tmp_path):
    accuracies, gains = (0.2, 0.5, *(0.8, 0.7) * 5), tuple(1 + 0.3 * number for number in range(12))
    warning = "aggregation weights amplify a disagreement between clients {0, 2} and {1} 2.5-fold"
    write_run(tmp_path / "a", accuracies=accuracies, rounds=12, gains=gains, warnings={6: warning})
    write_report(find_runs(tmp_path), tmp_path / "report.html")
    opened(browser, (tmp_path / "report.html").as_uri())
    choose(browser, "#second-view", "Gain Γ of the largest disagreement over rounds")
    drawn = browser.execute_script("return document.getElementById('second').data[1].y")
    assert drawn == pytest.approx(list(gains))
    stability = element(browser, "section[aria-labelledby=stability]")
    assert stability.is_displayed()
    assert f"After round 6, {warning}." in stability.text
    assert "The accuracy swings" in stability.text
    assert "70.0 ↕ %" in element(browser, "#result-table").text
    choose(browser, "#quantity", "side in the largest disagreement")
    heat = "const { z, zmin, zmax, colorscale } = document.getElementById('clients').data[0]; return [z, zmin, zmax]"
    sides, lowest, highest = browser.execute_script(heat)
    assert [row[0] for row in sides] == [1, -1, -1]  # clients 1, 2 and 0, sorted by group
    assert (lowest, highest) == (-1, 1)
    assert complaints(browser) == []


def test_a_stable_report_has_no_section_on_stability(browser, page):
    opened(browser, page)
    assert not element(browser, "section[aria-labelledby=stability]").is_displayed()


def test_accuracy_over_simulated_time_can_be_chosen(browser, tmp_path):
    fedtaco.run("fedavg", out=tmp_path / "run", clients=4, rounds=3, local_steps=2, deadline=1.0)
    write_report(find_runs(tmp_path), tmp_path / "report.html")
    opened(browser, (tmp_path / "report.html").as_uri())
    choose(browser, "#first-view", "Test accuracy over simulated time")
    drawn = "const { data, layout } = document.getElementById('first'); return [data[1], layout.xaxis.title.text]"
    curve, title = browser.execute_script(drawn)
    assert (curve["x"], title) == ([1, 2, 3], "simulated time")
    assert "after %{x:.4~r} units, round" in curve["hovertemplate"]
    assert complaints(browser) == []


def test_without_client_seconds_the_loss_is_beside_the_accuracy(browser, tmp_path):
    write_run(tmp_path / "run", timed=False)
    write_report(find_runs(tmp_path), tmp_path / "report.html")
    opened(browser, (tmp_path / "report.html").as_uri())
    assert [one.text for one in Select(element(browser, "#second-view")).all_selected_options] == [
        "Test loss over rounds"
    ]
    assert element(browser, "#second .main-svg").is_displayed()
    assert "Client seconds were not measured" in element(browser, "#second-section").text
    assert complaints(browser) == []


def test_a_tooltip_says_round_and_number(browser, page):
    opened(browser, page)
    ActionChains(browser).move_to_element(element(browser, "#first .nsewdrag")).perform()
    legend = WebDriverWait(browser, 5).until(lambda it: element(it, "#first .hoverlayer .legend").text)
    assert re.match(r"round \d\s", legend)
    assert "taco" in legend


def test_the_table_and_the_charts_can_be_downloaded(browser, page, tmp_path):
    browser.execute_cdp_cmd("Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(tmp_path)})
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": DARK})
    opened(browser, page)
    for button in browser.find_elements(By.CSS_SELECTOR, "[data-table], [data-save]"):
        button.click()
    names = {
        *("results.csv", "results.tex", "test-accuracy-over-rounds.svg", "test-accuracy-over-client-seconds.svg"),
        *("TACO-s-coefficient-fedavg-seed-0.svg", "labels-groups-3-clients-seed-0.svg"),
        "accuracy-on-clients-own-samples-stem.svg",
    }
    WebDriverWait(browser, 20).until(lambda _: {path.name for path in tmp_path.iterdir()} == names)
    assert (tmp_path / "results.csv").read_text(encoding="utf-8").startswith("method,seeds,final_accuracy")
    assert r"\toprule" in (tmp_path / "results.tex").read_text(encoding="utf-8")
    for path in tmp_path.glob("*.svg"):
        assert ElementTree.parse(path).getroot().tag == "{http://www.w3.org/2000/svg}svg"
    chart = (tmp_path / "test-accuracy-over-rounds.svg").read_text(encoding="utf-8")
    assert all(f">{method}</text>" in chart for method in ("fedavg", "stem", "taco"))
    assert "rgb(0, 114, 178)" in chart
    assert complaints(browser) == []


def test_a_phone_shows_the_page_without_scrolling_sideways(browser, page):
    wide(browser, 390)
    opened(browser, page)
    assert browser.execute_script("return document.documentElement.scrollWidth") == 390
    for chart in CHARTS:
        assert browser.execute_script(f"return document.querySelector('#{chart} .main-svg').clientWidth") <= 390
    scrolled = "const it = document.getElementById('result-table'); it.scrollLeft = 200; return it.scrollLeft"
    assert browser.execute_script(scrolled) > 50
    first, others = element(browser, "#result-table tbody th").rect, element(browser, "#result-table").rect
    assert first["x"] == pytest.approx(others["x"], abs=2)
    assert complaints(browser) == []


def test_names_are_shown_as_they_are(browser, tmp_path):
    evil = "<b>bold</b></script><script>document.title='caught'</script>%{x}"
    write_run(tmp_path / "a", evil, groups=(evil, "A", "A"), metrics={evil: 0.5}, evaluations=EVALUATIONS)
    write_report(find_runs(tmp_path), tmp_path / "report.html")
    opened(browser, (tmp_path / "report.html").as_uri())
    assert browser.title == "fedtaco: digits: 1 method"
    assert element(browser, "button.method").text == evil
    ticks = browser.execute_script("return [...document.querySelectorAll('#clients .ytick')].map(it => it.textContent)")
    assert f"{evil} 0" in ticks
    choose(browser, "#first-view", f"{evil} over rounds")
    assert element(browser, "#first .ytitle").get_attribute("textContent") == evil
    assert complaints(browser) == []


def test_a_report_on_a_run_without_a_finished_round_opens(browser, tmp_path):
    write_run(tmp_path / "a", accuracies=(), finished=False)
    write_report(find_runs(tmp_path), tmp_path / "report.html")
    opened(browser, (tmp_path / "report.html").as_uri())
    assert complaints(browser) == []


def test_a_large_report_opens_in_under_three_seconds(browser, tmp_path):
    """Seven methods, three seeds, 10,000 clients: 210,000 lines are read, and drawn as 500 rounds would be.

    It is opened three times, since other work on the machine may slow one of them down.
    """
    groups = tuple("AABCC"[client % 5] for client in range(10_000))
    for seed in range(3):
        for number in range(7):
            write_run(tmp_path / f"{number}-{seed}", f"method{number}", seed=seed, groups=groups, accuracies=(0.5,))
    data = build_page_data(find_runs(tmp_path))
    assert len(data.script["partitions"][0]["rows"]) <= SIDE
    source = random.Random(0)

    def draw():
        return round(source.random(), 4)

    for run in data.script["runs"]:
        columns = [f"{first}–{first + 4}" for first in range(1, 5 * SIDE, 5)]
        values = {name: [[draw() for _ in columns] for _ in own] for name, own in run["values"].items()}
        run.update(columns=columns, width=5, rounds=5 * SIDE, values=values)
    for method in data.script["methods"]:
        points = list(range(1, POINTS + 1))
        curve = {"rounds": points, "seconds": points, "mean": [draw() for _ in points], "seeds": [3] * POINTS}
        method["curves"]["accuracy"] = {**curve, "low": curve["mean"], "high": curve["mean"]}
    out = tmp_path / "report.html"
    out.write_text(render(data, *read_plotly()), encoding="utf-8")
    openings = [opened(browser, out.as_uri()) for _ in range(3)]
    print(f"{out.stat().st_size / 1e6:.1f} MB, shown and drawn after {openings} ms")
    assert all(shown < drawn for shown, drawn in openings)
    assert min(drawn for _, drawn in openings) < 3000
    assert complaints(browser) == []


def test_a_run_whose_labels_are_not_known_says_so(browser, tmp_path):
    write_run(tmp_path / "run", classes=0)
    out = tmp_path / "report.html"
    write_report(find_runs(tmp_path), out)
    opened(browser, out.as_uri())
    assert not element(browser, "#labels").is_displayed()
    assert element(browser, "#labels-note").text == "Unknown: nodes do not disclose their labels."
    assert element(browser, "#clients .hm image").is_displayed()
    assert complaints(browser) == []
