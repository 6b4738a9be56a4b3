"""The command tree: each command's name, the function it calls, and its line in the help of its group."""

# ruff: noqa: E501 (each command is one line of a table)

from __future__ import annotations

import re
from typing import Final, NamedTuple


class Command(NamedTuple):
    """A command: `module:function` below `mistnet.cli`, and the first paragraph of that function's docstring."""

    target: str
    line: str


class CommandGroup(NamedTuple):
    """Commands below a common word."""

    line: str
    commands: dict[str, Command | CommandGroup]
    no_args_is_help: bool = False
    lists_by_default: bool = False


# A group stands above its commands. Without a command it fails (GROUP), prints its help (HELPS), or calls its
# command `list` (LISTS). Functions are named, not imported: a command loads only its own module.
_TABLE: Final = """
init                    init:init                    Prepare this folder: a settings file to fill in, tables, and the next steps.
track                   track:track                  Track accounts: collect all their posts, the conversations around them, and the people in those.
untrack                 track:untrack                Stop collecting accounts. What was collected stays.
suggest                 track:suggest                Suggest accounts. A worker looks each up, and tracks it or refuses it with the reason.
up                      serve:up                     Run everything in this process: API, dashboard, scheduler and a worker.
serve                   serve:serve                  Serve the API and the dashboard, and schedule what is due. Workers run separately: `mistnet work`.
work                    work:work                    Work on jobs until told to stop.
status                  status:status                Show what needs attention, and the queue: its jobs, workers, what waits and why, what is missing.
doctor                  doctor:doctor                Check database, queue, workers, sources, keys, caps, disk, files. Exit code 1 if something is badly wrong.
demo                    demo:demo                    Collect a simulated world in one process. It needs no key and no network, and leaves nothing behind.
search                  search:search                Find posts by their words, newest first.
export                  export:export                Export a table, or all of them with a codebook, a graph of people, or lineage.
coverage                coverage:coverage            Show what is verified, what is being swept and what is missing.
spend                   spend:spend                  Show what calls have cost: calls, items, credits, dollars and failures.
tokens                  LISTS                        Make, list and revoke tokens of the API and the dashboard.
tokens add              tokens:add                   Make a token and print it. It is shown only this once.
tokens list             tokens:list_tokens           List all tokens, revoked ones too: who has one, and when it was used last.
tokens revoke           tokens:revoke                Revoke a token, and end the log-ins made with it.
alerts                  LISTS                        Look at open alerts, and accept one.
alerts list             status:list_alerts           Show all open alerts, the worst first, accepted ones too.
alerts accept           status:accept_alert          Accept an open alert: it no longer needs attention, until it is over or its severity changes.
sources                 LISTS                        Look at sources, stop and start them, set their limits.
sources list            sources:list_sources         Show each source: whether it is open, its rate, breaker and cache, what it cost, and its keys.
sources pause           sources:pause                Stop all calls to a source, on every machine, within about a second. Nothing is lost.
sources resume          sources:resume               End the pause of a source and of its keys, and make the work due that waited for it.
sources open            sources:open_breaker         Open a source's breaker now: no calls for a while, then one call tests the source.
sources close           sources:close_breaker        Close a source's breaker now and reset its count of failures; work that waited for it is due.
sources forget          sources:forget               Delete the cached answers of a source.
sources set             sources:set_limits           Set limits of a source for all machines; they override each machine's settings.
sources check           sources:check                Fetch the balance of each key, even while the source is paused. Free; exit code 1 if a key gets no answer.
sources try             sources:try_source           Ask one source for a thing and show what is read of each listing. No item, no price is stored.
hydrate                 GROUP                        Fetch users or posts by their ids, and look at what such ingests came to.
hydrate posts-of        hydrate:posts_of             Collect what a set of users wrote since a time or a post. Workers do it, in one job.
hydrate events          hydrate:events               List ingest events, the latest first: explicit requests to a source, and their results.
hydrate event           hydrate:event                Show one ingest event: the ids it requested and, if it failed, the response.
hydrate users           hydrate:users                Fetch users by id, a hundred per call. All of them are written, or none.
hydrate posts           hydrate:posts                Fetch posts by id with their authors, fifty per call. All of them are written, or none.
follows                 GROUP                        Sync who follows whom, and see how it changes.
follows sync            follows:sync                 Read who follows a user and whom they follow. Workers do it, a page of 200 per step.
follows list            follows:list_follows         Show who follows a user, or whom they follow, by id.
follows events          follows:events               Show how both lists of a user changed, the latest first, with the cause as far as it is known.
follows status          follows:status               Show how the latest sync of each list went: how many it saw, whether the result is plausible, and why not.
feeds                   GROUP                        Accounts of Threads whose posts and own replies are read again and again.
feeds add               track:add_feeds              Poll accounts of Threads from now on: all their posts, what they quote, and their own replies below them.
feeds list              track:list_feeds             All feeds: their state, their last poll, and how many posts they brought.
feeds remove            track:remove_feeds           Stop polling accounts. Collected posts stay.
feeds poll              track:poll_feeds             Poll feeds now. If a poll is under way, it continues.
feeds token             track:threads_token          Show the state of the token for Threads: until when it is valid, when it is refreshed. Never the token.
segments                GROUP                        Named sets of users or posts, and how they change.
segments define         segments:define              Create a segment, or change the rule of the existing one. Its history stays.
segments list           segments:list_segments       Show all segments, with how many members they have.
segments show           segments:show                Show one segment: its rule, schedule, job, and last materializations.
segments enable         segments:enable              Allow materializations of a segment again.
segments disable        segments:disable             Stop materializing a segment. It keeps its members; segments that build on it continue with those.
segments materialize    segments:materialize         Update the members of a segment. Workers do it, after the syncs that it needs.
segments members        segment_members:members      Show the members of a segment, in the order in which they entered.
segments events         segment_members:events       Show who entered and left, the latest first.
segments export         segment_members:export       Export all members of a segment, now or at an earlier time.
segments inputs         GROUP                        The users of a segment that are named one by one.
segments inputs add     segment_members:add          Add users to a segment's inputs. Unknown users are fetched first; if one is not available, nothing is written.
segments inputs remove  segment_members:remove       Remove users from a segment's inputs. They leave it when it is materialized next.
segments inputs list    segment_members:list_inputs  Show a segment's inputs, by id.
jobs                    GROUP                        Look at jobs, add them, and decide what becomes of them.
jobs list               jobs:list_jobs               List jobs, newest first.
jobs show               jobs:show                    Show all that is known of one job, with everything that went wrong.
jobs dead               jobs:dead                    List gaps: jobs that ended without their result, with what went wrong.
jobs add                jobs:add                     Add a job, or many from a file. All of them are stored, or none.
jobs retry              jobs:retry                   Make jobs due now. Dead and failed ones start again with all their attempts.
jobs cancel             jobs:cancel                  End jobs for good. A running one too: what its worker would write is void.
jobs requeue            jobs:requeue                 Try dead and failed jobs again, with all their attempts.
jobs pause              jobs:pause                   Stop workers from taking jobs of a kind. What runs goes on; nothing is lost.
jobs resume             jobs:resume                  Let workers take jobs of a paused kind again.
runs                    GROUP                        Collect the newest posts of some accounts at once, with a report.
runs start              hydrate:start_run            Collect the newest posts of accounts, tracked or not. Workers do it; one run at a time.
runs list               hydrate:list_runs            Show runs, newest first. Finished ones are deleted after `run_hours`.
runs show               hydrate:show_run             Show a run: the progress of each account, and the report.
runs cancel             hydrate:cancel_run           End a run, so that another one can start. What it has collected stays.
db                      GROUP                        Create, migrate, check, back up and restore the database.
db migrate              db:migrate                   Create the tables, or bring them up to this version. Safe to run again, and by several machines at once.
db check                db:check                     Say whether the tables are those of this version; exit code 1 if they are not.
db backup               backup:backup                Copy a SQLite database into a file, while workers write.
db restore              backup:restore               Put a copy in the place of the SQLite database. Stop all mistnet processes first.
broker                  HELPS                        RabbitMQ, where lanes are dispatched over it.
broker declare          jobs:declare_queues          Make the exchanges and queues of all lanes in `amqp_lanes`. Doing it again changes nothing.
broker status           jobs:broker_status           Show each dispatched lane: what the database has handed over, and what RabbitMQ holds.
links                   HELPS                        Links in posts: what they name and where they lead.
links extract           texts:extract_links          Find the URLs and Tao-kouling codes in texts: JSON lines in, JSON lines out, one for each and in order.
links canonical         texts:canonical_names        Print the canonical names of URLs: JSON lines in, JSON lines out, one for each and in order.
links list              links:list_links             Show links that were found in posts, the newest first. Each canonical URL is one link.
links show              links:show_link              Show one link: what it names, how its visits went, who posted it.
links scan              links:scan_posts             Find the links of posts that were collected before. May be interrupted and run again at any time.
links crawl             links:crawl                  Queue visits of links: those named, or those found while their lane was not crawled. Workers make them.
prices                  HELPS                        Prices as people write them, and being told when they change.
prices parse            texts:parse_prices           Read price texts: JSON lines in, JSON lines out, one for each and in order.
prices watch            items:watch                  Get an event about a price. It is sent only when a second look confirms it.
prices watches          items:watches                Show price watches: the known price, what only one look saw, and the last event.
prices unwatch          items:unwatch                Remove a watch. Events that were written are still sent.
rates                   HELPS                        What currencies are worth in each other, as you tell it.
rates import            rates:import_rates           Import exchange rates: rows of day, base, quote, rate. Affected items are valued again.
rates set               rates:set_rate               Set one exchange rate. Affected items are valued again.
rates list              rates:list_rates             Show exchange rates by currency and day.
items                   HELPS                        Items whose value is followed: coins, cards, anything that has a price.
items add               items:add                    Follow the value of an item. The same item is not added twice.
items set               items:set_item               Change the fields of an item. Lists are replaced whole, attributes one by one; other fields stay.
items pause             items:pause                  Fetch no prices for these items until they are resumed.
items resume            items:resume                 Resume paused items.
items remove            items:remove                 Stop following these items. Their points and valuations are kept.
items ask               items:ask                    Fetch prices of these items now, from all their sources or those named. Workers do it.
items export            items:export                 Export all items with their valuations. `items import` reads its CSV and JSON lines.
items import            item_files:import_items      Import items from rows. Columns are named like the fields; any other column is an attribute.
items list              item_lists:list_items        Show items with their valuations, the newest first. The change is that of the last 30 days.
items show              item_lists:show              Show one item: its valuation and what it rests on, what is left out and why, its sources, its history.
items points            item_lists:points            Show what was asked, bid or paid for an item, the latest found first, and what each counts for.
items versions          item_lists:versions          Show the earlier values of one point, the latest first: the earlier prices of a listing.
items history           item_lists:history           Show the valuations of an item, the latest first.
products                HELPS                        Products: what the pages of shops say about them.
products extract        texts:read_saved_page        Read a saved page or shop answer, without any request: product and offer, each value with its evidence.
products list           links:list_products          Show products with their current prices, the newest first.
products show           links:show_product           Show a product: its offers over time with their evidence, and the links that name it.
products refresh        links:refresh                Queue new visits of products. Workers make them, at each shop's rate.
products export         links:export_products        Export all offers, each with its product. Amounts are exact, as text.
products lineage        lineage:lineage              Show the posts that promoted a product, with its price before and after each, and a plot of its prices.
products of             lineage:products_of          Show the products an account links, the latest mention first, with their prices since the first mention.
sim                     GROUP                        A simulated TwitterAPI.io on this machine, to try everything on without a key.
sim serve               sim:serve                    Serve a simulated TwitterAPI.io, Threads, shops and eBay to this machine alone, until Ctrl-C.
"""


def _read_tree(table: str) -> dict[str, Command | CommandGroup]:
    below: dict[str, dict[str, Command | CommandGroup]] = {"": {}}
    for row in table.strip().splitlines():
        path, target, line = re.split(r" {2,}", row, maxsplit=2)
        above, _, name = path.rpartition(" ")
        if target in ("GROUP", "HELPS", "LISTS"):
            below[path] = {}
            below[above][name] = CommandGroup(line, below[path], target == "HELPS", target == "LISTS")
        else:
            below[above][name] = Command(target, line)
    return below[""]


COMMANDS: Final = _read_tree(_TABLE)
