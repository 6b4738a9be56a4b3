-- The schema on PostgreSQL, as tables.py of each feature declares it.
-- A statement ends at a semicolon, unless the next line is indented or begins with END.
-- Ids of other systems are bigint and have no sequence.

-- Job queue

-- Jobs to do, and failed ones that wait for an operator. A row leaves when its job succeeds or is cancelled.
CREATE TABLE jobs (
    id BIGSERIAL NOT NULL,
    kind TEXT NOT NULL,
    key TEXT,
    lane TEXT NOT NULL,
    class SMALLINT NOT NULL,
    state TEXT NOT NULL,
    args JSON NOT NULL,
    attempts SMALLINT DEFAULT 0 NOT NULL,
    max_attempts SMALLINT NOT NULL,
    fence BIGINT DEFAULT 0 NOT NULL,
    run_at TIMESTAMP WITH TIME ZONE NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE NOT NULL,
    started_at TIMESTAMP WITH TIME ZONE,
    worker TEXT,
    lease_until TIMESTAMP WITH TIME ZONE,
    parked BOOLEAN DEFAULT false NOT NULL,
    alone BOOLEAN DEFAULT false NOT NULL,
    wait_reason TEXT,
    last_error TEXT,
    CONSTRAINT jobs_pkey PRIMARY KEY (id),
    CONSTRAINT jobs_state_is_known CHECK (state IN ('pending', 'queued', 'running', 'retryable', 'failed', 'dead')),
    CONSTRAINT jobs_only_running_jobs_are_leased
        CHECK ((state = 'running') = (worker IS NOT NULL) AND (state = 'running') = (lease_until IS NOT NULL)),
    CONSTRAINT jobs_attempts_within_limit CHECK (attempts >= 0 AND attempts <= max_attempts),
    CONSTRAINT jobs_only_pending_jobs_are_parked CHECK (NOT parked OR state = 'pending'),
    CONSTRAINT jobs_class_is_known CHECK (class BETWEEN 1 AND 9)
)
WITH (
    autovacuum_vacuum_scale_factor = 0.0,
    autovacuum_vacuum_threshold = 2000,
    autovacuum_vacuum_cost_delay = 0,
    autovacuum_analyze_scale_factor = 0.2
);
CREATE INDEX jobs_created ON jobs (created_at, id);
CREATE INDEX jobs_due ON jobs (kind, lane, run_at, id) WHERE state IN ('pending', 'retryable') AND NOT parked;
CREATE INDEX jobs_gaps ON jobs (kind, id) WHERE state IN ('failed', 'dead');
CREATE INDEX jobs_leased ON jobs (lease_until) WHERE state = 'running';
CREATE UNIQUE INDEX jobs_live_key ON jobs (kind, key)
    WHERE key IS NOT NULL AND state IN ('pending', 'queued', 'running', 'retryable');
CREATE INDEX jobs_parked ON jobs (kind, run_at, id) WHERE parked;
CREATE INDEX jobs_queued ON jobs (lane, started_at, id) WHERE state = 'queued';

-- Finished jobs. Pruned after history_days.
CREATE TABLE job_history (
    id BIGINT NOT NULL,
    kind TEXT NOT NULL,
    key TEXT,
    lane TEXT NOT NULL,
    class SMALLINT NOT NULL,
    state TEXT NOT NULL,
    args JSON NOT NULL,
    attempts SMALLINT NOT NULL,
    fence BIGINT NOT NULL,
    run_at TIMESTAMP WITH TIME ZONE NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE NOT NULL,
    started_at TIMESTAMP WITH TIME ZONE,
    finished_at TIMESTAMP WITH TIME ZONE NOT NULL,
    worker TEXT,
    CONSTRAINT job_history_pkey PRIMARY KEY (id),
    CONSTRAINT job_history_state_is_known CHECK (state IN ('succeeded', 'cancelled'))
);
CREATE INDEX job_history_created ON job_history (created_at, id);
CREATE INDEX job_history_finished_at ON job_history USING brin (finished_at);

-- One row for each attempt that failed or whose worker died.
CREATE TABLE job_errors (
    job_id BIGINT NOT NULL,
    fence BIGINT NOT NULL,
    at TIMESTAMP WITH TIME ZONE NOT NULL,
    worker TEXT NOT NULL,
    error TEXT NOT NULL,
    CONSTRAINT job_errors_pkey PRIMARY KEY (job_id, fence)
);
CREATE INDEX job_errors_at ON job_errors (at);

-- Failed jobs already published to the broker's dead-letter queue, by the fence of their last attempt.
CREATE TABLE dead_letters (
    job_id BIGINT NOT NULL,
    fence BIGINT NOT NULL,
    at TIMESTAMP WITH TIME ZONE NOT NULL,
    CONSTRAINT dead_letters_pkey PRIMARY KEY (job_id)
);

-- Job kinds that are not claimed until an operator resumes them.
CREATE TABLE paused_kinds (
    kind TEXT NOT NULL,
    reason TEXT NOT NULL,
    paused_at TIMESTAMP WITH TIME ZONE NOT NULL,
    CONSTRAINT paused_kinds_pkey PRIMARY KEY (kind)
);

-- Running workers. Each writes its row with its heartbeat.
CREATE TABLE workers (
    name TEXT NOT NULL,
    host TEXT NOT NULL,
    pid INTEGER NOT NULL,
    version TEXT NOT NULL,
    lanes TEXT NOT NULL,
    concurrency INTEGER NOT NULL,
    running INTEGER NOT NULL,
    draining BOOLEAN NOT NULL,
    started_at TIMESTAMP WITH TIME ZONE NOT NULL,
    seen_at TIMESTAMP WITH TIME ZONE NOT NULL,
    CONSTRAINT workers_pkey PRIMARY KEY (name)
);

-- Leases of roles that one process holds for all, such as the scheduler. Rows are never deleted: the fence must only
-- grow.
CREATE TABLE leaders (
    name TEXT NOT NULL,
    holder TEXT NOT NULL,
    fence BIGINT NOT NULL,
    since TIMESTAMP WITH TIME ZONE NOT NULL,
    lease_until TIMESTAMP WITH TIME ZONE NOT NULL,
    CONSTRAINT leaders_pkey PRIMARY KEY (name)
);

-- Outbox: events are written in the transaction of what they report, and fanned out to subscribers later.
CREATE TABLE events (
    id BIGSERIAL NOT NULL,
    channel TEXT NOT NULL,
    kind TEXT NOT NULL,
    subject TEXT NOT NULL,
    payload JSON NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE NOT NULL,
    fanned_out_at TIMESTAMP WITH TIME ZONE,
    CONSTRAINT events_pkey PRIMARY KEY (id),
    CONSTRAINT events_channel_is_known CHECK (channel IN ('data', 'alerts'))
);
CREATE INDEX events_created_at ON events (created_at);
CREATE INDEX events_to_fan_out ON events (id) WHERE fanned_out_at IS NULL;

-- Events on their way to one subscriber, delivered in the order of id.
CREATE TABLE deliveries (
    id BIGSERIAL NOT NULL,
    subscriber TEXT NOT NULL,
    event_id BIGINT NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE NOT NULL,
    CONSTRAINT deliveries_pkey PRIMARY KEY (id),
    CONSTRAINT deliveries_event_fkey FOREIGN KEY(event_id) REFERENCES events (id) ON DELETE CASCADE
);
CREATE INDEX deliveries_event ON deliveries (event_id);
CREATE INDEX deliveries_subscriber ON deliveries (subscriber, id);

