"""The tables for analysis: a record for each, with the type and the meaning of every column.

These declarations are the only ones: the reading API, the exports, `datapackage.json`, `codebook.md` and
docs/codebook.md are made from them.
"""

# ruff: noqa: E501 (the meaning of a column is one literal)

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Annotated, Any, TypeAlias

import msgspec

from mistnet.prices.model import Carrier, LeftOut
from mistnet.shops.model import Evidence
from mistnet.social.model import LinkMention, Media, Metrics

Platform = Annotated[str, "The platform, such as `x` or `threads`."]
FirstSeen = Annotated[datetime, "When it was first stored."]
LastUpdated = Annotated[datetime, "When a response last contained it."]
LastSeen = Annotated[datetime, "When it was last confirmed."]
Currency = Annotated[str, "The ISO code of the currency of the amounts."]
Raw = Annotated[Any, "The payload as the source sent it, as JSON. Only with `--raw`, or `raw=True`."]


Record: TypeAlias = msgspec.Struct
"""One row. Every column is a field."""


class _WrittenPost(Metrics, frozen=True):
    """What was written. The counts come after these columns."""

    platform: Platform
    id: Annotated[int, "The post's id on its platform."]
    author_id: Annotated[int, "The id of the user who wrote it, in `users`."]
    author_handle: Annotated[str | None, "The author's current handle, without @."]
    author_name: Annotated[str | None, "The author's current display name."]
    text: Annotated[str, "The text as it was posted, in full."]
    text_clean: Annotated[str, "The text on one line, cut at 25,000 characters."]
    lang: Annotated[str | None, "The language, as the platform says."]
    url: Annotated[str | None, "The address of the post."]
    created_at: Annotated[datetime, "When it was posted."]
    conversation_id: Annotated[int | None, "The id of the post that began the conversation."]
    in_reply_to_id: Annotated[int | None, "The post that it replies to. It may not be stored."]
    in_reply_to_user_id: Annotated[int | None, "The user that it replies to."]
    quoted_id: Annotated[int | None, "The post that it quotes. It may not be stored."]
    reposted_id: Annotated[int | None, "The post that it reposts; null unless it is a repost."]
    referenced_text: Annotated[str | None, "The text of the quoted or reposted post."]
    referenced_handle: Annotated[str | None, "The handle of the author of the quoted or reposted post."]
    referenced_media: Annotated[list[Media] | None, "The media of the quoted or reposted post."]
    media: Annotated[list[Media] | None, "Pictures and videos."]
    links: Annotated[
        list[LinkMention] | None, "The links in the post, with their targets if the platform provides them."
    ]


class PostRecord(_WrittenPost, frozen=True, kw_only=True):
    """Posts, each with its author's current handle and name: those of tracked accounts, and those around them."""

    nested: Annotated[bool, "Whether it was only seen inside another post, which leaves columns empty."]
    first_seen_at: FirstSeen
    last_updated_at: LastUpdated
    ingest_id: Annotated[int | None, "The request that last wrote it, if it was requested by id or as part of a set."]
    referenced_text_clean: Annotated[str | None, "The text of the quoted or reposted post, on one line."]
    raw: Raw = None


class UserRecord(Record, frozen=True):
    """Users: everyone who wrote a stored post, is on a collected list of followers, or was requested."""

    platform: Platform
    id: Annotated[int, "The user's id on the platform. It stays when the handle changes."]
    handle: Annotated[str | None, "The current handle, without @."]
    name: Annotated[str | None, "The display name."]
    bio: Annotated[str | None, "The description in the profile."]
    location: Annotated[str | None, "The place in the profile, as the user wrote it."]
    website: Annotated[str | None, "The website in the profile."]
    avatar_url: Annotated[str | None, "The address of the profile picture."]
    banner_url: Annotated[str | None, "The address of the banner."]
    verified: Annotated[bool | None, "Whether the account is verified; null if no response said."]
    verified_kind: Annotated[str | None, "The kind of verification."]
    protected: Annotated[bool | None, "Whether the posts are visible to followers only."]
    automated: Annotated[bool | None, "Whether the account is labelled as automated."]
    followers_count: Annotated[int | None, "The number of followers, as the profile shows it."]
    following_count: Annotated[int | None, "The number of accounts that the user follows, as the profile shows it."]
    posts_count: Annotated[
        int | None, "The number of posts, as the profile shows it. Deleted posts make it differ from `posts`."
    ]
    media_count: Annotated[int | None, "The number of posts with media, as the profile shows it."]
    likes_count: Annotated[int | None, "The number of likes given, as the profile shows it."]
    created_at: Annotated[datetime | None, "When the account was opened."]
    unavailable_reason: Annotated[str | None, "Why the platform does not show the user; null: it does."]
    detail: Annotated[
        str, "How much of the profile was seen: `author` (inside a post), `listed` (on a list) or `profile`."
    ]
    first_seen_at: FirstSeen
    last_updated_at: LastUpdated
    profiled_at: Annotated[datetime | None, "When the full profile was last read."]
    ingest_id: Annotated[int | None, "The request that last wrote it, if it was requested by id or as part of a set."]
    raw: Raw = None


