"""The command line's entry point: all commands, and how wrong usage is told."""

import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from mistnet import __version__
from mistnet.cli import (
    broker,
    changes,
    coverage,
    db,
    demo,
    doctor,
    export,
    feeds,
    follows,
    hydrate,
    init,
    item_import,
    item_lists,
    items,
    jobs,
    lineage,
    link_lists,
    links,
    prices,
    products,
    products_extract,
    rates,
    runs,
    search,
    segment_members,
    segments,
    serve,
    sim,
    source_trials,
    sources,
    spend,
    status,
    track,
    work,
)
from mistnet.cli.entry import run_with

app = typer.Typer(
    name="mistnet",
    help="Collects social accounts durably.",
    invoke_without_command=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
job_commands = typer.Typer(help="Look at jobs, add them, and decide what becomes of them.")
product_commands = typer.Typer(help="Things for sale: what pages say of them.", no_args_is_help=True)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"mistnet {__version__}")
        raise typer.Exit


@app.callback()
def mistnet(
    context: typer.Context,
    _version_asked: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Collects social accounts durably: name one, and it gathers everything and never loses its place."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


app.command("init")(init.init)
app.command("track")(track.track)
app.command("untrack")(track.untrack)
app.command("suggest")(track.suggest)
app.command("up")(serve.up)
app.command("serve")(serve.serve)
app.command("work")(work.work)
app.command("status")(status.status)
app.command("doctor")(doctor.doctor)
app.command("demo")(demo.demo)
app.command("search")(search.search)
app.command("export")(export.export)
app.command("coverage")(coverage.coverage)
app.command("spend")(spend.spend)
app.add_typer(sources.commands, name="sources")
sources.commands.command("try")(source_trials.try_source)
app.add_typer(hydrate.commands, name="hydrate")
app.add_typer(follows.commands, name="follows")
app.add_typer(feeds.commands, name="feeds")
app.add_typer(segments.commands, name="segments")
segments.commands.add_typer(segment_members.inputs, name="inputs")
app.add_typer(job_commands, name="jobs")
app.add_typer(runs.commands, name="runs")
app.add_typer(db.commands, name="db")
app.add_typer(broker.commands, name="broker")
app.add_typer(links.commands, name="links")
app.add_typer(prices.commands, name="prices")
app.add_typer(rates.commands, name="rates")
app.add_typer(items.commands, name="items")
app.add_typer(product_commands, name="products")
app.add_typer(sim.commands, name="sim")
product_commands.command("extract")(products_extract.extract)
for name, command in (
    ("import", item_import.import_items),
    ("list", item_lists.list_items),
    ("show", item_lists.show),
    ("points", item_lists.points),
    ("versions", item_lists.versions),
    ("history", item_lists.history),
):
    items.commands.command(name)(command)
for name, command in (
    ("list", products.list_products),
    ("show", products.show),
    ("refresh", products.refresh),
    ("export", products.export),
    ("lineage", lineage.lineage),
    ("of", lineage.products_of),
):
    product_commands.command(name)(command)
for name, command in (
    ("list", link_lists.list_links),
    ("show", link_lists.show),
    ("scan", link_lists.scan_posts),
    ("crawl", link_lists.crawl),
):
    links.commands.command(name)(command)
for name, command in (
    ("list", jobs.list_jobs),
    ("show", jobs.show),
    ("dead", jobs.dead),
    ("add", changes.add),
    ("retry", changes.retry),
    ("cancel", changes.cancel),
    ("requeue", changes.requeue),
    ("pause", changes.pause),
    ("resume", changes.resume),
):
    job_commands.command(name)(command)
for name, command in (
    ("members", segment_members.members),
    ("events", segment_members.events),
    ("export", segment_members.export),
):
    segments.commands.command(name)(command)


def main() -> None:
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Runs one command line; the answer is the exit code."""
    return run_with(app, arguments)