-- Rate limits, budgets and the ledger of calls

-- What all workers share about a source: pauses, circuit breaker, budgets.
CREATE TABLE sources (
    name TEXT NOT NULL,
    paused_at TIMESTAMP WITH TIME ZONE,
    paused_by TEXT,
    pause_reason TEXT,
    failure_streak INTEGER DEFAULT 0 NOT NULL,
    opened_until TIMESTAMP WITH TIME ZONE,
    probe_until TIMESTAMP WITH TIME ZONE,
    last_success_at TIMESTAMP WITH TIME ZONE,
    last_failure_at TIMESTAMP WITH TIME ZONE,
    last_failure TEXT,
    day TEXT,
    day_credits BIGINT DEFAULT 0 NOT NULL,
    month_credits BIGINT DEFAULT 0 NOT NULL,
    day_cap BIGINT,
    month_cap BIGINT,
    CONSTRAINT sources_pkey PRIMARY KEY (name),
    CONSTRAINT sources_a_pause_has_its_cause CHECK ((paused_at IS NULL) = (paused_by IS NULL))
);

-- API keys by their label. A fingerprint tells whether a refused key was replaced; the key itself is not stored.
CREATE TABLE source_keys (
    source TEXT NOT NULL,
    label TEXT NOT NULL,
    rate_per_minute FLOAT,
    slowdown FLOAT DEFAULT 1 NOT NULL,
    slowed_at TIMESTAMP WITH TIME ZONE,
    next_at TIMESTAMP WITH TIME ZONE,
    paused_at TIMESTAMP WITH TIME ZONE,
    pause_reason TEXT,
    balance BIGINT,
    balance_at TIMESTAMP WITH TIME ZONE,
    fingerprint TEXT,
    reconciled_balance BIGINT,
    reconciled_at TIMESTAMP WITH TIME ZONE,
    billed_since TIMESTAMP WITH TIME ZONE,
    CONSTRAINT source_keys_pkey PRIMARY KEY (source, label),
    CONSTRAINT source_keys_source_fkey FOREIGN KEY(source) REFERENCES sources (name)
);

-- Ledger: one row per upstream call, and one per correction by `spend --reconcile`.
CREATE TABLE calls (
    id BIGSERIAL NOT NULL,
    source TEXT NOT NULL,
    key_label TEXT NOT NULL,
    endpoint TEXT NOT NULL,
    at TIMESTAMP WITH TIME ZONE NOT NULL,
    seconds FLOAT NOT NULL,
    status SMALLINT,
    items INTEGER NOT NULL,
    credits INTEGER NOT NULL,
    job_id BIGINT,
    account_id BIGINT,
    error TEXT,
    CONSTRAINT calls_pkey PRIMARY KEY (id)
);
CREATE INDEX calls_at ON calls (at);

-- Sums of pruned calls by day, so that spend stays the same.
CREATE TABLE call_sums (
    day TEXT NOT NULL,
    source TEXT NOT NULL,
    key_label TEXT NOT NULL,
    endpoint TEXT NOT NULL,
    account_id BIGINT NOT NULL,
    calls BIGINT NOT NULL,
    items BIGINT NOT NULL,
    credits BIGINT NOT NULL,
    failures BIGINT NOT NULL,
    CONSTRAINT call_sums_pkey PRIMARY KEY (day, source, key_label, endpoint, account_id),
    CONSTRAINT call_sums_day_is_a_date CHECK (length(day) = 10)
);

-- Users and posts

-- Profiles. A row exists only because a payload contained the user.
CREATE TABLE users (
    platform TEXT NOT NULL,
    id BIGINT NOT NULL,
    handle TEXT,
    handle_key TEXT,
    name TEXT,
    bio TEXT,
    location TEXT,
    website TEXT,
    avatar_url TEXT,
    banner_url TEXT,
    verified BOOLEAN,
    verified_kind TEXT,
    protected BOOLEAN,
    automated BOOLEAN,
    followers_count BIGINT,
    following_count BIGINT,
    posts_count BIGINT,
    media_count BIGINT,
    likes_count BIGINT,
    created_at TIMESTAMP WITH TIME ZONE,
    unavailable_reason TEXT,
    detail TEXT NOT NULL,
    raw JSON NOT NULL,
    first_seen_at TIMESTAMP WITH TIME ZONE NOT NULL,
    last_updated_at TIMESTAMP WITH TIME ZONE NOT NULL,
    profiled_at TIMESTAMP WITH TIME ZONE,
    ingest_id BIGINT,
    CONSTRAINT users_pkey PRIMARY KEY (platform, id),
    CONSTRAINT users_platform_is_known CHECK (platform IN ('x', 'threads')),
    CONSTRAINT users_detail_is_known CHECK (detail IN ('author', 'listed', 'profile'))
);
CREATE INDEX users_handle ON users (handle_key, platform);
CREATE INDEX users_profiled_at ON users (profiled_at, platform);

-- Earlier handle, name, bio and avatar of a user, until the time of the change.
CREATE TABLE user_versions (
    platform TEXT NOT NULL,
    user_id BIGINT NOT NULL,
    until TIMESTAMP WITH TIME ZONE NOT NULL,
    handle TEXT,
    handle_key TEXT,
    name TEXT,
    bio TEXT,
    avatar_url TEXT,
    CONSTRAINT user_versions_pkey PRIMARY KEY (platform, user_id, until),
    CONSTRAINT user_versions_user_fkey FOREIGN KEY(platform, user_id) REFERENCES users (platform, id)
);
CREATE INDEX user_versions_handle ON user_versions (platform, handle_key);

-- Tracked users and how far their posts are collected.
CREATE TABLE accounts (
    platform TEXT NOT NULL,
    user_id BIGINT NOT NULL,
    state TEXT NOT NULL,
    state_reason TEXT,
    state_since TIMESTAMP WITH TIME ZONE NOT NULL,
    tracked_at TIMESTAMP WITH TIME ZONE NOT NULL,
    oldest_post_id BIGINT,
    newest_post_id BIGINT,
    newest_repost_id BIGINT,
    backfilled_at TIMESTAMP WITH TIME ZONE,
    reposts_backfilled_at TIMESTAMP WITH TIME ZONE,
    next_look_at TIMESTAMP WITH TIME ZONE,
    last_fetched_at TIMESTAMP WITH TIME ZONE,
    fetches INTEGER DEFAULT 0 NOT NULL,
    empty_fetches INTEGER DEFAULT 0 NOT NULL,
    posts_found BIGINT DEFAULT 0 NOT NULL,
    last_fetched_count INTEGER,
    last_new_count INTEGER,
    new_rate FLOAT DEFAULT 0 NOT NULL,
    fetch_limit INTEGER,
    suspect_since TIMESTAMP WITH TIME ZONE,
    suspect_looks INTEGER DEFAULT 0 NOT NULL,
    CONSTRAINT accounts_pkey PRIMARY KEY (platform, user_id),
    CONSTRAINT accounts_user_fkey FOREIGN KEY(platform, user_id) REFERENCES users (platform, id),
    CONSTRAINT accounts_state_is_known CHECK (state IN ('active', 'protected', 'suspended', 'vanished', 'untracked')),
    CONSTRAINT accounts_boundaries_are_in_order CHECK (oldest_post_id <= newest_post_id)
);
CREATE INDEX accounts_next_look_at ON accounts (next_look_at) WHERE next_look_at IS NOT NULL;