class UserVersionRecord(Record, frozen=True):
    """Earlier versions of profiles: what a user's handle, name, biography or picture was before it changed."""

    platform: Platform
    user_id: Annotated[int, "The user."]
    until: Annotated[datetime, "When the next version was seen."]
    handle: Annotated[str | None, "The handle until then."]
    name: Annotated[str | None, "The display name until then."]
    bio: Annotated[str | None, "The description until then."]
    avatar_url: Annotated[str | None, "The address of the profile picture until then."]


class AccountRecord(Record, frozen=True):
    """Tracked accounts: the users whose posts are collected, and how far each is."""

    platform: Platform
    user_id: Annotated[int, "The user."]
    handle: Annotated[str | None, "The current handle, without @."]
    name: Annotated[str | None, "The display name."]
    state: Annotated[str, "`active`, `protected`, `suspended`, `vanished` or `untracked`."]
    state_reason: Annotated[str | None, "Why."]
    state_since: Annotated[datetime, "Since when."]
    tracked_at: Annotated[datetime, "When it was first tracked."]
    oldest_post_id: Annotated[int | None, "All posts between this one and `newest_post_id` were searched."]
    newest_post_id: Annotated[int | None, "The newest post that a search has brought."]
    newest_repost_id: Annotated[int | None, "The newest repost that a search has brought."]
    backfilled_at: Annotated[datetime | None, "When the search reached the beginning of the history; null: not yet."]
    reposts_backfilled_at: Annotated[datetime | None, "The same for reposts."]
    next_look_at: Annotated[datetime | None, "When an account that cannot be collected is checked again."]
    last_fetched_at: Annotated[datetime | None, "When its posts were last requested."]
    fetches: Annotated[int, "How often new posts were looked for."]
    empty_fetches: Annotated[int, "How many of the latest of these in a row brought none."]
    posts_found: Annotated[int, "The number of posts that searches have brought."]
    last_fetched_count: Annotated[int | None, "The number of posts that the last search brought."]
    last_new_count: Annotated[int | None, "How many of these were new."]
    new_rate: Annotated[float, "A smoothed share of new posts, from 0 to 1."]
    fetch_limit: Annotated[int | None, "The number of posts that the last search could bring."]
    suspect_since: Annotated[
        datetime | None, "Since when far fewer posts are stored than the profile counts; null: it is plausible."
    ]
    suspect_looks: Annotated[int, "How often that was checked again."]


class CoverageRecord(Record, frozen=True):
    """What is known of each account's history: stretches of time, each verified, being collected or missing."""

    platform: Platform
    user_id: Annotated[int, "The account."]
    handle: Annotated[str | None, "The current handle, without @."]
    kind: Annotated[str, "`posts`, or `reposts`, which are searched separately."]
    since: Annotated[datetime, "When the stretch begins."]
    until: Annotated[datetime, "When it ends."]
    state: Annotated[
        str,
        "`verified`: complete. `sweeping`: being collected. `missing`: a search failed. `not_looked_at`: not searched yet. `suspect`: searched, with implausibly few posts.",
    ]


class ConversationRecord(Record, frozen=True):
    """Conversations: all stored posts with the same first post, counted."""

    platform: Platform
    id: Annotated[int, "The id of the first post, which may not be stored."]
    author_id: Annotated[int | None, "Who wrote the first post; null: it is not stored."]
    author_handle: Annotated[str | None, "The current handle of that user."]
    posts: Annotated[int, "The number of stored posts."]
    authors: Annotated[int, "The number of users who wrote them."]
    first_at: Annotated[datetime, "When the first stored post was written."]
    last_at: Annotated[datetime, "When the last stored post was written."]
    likes: Annotated[int | None, "The likes of all stored posts."]


