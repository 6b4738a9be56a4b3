"""The command tree: each command's name, the function it calls, and its line in the help of its group."""

# ruff: noqa: E501 (a line of help is one literal, like the docstring it repeats)

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple


class Command(NamedTuple):
    """A command: `module:function` below `mistnet.cli`, and the first paragraph of that function's docstring."""

    target: str
    line: str


class CommandGroup(NamedTuple):
    """Commands below a common word."""

    line: str
    commands: Mapping[str, Command | CommandGroup]
    no_args_is_help: bool = False
    lists_by_default: bool = False


COMMANDS: Final[Mapping[str, Command | CommandGroup]] = {
    "init": Command("init:init", "Prepare this folder: a settings file to fill in, tables, and the next steps."),
    "track": Command(
        "track:track",
        "Track accounts: collect all their posts, the conversations around them, and the people in those.",
    ),
    "untrack": Command("track:untrack", "Stop collecting accounts. What was collected stays."),
    "suggest": Command(
        "track:suggest", "Suggest accounts. A worker looks each up, and tracks it or refuses it with the reason."
    ),
    "up": Command("serve:up", "Run everything in this process: API, dashboard, scheduler and a worker."),
    "serve": Command(
        "serve:serve",
        "Serve the API and the dashboard, and schedule what is due. Workers run separately: `mistnet work`.",
    ),
    "work": Command("work:work", "Work on jobs until told to stop."),
    "status": Command(
        "status:status",
        "Show what needs attention, and the queue: its jobs, workers, what waits and why, what is missing.",
    ),
    "doctor": Command(
        "doctor:doctor",
        "Check database, queue, workers, sources, keys, caps, disk, files. Exit code 1 if something is badly wrong.",
    ),
    "demo": Command(
        "demo:demo",
        "Collect a simulated world in one process. It needs no key and no network, and leaves nothing behind.",
    ),
    "search": Command("search:search", "Find posts by their words, newest first."),
    "export": Command(
        "export:export",
        "Export all rows of a table, those of one author or span of time, a graph of people, or lineage.",
    ),
    "coverage": Command("coverage:coverage", "Show what is verified, what is being swept and what is missing."),
    "spend": Command("spend:spend", "Show what calls have cost: calls, items, credits, dollars and failures."),
    "alerts": CommandGroup(
        line="Look at open alerts, and accept one.",
        lists_by_default=True,
        commands={
            "list": Command("status:list_alerts", "Show all open alerts, the worst first, accepted ones too."),
            "accept": Command(
                "status:accept_alert",
                "Accept an open alert: it no longer needs attention, until it is over or its severity changes.",
            ),
        },
    ),
    "sources": CommandGroup(
        line="Look at sources, stop and start them, set their limits.",
        lists_by_default=True,
        commands={
            "list": Command(
                "sources:list_sources",
                "Show each source: whether it is open, its rate, breaker and cache, what it cost, and its keys.",
            ),
            "pause": Command(
                "sources:pause", "Stop all calls to a source, on every machine, within about a second. Nothing is lost."
            ),
            "resume": Command(
                "sources:resume",
                "End the pause of a source and of its keys, and make the work due that waited for it.",
            ),
            "open": Command(
                "sources:open_breaker",
                "Open a source's breaker now: no calls for a while, then one call tests the source.",
            ),
            "close": Command(
                "sources:close_breaker",
                "Close a source's breaker now and reset its count of failures; work that waited for it is due.",
            ),
            "forget": Command("sources:forget", "Delete the cached answers of a source."),
            "set": Command(
                "sources:set_limits", "Set limits of a source for all machines; they override each machine's settings."
            ),
            "check": Command(
                "sources:check",
                "Fetch the balance of each key, even while the source is paused. Free; exit code 1 if a key gets no answer.",
            ),
            "try": Command(
                "sources:try_source",
                "Ask one source for a thing and show what is read of each listing. No item, no price is stored.",
            ),
        },
    ),
    "hydrate": CommandGroup(
        line="Fetch users or posts by their ids, and look at what such ingests came to.",
        commands={
            "posts-of": Command(
                "hydrate:posts_of",
                "Collect what a set of users wrote since a time or a post. Workers do it, in one job.",
            ),
            "events": Command(
                "hydrate:events",
                "List ingest events, the latest first: explicit requests to a source, and their results.",
            ),
            "event": Command(
                "hydrate:event", "Show one ingest event: the ids it requested and, if it failed, the response."
            ),
            "users": Command(
                "hydrate:users", "Fetch users by id, a hundred per call. All of them are written, or none."
            ),
            "posts": Command(
                "hydrate:posts",
                "Fetch posts by id with their authors, fifty per call. All of them are written, or none.",
            ),
        },
    ),
    "follows": CommandGroup(
        line="Sync who follows whom, and see how it changes.",
        commands={
            "sync": Command(
                "follows:sync", "Read who follows a user and whom they follow. Workers do it, a page of 200 per step."
            ),
            "list": Command("follows:list_follows", "Show who follows a user, or whom they follow, by id."),
            "events": Command(
                "follows:events",
                "Show how both lists of a user changed, the latest first, with the cause as far as it is known.",
            ),
            "status": Command(
                "follows:status",
                "Show how the latest sync of each list went: how many it saw, whether the result is plausible, and why not.",
            ),
        },
    ),
    "feeds": CommandGroup(
        line="Accounts of Threads whose posts and own replies are read again and again.",
        commands={
            "add": Command(
                "track:add_feeds",
                "Poll accounts of Threads from now on: all their posts, what they quote, and their own replies below them.",
            ),
            "list": Command(
                "track:list_feeds", "All feeds: their state, their last poll, and how many posts they brought."
            ),
            "remove": Command("track:remove_feeds", "Stop polling accounts. Collected posts stay."),
            "poll": Command("track:poll_feeds", "Poll feeds now. If a poll is under way, it continues."),
            "token": Command(
                "track:threads_token",
                "Show the state of the token for Threads: until when it is valid, when it is refreshed. Never the token.",
            ),
        },
    ),
    "segments": CommandGroup(
        line="Named sets of users or posts, and how they change.",
        commands={
            "define": Command(
                "segments:define", "Create a segment, or change the rule of the existing one. Its history stays."
            ),
            "list": Command("segments:list_segments", "Show all segments, with how many members they have."),
            "show": Command(
                "segments:show",
                "Show one segment: its rule, schedule, job, and last materializations.",
            ),
            "enable": Command("segments:enable", "Allow materializations of a segment again."),
            "disable": Command(
                "segments:disable",
                "Stop materializing a segment. It keeps its members; segments that build on it continue with those.",
            ),
            "materialize": Command(
                "segments:materialize", "Update the members of a segment. Workers do it, after the syncs that it needs."
            ),
            "members": Command(
                "segment_members:members", "Show the members of a segment, in the order in which they entered."
            ),
            "events": Command("segment_members:events", "Show who entered and left, the latest first."),
            "export": Command("segment_members:export", "Export all members of a segment, now or at an earlier time."),
            "inputs": CommandGroup(
                line="The users of a segment that are named one by one.",
                commands={
                    "add": Command(
                        "segment_members:add",
                        "Add users to a segment's inputs. Unknown users are fetched first; if one is not available, nothing is written.",
                    ),
                    "remove": Command(
                        "segment_members:remove",
                        "Remove users from a segment's inputs. They leave it when it is materialized next.",
                    ),
                    "list": Command("segment_members:list_inputs", "Show a segment's inputs, by id."),
                },
            ),
        },
    ),
    "jobs": CommandGroup(
        line="Look at jobs, add them, and decide what becomes of them.",
        commands={
            "list": Command("jobs:list_jobs", "List jobs, newest first."),
            "show": Command("jobs:show", "Show all that is known of one job, with everything that went wrong."),
            "dead": Command("jobs:dead", "List gaps: jobs that ended without their result, with what went wrong."),
            "add": Command("jobs:add", "Add a job, or many from a file. All of them are stored, or none."),
            "retry": Command(
                "jobs:retry", "Make jobs due now. Dead and failed ones start again with all their attempts."
            ),
            "cancel": Command(
                "jobs:cancel", "End jobs for good. A running one too: what its worker would write is void."
            ),
            "requeue": Command("jobs:requeue", "Try dead and failed jobs again, with all their attempts."),
            "pause": Command(
                "jobs:pause", "Stop workers from taking jobs of a kind. What runs goes on; nothing is lost."
            ),
            "resume": Command("jobs:resume", "Let workers take jobs of a paused kind again."),
        },
    ),
    "runs": CommandGroup(
        line="Collect the newest posts of some accounts at once, with a report.",
        commands={
            "start": Command(
                "hydrate:start_run",
                "Collect the newest posts of accounts, tracked or not. Workers do it; one run at a time.",
            ),
            "list": Command(
                "hydrate:list_runs", "Show runs, newest first. Finished ones are deleted after `run_hours`."
            ),
            "show": Command("hydrate:show_run", "Show a run: the progress of each account, and the report."),
            "cancel": Command(
                "hydrate:cancel_run", "End a run, so that another one can start. What it has collected stays."
            ),
        },
    ),
    "db": CommandGroup(
        line="Bring the database's tables up to this version, or look whether they are.",
        commands={
            "migrate": Command(
                "db:migrate",
                "Create the tables, or bring them up to this version. Safe to run again, and by several machines at once.",
            ),
            "check": Command(
                "db:check", "Say whether the tables are those of this version; exit code 1 if they are not."
            ),
        },
    ),
    "broker": CommandGroup(
        line="RabbitMQ, where lanes are dispatched over it.",
        no_args_is_help=True,
        commands={
            "declare": Command(
                "jobs:declare_queues",
                "Make the exchanges and queues of all lanes in `amqp_lanes`. Doing it again changes nothing.",
            ),
            "status": Command(
                "jobs:broker_status",
                "Show each dispatched lane: what the database has handed over, and what RabbitMQ holds.",
            ),
        },
    ),
    "links": CommandGroup(
        line="Links in posts: what they name and where they lead.",
        no_args_is_help=True,
        commands={
            "extract": Command(
                "texts:extract_links",
                "Find the URLs and Tao-kouling codes in texts: JSON lines in, JSON lines out, one for each and in order.",
            ),
            "canonical": Command(
                "texts:canonical_names",
                "Print the canonical names of URLs: JSON lines in, JSON lines out, one for each and in order.",
            ),
            "list": Command(
                "links:list_links",
                "Show links that were found in posts, the newest first. Each canonical URL is one link.",
            ),
            "show": Command("links:show_link", "Show one link: what it names, how its visits went, who posted it."),
            "scan": Command(
                "links:scan_posts",
                "Find the links of posts that were collected before. May be interrupted and run again at any time.",
            ),
            "crawl": Command(
                "links:crawl",
                "Queue visits of links: those named, or those found while their lane was not crawled. Workers make them.",
            ),
        },
    ),
    "prices": CommandGroup(
        line="Prices as people write them, and being told when they change.",
        no_args_is_help=True,
        commands={
            "parse": Command(
                "texts:parse_prices", "Read price texts: JSON lines in, JSON lines out, one for each and in order."
            ),
            "watch": Command(
                "items:watch",
                "Get an event about a price. It is sent only when a second look confirms it.",
            ),
            "watches": Command(
                "items:watches",
                "Show price watches: the known price, what only one look saw, and the last event.",
            ),
            "unwatch": Command("items:unwatch", "Remove a watch. Events that were written are still sent."),
        },
    ),
    "rates": CommandGroup(
        line="What currencies are worth in each other, as you tell it.",
        no_args_is_help=True,
        commands={
            "import": Command(
                "rates:import_rates",
                "Import exchange rates: rows of day, base, quote, rate. Affected items are valued again.",
            ),
            "set": Command("rates:set_rate", "Set one exchange rate. Affected items are valued again."),
            "list": Command("rates:list_rates", "Show exchange rates by currency and day."),
        },
    ),
    "items": CommandGroup(
        line="Items whose value is followed: coins, cards, anything that has a price.",
        no_args_is_help=True,
        commands={
            "add": Command("items:add", "Follow the value of an item. The same item is not added twice."),
            "set": Command(
                "items:set_item",
                "Change the fields of an item. Lists are replaced whole, attributes one by one; other fields stay.",
            ),
            "pause": Command("items:pause", "Fetch no prices for these items until they are resumed."),
            "resume": Command("items:resume", "Resume paused items."),
            "remove": Command("items:remove", "Stop following these items. Their points and valuations are kept."),
            "ask": Command(
                "items:ask",
                "Fetch prices of these items now, from all their sources or those named. Workers do it.",
            ),
            "export": Command(
                "items:export",
                "Export all items with their valuations. `items import` reads its CSV and JSON lines.",
            ),
            "import": Command(
                "item_files:import_items",
                "Import items from rows. Columns are named like the fields; any other column is an attribute.",
            ),
            "list": Command(
                "item_lists:list_items",
                "Show items with their valuations, the newest first. The change is that of the last 30 days.",
            ),
            "show": Command(
                "item_lists:show",
                "Show one item: its valuation and what it rests on, what is left out and why, its sources, its history.",
            ),
            "points": Command(
                "item_lists:points",
                "Show what was asked, bid or paid for an item, the latest found first, and what each counts for.",
            ),
            "versions": Command(
                "item_lists:versions",
                "Show the earlier values of one point, the latest first: the earlier prices of a listing.",
            ),
            "history": Command("item_lists:history", "Show the valuations of an item, the latest first."),
        },
    ),
    "products": CommandGroup(
        line="Products: what the pages of shops say about them.",
        no_args_is_help=True,
        commands={
            "extract": Command(
                "texts:read_saved_page",
                "Read a saved page or shop answer, without any request: product and offer, each value with its evidence.",
            ),
            "list": Command("links:list_products", "Show products with their current prices, the newest first."),
            "show": Command(
                "links:show_product",
                "Show a product: its offers over time with their evidence, and the links that name it.",
            ),
            "refresh": Command(
                "links:refresh", "Queue new visits of products. Workers make them, at each shop's rate."
            ),
            "export": Command(
                "links:export_products", "Export all offers, each with its product. Amounts are exact, as text."
            ),
            "lineage": Command(
                "lineage:lineage",
                "Show the posts that promoted a product, with its price before and after each, and a plot of its prices.",
            ),
            "of": Command(
                "lineage:products_of",
                "Show the products an account links, the latest mention first, with their prices since the first mention.",
            ),
        },
    ),
    "sim": CommandGroup(
        line="A simulated TwitterAPI.io on this machine, to try everything on without a key.",
        commands={
            "serve": Command(
                "sim:serve",
                "Serve a simulated TwitterAPI.io, Threads, shops and eBay to this machine alone, until Ctrl-C.",
            ),
        },
    ),
}