-- Handles proposed for tracking, and what became of them.
CREATE TABLE suggestions (
    id BIGSERIAL NOT NULL,
    platform TEXT NOT NULL,
    handle TEXT NOT NULL,
    handle_key TEXT NOT NULL,
    wallet TEXT,
    labels JSON NOT NULL,
    suggested_at TIMESTAMP WITH TIME ZONE NOT NULL,
    deleted_at TIMESTAMP WITH TIME ZONE,
    outcome TEXT,
    reason TEXT,
    user_id BIGINT,
    withdrawn_at TIMESTAMP WITH TIME ZONE,
    CONSTRAINT suggestions_pkey PRIMARY KEY (id),
    CONSTRAINT suggestions_platform_is_known CHECK (platform IN ('x', 'threads')),
    CONSTRAINT suggestions_outcome_is_known CHECK (outcome IN ('accepted', 'refused')),
    CONSTRAINT suggestions_closed_ones_have_an_outcome CHECK ((deleted_at IS NULL) = (outcome IS NULL))
);
CREATE UNIQUE INDEX suggestions_live_handle ON suggestions (platform, handle_key) WHERE deleted_at IS NULL;

-- Posts of tracked accounts and others. Rows are updated, never deleted.
CREATE TABLE posts (
    platform TEXT NOT NULL,
    id BIGINT NOT NULL,
    author_id BIGINT NOT NULL,
    text TEXT NOT NULL,
    text_clean TEXT NOT NULL,
    search_text TEXT,
    lang TEXT,
    url TEXT,
    created_at TIMESTAMP WITH TIME ZONE NOT NULL,
    conversation_id BIGINT,
    in_reply_to_id BIGINT,
    in_reply_to_user_id BIGINT,
    quoted_id BIGINT,
    reposted_id BIGINT,
    referenced_text TEXT,
    referenced_handle TEXT,
    referenced_media JSON,
    media JSON,
    links JSON,
    likes BIGINT,
    replies BIGINT,
    reposts BIGINT,
    quotes BIGINT,
    bookmarks BIGINT,
    views BIGINT,
    nested BOOLEAN DEFAULT false NOT NULL,
    raw JSON NOT NULL,
    first_seen_at TIMESTAMP WITH TIME ZONE NOT NULL,
    last_updated_at TIMESTAMP WITH TIME ZONE NOT NULL,
    ingest_id BIGINT,
    referenced_text_clean TEXT,
    CONSTRAINT posts_pkey PRIMARY KEY (platform, id),
    CONSTRAINT posts_author_fkey FOREIGN KEY(platform, author_id) REFERENCES users (platform, id),
    CONSTRAINT posts_platform_is_known CHECK (platform IN ('x', 'threads'))
);
CREATE INDEX posts_author ON posts (platform, author_id, id);
CREATE INDEX posts_conversation ON posts (platform, conversation_id, id);
CREATE INDEX posts_created_at ON posts (created_at, platform, id);
-- After posts_created_at: of two indexes that seem to cost the same, PostgreSQL takes the one that was made last.
CREATE INDEX posts_author_time ON posts (platform, author_id, created_at, id);
CREATE INDEX posts_first_seen_at ON posts (first_seen_at);

-- Full-text search. Only the first part of a post is indexed: a tsvector has a maximum size.
CREATE INDEX posts_search ON posts USING gin
    (to_tsvector('simple'::regconfig, left(coalesce(search_text, text_clean), 200000)));

-- LZ4 reads faster than the default compression, where this server has it.
-- EXECUTE, because PostgreSQL 13 cannot parse the statement.
DO $$
BEGIN
    IF EXISTS (
        SELECT 1 FROM pg_settings WHERE name = 'default_toast_compression' AND 'lz4' = ANY (enumvals)
    ) THEN
        EXECUTE 'ALTER TABLE posts ALTER COLUMN raw SET COMPRESSION lz4';
        EXECUTE 'ALTER TABLE users ALTER COLUMN raw SET COMPRESSION lz4';
    END IF;
END
$$;

-- Ids that the source did not return when they were requested. They are not requested again unless forced.
CREATE TABLE missing (
    platform TEXT NOT NULL,
    what TEXT NOT NULL,
    id BIGINT NOT NULL,
    reason TEXT NOT NULL,
    asked_at TIMESTAMP WITH TIME ZONE NOT NULL,
    times_asked INTEGER DEFAULT 1 NOT NULL,
    CONSTRAINT missing_pkey PRIMARY KEY (platform, what, id),
    CONSTRAINT missing_platform_is_known CHECK (platform IN ('x', 'threads')),
    CONSTRAINT missing_what_is_known CHECK (what IN ('user', 'post'))
);

-- Payloads that could not be read, complete, to be parsed again later.
CREATE TABLE quarantine (
    id BIGSERIAL NOT NULL,
    platform TEXT NOT NULL,
    endpoint TEXT NOT NULL,
    digest TEXT NOT NULL,
    problem TEXT NOT NULL,
    payload BYTEA NOT NULL,
    first_seen_at TIMESTAMP WITH TIME ZONE NOT NULL,
    last_seen_at TIMESTAMP WITH TIME ZONE NOT NULL,
    times_seen INTEGER DEFAULT 1 NOT NULL,
    resolved_at TIMESTAMP WITH TIME ZONE,
    CONSTRAINT quarantine_pkey PRIMARY KEY (id),
    CONSTRAINT quarantine_platform_is_known CHECK (platform IN ('x', 'threads'))
);
CREATE UNIQUE INDEX quarantine_payload ON quarantine (platform, endpoint, digest);
CREATE INDEX quarantine_resolved_at ON quarantine (resolved_at);
CREATE INDEX quarantine_unresolved ON quarantine (id) WHERE resolved_at IS NULL;

-- Requests for users, posts or follows, and their result.
CREATE TABLE ingest_events (
    id BIGSERIAL NOT NULL,
    platform TEXT NOT NULL,
    kind TEXT NOT NULL,
    status TEXT NOT NULL,
    subject_id BIGINT,
    mode TEXT,
    asked_by TEXT NOT NULL,
    job_id BIGINT,
    started_at TIMESTAMP WITH TIME ZONE NOT NULL,
    finished_at TIMESTAMP WITH TIME ZONE,
    calls INTEGER DEFAULT 0 NOT NULL,
    items INTEGER DEFAULT 0 NOT NULL,
    plausible BOOLEAN,
    endpoint TEXT,
    http_status SMALLINT,
    exchange JSON,
    problem TEXT,
    CONSTRAINT ingest_events_pkey PRIMARY KEY (id),
    CONSTRAINT ingest_events_platform_is_known CHECK (platform IN ('x', 'threads')),
    CONSTRAINT ingest_events_kind_is_known
        CHECK (kind IN ('users_by_ids', 'posts_by_ids', 'followers_sync', 'followings_sync', 'posts_sync',
        'webhook')),
    CONSTRAINT ingest_events_status_is_known CHECK (status IN ('in_progress', 'success', 'error', 'cancelled')),
    CONSTRAINT ingest_events_finished_ones_say_when CHECK ((finished_at IS NULL) = (status = 'in_progress'))
);
CREATE UNIQUE INDEX ingest_events_open ON ingest_events (job_id) WHERE status = 'in_progress';
CREATE INDEX ingest_events_started_at ON ingest_events (started_at);
CREATE INDEX ingest_events_subject ON ingest_events (platform, kind, subject_id, id);

