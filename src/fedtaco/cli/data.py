"""``fedtaco data``: list and fetch datasets, and show how they are partitioned."""

import dataclasses
import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import Progress
from rich.table import Table
from rich.text import Text

from fedtaco.cli.console import PlainConsole, print_line
from fedtaco.cli.options import DataDir, Format, Partition, as_json
from fedtaco.errors import InvalidInput
from fedtaco.records.formatting import pluralize

ADDRESS_HELP = "Another hub repository, or a local folder in the hub's parquet layout."
app = typer.Typer(help="List and fetch datasets, and show which labels each client holds.", no_args_is_help=True)


@app.command("list")
def list_datasets(data_dir: DataDir = None, format_: Format = "table") -> None:
    """List the datasets with their default model and partition, and whether they are available locally."""
    json_wanted = as_json(format_)
    from fedtaco.data.cache import data_folder
    from fedtaco.data.sources import SOURCES

    root = data_folder(data_dir)
    rows = [{**dataclasses.asdict(source.info), "available": source.availability(root)} for source in SOURCES.values()]
    if json_wanted:
        print(json.dumps(rows, indent=2))
        return
    table = Table(caption=f"Data folder: {root}", caption_justify="left", box=None, pad_edge=False)
    for heading in ("name", "train", "test", "classes", "model", "partition", "available"):
        table.add_column(heading, justify="right" if heading in ("train", "test", "classes") else "left", no_wrap=True)
    for row in rows:
        counts = [f"{row[split]:,}" if row[split] else "varies" for split in ("train", "test")]
        table.add_row(row["name"], *counts, str(row["classes"]), row["model"], row["partition"], row["available"])
    PlainConsole().print(table)


@app.command()
def fetch(
    name: Annotated[str, typer.Argument(help="Name of the dataset, as listed by 'fedtaco data list'.")],
    data_dir: DataDir = None,
    address: Annotated[str | None, typer.Option("--from", help=ADDRESS_HELP)] = None,
) -> None:
    """Fetch a dataset from the Hugging Face hub (adult: from UCI) into the data folder.

    Files that were downloaded before are not downloaded again. The dataset is saved only if it has the published
    number of samples.
    """
    from fedtaco.data import dataset_info, fetch_dataset

    title = dataset_info(name).title
    with Progress(console=PlainConsole(stderr=True), transient=True) as bar:
        tasks: dict[str, Any] = {}

        def show_progress(split: str, done: int, total: int) -> None:
            if split not in tasks:
                tasks[split] = bar.add_task(f"{name} {split}", total=total)
            bar.update(tasks[split], completed=done)

        folder = fetch_dataset(name, data_dir, address, show_progress)
    print_line(f"{title} was saved in {folder}")


@app.command()
def show(
    dataset: Annotated[
        str, typer.Option(help="Name of the dataset, or your own function as package.module:function.")
    ] = "digits",
    partition: Partition = None,
    clients: Annotated[int | None, typer.Option(help="Number of clients; 20 by default.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of the partition.")] = 0,
    data_dir: DataDir = None,
    out: Annotated[Path | None, typer.Option(help="Also write a figure to this PNG, SVG or PDF file.")] = None,
    format_: Format = "table",
) -> None:
    """Show which labels each client holds, and how much the clients differ.

    Example:

      fedtaco data show --dataset fmnist --partition groups --clients 20 --out labels.png
    """
    json_wanted = as_json(format_)
    from fedtaco.data import (
        count_own_clients,
        is_own_dataset,
        label_counts,
        load_dataset,
        load_own_dataset,
        partition_dataset,
    )
    from fedtaco.files import writing
    from fedtaco.report import PLOT_SUFFIXES, check_output_file
    from fedtaco.report.labels import draw_labels, heterogeneity

    if out is not None:
        check_output_file(out, PLOT_SUFFIXES)
    with PlainConsole(stderr=True).status(Text(f"Reading {dataset}")):
        data = load_own_dataset(dataset) if is_own_dataset(dataset) else load_dataset(dataset, data_dir)
    clients = count_own_clients(data, partition, clients) or (20 if clients is None else clients)
    spec = partition or data.info.partition
    parts = partition_dataset(data, spec, clients, seed)
    if data.labels is None:
        raise InvalidInput(f"The targets of {dataset} are not class labels in memory, so there are none to show.")
    counts = label_counts(data.labels, parts.indices, data.info.classes)
    figures = heterogeneity(counts)
    if out is not None:
        with writing(out):
            draw_labels(counts, parts.groups, f"{data.info.title}: {spec}, {pluralize(clients, 'client')}", out)
    if json_wanted:
        print(json.dumps({"partition": spec, "groups": parts.groups, "counts": counts.tolist(), **figures}, indent=2))
        return
    console = PlainConsole()
    table = Table(title=f"{data.info.title}: {spec}, seed {seed}")
    for heading in ("client", "group", "samples", "labels", "most frequent labels"):
        table.add_column(heading, justify="right" if heading in ("client", "samples", "labels") else "left")
    for client, row in enumerate(counts):
        top = [f"{label} ({row[label] / row.sum():.0%})" for label in row.argsort()[::-1][:5] if row[label]]
        group = parts.groups[client] if parts.groups else "–"
        table.add_row(str(client), group, f"{row.sum():,}", str((row > 0).sum()), ", ".join(top))
    console.print(table)
    if parts.noise is not None:
        console.print(f"Inputs have Gaussian noise, with standard deviations from 0 to {max(parts.noise):g}.")
    for note in parts.notes:
        print_line(note, console, style="yellow")
    console.print(
        f"Clients hold {figures['smallest_client']:,.0f} to {figures['largest_client']:,.0f} samples (median "
        f"{figures['median_client']:,.0f}) and {figures['labels_per_client']:.1f} labels on average. Their label "
        f"distributions differ by {figures['label_distance']:.2f} on average from the overall one (0: identical, "
        "near 1: no labels in common)."
    )
    if out is not None:
        print_line(f"The figure was written to {out}")
