"""The benchmark's numbers as tables in docs/performance.md, between its markers."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

Results = dict[str, Any]


def write_tables(results: Results, page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for name, table in {
        "machine": _machine,
        "engines": _engines,
        "faster": _faster,
        "methods": _methods,
        "server": _server,
        "small_runs": _small_runs,
        "memory": _memory,
        "growth": _growth,
    }.items():
        if name in results or name == "faster":
            marked = f"<!-- {name} -->\n{table(results)}\n<!-- /{name} -->"
            text = re.sub(rf"<!-- {name} -->.*?<!-- /{name} -->", lambda _, new=marked: new, text, flags=re.DOTALL)
    page.write_text(text, encoding="utf-8")


def _machine(results: Results) -> str:
    own = results["machine"]
    return f"Measured on {own['cores']} cores of an {own['processor']}, Python {own['python']}, torch {own['torch']}."


def _engines(results: Results) -> str:
    names = list(dict.fromkeys(name for case in results["engines"].values() for name in case["step_ms"]))
    rows = [
        [case, *(_number(one["step_ms"].get(name)) for name in names), _number(one["limit_ms"])]
        for case, one in results["engines"].items()
    ]
    return _table(["milliseconds a step", *names, "arithmetic limit"], rows)


def _faster(results: Results) -> str:
    rivals = ("plain loop", "pfl")
    rows = []
    for case, one in results["engines"].items():
        found = [one["times_faster"].get(f"auto than {rival} at its best") for rival in rivals]
        rows.append([case, *(_spread(ratio, "×") for ratio in found)])
    return _table(["auto is faster than", "the plain loop at its best", "pfl (one process) at its best"], rows)


def _methods(results: Results) -> str:
    models = results["methods"]
    rows = [
        [method, *(_over(model["times_fedavg"][method]) for model in models.values())]
        for method in models["mlp"]["times_fedavg"]
    ]
    return _table(["method", *models], rows)


def _over(ratio: dict[str, float]) -> str:
    median, low, high = (f"{100 * (ratio[name] - 1):+.1f}" for name in ("median", "low", "high"))
    return f"{median} % ({low} to {high})"


def _server(results: Results) -> str:
    rows = [
        [size, f"{one['sum_ms']:g} ms", _spread(one["taco_over_sum"], "×"), _spread(one["guard_over_taco"], "×")]
        for size, one in results["server"].items()
    ]
    return _table(["uploads", "`U.sum()`", "TACO's server step over it", "the guard over TACO's step"], rows)


def _small_runs(results: Results) -> str:
    rows = [[name, _spread(ratio, "×")] for name, ratio in results["small_runs"].items()]
    return _table(["run", "auto's time over serial's"], rows)


def _memory(results: Results) -> str:
    names = list(dict.fromkeys(name for case in results["memory"].values() for name in case))
    rows = [[case, *(_number(one.get(name)) for name in names)] for case, one in results["memory"].items()]
    return _table(["megabytes beyond data and matrix", *names], rows)


def _growth(results: Results) -> str:
    rows = [[clients, _number(one["round_ms"]), str(one["memory_mb"])] for clients, one in results["growth"].items()]
    return _table(["clients", "milliseconds a round", "megabytes in all"], rows)


def _spread(ratio: dict[str, float] | None, unit: str) -> str:
    return "–" if ratio is None else f"{ratio['median']:.2f}{unit} ({ratio['low']:.2f} to {ratio['high']:.2f})"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3g}"


def _table(headers: list[str], rows: list[list[str]]) -> str:
    lines = [headers, ["---"] * len(headers), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