-- The ids that an ingest requested.
CREATE TABLE ingest_ids (
    ingest_id BIGINT NOT NULL,
    id BIGINT NOT NULL,
    CONSTRAINT ingest_ids_pkey PRIMARY KEY (ingest_id, id),
    CONSTRAINT ingest_ids_ingest_fkey FOREIGN KEY(ingest_id) REFERENCES ingest_events (id) ON DELETE CASCADE
);

-- Threads accounts that are polled. Removed ones stay.
CREATE TABLE feeds (
    id BIGSERIAL NOT NULL,
    platform TEXT NOT NULL,
    handle TEXT NOT NULL,
    handle_key TEXT NOT NULL,
    user_id BIGINT,
    state TEXT NOT NULL,
    reason TEXT,
    every_seconds FLOAT,
    added_at TIMESTAMP WITH TIME ZONE NOT NULL,
    removed_at TIMESTAMP WITH TIME ZONE,
    newest_post_at TIMESTAMP WITH TIME ZONE,
    newest_reply_at TIMESTAMP WITH TIME ZONE,
    polled_at TIMESTAMP WITH TIME ZONE,
    posts BIGINT DEFAULT 0 NOT NULL,
    CONSTRAINT feeds_pkey PRIMARY KEY (id),
    CONSTRAINT feeds_user_fkey FOREIGN KEY(platform, user_id) REFERENCES users (platform, id),
    CONSTRAINT feeds_platform_is_known CHECK (platform IN ('x', 'threads')),
    CONSTRAINT feeds_state_is_known CHECK (state IN ('new', 'active', 'refused', 'removed'))
);
CREATE UNIQUE INDEX feeds_live ON feeds (platform, handle_key) WHERE state <> 'removed';

-- Links, products and crawling

-- Things for sale, one row for each platform, region, shop and item id.
CREATE TABLE products (
    id BIGSERIAL NOT NULL,
    platform TEXT NOT NULL,
    region TEXT DEFAULT '' NOT NULL,
    shop_id TEXT DEFAULT '' NOT NULL,
    item_id TEXT NOT NULL,
    url TEXT NOT NULL,
    title TEXT,
    brand TEXT,
    sku TEXT,
    image_url TEXT,
    first_seen_at TIMESTAMP WITH TIME ZONE NOT NULL,
    last_seen_at TIMESTAMP WITH TIME ZONE NOT NULL,
    gone_at TIMESTAMP WITH TIME ZONE,
    offer_id BIGINT,
    CONSTRAINT products_pkey PRIMARY KEY (id)
);
CREATE UNIQUE INDEX products_identity ON products (platform, region, shop_id, item_id);
CREATE INDEX products_platform ON products (platform, id);

-- URLs found in posts, one row per canonical URL.
CREATE TABLE links (
    id BIGSERIAL NOT NULL,
    url_norm TEXT NOT NULL,
    url TEXT NOT NULL,
    host TEXT NOT NULL,
    lane TEXT NOT NULL,
    platform TEXT NOT NULL,
    kind TEXT NOT NULL,
    state TEXT NOT NULL,
    region TEXT,
    shop_id TEXT,
    item_id TEXT,
    leads_to BIGINT,
    product_id BIGINT,
    problem TEXT,
    first_seen_at TIMESTAMP WITH TIME ZONE NOT NULL,
    crawled_at TIMESTAMP WITH TIME ZONE,
    content_hash TEXT,
    CONSTRAINT links_pkey PRIMARY KEY (id),
    CONSTRAINT links_leads_to_fkey FOREIGN KEY(leads_to) REFERENCES links (id),
    CONSTRAINT links_product_fkey FOREIGN KEY(product_id) REFERENCES products (id),
    CONSTRAINT links_kind_is_known
        CHECK (kind IN ('item', 'catalogue', 'shop', 'search', 'short', 'code', 'blocked', 'dead', 'page',
        'refused')),
    CONSTRAINT links_state_is_known
        CHECK (state IN ('new', 'crawled', 'resolved', 'unresolved', 'blocked', 'gone', 'failed'))
);
CREATE INDEX links_crawled_at ON links (crawled_at, id) WHERE state = 'crawled';
CREATE INDEX links_kind ON links (kind, lane, state, id);
CREATE INDEX links_lane_state ON links (lane, state, id);
CREATE INDEX links_leads_to ON links (leads_to) WHERE leads_to IS NOT NULL;
CREATE INDEX links_product ON links (product_id);
CREATE UNIQUE INDEX links_url_norm ON links (url_norm);

-- Which post contains which link, where, and as written there.
CREATE TABLE post_links (
    platform TEXT NOT NULL,
    post_id BIGINT NOT NULL,
    link_id BIGINT NOT NULL,
    place TEXT NOT NULL,
    nr SMALLINT NOT NULL,
    url TEXT NOT NULL,
    seen_at TIMESTAMP WITH TIME ZONE NOT NULL,
    CONSTRAINT post_links_pkey PRIMARY KEY (platform, post_id, link_id, place),
    CONSTRAINT post_links_post_fkey FOREIGN KEY(platform, post_id) REFERENCES posts (platform, id),
    CONSTRAINT post_links_link_fkey FOREIGN KEY(link_id) REFERENCES links (id),
    CONSTRAINT post_links_place_is_known
        CHECK (place IN ('text', 'entity', 'attachment', 'text_attachment', 'quoted'))
);
CREATE INDEX post_links_link ON post_links (link_id, platform, post_id);

-- Price and availability of a product as one page showed it. An unchanged page only moves last_seen_at.
CREATE TABLE offers (
    id BIGSERIAL NOT NULL,
    product_id BIGINT NOT NULL,
    link_id BIGINT,
    observed_at TIMESTAMP WITH TIME ZONE NOT NULL,
    last_seen_at TIMESTAMP WITH TIME ZONE NOT NULL,
    times_seen INTEGER DEFAULT 1 NOT NULL,
    amount NUMERIC,
    amount_max NUMERIC,
    list_amount NUMERIC,
    currency TEXT,
    availability TEXT,
    sold_count BIGINT,
    rating_count BIGINT,
    content_hash TEXT NOT NULL,
    path TEXT NOT NULL,
    confidence FLOAT NOT NULL,
    evidence JSON NOT NULL,
    doubt TEXT,
    CONSTRAINT offers_pkey PRIMARY KEY (id),
    CONSTRAINT offers_product_fkey FOREIGN KEY(product_id) REFERENCES products (id),
    CONSTRAINT offers_link_fkey FOREIGN KEY(link_id) REFERENCES links (id),
    CONSTRAINT offers_amounts_have_a_currency CHECK (amount IS NULL OR currency IS NOT NULL),
    CONSTRAINT offers_currency_is_iso CHECK (currency IS NULL OR length(currency) = 3)
);
CREATE INDEX offers_product ON offers (product_id, observed_at, id);