class FollowRecord(Record, frozen=True):
    """Who follows whom: one row for each pair ever seen."""

    platform: Platform
    follower_id: Annotated[int, "Who follows."]
    follower_handle: Annotated[str | None, "The current handle of that user."]
    followed_id: Annotated[int, "Who is followed."]
    followed_handle: Annotated[str | None, "The current handle of that user."]
    first_seen_at: Annotated[datetime, "When it was first seen. Follows of the first complete list may be older."]
    last_seen_at: LastSeen
    ended_at: Annotated[datetime | None, "When it was seen to have ended; null: it holds."]


class FollowEventRecord(Record, frozen=True):
    """Follows and unfollows that were noticed. The first complete list of a user is not counted as follows."""

    id: Annotated[int, "The number of the event."]
    platform: Platform
    follower_id: Annotated[int, "Who follows."]
    follower_handle: Annotated[str | None, "The current handle of that user."]
    followed_id: Annotated[int, "Who is followed."]
    followed_handle: Annotated[str | None, "The current handle of that user."]
    kind: Annotated[str, "`followed` or `unfollowed`."]
    cause: Annotated[str, "`seen` on a list or `pushed` by a webhook; `unfollowed`, `suspended` or `vanished`."]
    at: Annotated[datetime, "When it was noticed."]
    ingest_id: Annotated[int | None, "The request that brought it."]


class SegmentMemberRecord(Record, frozen=True):
    """The members of segments, as of their last materialization."""

    id: Annotated[int, "Grows in the order in which members entered."]
    segment: Annotated[str, "The name of the segment."]
    platform: Platform
    user_id: Annotated[int | None, "The user; null in a segment of posts."]
    post_id: Annotated[int | None, "The post; null in a segment of users."]
    handle: Annotated[str | None, "The current handle of the user, or of the post's author."]
    since: Annotated[datetime, "When it entered."]


class LinkRecord(Record, frozen=True):
    """Links in posts: every address once, in its canonical form."""

    id: Annotated[int, "The number of the link."]
    url: Annotated[str, "The address, as it was first posted."]
    url_norm: Annotated[str, "Its canonical form, which is the same for all ways to write it."]
    host: Annotated[str, "Its host."]
    lane: Annotated[str, "Which crawler visits it: `shopee`, `taobao`, `ebay` or `web`."]
    platform: Annotated[str, "The shop that the address belongs to, or `web`."]
    kind: Annotated[str, "What it names: `item`, `shop`, `search`, `short`, `page` and others."]
    state: Annotated[
        str, "`new`, `crawled`, `resolved` (it leads elsewhere), `unresolved`, `blocked`, `gone` or `failed`."
    ]
    region: Annotated[str | None, "The shop's own region."]
    shop_id: Annotated[str | None, "The shop's own id of the seller."]
    item_id: Annotated[str | None, "The shop's own id of the item."]
    leads_to_id: Annotated[int | None, "The link that a short link leads to."]
    product_id: Annotated[int | None, "The product that its page showed, in `products`."]
    problem: Annotated[str | None, "The problem of the last visit."]
    posts: Annotated[int, "The number of stored posts with this link."]
    first_seen_at: Annotated[datetime, "When the first post with it was stored."]
    crawled_at: Annotated[datetime | None, "When it was last visited."]


class PostLinkRecord(Record, frozen=True):
    """Which post contains which link: one row for each place in a post where it is."""

    platform: Platform
    post_id: Annotated[int, "The post."]
    link_id: Annotated[int, "The link, in `links`."]
    place: Annotated[str, "`text`, `entity`, `attachment`, `text_attachment` or `quoted`."]
    author_id: Annotated[int, "Who wrote the post."]
    author_handle: Annotated[str | None, "The current handle of that user."]
    created_at: Annotated[datetime, "When the post was written."]
    url: Annotated[str, "The address as it was posted."]
    host: Annotated[str, "The host of the link."]
    shop: Annotated[str, "The shop that the address belongs to, or `web`."]
    product_id: Annotated[int | None, "The product that the link leads to, in `products`."]
    seen_at: Annotated[datetime, "When it was stored."]


