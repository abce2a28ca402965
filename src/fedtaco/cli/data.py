"""``fedtaco data``: list, fetch and show datasets."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import Progress
from rich.table import Table

from fedtaco.cli.options import DATA_DIR_HELP, PARTITION_HELP, Format, as_json, say
from fedtaco.errors import InvalidInput

app = typer.Typer(help="Datasets: list them, fetch them, and see who holds which labels.", no_args_is_help=True)

DataDir = Annotated[Path | None, typer.Option(help=DATA_DIR_HELP)]


@app.command("list")
def list_datasets(data_dir: DataDir = None, format_: Format = "table") -> None:
    """List the datasets, their default settings, and which are at hand."""
    json_wanted = as_json(format_)
    from fedtaco.data.catalog import DATASETS
    from fedtaco.data.store import data_folder, whereabouts

    root = data_folder(data_dir)
    rows = [{**dataclasses.asdict(info), "at_hand": whereabouts(info, root)} for info in DATASETS.values()]
    if json_wanted:
        print(json.dumps(rows, indent=2))
        return
    table = Table(caption=escape(f"Data folder: {root}"), caption_justify="left", box=None, pad_edge=False)
    for heading in ("name", "train", "test", "classes", "model", "partition", "at hand"):
        right = heading in ("train", "test", "classes")
        table.add_column(heading, justify="right" if right else "left", no_wrap=True)
    for row in rows:
        counts = [f"{row[part]:,}" if row[part] else "varies" for part in ("train", "test")]
        table.add_row(row["name"], *counts, str(row["classes"]), row["model"], row["partition"], row["at_hand"])
    Console().print(table)


@app.command()
def fetch(
    name: Annotated[str, typer.Argument(help="Dataset by name, as 'fedtaco data list' shows it.")],
    data_dir: DataDir = None,
    source: Annotated[
        str | None,
        typer.Option("--from", help="Another hub repository, or a local folder in the hub's parquet layout."),
    ] = None,
) -> None:
    """Fetch a dataset from the Hugging Face hub (adult: from UCI) into the data folder.

    What was downloaded before is not downloaded again, and the dataset is kept only when its counts are right.
    """
    from fedtaco.data.catalog import dataset_info
    from fedtaco.data.hub import fetch as fetch_dataset

    info = dataset_info(name)
    with Progress(console=Console(stderr=True), transient=True) as bar:
        tasks: dict[str, Any] = {}

        def tell(part: str, done: int, total: int) -> None:
            if part not in tasks:
                tasks[part] = bar.add_task(f"{name} {part}", total=total)
            bar.update(tasks[part], completed=done)

        place = fetch_dataset(info, data_dir, source, tell)
    say(f"{info.title} is in {place}")


@app.command()
def show(
    dataset: Annotated[str, typer.Option(help="Dataset by name.")] = "digits",
    partition: Annotated[str | None, typer.Option(help=PARTITION_HELP)] = None,
    clients: Annotated[int, typer.Option(help="Number of clients.")] = 20,
    seed: Annotated[int, typer.Option(help="Seed of the partition.")] = 0,
    data_dir: DataDir = None,
    out: Annotated[Path | None, typer.Option(help="Draw a picture into this PNG, SVG or PDF file.")] = None,
    format_: Format = "table",
) -> None:
    """Show who holds which labels, and how unlike the clients are.

    Example:

      fedtaco data show --dataset fmnist --partition groups --clients 20 --out p.png
    """
    json_wanted = as_json(format_)
    if out is not None and out.suffix not in (".png", ".svg", ".pdf"):
        raise InvalidInput(f"out is '{out}'; its name must end in .png, .svg or .pdf.")
    if out is not None and not out.parent.is_dir():
        raise InvalidInput(f"out is '{out}', but there is no folder {out.parent}.")
    from fedtaco.data import dataset_info, load_dataset, partition_of
    from fedtaco.records.files import writing
    from fedtaco.report.labels import draw_labels, heterogeneity, label_counts

    spec = partition or dataset_info(dataset).partition
    with Console(stderr=True).status(f"Reading {dataset}"):
        data = load_dataset(dataset, data_dir)
    split = partition_of(data, spec, clients, seed)
    counts = label_counts(data.train.y.numpy(), split.indices, data.info.classes)
    figures = heterogeneity(counts)
    if out is not None:
        with writing(out):
            draw_labels(counts, split.groups, f"{data.info.title}: {spec}, {clients} clients", out)
    if json_wanted:
        print(json.dumps({"partition": spec, "groups": split.groups, "counts": counts.tolist(), **figures}, indent=2))
        return
    console = Console()
    table = Table(title=f"{data.info.title}: {spec}, seed {seed}")
    for heading in ("client", "group", "samples", "labels", "most frequent labels"):
        table.add_column(heading, justify="right" if heading in ("client", "samples", "labels") else "left")
    for client, row in enumerate(counts):
        top = [f"{label} ({row[label] / row.sum():.0%})" for label in row.argsort()[::-1][:5] if row[label]]
        group = split.groups[client] if split.groups else "–"
        table.add_row(str(client), group, f"{row.sum():,}", str((row > 0).sum()), ", ".join(top))
    console.print(table)
    for note in split.notes:
        console.print(note, style="yellow")
    console.print(
        f"Clients hold {figures['smallest_client']:,.0f} to {figures['largest_client']:,.0f} samples (median "
        f"{figures['median_client']:,.0f}) and {figures['labels_per_client']:.1f} labels on average. Their label "
        f"distributions lie {figures['label_distance']:.2f} from the overall one (0: the same, near 1: apart).",
        highlight=False,
    )
    if out is not None:
        say(f"Drawn in {out}")