-- Visits to links and their outcomes. Pruned after crawls_days.
CREATE TABLE crawls (
    id BIGSERIAL NOT NULL,
    link_id BIGINT NOT NULL,
    product_id BIGINT,
    offer_id BIGINT,
    job_id BIGINT,
    at TIMESTAMP WITH TIME ZONE NOT NULL,
    outcome TEXT NOT NULL,
    http_status SMALLINT,
    final_url TEXT,
    bytes INTEGER,
    duration_ms INTEGER,
    content_hash TEXT,
    problem TEXT,
    body BYTEA,
    CONSTRAINT crawls_pkey PRIMARY KEY (id),
    CONSTRAINT crawls_link_fkey FOREIGN KEY(link_id) REFERENCES links (id),
    CONSTRAINT crawls_product_fkey FOREIGN KEY(product_id) REFERENCES products (id),
    CONSTRAINT crawls_offer_fkey FOREIGN KEY(offer_id) REFERENCES offers (id),
    CONSTRAINT crawls_outcome_is_known
        CHECK (outcome IN ('offer', 'unchanged', 'doubted', 'no_price', 'resolved', 'blocked', 'gone', 'unreadable',
        'refused', 'failed'))
);
CREATE INDEX crawls_at ON crawls (at);
CREATE INDEX crawls_link ON crawls (link_id, id);

-- HTTP responses that are reused while fresh: robots.txt and, with crawl_cache, pages.
CREATE TABLE cached_answers (
    key TEXT NOT NULL,
    source TEXT NOT NULL,
    stored_at TIMESTAMP WITH TIME ZONE NOT NULL,
    fresh_until TIMESTAMP WITH TIME ZONE NOT NULL,
    status SMALLINT NOT NULL,
    headers JSON NOT NULL,
    body BYTEA NOT NULL,
    CONSTRAINT cached_answers_pkey PRIMARY KEY (key)
);
CREATE INDEX cached_answers_source ON cached_answers (source, fresh_until);
CREATE INDEX cached_answers_stored_at ON cached_answers (stored_at);

-- When each host may be visited next, by any worker.
CREATE TABLE hosts (
    host TEXT NOT NULL,
    next_at TIMESTAMP WITH TIME ZONE NOT NULL,
    delay_seconds FLOAT,
    CONSTRAINT hosts_pkey PRIMARY KEY (host)
);

-- Words of product titles, to match products with items.
CREATE TABLE product_words (
    product_id BIGINT NOT NULL,
    word TEXT NOT NULL,
    lane TEXT NOT NULL,
    CONSTRAINT product_words_pkey PRIMARY KEY (product_id, word),
    CONSTRAINT product_words_product_fkey FOREIGN KEY(product_id) REFERENCES products (id)
);
CREATE INDEX product_words_word ON product_words (lane, word, product_id);

-- Follow graph and segments

-- Who follows whom: one row per edge ever seen.
CREATE TABLE follows (
    platform TEXT NOT NULL,
    follower_id BIGINT NOT NULL,
    followed_id BIGINT NOT NULL,
    first_seen_at TIMESTAMP WITH TIME ZONE NOT NULL,
    last_seen_at TIMESTAMP WITH TIME ZONE NOT NULL,
    seen_in BIGINT NOT NULL,
    missed_in BIGINT,
    ended_at TIMESTAMP WITH TIME ZONE,
    CONSTRAINT follows_pkey PRIMARY KEY (platform, follower_id, followed_id),
    CONSTRAINT follows_follower_fkey FOREIGN KEY(platform, follower_id) REFERENCES users (platform, id),
    CONSTRAINT follows_followed_fkey FOREIGN KEY(platform, followed_id) REFERENCES users (platform, id),
    CONSTRAINT follows_nobody_follows_himself CHECK (follower_id <> followed_id)
);
CREATE INDEX follows_followed ON follows (platform, followed_id, follower_id);

-- Changes of edges, with their cause as far as it is known.
CREATE TABLE follow_events (
    id BIGSERIAL NOT NULL,
    platform TEXT NOT NULL,
    follower_id BIGINT NOT NULL,
    followed_id BIGINT NOT NULL,
    kind TEXT NOT NULL,
    cause TEXT NOT NULL,
    at TIMESTAMP WITH TIME ZONE NOT NULL,
    ingest_id BIGINT,
    CONSTRAINT follow_events_pkey PRIMARY KEY (id),
    CONSTRAINT follow_events_edge_fkey FOREIGN KEY(platform, follower_id, followed_id)
        REFERENCES follows (platform, follower_id, followed_id),
    CONSTRAINT follow_events_kind_is_known CHECK (kind IN ('followed', 'unfollowed')),
    CONSTRAINT follow_events_cause_is_known CHECK (cause IN ('seen', 'pushed', 'unfollowed', 'suspended', 'vanished'))
);
CREATE INDEX follow_events_followed ON follow_events (platform, followed_id, id);
CREATE INDEX follow_events_follower ON follow_events (platform, follower_id, id);

-- Named sets of users or posts, and their rules.
CREATE TABLE segments (
    id BIGSERIAL NOT NULL,
    name TEXT NOT NULL,
    what TEXT NOT NULL,
    rule JSON NOT NULL,
    enabled BOOLEAN DEFAULT true NOT NULL,
    every_seconds FLOAT,
    fresh_seconds FLOAT,
    created_at TIMESTAMP WITH TIME ZONE NOT NULL,
    changed_at TIMESTAMP WITH TIME ZONE NOT NULL,
    materialized_at TIMESTAMP WITH TIME ZONE,
    next_at TIMESTAMP WITH TIME ZONE,
    CONSTRAINT segments_pkey PRIMARY KEY (id),
    CONSTRAINT segments_what_is_known CHECK (what IN ('users', 'posts'))
);
CREATE UNIQUE INDEX segments_name ON segments (name);
CREATE INDEX segments_next_at ON segments (next_at);

-- Users listed by hand as the input of a segment.
CREATE TABLE segment_inputs (
    segment_id BIGINT NOT NULL,
    platform TEXT NOT NULL,
    user_id BIGINT NOT NULL,
    added_at TIMESTAMP WITH TIME ZONE NOT NULL,
    CONSTRAINT segment_inputs_pkey PRIMARY KEY (segment_id, platform, user_id),
    CONSTRAINT segment_inputs_segment_fkey FOREIGN KEY(segment_id) REFERENCES segments (id) ON DELETE CASCADE,
    CONSTRAINT segment_inputs_user_fkey FOREIGN KEY(platform, user_id) REFERENCES users (platform, id)
);

-- Each computation of a segment, with its result in numbers.
CREATE TABLE segment_snapshots (
    id BIGSERIAL NOT NULL,
    segment_id BIGINT NOT NULL,
    at TIMESTAMP WITH TIME ZONE NOT NULL,
    members INTEGER NOT NULL,
    entered INTEGER NOT NULL,
    departed INTEGER NOT NULL,
    ingests JSON NOT NULL,
    CONSTRAINT segment_snapshots_pkey PRIMARY KEY (id),
    CONSTRAINT segment_snapshots_segment_fkey FOREIGN KEY(segment_id) REFERENCES segments (id) ON DELETE CASCADE
);
CREATE INDEX segment_snapshots_segment ON segment_snapshots (segment_id, at);