class ProductRecord(Record, frozen=True):
    """Products that links lead to, with the latest price."""

    id: Annotated[int, "The number of the product."]
    platform: Annotated[str, "The shop."]
    region: Annotated[str, "The shop's own region; empty: it has none."]
    shop_id: Annotated[str, "The shop's own id of the seller."]
    item_id: Annotated[str, "The shop's own id of the item."]
    url: Annotated[str, "The address of its page."]
    title: Annotated[str | None, "The title on its page."]
    brand: Annotated[str | None, "The brand."]
    sku: Annotated[str | None, "The shop's stock number."]
    image_url: Annotated[str | None, "The address of its picture."]
    first_seen_at: Annotated[datetime, "When its page was first read."]
    last_seen_at: Annotated[datetime, "When its page was last read."]
    gone_at: Annotated[datetime | None, "Since when the shop no longer has it; null: it has."]
    offer_id: Annotated[int | None, "Its latest offer, in `offers`."]
    amount: Annotated[Decimal | None, "The price of that offer."]
    currency: Annotated[str | None, "The ISO code of the currency."]


class OfferRecord(Record, frozen=True):
    """Prices of products on their pages: a row for each change of a price or its terms."""

    id: Annotated[int, "The number of the offer."]
    product_id: Annotated[int, "The product."]
    link_id: Annotated[int | None, "The link whose page showed it."]
    observed_at: Annotated[datetime, "When it was first seen."]
    last_seen_at: LastSeen
    times_seen: Annotated[int, "How often it was seen."]
    amount: Annotated[Decimal | None, "The price; of a range, the lowest."]
    amount_max: Annotated[Decimal | None, "The highest price of a range."]
    list_amount: Annotated[Decimal | None, "The price before a discount, as the page shows it."]
    currency: Annotated[str | None, "The ISO code of the currency."]
    availability: Annotated[str | None, "Whether it is in stock."]
    sold_count: Annotated[int | None, "How many were sold, as the page shows it."]
    rating_count: Annotated[int | None, "How many ratings it has, as the page shows it."]
    path: Annotated[str, "How the page was read."]
    confidence: Annotated[float, "How sure the reading is, from 0 to 1."]
    doubt: Annotated[str | None, "Why it is doubted; null: it is not."]
    corrected_at: Annotated[datetime | None, "When it was last corrected by hand; null: it was not."]
    evidence: Annotated[list[Evidence], "Where in the page each value was read."]


class ItemRecord(Record, frozen=True):
    """Items: things whose prices are followed."""

    id: Annotated[int, "The number of the item."]
    ref: Annotated[str | None, "Your own name for it."]
    title: Annotated[str, "What it is called."]
    attributes: Annotated[Any, "A JSON object: what distinguishes it, such as its year."]
    exclude: Annotated[list[str], "Words that its listings must not have."]
    sources: Annotated[list[str], "The price sources that are queried; empty: all."]
    urls: Annotated[list[str], "Pages that are known to sell it."]
    currency: Annotated[str | None, "The currency of its valuation."]
    every_hours: Annotated[float | None, "How often its prices are fetched."]
    state: Annotated[str, "`active`, `paused` or `removed`."]
    added_at: Annotated[datetime, "When it was added."]
    changed_at: Annotated[datetime, "When it was last changed."]
    next_look_at: Annotated[datetime, "When its prices are fetched next."]


class PricePointRecord(Record, frozen=True):
    """Prices of items: what something was sold for, is offered for, or was bid for."""

    id: Annotated[int, "The number of the price point."]
    item_id: Annotated[int, "The item."]
    source: Annotated[str, "The price source."]
    dedupe_key: Annotated[str, "Identifies the listing at its source."]
    kind: Annotated[str, "`sold`, `ask` or `bid`."]
    amount: Annotated[Decimal, "The price."]
    currency: Currency
    condition: Annotated[str | None, "The condition, as the listing says."]
    title: Annotated[str, "The title of the listing."]
    url: Annotated[str, "The address of the listing."]
    external_id: Annotated[str | None, "The source's own id of the listing."]
    bid_count: Annotated[int | None, "The number of bids."]
    match_strength: Annotated[float, "How well the listing fits the item, from 0 to 1."]
    observed_at: Annotated[datetime, "The time that the source gives."]
    first_seen_at: FirstSeen
    last_seen_at: LastSeen
    times_seen: Annotated[int, "How often it was seen."]
    product_id: Annotated[int | None, "The crawled product that it comes from."]
    offer_id: Annotated[int | None, "The crawled offer that it comes from."]
    doubt: Annotated[str | None, "Why it is not used in valuations; null: it can be used."]


