"""The tables of docs/performance.md, from the results of the benchmark."""

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "scripts"))
from pages import markdown_table, write_sections

Results = dict[str, Any]


def write_tables(results: Results, page: Path) -> None:
    """Replace the tables of a page, each between its two markers."""
    builders = {
        "machine": _machine,
        "engines": _engines,
        "faster": _faster,
        "methods": _methods,
        "server": _server,
        "small_runs": _small_runs,
        "many_clients": _many_clients,
        "memory": _memory,
        "growth": _growth,
    }
    sources = {"faster": "engines"}
    write_sections(
        page, {name: build(results) for name, build in builders.items() if sources.get(name, name) in results}
    )


def _machine(results: Results) -> str:
    own = results["machine"]
    return f"Measured on {own['cores']} cores of an {own['processor']}, Python {own['python']}, torch {own['torch']}."


def _engines(results: Results) -> str:
    cases = results["engines"]
    contenders = list(dict.fromkeys(name for case in cases.values() for name in case["step_ms"]))
    rows = [
        [name, *(_number(case["step_ms"].get(contender)) for contender in contenders), _number(case["limit_ms"])]
        for name, case in cases.items()
    ]
    return markdown_table(["milliseconds per step", *contenders, "arithmetic limit"], rows)


def _faster(results: Results) -> str:
    rows = [
        [
            name,
            *(_spread(case["times_faster"].get(f"auto than {rival} at its best")) for rival in ("plain loop", "pfl")),
        ]
        for name, case in results["engines"].items()
    ]
    return markdown_table(["auto is faster than", "the plain loop at its best", "pfl (one process) at its best"], rows)


def _methods(results: Results) -> str:
    models = results["methods"]
    rows = [
        [method, *(_overhead(model["times_fedavg"][method]) for model in models.values())]
        for method in models["mlp"]["times_fedavg"]
    ]
    return markdown_table(["method", *models], rows)


def _server(results: Results) -> str:
    rows = [
        [size, f"{own['sum_ms']:g} ms", _spread(own["taco_over_sum"]), _spread(own["guard_over_taco"])]
        for size, own in results["server"].items()
    ]
    return markdown_table(["uploads", "`U.sum()`", "TACO's server step over it", "the guard over TACO's step"], rows)


def _small_runs(results: Results) -> str:
    rows = [[name, _spread(ratio)] for name, ratio in results["small_runs"].items()]
    return markdown_table(["run", "auto's time over serial's"], rows)


def _many_clients(results: Results) -> str:
    rows = [[name, _spread(ratio)] for name, ratio in results["many_clients"].items()]
    return markdown_table(["run", "fedtaco.train is faster than the plain loop at its best"], rows)


def _memory(results: Results) -> str:
    cases = results["memory"]
    contenders = list(dict.fromkeys(name for case in cases.values() for name in case))
    rows = [[name, *(_number(case.get(contender)) for contender in contenders)] for name, case in cases.items()]
    return markdown_table(["megabytes besides data and uploads", *contenders], rows)


def _growth(results: Results) -> str:
    rows = [[clients, _number(own["round_ms"]), own["memory_mb"]] for clients, own in results["growth"].items()]
    return markdown_table(["clients", "milliseconds per round", "megabytes in total"], rows)


def _spread(ratio: dict[str, float] | None) -> str:
    """Format the median of a ratio and its quartiles."""
    return "–" if ratio is None else f"{ratio['median']:.2f}× ({ratio['low']:.2f} to {ratio['high']:.2f})"


def _overhead(ratio: dict[str, float]) -> str:
    """Format by how many percent a ratio exceeds 1, with its quartiles."""
    median, low, high = (f"{100 * (ratio[name] - 1):+.1f}" for name in ("median", "low", "high"))
    return f"{median} % ({low} to {high})"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3g}"