-- Members of a segment as of its last computation.
CREATE TABLE segment_members (
    id BIGSERIAL NOT NULL,
    segment_id BIGINT NOT NULL,
    platform TEXT NOT NULL,
    user_id BIGINT,
    post_id BIGINT,
    since TIMESTAMP WITH TIME ZONE NOT NULL,
    CONSTRAINT segment_members_pkey PRIMARY KEY (id),
    CONSTRAINT segment_members_segment_fkey FOREIGN KEY(segment_id) REFERENCES segments (id) ON DELETE CASCADE,
    CONSTRAINT segment_members_user_fkey FOREIGN KEY(platform, user_id) REFERENCES users (platform, id),
    CONSTRAINT segment_members_post_fkey FOREIGN KEY(platform, post_id) REFERENCES posts (platform, id),
    CONSTRAINT segment_members_a_user_or_a_post CHECK ((user_id IS NULL) <> (post_id IS NULL))
);
CREATE INDEX segment_members_order ON segment_members (segment_id, id);
CREATE UNIQUE INDEX segment_members_post ON segment_members (segment_id, platform, post_id) WHERE post_id IS NOT NULL;
CREATE UNIQUE INDEX segment_members_user ON segment_members (segment_id, platform, user_id) WHERE user_id IS NOT NULL;

-- Members that entered and left. For one member the two alternate, beginning with entered.
CREATE TABLE segment_events (
    id BIGSERIAL NOT NULL,
    segment_id BIGINT NOT NULL,
    snapshot_id BIGINT NOT NULL,
    platform TEXT NOT NULL,
    user_id BIGINT,
    post_id BIGINT,
    kind TEXT NOT NULL,
    at TIMESTAMP WITH TIME ZONE NOT NULL,
    CONSTRAINT segment_events_pkey PRIMARY KEY (id),
    CONSTRAINT segment_events_snapshot_fkey FOREIGN KEY(snapshot_id)
        REFERENCES segment_snapshots (id) ON DELETE CASCADE,
    CONSTRAINT segment_events_user_fkey FOREIGN KEY(platform, user_id) REFERENCES users (platform, id),
    CONSTRAINT segment_events_post_fkey FOREIGN KEY(platform, post_id) REFERENCES posts (platform, id),
    CONSTRAINT segment_events_a_user_or_a_post CHECK ((user_id IS NULL) <> (post_id IS NULL)),
    CONSTRAINT segment_events_kind_is_known CHECK (kind IN ('entered', 'left'))
);
CREATE INDEX segment_events_post ON segment_events (segment_id, platform, post_id, id) WHERE post_id IS NOT NULL;
CREATE INDEX segment_events_segment ON segment_events (segment_id, id);
CREATE INDEX segment_events_snapshot ON segment_events (snapshot_id);
CREATE INDEX segment_events_user ON segment_events (segment_id, platform, user_id, id) WHERE user_id IS NOT NULL;

-- Items, prices and valuations

-- Things whose price is followed.
CREATE TABLE items (
    id BIGSERIAL NOT NULL,
    ref TEXT,
    title TEXT NOT NULL,
    attributes JSON NOT NULL,
    exclude JSON NOT NULL,
    sources JSON NOT NULL,
    urls JSON NOT NULL,
    currency TEXT,
    every_hours FLOAT,
    digest TEXT NOT NULL,
    state TEXT NOT NULL,
    added_at TIMESTAMP WITH TIME ZONE NOT NULL,
    changed_at TIMESTAMP WITH TIME ZONE NOT NULL,
    next_look_at TIMESTAMP WITH TIME ZONE NOT NULL,
    CONSTRAINT items_pkey PRIMARY KEY (id),
    CONSTRAINT items_state_is_known CHECK (state IN ('active', 'paused', 'removed')),
    CONSTRAINT items_currency_is_iso CHECK (currency IS NULL OR length(currency) = 3),
    CONSTRAINT items_some_time_passes CHECK (every_hours IS NULL OR every_hours > 0)
);
CREATE INDEX items_due ON items (next_look_at, id) WHERE state = 'active';
CREATE UNIQUE INDEX items_ref ON items (ref) WHERE ref IS NOT NULL AND state <> 'removed';
CREATE INDEX items_state ON items (state, id);
CREATE UNIQUE INDEX items_wish ON items (digest) WHERE ref IS NULL AND state <> 'removed';

-- The latest check of each source for each item.
CREATE TABLE item_looks (
    item_id BIGINT NOT NULL,
    source TEXT NOT NULL,
    looked_at TIMESTAMP WITH TIME ZONE NOT NULL,
    listings INTEGER DEFAULT 0 NOT NULL,
    points INTEGER DEFAULT 0 NOT NULL,
    found_at TIMESTAMP WITH TIME ZONE,
    problem TEXT,
    CONSTRAINT item_looks_pkey PRIMARY KEY (item_id, source),
    CONSTRAINT item_looks_item_fkey FOREIGN KEY(item_id) REFERENCES items (id)
);
CREATE INDEX item_looks_looked_at ON item_looks (looked_at);

-- Links whose pages give an item's price directly.
CREATE TABLE item_links (
    link_id BIGINT NOT NULL,
    item_id BIGINT NOT NULL,
    CONSTRAINT item_links_pkey PRIMARY KEY (link_id, item_id),
    CONSTRAINT item_links_link_fkey FOREIGN KEY(link_id) REFERENCES links (id),
    CONSTRAINT item_links_item_fkey FOREIGN KEY(item_id) REFERENCES items (id)
);
CREATE INDEX item_links_item ON item_links (item_id);

-- Prices asked, bid or paid for an item, one row for each item, source and dedupe key.
CREATE TABLE price_points (
    id BIGSERIAL NOT NULL,
    item_id BIGINT NOT NULL,
    source TEXT NOT NULL,
    dedupe_key TEXT NOT NULL,
    kind TEXT NOT NULL,
    amount NUMERIC NOT NULL,
    currency TEXT NOT NULL,
    condition TEXT,
    title TEXT NOT NULL,
    url TEXT NOT NULL,
    external_id TEXT,
    bid_count INTEGER,
    match_strength FLOAT NOT NULL,
    observed_at TIMESTAMP WITH TIME ZONE NOT NULL,
    first_seen_at TIMESTAMP WITH TIME ZONE NOT NULL,
    last_seen_at TIMESTAMP WITH TIME ZONE NOT NULL,
    times_seen INTEGER DEFAULT 1 NOT NULL,
    product_id BIGINT,
    offer_id BIGINT,
    doubt TEXT,
    CONSTRAINT price_points_pkey PRIMARY KEY (id),
    CONSTRAINT price_points_item_fkey FOREIGN KEY(item_id) REFERENCES items (id),
    CONSTRAINT price_points_product_fkey FOREIGN KEY(product_id) REFERENCES products (id),
    CONSTRAINT price_points_offer_fkey FOREIGN KEY(offer_id) REFERENCES offers (id),
    CONSTRAINT price_points_kind_is_known CHECK (kind IN ('sold', 'ask', 'bid')),
    CONSTRAINT price_points_currency_is_iso CHECK (length(currency) = 3),
    CONSTRAINT price_points_a_bid_was_made CHECK (kind <> 'bid' OR coalesce(bid_count, 0) >= 1),
    CONSTRAINT price_points_strength_is_a_share CHECK (match_strength BETWEEN 0 AND 1)
);
CREATE UNIQUE INDEX price_points_identity ON price_points (item_id, source, dedupe_key);
CREATE INDEX price_points_item ON price_points (item_id, id);
CREATE INDEX price_points_product ON price_points (product_id, item_id);