class ValuationRecord(Record, frozen=True):
    """The current valuation of each item."""

    item_id: Annotated[int, "The item."]
    item_ref: Annotated[str | None, "Your own name for the item."]
    item_title: Annotated[str, "The title of the item."]
    estimate: Annotated[Decimal, "The weighted median of its price points."]
    low: Annotated[Decimal, "The tenth percentile."]
    high: Annotated[Decimal, "The ninetieth percentile."]
    currency: Currency
    points: Annotated[int, "The number of price points in it."]
    points_left_out: Annotated[int, "The number of prices that were left out."]
    confidence: Annotated[float, "How sure it is, from 0 to 1."]
    newest_at: Annotated[datetime, "When the newest of these prices was seen."]
    carriers: Annotated[list[Carrier], "The price points with the largest weights, each with its share."]
    left_out: Annotated[list[LeftOut], "Prices that were left out, and why."]
    valued_at: Annotated[datetime, "Since when it is valid."]


class ValuationHistoryRecord(Record, frozen=True):
    """Valuations of items over time: a row for each change, including the current valuation."""

    id: Annotated[int, "The number of the valuation."]
    item_id: Annotated[int, "The item."]
    estimate: Annotated[Decimal, "The weighted median of its price points."]
    low: Annotated[Decimal, "The tenth percentile."]
    high: Annotated[Decimal, "The ninetieth percentile."]
    currency: Currency
    points: Annotated[int, "The number of price points in it."]
    points_left_out: Annotated[int, "The number of prices that were left out."]
    confidence: Annotated[float, "How sure it was, from 0 to 1."]
    newest_at: Annotated[datetime, "When the newest of these prices was seen."]
    valued_at: Annotated[datetime, "Since when it was valid."]
    ended_at: Annotated[datetime | None, "When it ended without another; null: the next row followed, or it holds."]


class SuggestionRecord(Record, frozen=True):
    """Suggested accounts, and the outcome of each."""

    id: Annotated[int, "The number of the suggestion."]
    platform: Platform
    handle: Annotated[str, "The suggested handle."]
    wallet: Annotated[str | None, "The wallet that was given with it."]
    labels: Annotated[Any, "A JSON object: the labels that were given with it."]
    suggested_at: Annotated[datetime, "When it was suggested."]
    deleted_at: Annotated[datetime | None, "When it was closed; null: it is open."]
    outcome: Annotated[str | None, "`accepted` or `refused`."]
    reason: Annotated[str | None, "Why it was refused."]
    user_id: Annotated[int | None, "The user with this handle."]
    withdrawn_at: Annotated[datetime | None, "When it was withdrawn by hand."]


class MissingRecord(Record, frozen=True):
    """Users and posts that the platform did not return when they were requested by id."""

    platform: Platform
    what: Annotated[str, "`user` or `post`."]
    id: Annotated[int, "Its id."]
    reason: Annotated[str, "What that means."]
    asked_at: Annotated[datetime, "When it was last requested."]
    times_asked: Annotated[int, "How often it was requested."]


class LedgerRecord(Record, frozen=True):
    """Calls to sources, and what each cost."""

    id: Annotated[int, "The number of the call."]
    source: Annotated[str, "The source."]
    key_label: Annotated[str, "The label of the key that was used."]
    endpoint: Annotated[str, "The endpoint that was called."]
    at: Annotated[datetime, "When."]
    seconds: Annotated[float, "How long it took."]
    status: Annotated[int | None, "The HTTP status; null: no response."]
    items: Annotated[int, "The number of users or posts that it brought."]
    credits: Annotated[int, "What it cost."]
    job_id: Annotated[int | None, "The job that made it."]
    account_id: Annotated[int | None, "The account that it was for; null: several."]
    error: Annotated[str | None, "What went wrong."]
