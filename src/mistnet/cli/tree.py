"""The command tree: each command's name, the function it calls, its line in the help of its group, and an example."""

# ruff: noqa: E501 (each command is one line of a table)

from __future__ import annotations

import re
from collections.abc import Callable
from importlib import import_module
from typing import Final, NamedTuple


class Command(NamedTuple):
    """A command: `module:function` below `mistnet.cli`, the first paragraph of that function's docstring, and a call."""

    target: str
    line: str
    example: str
    panel: str = ""

    def load(self) -> Callable[..., None]:
        """Import the function."""
        module, _, function = self.target.partition(":")
        command: Callable[..., None] = getattr(import_module(f"mistnet.cli.{module}"), function)
        return command


class CommandGroup(NamedTuple):
    """Commands below a common word."""

    line: str
    commands: dict[str, Command | CommandGroup]
    lists_by_default: bool
    panel: str


# A panel of `mistnet --help` stands above its commands, and a group above its own. A group without a command prints its
# help (GROUP), or calls its command `list` (LISTS). Functions are named, not imported: a command loads only its own module.
_TABLE: Final = """
[Collect]
demo                    demo:demo                    Collect a simulated world: no key, no network, no files left.  mistnet demo --keep demo
init                    init:init                    Prepare this folder: settings, key, tables, and the next steps.  mistnet init nasa --day-dollars 2
track                   track:track                  Collect all posts of accounts, and the conversations around them.  mistnet track --quote nasa esa
untrack                 track:untrack                Stop collecting accounts. Collected data stays.  mistnet untrack nasa --reason 'project is over'
suggest                 track:suggest                Suggest accounts. A worker tracks each, or says why it cannot.  mistnet suggest --file handles.csv --label beat=space
up                      serve:up                     Run everything here: worker, scheduler, API and dashboard.  mistnet up --port 8080
follows                 GROUP                        Sync who follows whom, and see how it changes.
follows sync            follows:sync                 Read who follows a user and whom they follow. Workers do it, a page of 200 per step.  mistnet follows sync --quote nasa
follows list            follows:list_follows         Show who follows a user, or whom they follow, by id.  mistnet follows list nasa --limit 20
follows events          follows:events               Show how both lists of a user changed, the latest first, with the cause if it is known.  mistnet follows events nasa
follows status          follows:status               Show how the latest sync of each list went: how many it saw, whether the result is plausible, and why not.  mistnet follows status nasa
feeds                   GROUP                        Accounts of Threads whose posts and own replies are read repeatedly.
feeds add               track:add_feeds              Poll accounts of Threads from now on: all their posts, what they quote, and their own replies below them.  mistnet feeds add zuck --every 6h
feeds list              track:list_feeds             All feeds: their state, their last poll, and how many posts they brought.  mistnet feeds list
feeds remove            track:remove_feeds           Stop polling accounts. Collected posts stay.  mistnet feeds remove zuck
feeds poll              track:poll_feeds             Poll feeds now. If a poll is under way, it continues.  mistnet feeds poll
feeds token             track:threads_token          Show the state of the token for Threads: until when it is valid, when it is refreshed. Never the token.  mistnet feeds token --check
hydrate                 GROUP                        Fetch users or posts by their ids, and see the results.
hydrate posts-of        hydrate:posts_of             Collect what a set of users wrote since a time or a post. Workers do it, in one job.  mistnet hydrate posts-of --file ids.txt
hydrate events          hydrate:events               List ingest events, the latest first: explicit requests to a source, and their results.  mistnet hydrate events
hydrate event           hydrate:event                Show one ingest event: the ids it requested and, if it failed, the response.  mistnet hydrate event 12
hydrate users           hydrate:users                Fetch users by id, a hundred per call. All of them are written, or none.  mistnet hydrate users 11348282 44196397
hydrate posts           hydrate:posts                Fetch posts by id with their authors, fifty per call. All of them are written, or none.  mistnet hydrate posts 1745020377310490840
runs                    GROUP                        Collect the newest posts of some accounts now, with a report.
runs start              hydrate:start_run            Collect the newest posts of accounts, tracked or not. Workers do it; one run at a time.  mistnet runs start nasa esa
runs list               hydrate:list_runs            Show runs, newest first. Finished ones are deleted after `run_hours`.  mistnet runs list
runs show               hydrate:show_run             Show a run: the progress of each account, and the report.  mistnet runs show 3
runs cancel             hydrate:cancel_run           End a run, so that another one can start. Collected posts stay.  mistnet runs cancel 3
[Look]
status                  status:status                Show progress, cost, what needs attention, and what waits.  mistnet status --watch
coverage                coverage:coverage            Show what is verified, what is being swept and what is missing.  mistnet coverage @nasa
search                  search:search                Find posts by their words, newest first.  mistnet search "solar eclipse"
spend                   spend:spend                  Show what calls cost: calls, items, credits, dollars and failures.  mistnet spend
segments                GROUP                        Named sets of users or posts, and how they change.
segments define         segments:define              Create a segment, or change the rule of the existing one. Its history stays.  mistnet segments define fans --followers-of nasa --every 1d
segments list           segments:list_segments       Show all segments, with how many members they have.  mistnet segments list
segments show           segments:show                Show one segment: its rule, schedule, job, and last materializations.  mistnet segments show fans
segments enable         segments:enable              Allow materializations of a segment again.  mistnet segments enable fans
segments disable        segments:disable             Stop materializing a segment. It keeps its members; segments that build on it continue with those.  mistnet segments disable fans
segments materialize    segments:materialize         Update the members of a segment. Workers do it, after the syncs that it needs.  mistnet segments materialize fans
segments members        segment_members:members      Show the members of a segment, in the order in which they entered.  mistnet segments members fans --as-of 2026-01-31
segments events         segment_members:events       Show who entered and left, the latest first.  mistnet segments events fans
segments export         segment_members:export       Export all members of a segment, now or at an earlier time.  mistnet segments export fans --output fans.csv
segments inputs         GROUP                        The users of a segment that are listed by id.
segments inputs add     segment_members:add          Add users to a segment's inputs. Unknown users are fetched first; if one is not available, nothing is written.  mistnet segments inputs add team nasa esa
segments inputs remove  segment_members:remove       Remove users from a segment's inputs. They leave it when it is materialized next.  mistnet segments inputs remove team esa
segments inputs list    segment_members:list_inputs  Show a segment's inputs, by id.  mistnet segments inputs list team
[Export]
export                  export:export                Export a table, all of them, a graph of people, or lineage.  mistnet export posts --output posts.parquet
[Prices]
links                   GROUP                        Links in posts: their names and targets.
links extract           texts:extract_links          Find the URLs and Tao-kouling codes in texts: JSON lines in, JSON lines out, one for each and in order.  mistnet links extract texts.jsonl
links canonical         texts:canonical_names        Print the canonical names of URLs: JSON lines in, JSON lines out, one for each and in order.  mistnet links canonical urls.jsonl
links list              links:list_links             Show links that were found in posts, the newest first. Each canonical URL is one link.  mistnet links list --limit 20
links show              links:show_link              Show one link: what it names, how its visits went, who posted it.  mistnet links show 7
links scan              links:scan_posts             Find the links of posts that are already stored. May be interrupted and run again at any time.  mistnet links scan --since 2026-01-01
links crawl             links:crawl                  Queue visits of links: those named, or those found while their lane was not crawled. Workers make them.  mistnet links crawl --lane ebay
products                GROUP                        Products, and their offers on the pages of shops.
products extract        texts:read_saved_page        Read a saved page or shop answer, without any request: product and offer, each value with its evidence.  mistnet products extract page.html --url https://www.ebay.com/itm/1234567890
products list           links:list_products          Show products with their current prices, the newest first.  mistnet products list
products show           links:show_product           Show a product: its offers over time with their evidence, and the links that name it.  mistnet products show 5
products refresh        links:refresh                Queue new visits of products. Workers make them, at each shop's rate.  mistnet products refresh --all --shop ebay
products export         links:export_products        Export all offers, each with its product. Amounts are exact, as text.  mistnet products export --output offers.csv
products report         corrections:report           List offers that are in doubt, the newest first: check the page, then run `mistnet products correct`.  mistnet products report --limit 20
products correct        corrections:correct          Correct an offer that was read wrongly, or confirm one that is in doubt.  mistnet products correct 812 --price '64.90 EUR'
products corrections    corrections:corrections      Show manual corrections, when and by whom, the newest first.  mistnet products corrections --cases
products lineage        lineage:lineage              Show the posts that promoted a product, with its price before and after each, and a plot of its prices.  mistnet products lineage 5
products of             lineage:products_of          Show the products an account links to, the latest mention first, with their prices since the first mention.  mistnet products of @nasa
items                   GROUP                        Items whose price is followed, such as coins and cards.
items add               items:add                    Add an item whose price is followed. The same item is not added twice.  mistnet items add 'morgan dollar' --year 1921 --mint-mark S
items set               items:set_item               Change the fields of an item. Lists are replaced, attributes are merged; other fields stay.  mistnet items set 1 --grade MS65
items pause             items:pause                  Fetch no prices for these items until they are resumed.  mistnet items pause 1
items resume            items:resume                 Resume paused items.  mistnet items resume 1
items remove            items:remove                 Stop following these items. Their points and valuations are kept.  mistnet items remove 1
items ask               items:ask                    Fetch prices of these items now, from all their sources or those named. Workers do it.  mistnet items ask 1 --source ebay_api
items export            items:export                 Export all items with their valuations. `items import` reads its CSV and JSON lines.  mistnet items export --output items.csv
items import            item_files:import_items      Import items from rows. Columns are named like the fields; any other column is an attribute.  mistnet items import items.csv
items list              item_lists:list_items        Show items with their valuations, the newest first. The change is that of the last 30 days.  mistnet items list
items show              item_lists:show              Show one item: its valuation and price points, what is left out and why, its sources, its history.  mistnet items show 1
items points            item_lists:points            Show the price points of an item (asked, bid or paid) with their weights, the latest first.  mistnet items points 1 --kind sold
items versions          item_lists:versions          Show the earlier values of one point, the latest first: the earlier prices of a listing.  mistnet items versions 12
items history           item_lists:history           Show the valuations of an item, the latest first.  mistnet items history 1
prices                  GROUP                        Parse prices, and watch them for changes.
prices parse            texts:parse_prices           Read price texts: JSON lines in, JSON lines out, one for each and in order.  mistnet prices parse prices.jsonl
prices watch            items:watch                  Get an event about a price. It is sent only after a second check confirms the price.  mistnet prices watch --product 5 --change 10
prices watches          items:watches                Show price watches: the known price, an unconfirmed price, and the last event.  mistnet prices watches
prices unwatch          items:unwatch                Remove a watch. Events that were written are still sent.  mistnet prices unwatch 2
rates                   GROUP                        Exchange rates of currencies, which you import.
rates import            rates:import_rates           Import exchange rates: rows of day, base, quote, rate. Affected items are valued again.  mistnet rates import rates.csv --origin ECB
rates set               rates:set_rate               Set one exchange rate. Affected items are valued again.  mistnet rates set EUR USD 1.08
rates list              rates:list_rates             Show exchange rates by currency and day.  mistnet rates list
[Operate]
work                    work:work                    Run jobs until it is stopped.  mistnet work --processes 2 --until-idle
serve                   serve:serve                  Serve API and dashboard, and schedule. `mistnet work` does the work.  mistnet serve --host 127.0.0.1 --port 8000
doctor                  doctor:doctor                Check database, workers, sources, keys, caps, disk; say what to do.  mistnet doctor --fix
sources                 LISTS                        Show sources, pause and resume them, set their limits.
sources list            sources:list_sources         Show each source: whether it is open, its rate, breaker and cache, what it cost, and its keys.  mistnet sources list
sources pause           sources:pause                Stop all calls to a source, on every machine, within about a second. Nothing is lost.  mistnet sources pause x
sources resume          sources:resume               End the pause of a source and of its keys, and make the work due that waited for it.  mistnet sources resume x
sources open            sources:open_breaker         Open a source's breaker now: no calls for a while, then one call tests the source.  mistnet sources open taobao
sources close           sources:close_breaker        Close a source's breaker now and reset its count of failures; work that waited for it is due.  mistnet sources close taobao
sources forget          sources:forget               Delete the cached answers of a source.  mistnet sources forget ebay_api
sources set             sources:set_limits           Set limits of a source for all machines; they override each machine's settings.  mistnet sources set x --day-credits 200000
sources check           sources:check                Fetch the balance of each key, even while the source is paused. Free; exit code 1 if a key gets no answer.  mistnet sources check x
sources try             sources:try_source           Query one source and show what is read from each listing. Stores no item and no price.  mistnet sources try ebay_api --title 'morgan dollar'
alerts                  LISTS                        Show open alerts, accept one, and test the receivers.
alerts list             doctor:list_alerts           Show all open alerts, the worst first, accepted ones too.  mistnet alerts list
alerts accept           doctor:accept_alert          Accept an open alert: it no longer needs attention, until it is over or its severity changes.  mistnet alerts accept 3
alerts test             doctor:test_alerts           Send a test alert to every receiver of alerts, now. Exit code 1 if one does not accept it, or there is none.  mistnet alerts test
jobs                    GROUP                        List, add, retry and cancel jobs.
jobs list               jobs:list_jobs               List jobs, newest first.  mistnet jobs list --state dead
jobs show               jobs:show                    Show one job, with the errors of all attempts.  mistnet jobs show 42
jobs dead               jobs:dead                    List gaps: dead and failed jobs, with their errors.  mistnet jobs dead --kind walk
jobs add                jobs:add                     Add a job, or many from a file. All of them are stored, or none.  mistnet jobs add ping --args '{"text": "hello"}' --in 60
jobs retry              jobs:retry                   Make jobs due now. Dead and failed ones start again with all their attempts.  mistnet jobs retry 42
jobs cancel             jobs:cancel                  Cancel jobs, also running ones, whose writes are discarded.  mistnet jobs cancel --error 'no such page'
jobs requeue            jobs:requeue                 Retry dead and failed jobs, with all their attempts.  mistnet jobs requeue --kind walk
jobs pause              jobs:pause                   Stop workers from taking jobs of a kind. Running jobs continue; nothing is lost.  mistnet jobs pause walk --reason 'X is slow'
jobs resume             jobs:resume                  Let workers take jobs of a paused kind again.  mistnet jobs resume walk
tokens                  LISTS                        Create, list and revoke tokens of the API and the dashboard.
tokens add              init:add_token               Create a token and print it. It is shown only once.  mistnet tokens add grafana --scope read
tokens list             init:list_tokens             List all tokens, revoked ones too: their names, and when each was used last.  mistnet tokens list
tokens revoke           init:revoke_token            Revoke a token, and end its sessions.  mistnet tokens revoke 2
db                      GROUP                        Create, migrate, check, back up and restore the database.
db migrate              db:migrate                   Create the tables, or migrate them to this version. Safe to repeat, also on several machines at the same time.  mistnet db migrate
db check                db:check                     Check whether the tables match this version; exit code 1 if they are not.  mistnet db check
db backup               db:backup                    Copy a SQLite database into a file, while workers write.  mistnet db backup mistnet-backup.db
db restore              db:restore                   Replace the SQLite database with a copy. Stop all mistnet processes first.  mistnet db restore mistnet-backup.db
broker                  GROUP                        RabbitMQ, if it dispatches lanes.
broker declare          jobs:declare_queues          Create the exchanges and queues of all lanes in `amqp_lanes`. Safe to repeat.  mistnet broker declare
broker status           jobs:broker_status           Show each dispatched lane: its queued jobs in the database, and its messages in RabbitMQ.  mistnet broker status
sim                     GROUP                        A simulated TwitterAPI.io, to try everything without a key.
sim serve               sim:serve                    Serve a simulated TwitterAPI.io, Threads, shops and eBay to this machine only, until Ctrl-C.  mistnet sim serve --size tiny
"""


def _read_tree(table: str) -> dict[str, Command | CommandGroup]:
    below: dict[str, dict[str, Command | CommandGroup]] = {"": {}}
    panel = ""
    for row in table.strip().splitlines():
        if row.startswith("["):
            panel = row.strip("[]")
            continue
        path, target, line, *example = re.split(r" {2,}", row)
        above, _, name = path.rpartition(" ")
        below[path] = {}
        if example:
            below[above][name] = Command(target, line, example[0], panel if not above else "")
        else:
            below[above][name] = CommandGroup(line, below[path], target == "LISTS", panel if not above else "")
    return below[""]


COMMANDS: Final = _read_tree(_TABLE)