-- What a price point said before a better source replaced it.
CREATE TABLE price_point_versions (
    point_id BIGINT NOT NULL,
    nr INTEGER NOT NULL,
    kind TEXT NOT NULL,
    amount NUMERIC NOT NULL,
    currency TEXT NOT NULL,
    match_strength FLOAT NOT NULL,
    observed_at TIMESTAMP WITH TIME ZONE NOT NULL,
    replaced_at TIMESTAMP WITH TIME ZONE NOT NULL,
    CONSTRAINT price_point_versions_pkey PRIMARY KEY (point_id, nr),
    CONSTRAINT price_point_versions_point_fkey FOREIGN KEY(point_id) REFERENCES price_points (id)
);

-- The current value of each item. No row: there is not enough evidence.
CREATE TABLE valuations (
    item_id BIGINT NOT NULL,
    estimate NUMERIC NOT NULL,
    low NUMERIC NOT NULL,
    high NUMERIC NOT NULL,
    currency TEXT NOT NULL,
    points INTEGER NOT NULL,
    points_left_out INTEGER NOT NULL,
    confidence FLOAT NOT NULL,
    newest_at TIMESTAMP WITH TIME ZONE NOT NULL,
    carriers JSON NOT NULL,
    left_out JSON NOT NULL,
    valued_at TIMESTAMP WITH TIME ZONE NOT NULL,
    CONSTRAINT valuations_pkey PRIMARY KEY (item_id),
    CONSTRAINT valuations_item_fkey FOREIGN KEY(item_id) REFERENCES items (id)
);

-- Values of items over time, the current one included.
CREATE TABLE valuation_history (
    id BIGSERIAL NOT NULL,
    item_id BIGINT NOT NULL,
    estimate NUMERIC NOT NULL,
    low NUMERIC NOT NULL,
    high NUMERIC NOT NULL,
    currency TEXT NOT NULL,
    points INTEGER NOT NULL,
    points_left_out INTEGER NOT NULL,
    confidence FLOAT NOT NULL,
    newest_at TIMESTAMP WITH TIME ZONE NOT NULL,
    carriers JSON NOT NULL,
    left_out JSON NOT NULL,
    valued_at TIMESTAMP WITH TIME ZONE NOT NULL,
    ended_at TIMESTAMP WITH TIME ZONE,
    CONSTRAINT valuation_history_pkey PRIMARY KEY (id),
    CONSTRAINT valuation_history_item_fkey FOREIGN KEY(item_id) REFERENCES items (id)
);
CREATE INDEX valuation_history_item ON valuation_history (item_id, id);

-- Exchange rates by day.
CREATE TABLE currency_rates (
    base TEXT NOT NULL,
    quote TEXT NOT NULL,
    day TEXT NOT NULL,
    rate NUMERIC NOT NULL,
    origin TEXT,
    told_at TIMESTAMP WITH TIME ZONE NOT NULL,
    CONSTRAINT currency_rates_pkey PRIMARY KEY (base, quote, day),
    CONSTRAINT currency_rates_currencies_are_iso CHECK (length(base) = 3 AND length(quote) = 3 AND base <> quote),
    CONSTRAINT currency_rates_day_is_a_date CHECK (length(day) = 10)
);
CREATE INDEX currency_rates_quote ON currency_rates (quote, base, day);

-- Listings that could not be read, once per source and payload.
CREATE TABLE odd_listings (
    id BIGSERIAL NOT NULL,
    source TEXT NOT NULL,
    item_id BIGINT NOT NULL,
    digest TEXT NOT NULL,
    problem TEXT NOT NULL,
    payload BYTEA NOT NULL,
    first_seen_at TIMESTAMP WITH TIME ZONE NOT NULL,
    last_seen_at TIMESTAMP WITH TIME ZONE NOT NULL,
    times_seen INTEGER DEFAULT 1 NOT NULL,
    CONSTRAINT odd_listings_pkey PRIMARY KEY (id),
    CONSTRAINT odd_listings_item_fkey FOREIGN KEY(item_id) REFERENCES items (id)
);
CREATE UNIQUE INDEX odd_listings_identity ON odd_listings (source, digest);

-- Price alerts on a product or an item. Removed ones stay.
CREATE TABLE price_watches (
    id BIGSERIAL NOT NULL,
    item_id BIGINT,
    product_id BIGINT,
    kind TEXT NOT NULL,
    percent FLOAT,
    target NUMERIC,
    currency TEXT,
    state TEXT NOT NULL,
    automatic BOOLEAN DEFAULT false NOT NULL,
    added_at TIMESTAMP WITH TIME ZONE NOT NULL,
    amount NUMERIC,
    amount_currency TEXT,
    availability TEXT,
    known_at TIMESTAMP WITH TIME ZONE,
    rests_on JSON,
    suspected JSON,
    suspected_at TIMESTAMP WITH TIME ZONE,
    problem TEXT,
    told_at TIMESTAMP WITH TIME ZONE,
    events INTEGER DEFAULT 0 NOT NULL,
    CONSTRAINT price_watches_pkey PRIMARY KEY (id),
    CONSTRAINT price_watches_item_fkey FOREIGN KEY(item_id) REFERENCES items (id),
    CONSTRAINT price_watches_product_fkey FOREIGN KEY(product_id) REFERENCES products (id),
    CONSTRAINT price_watches_one_thing_is_watched CHECK ((item_id IS NULL) <> (product_id IS NULL)),
    CONSTRAINT price_watches_kind_is_known CHECK (kind IN ('changed', 'below', 'back_in_stock')),
    CONSTRAINT price_watches_state_is_known CHECK (state IN ('active', 'removed')),
    CONSTRAINT price_watches_a_change_has_a_size CHECK ((kind = 'changed') = (percent IS NOT NULL)),
    CONSTRAINT price_watches_a_target_is_an_amount
        CHECK ((kind = 'below') = (target IS NOT NULL AND currency IS NOT NULL))
);
CREATE INDEX price_watches_active ON price_watches (id) WHERE state = 'active';
CREATE INDEX price_watches_item ON price_watches (item_id, id) WHERE state = 'active';
CREATE INDEX price_watches_product ON price_watches (product_id, id) WHERE state = 'active';

-- Runs, schedules, alerts and access

-- Accounts collected together on request. Finished runs are pruned after run_hours.
CREATE TABLE runs (
    id TEXT NOT NULL,
    kind TEXT NOT NULL,
    status TEXT NOT NULL,
    asked_by TEXT NOT NULL,
    post_limit INTEGER NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE NOT NULL,
    updated_at TIMESTAMP WITH TIME ZONE NOT NULL,
    finished_at TIMESTAMP WITH TIME ZONE,
    CONSTRAINT runs_pkey PRIMARY KEY (id),
    CONSTRAINT runs_status_is_known CHECK (status IN ('pending', 'running', 'completed', 'failed')),
    CONSTRAINT runs_finished_ones_say_when CHECK ((finished_at IS NULL) = (status IN ('pending', 'running')))
);
CREATE INDEX runs_created_at ON runs (created_at);
CREATE UNIQUE INDEX runs_unfinished ON runs (kind) WHERE status IN ('pending', 'running');

-- The accounts of a run and their progress.
CREATE TABLE run_accounts (
    run_id TEXT NOT NULL,
    position INTEGER NOT NULL,
    handle TEXT NOT NULL,
    user_id BIGINT,
    status TEXT NOT NULL,
    total INTEGER DEFAULT 0 NOT NULL,
    "new" INTEGER DEFAULT 0 NOT NULL,
    skipped INTEGER DEFAULT 0 NOT NULL,
    failed INTEGER DEFAULT 0 NOT NULL,
    reason TEXT,
    updated_at TIMESTAMP WITH TIME ZONE NOT NULL,
    CONSTRAINT run_accounts_pkey PRIMARY KEY (run_id, position),
    CONSTRAINT run_accounts_run_fkey FOREIGN KEY(run_id) REFERENCES runs (id) ON DELETE CASCADE,
    CONSTRAINT run_accounts_status_is_known CHECK (status IN ('pending', 'running', 'completed', 'failed'))
);

-- Posts that a run found and that were not stored before.
CREATE TABLE run_posts (
    run_id TEXT NOT NULL,
    platform TEXT NOT NULL,
    post_id BIGINT NOT NULL,
    CONSTRAINT run_posts_pkey PRIMARY KEY (run_id, platform, post_id),
    CONSTRAINT run_posts_run_fkey FOREIGN KEY(run_id) REFERENCES runs (id) ON DELETE CASCADE
);

-- Times at which groups of accounts were collected. The latest of each group is kept.
CREATE TABLE ticks (
    group_name TEXT NOT NULL,
    tick_at TIMESTAMP WITH TIME ZONE NOT NULL,
    made_at TIMESTAMP WITH TIME ZONE NOT NULL,
    holder TEXT NOT NULL,
    fence BIGINT NOT NULL,
    accounts INTEGER NOT NULL,
    jobs INTEGER NOT NULL,
    missed INTEGER NOT NULL,
    CONSTRAINT ticks_pkey PRIMARY KEY (group_name, tick_at)
);
CREATE INDEX ticks_made_at ON ticks (made_at);

-- Conditions that need an operator. At most one is open per rule and subject.
CREATE TABLE alerts (
    id BIGSERIAL NOT NULL,
    rule TEXT NOT NULL,
    subject TEXT NOT NULL,
    severity TEXT NOT NULL,
    message TEXT NOT NULL,
    opened_at TIMESTAMP WITH TIME ZONE NOT NULL,
    last_seen_at TIMESTAMP WITH TIME ZONE NOT NULL,
    closed_at TIMESTAMP WITH TIME ZONE,
    accepted_at TIMESTAMP WITH TIME ZONE,
    accepted_by TEXT,
    CONSTRAINT alerts_pkey PRIMARY KEY (id),
    CONSTRAINT alerts_severity_is_known CHECK (severity IN ('warning', 'critical'))
);
CREATE UNIQUE INDEX alerts_open ON alerts (rule, subject) WHERE closed_at IS NULL;
CREATE INDEX alerts_opened_at ON alerts (opened_at);

-- Digests of tokens for API clients. The tokens themselves are not stored.
CREATE TABLE api_tokens (
    id BIGSERIAL NOT NULL,
    name TEXT NOT NULL,
    scope TEXT NOT NULL,
    digest TEXT NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE NOT NULL,
    last_used_at TIMESTAMP WITH TIME ZONE,
    revoked_at TIMESTAMP WITH TIME ZONE,
    CONSTRAINT api_tokens_pkey PRIMARY KEY (id),
    CONSTRAINT api_tokens_scope_is_known CHECK (scope IN ('read', 'operate', 'admin'))
);
CREATE UNIQUE INDEX api_tokens_digest ON api_tokens (digest);

-- Logins to the dashboard.
CREATE TABLE sessions (
    digest TEXT NOT NULL,
    name TEXT NOT NULL,
    scope TEXT NOT NULL,
    token_id BIGINT,
    csrf TEXT NOT NULL,
    created_at TIMESTAMP WITH TIME ZONE NOT NULL,
    expires_at TIMESTAMP WITH TIME ZONE NOT NULL,
    CONSTRAINT sessions_pkey PRIMARY KEY (digest),
    CONSTRAINT sessions_token_fkey FOREIGN KEY(token_id) REFERENCES api_tokens (id) ON DELETE CASCADE,
    CONSTRAINT sessions_scope_is_known CHECK (scope IN ('read', 'operate', 'admin'))
);
CREATE INDEX sessions_expires_at ON sessions (expires_at);

-- Views for monitoring. They use the database's own clock.

-- Live and finished jobs together. A running job's heartbeat is its worker's, but never before the job began.
CREATE VIEW recent_jobs AS
SELECT
    j.id, j.kind, j.key, j.lane, j.state AS status, j.worker AS locked_by,
    CASE WHEN j.state = 'running' THEN greatest(coalesce(j.started_at, j.created_at),
        coalesce((SELECT w.seen_at FROM workers w WHERE w.name = j.worker),
            coalesce(j.started_at, j.created_at))) END AS heartbeat_at,
    j.created_at, j.started_at,
    CASE WHEN j.state IN ('failed', 'dead') THEN j.run_at END AS completed_at,
    CASE WHEN j.state = 'retryable' THEN j.run_at END AS next_retry_at,
    j.attempts, j.last_error AS error_message
FROM jobs j
UNION ALL
SELECT
    h.id, h.kind, h.key, h.lane, h.state AS status, h.worker AS locked_by,
    CAST(NULL AS timestamptz) AS heartbeat_at,
    h.created_at, h.started_at,
    CASE WHEN h.state IN ('succeeded', 'cancelled') THEN h.finished_at END AS completed_at,
    CAST(NULL AS timestamptz) AS next_retry_at,
    h.attempts,
    (SELECT e.error FROM job_errors e WHERE e.job_id = h.id ORDER BY e.fence DESC LIMIT 1) AS error_message
FROM job_history h;

-- Each source that was called or changed by an operator, and whether it serves.
CREATE VIEW source_health AS
SELECT
    s.name, s.paused_at IS NULL AS enabled, s.failure_streak, s.last_success_at, s.last_failure_at, s.last_failure,
    CASE WHEN s.opened_until > now() THEN s.opened_until END AS paused_until,
    s.pause_reason,
    CASE
        WHEN s.paused_at IS NOT NULL THEN 'paused'
        WHEN s.opened_until > now() THEN 'breaker open'
        WHEN s.opened_until IS NOT NULL THEN 'half-open'
        ELSE 'serving'
    END AS state
FROM sources s;

-- Running jobs whose lease expired. Any worker takes them over; rows that stay mean that no worker runs.
CREATE VIEW stuck_jobs AS
SELECT
    j.id, j.kind, j.lane, j.state AS status, j.worker AS locked_by,
    greatest(coalesce(j.started_at, j.created_at),
        coalesce(w.seen_at, coalesce(j.started_at, j.created_at))) AS heartbeat_at,
    j.lease_until,
    CAST(EXTRACT(EPOCH FROM now() - greatest(coalesce(j.started_at, j.created_at),
            coalesce(w.seen_at, coalesce(j.started_at, j.created_at)))) AS double precision) AS seconds_since_heartbeat
FROM jobs j LEFT JOIN workers w ON w.name = j.worker
WHERE j.state = 'running' AND j.lease_until <= now();
