-- A SQLite database at revision 0010 as the ten migrations left it that are now one. Statements end with a blank line.

CREATE TABLE alembic_version (
    version_num VARCHAR(32) NOT NULL,
    CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);

CREATE TABLE jobs (
    id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    kind TEXT NOT NULL,
    "key" TEXT,
    lane TEXT NOT NULL,
    class SMALLINT NOT NULL,
    state TEXT NOT NULL,
    args JSON NOT NULL,
    attempts SMALLINT DEFAULT 0 NOT NULL,
    max_attempts SMALLINT NOT NULL,
    fence INTEGER DEFAULT 0 NOT NULL,
    run_at VARCHAR(26) NOT NULL,
    created_at VARCHAR(26) NOT NULL,
    started_at VARCHAR(26),
    worker TEXT,
    lease_until VARCHAR(26),
    parked BOOLEAN DEFAULT 0 NOT NULL,
    alone BOOLEAN DEFAULT 0 NOT NULL,
    wait_reason TEXT,
    last_error TEXT,
    CONSTRAINT jobs_state_is_known CHECK (state IN ('pending', 'queued', 'running', 'retryable', 'failed', 'dead')),
    CONSTRAINT jobs_only_running_jobs_are_leased CHECK ((state = 'running') = (worker IS NOT NULL) AND (state = 'running') = (lease_until IS NOT NULL)),
    CONSTRAINT jobs_attempts_within_limit CHECK (attempts >= 0 AND attempts <= max_attempts),
    CONSTRAINT jobs_only_pending_jobs_are_parked CHECK (NOT parked OR state = 'pending'),
    CONSTRAINT jobs_class_is_known CHECK (class BETWEEN 1 AND 9)
);

CREATE UNIQUE INDEX jobs_live_key ON jobs (kind, "key") WHERE key IS NOT NULL AND state IN ('pending', 'queued', 'running', 'retryable');

CREATE INDEX jobs_due ON jobs (kind, lane, run_at, id) WHERE state IN ('pending', 'retryable') AND NOT parked;

CREATE INDEX jobs_leased ON jobs (lease_until) WHERE state = 'running';

CREATE INDEX jobs_parked ON jobs (kind, run_at, id) WHERE parked;

CREATE INDEX jobs_gaps ON jobs (kind, id) WHERE state IN ('failed', 'dead');

CREATE TABLE job_history (
    id INTEGER NOT NULL,
    kind TEXT NOT NULL,
    "key" TEXT,
    lane TEXT NOT NULL,
    class SMALLINT NOT NULL,
    state TEXT NOT NULL,
    args JSON NOT NULL,
    attempts SMALLINT NOT NULL,
    fence INTEGER NOT NULL,
    run_at VARCHAR(26) NOT NULL,
    created_at VARCHAR(26) NOT NULL,
    started_at VARCHAR(26),
    finished_at VARCHAR(26) NOT NULL,
    worker TEXT,
    CONSTRAINT job_history_pkey PRIMARY KEY (id),
    CONSTRAINT job_history_state_is_known CHECK (state IN ('succeeded', 'cancelled'))
);

CREATE INDEX job_history_finished_at ON job_history (finished_at);

CREATE TABLE job_errors (
    job_id INTEGER NOT NULL,
    fence INTEGER NOT NULL,
    at VARCHAR(26) NOT NULL,
    worker TEXT NOT NULL,
    error TEXT NOT NULL,
    CONSTRAINT job_errors_pkey PRIMARY KEY (job_id, fence)
);

CREATE INDEX job_errors_at ON job_errors (at);

CREATE TABLE paused_kinds (
    kind TEXT NOT NULL,
    reason TEXT NOT NULL,
    paused_at VARCHAR(26) NOT NULL,
    CONSTRAINT paused_kinds_pkey PRIMARY KEY (kind)
);

CREATE TABLE workers (
    name TEXT NOT NULL,
    host TEXT NOT NULL,
    pid INTEGER NOT NULL,
    version TEXT NOT NULL,
    lanes TEXT NOT NULL,
    concurrency INTEGER NOT NULL,
    running INTEGER NOT NULL,
    draining BOOLEAN NOT NULL,
    started_at VARCHAR(26) NOT NULL,
    seen_at VARCHAR(26) NOT NULL,
    CONSTRAINT workers_pkey PRIMARY KEY (name)
);

CREATE TABLE users (
    platform TEXT NOT NULL,
    id INTEGER NOT NULL,
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
    followers_count INTEGER,
    following_count INTEGER,
    posts_count INTEGER,
    media_count INTEGER,
    likes_count INTEGER,
    created_at VARCHAR(26),
    unavailable_reason TEXT,
    detail TEXT NOT NULL,
    raw TEXT NOT NULL,
    first_seen_at VARCHAR(26) NOT NULL,
    last_updated_at VARCHAR(26) NOT NULL,
    profiled_at VARCHAR(26), ingest_id INTEGER,
    CONSTRAINT users_pkey PRIMARY KEY (platform, id),
    CONSTRAINT users_platform_is_known CHECK (platform IN ('x', 'threads')),
    CONSTRAINT users_detail_is_known CHECK (detail IN ('author', 'listed', 'profile'))
);

CREATE TABLE user_versions (
    platform TEXT NOT NULL,
    user_id INTEGER NOT NULL,
    until VARCHAR(26) NOT NULL,
    handle TEXT,
    handle_key TEXT,
    name TEXT,
    bio TEXT,
    avatar_url TEXT,
    CONSTRAINT user_versions_pkey PRIMARY KEY (platform, user_id, until),
    CONSTRAINT user_versions_user_fkey FOREIGN KEY(platform, user_id) REFERENCES users (platform, id)
);

CREATE INDEX user_versions_handle ON user_versions (platform, handle_key);

CREATE TABLE accounts (
    platform TEXT NOT NULL,
    user_id INTEGER NOT NULL,
    state TEXT NOT NULL,
    state_reason TEXT,
    state_since VARCHAR(26) NOT NULL,
    tracked_at VARCHAR(26) NOT NULL,
    oldest_post_id INTEGER,
    newest_post_id INTEGER,
    newest_repost_id INTEGER,
    backfilled_at VARCHAR(26),
    reposts_backfilled_at VARCHAR(26),
    next_look_at VARCHAR(26),
    last_fetched_at VARCHAR(26),
    fetches INTEGER DEFAULT 0 NOT NULL,
    empty_fetches INTEGER DEFAULT 0 NOT NULL,
    posts_found INTEGER DEFAULT 0 NOT NULL, last_fetched_count INTEGER, last_new_count INTEGER, new_rate FLOAT DEFAULT 0 NOT NULL, fetch_limit INTEGER, suspect_since VARCHAR(26), suspect_looks INTEGER DEFAULT 0 NOT NULL,
    CONSTRAINT accounts_pkey PRIMARY KEY (platform, user_id),
    CONSTRAINT accounts_user_fkey FOREIGN KEY(platform, user_id) REFERENCES users (platform, id),
    CONSTRAINT accounts_state_is_known CHECK (state IN ('active', 'protected', 'suspended', 'vanished', 'untracked')),
    CONSTRAINT accounts_boundaries_are_in_order CHECK (oldest_post_id <= newest_post_id)
);

CREATE INDEX accounts_next_look_at ON accounts (next_look_at) WHERE next_look_at IS NOT NULL;

CREATE TABLE suggestions (
    id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    platform TEXT NOT NULL,
    handle TEXT NOT NULL,
    handle_key TEXT NOT NULL,
    wallet TEXT,
    labels TEXT NOT NULL,
    suggested_at VARCHAR(26) NOT NULL,
    deleted_at VARCHAR(26),
    outcome TEXT,
    reason TEXT,
    user_id INTEGER, withdrawn_at VARCHAR(26),
    CONSTRAINT suggestions_platform_is_known CHECK (platform IN ('x', 'threads')),
    CONSTRAINT suggestions_outcome_is_known CHECK (outcome IN ('accepted', 'refused')),
    CONSTRAINT suggestions_closed_ones_have_an_outcome CHECK ((deleted_at IS NULL) = (outcome IS NULL))
);

CREATE UNIQUE INDEX suggestions_live_handle ON suggestions (platform, handle_key) WHERE deleted_at IS NULL;

CREATE TABLE posts (
    platform TEXT NOT NULL,
    id INTEGER NOT NULL,
    author_id INTEGER NOT NULL,
    text TEXT NOT NULL,
    text_clean TEXT NOT NULL,
    search_text TEXT,
    lang TEXT,
    url TEXT,
    created_at VARCHAR(26) NOT NULL,
    conversation_id INTEGER,
    in_reply_to_id INTEGER,
    in_reply_to_user_id INTEGER,
    quoted_id INTEGER,
    reposted_id INTEGER,
    referenced_text TEXT,
    referenced_handle TEXT,
    referenced_media TEXT,
    media TEXT,
    links TEXT,
    likes INTEGER,
    replies INTEGER,
    reposts INTEGER,
    quotes INTEGER,
    bookmarks INTEGER,
    views INTEGER,
    nested BOOLEAN DEFAULT 0 NOT NULL,
    raw TEXT NOT NULL,
    first_seen_at VARCHAR(26) NOT NULL,
    last_updated_at VARCHAR(26) NOT NULL, ingest_id INTEGER, referenced_text_clean TEXT,
    CONSTRAINT posts_pkey PRIMARY KEY (platform, id),
    CONSTRAINT posts_author_fkey FOREIGN KEY(platform, author_id) REFERENCES users (platform, id),
    CONSTRAINT posts_platform_is_known CHECK (platform IN ('x', 'threads'))
);

CREATE INDEX posts_author ON posts (platform, author_id, id);

CREATE INDEX posts_conversation ON posts (platform, conversation_id, id);

CREATE TABLE missing (
    platform TEXT NOT NULL,
    what TEXT NOT NULL,
    id INTEGER NOT NULL,
    reason TEXT NOT NULL,
    asked_at VARCHAR(26) NOT NULL,
    times_asked INTEGER DEFAULT 1 NOT NULL,
    CONSTRAINT missing_pkey PRIMARY KEY (platform, what, id),
    CONSTRAINT missing_platform_is_known CHECK (platform IN ('x', 'threads')),
    CONSTRAINT missing_what_is_known CHECK (what IN ('user', 'post'))
);

CREATE TABLE quarantine (
    id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    platform TEXT NOT NULL,
    endpoint TEXT NOT NULL,
    digest TEXT NOT NULL,
    problem TEXT NOT NULL,
    payload BLOB NOT NULL,
    first_seen_at VARCHAR(26) NOT NULL,
    last_seen_at VARCHAR(26) NOT NULL,
    times_seen INTEGER DEFAULT 1 NOT NULL,
    resolved_at VARCHAR(26),
    CONSTRAINT quarantine_platform_is_known CHECK (platform IN ('x', 'threads'))
);

CREATE UNIQUE INDEX quarantine_payload ON quarantine (platform, endpoint, digest);

CREATE INDEX quarantine_unresolved ON quarantine (id) WHERE resolved_at IS NULL;

CREATE TABLE sources (
    name TEXT NOT NULL,
    paused_at VARCHAR(26),
    paused_by TEXT,
    pause_reason TEXT,
    failure_streak INTEGER DEFAULT 0 NOT NULL,
    opened_until VARCHAR(26),
    probe_until VARCHAR(26),
    last_success_at VARCHAR(26),
    last_failure_at VARCHAR(26),
    last_failure TEXT,
    day TEXT,
    day_credits INTEGER DEFAULT 0 NOT NULL,
    month_credits INTEGER DEFAULT 0 NOT NULL,
    day_cap INTEGER,
    month_cap INTEGER,
    CONSTRAINT sources_pkey PRIMARY KEY (name),
    CONSTRAINT sources_a_pause_has_its_cause CHECK ((paused_at IS NULL) = (paused_by IS NULL))
);

CREATE TABLE source_keys (
    source TEXT NOT NULL,
    label TEXT NOT NULL,
    rate_per_minute FLOAT,
    slowdown FLOAT DEFAULT 1 NOT NULL,
    slowed_at VARCHAR(26),
    next_at VARCHAR(26),
    paused_at VARCHAR(26),
    pause_reason TEXT,
    balance INTEGER,
    balance_at VARCHAR(26), fingerprint TEXT, reconciled_balance INTEGER, reconciled_at VARCHAR(26), billed_since VARCHAR(26),
    CONSTRAINT source_keys_pkey PRIMARY KEY (source, label),
    CONSTRAINT source_keys_source_fkey FOREIGN KEY(source) REFERENCES sources (name)
);

CREATE TABLE calls (
    id INTEGER NOT NULL,
    source TEXT NOT NULL,
    key_label TEXT NOT NULL,
    endpoint TEXT NOT NULL,
    at VARCHAR(26) NOT NULL,
    seconds FLOAT NOT NULL,
    status SMALLINT,
    items INTEGER NOT NULL,
    credits INTEGER NOT NULL,
    job_id INTEGER,
    account_id INTEGER,
    error TEXT,
    CONSTRAINT calls_pkey PRIMARY KEY (id)
);

CREATE INDEX calls_at ON calls (at);

CREATE VIEW posts_words AS SELECT CASE platform WHEN 'x' THEN id ELSE -id END AS row_number, coalesce(search_text, text_clean) AS words FROM posts;

CREATE VIRTUAL TABLE posts_search USING fts5(words, content='posts_words', content_rowid='row_number', tokenize='unicode61 remove_diacritics 2');

CREATE TRIGGER posts_search_added AFTER INSERT ON posts BEGIN INSERT INTO posts_search (rowid, words) VALUES (CASE NEW.platform WHEN 'x' THEN NEW.id ELSE -NEW.id END, coalesce(NEW.search_text, NEW.text_clean)); END;

CREATE TRIGGER posts_search_changed AFTER UPDATE OF text_clean, search_text ON posts WHEN coalesce(OLD.search_text, OLD.text_clean) IS NOT coalesce(NEW.search_text, NEW.text_clean) BEGIN INSERT INTO posts_search (posts_search, rowid, words) VALUES ('delete', CASE OLD.platform WHEN 'x' THEN OLD.id ELSE -OLD.id END, coalesce(OLD.search_text, OLD.text_clean)); INSERT INTO posts_search (rowid, words) VALUES (CASE NEW.platform WHEN 'x' THEN NEW.id ELSE -NEW.id END, coalesce(NEW.search_text, NEW.text_clean)); END;

CREATE INDEX posts_first_seen_at ON posts (first_seen_at);

CREATE TABLE alerts (
    id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    rule TEXT NOT NULL,
    subject TEXT NOT NULL,
    severity TEXT NOT NULL,
    message TEXT NOT NULL,
    opened_at VARCHAR(26) NOT NULL,
    last_seen_at VARCHAR(26) NOT NULL,
    closed_at VARCHAR(26), accepted_at VARCHAR(26), accepted_by TEXT,
    CONSTRAINT alerts_severity_is_known CHECK (severity IN ('warning', 'critical'))
);

CREATE UNIQUE INDEX alerts_open ON alerts (rule, subject) WHERE closed_at IS NULL;

CREATE INDEX alerts_opened_at ON alerts (opened_at);

CREATE TABLE api_tokens (
    id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL,
    scope TEXT NOT NULL,
    digest TEXT NOT NULL,
    created_at VARCHAR(26) NOT NULL,
    last_used_at VARCHAR(26),
    revoked_at VARCHAR(26),
    CONSTRAINT api_tokens_scope_is_known CHECK (scope IN ('read', 'operate', 'admin'))
);

CREATE UNIQUE INDEX api_tokens_digest ON api_tokens (digest);

CREATE TABLE events (
    id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    channel TEXT NOT NULL,
    kind TEXT NOT NULL,
    subject TEXT NOT NULL,
    payload TEXT NOT NULL,
    created_at VARCHAR(26) NOT NULL,
    fanned_out_at VARCHAR(26),
    CONSTRAINT events_channel_is_known CHECK (channel IN ('data', 'alerts'))
);

CREATE INDEX events_created_at ON events (created_at);

CREATE INDEX events_to_fan_out ON events (id) WHERE fanned_out_at IS NULL;

CREATE TABLE leaders (
    name TEXT NOT NULL,
    holder TEXT NOT NULL,
    fence INTEGER NOT NULL,
    since VARCHAR(26) NOT NULL,
    lease_until VARCHAR(26) NOT NULL,
    CONSTRAINT leaders_pkey PRIMARY KEY (name)
);

CREATE TABLE runs (
    id TEXT NOT NULL,
    kind TEXT NOT NULL,
    status TEXT NOT NULL,
    asked_by TEXT NOT NULL,
    post_limit INTEGER NOT NULL,
    created_at VARCHAR(26) NOT NULL,
    updated_at VARCHAR(26) NOT NULL,
    finished_at VARCHAR(26),
    CONSTRAINT runs_pkey PRIMARY KEY (id),
    CONSTRAINT runs_status_is_known CHECK (status IN ('pending', 'running', 'completed', 'failed')),
    CONSTRAINT runs_finished_ones_say_when CHECK ((finished_at IS NULL) = (status IN ('pending', 'running')))
);

CREATE INDEX runs_created_at ON runs (created_at);

CREATE UNIQUE INDEX runs_unfinished ON runs (kind) WHERE status IN ('pending', 'running');

CREATE TABLE ticks (
    group_name TEXT NOT NULL,
    tick_at VARCHAR(26) NOT NULL,
    made_at VARCHAR(26) NOT NULL,
    holder TEXT NOT NULL,
    fence INTEGER NOT NULL,
    accounts INTEGER NOT NULL,
    jobs INTEGER NOT NULL,
    missed INTEGER NOT NULL,
    CONSTRAINT ticks_pkey PRIMARY KEY (group_name, tick_at)
);

CREATE INDEX ticks_made_at ON ticks (made_at);

CREATE TABLE deliveries (
    id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    subscriber TEXT NOT NULL,
    event_id INTEGER NOT NULL,
    created_at VARCHAR(26) NOT NULL,
    CONSTRAINT deliveries_event_fkey FOREIGN KEY(event_id) REFERENCES events (id) ON DELETE CASCADE
);

CREATE INDEX deliveries_event ON deliveries (event_id);

CREATE INDEX deliveries_subscriber ON deliveries (subscriber, id);

CREATE TABLE run_accounts (
    run_id TEXT NOT NULL,
    position INTEGER NOT NULL,
    handle TEXT NOT NULL,
    user_id INTEGER,
    status TEXT NOT NULL,
    total INTEGER DEFAULT 0 NOT NULL,
    new INTEGER DEFAULT 0 NOT NULL,
    skipped INTEGER DEFAULT 0 NOT NULL,
    failed INTEGER DEFAULT 0 NOT NULL,
    reason TEXT,
    updated_at VARCHAR(26) NOT NULL,
    CONSTRAINT run_accounts_pkey PRIMARY KEY (run_id, position),
    CONSTRAINT run_accounts_run_fkey FOREIGN KEY(run_id) REFERENCES runs (id) ON DELETE CASCADE,
    CONSTRAINT run_accounts_status_is_known CHECK (status IN ('pending', 'running', 'completed', 'failed'))
);

CREATE TABLE run_posts (
    run_id TEXT NOT NULL,
    platform TEXT NOT NULL,
    post_id INTEGER NOT NULL,
    CONSTRAINT run_posts_pkey PRIMARY KEY (run_id, platform, post_id),
    CONSTRAINT run_posts_run_fkey FOREIGN KEY(run_id) REFERENCES runs (id) ON DELETE CASCADE
);

CREATE TABLE sessions (
    digest TEXT NOT NULL,
    name TEXT NOT NULL,
    scope TEXT NOT NULL,
    token_id INTEGER,
    csrf TEXT NOT NULL,
    created_at VARCHAR(26) NOT NULL,
    expires_at VARCHAR(26) NOT NULL,
    CONSTRAINT sessions_pkey PRIMARY KEY (digest),
    CONSTRAINT sessions_token_fkey FOREIGN KEY(token_id) REFERENCES api_tokens (id) ON DELETE CASCADE,
    CONSTRAINT sessions_scope_is_known CHECK (scope IN ('read', 'operate', 'admin'))
);

CREATE INDEX sessions_expires_at ON sessions (expires_at);

CREATE TABLE ingest_events (
    id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    platform TEXT NOT NULL,
    kind TEXT NOT NULL,
    status TEXT NOT NULL,
    subject_id INTEGER,
    mode TEXT,
    asked_by TEXT NOT NULL,
    job_id INTEGER,
    started_at VARCHAR(26) NOT NULL,
    finished_at VARCHAR(26),
    calls INTEGER DEFAULT 0 NOT NULL,
    items INTEGER DEFAULT 0 NOT NULL,
    plausible BOOLEAN,
    endpoint TEXT,
    http_status SMALLINT,
    exchange TEXT,
    problem TEXT,
    CONSTRAINT ingest_events_platform_is_known CHECK (platform IN ('x', 'threads')),
    CONSTRAINT ingest_events_kind_is_known CHECK (kind IN ('users_by_ids', 'posts_by_ids', 'followers_sync', 'followings_sync', 'posts_sync', 'webhook')),
    CONSTRAINT ingest_events_status_is_known CHECK (status IN ('in_progress', 'success', 'error', 'cancelled')),
    CONSTRAINT ingest_events_finished_ones_say_when CHECK ((finished_at IS NULL) = (status = 'in_progress'))
);

CREATE UNIQUE INDEX ingest_events_open ON ingest_events (job_id) WHERE status = 'in_progress';

CREATE INDEX ingest_events_started_at ON ingest_events (started_at);

CREATE INDEX ingest_events_subject ON ingest_events (platform, kind, subject_id, id);

CREATE TABLE ingest_ids (
    ingest_id INTEGER NOT NULL,
    id INTEGER NOT NULL,
    CONSTRAINT ingest_ids_pkey PRIMARY KEY (ingest_id, id),
    CONSTRAINT ingest_ids_ingest_fkey FOREIGN KEY(ingest_id) REFERENCES ingest_events (id) ON DELETE CASCADE
);

CREATE TABLE follows (
    platform TEXT NOT NULL,
    follower_id INTEGER NOT NULL,
    followed_id INTEGER NOT NULL,
    first_seen_at VARCHAR(26) NOT NULL,
    last_seen_at VARCHAR(26) NOT NULL,
    seen_in INTEGER NOT NULL,
    missed_in INTEGER,
    ended_at VARCHAR(26),
    CONSTRAINT follows_pkey PRIMARY KEY (platform, follower_id, followed_id),
    CONSTRAINT follows_follower_fkey FOREIGN KEY(platform, follower_id) REFERENCES users (platform, id),
    CONSTRAINT follows_followed_fkey FOREIGN KEY(platform, followed_id) REFERENCES users (platform, id),
    CONSTRAINT follows_nobody_follows_himself CHECK (follower_id <> followed_id)
);

CREATE INDEX follows_followed ON follows (platform, followed_id, follower_id);

CREATE TABLE follow_events (
    id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    platform TEXT NOT NULL,
    follower_id INTEGER NOT NULL,
    followed_id INTEGER NOT NULL,
    kind TEXT NOT NULL,
    cause TEXT NOT NULL,
    at VARCHAR(26) NOT NULL,
    ingest_id INTEGER,
    CONSTRAINT follow_events_edge_fkey FOREIGN KEY(platform, follower_id, followed_id) REFERENCES follows (platform, follower_id, followed_id),
    CONSTRAINT follow_events_kind_is_known CHECK (kind IN ('followed', 'unfollowed')),
    CONSTRAINT follow_events_cause_is_known CHECK (cause IN ('seen', 'pushed', 'unfollowed', 'suspended', 'vanished'))
);

CREATE INDEX follow_events_followed ON follow_events (platform, followed_id, id);

CREATE INDEX follow_events_follower ON follow_events (platform, follower_id, id);

CREATE TABLE segments (
    id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL,
    what TEXT NOT NULL,
    rule TEXT NOT NULL,
    enabled BOOLEAN DEFAULT 1 NOT NULL,
    every_seconds FLOAT,
    fresh_seconds FLOAT,
    created_at VARCHAR(26) NOT NULL,
    changed_at VARCHAR(26) NOT NULL,
    materialized_at VARCHAR(26),
    next_at VARCHAR(26),
    CONSTRAINT segments_what_is_known CHECK (what IN ('users', 'posts'))
);

CREATE UNIQUE INDEX segments_name ON segments (name);

CREATE INDEX segments_next_at ON segments (next_at);

CREATE TABLE segment_inputs (
    segment_id INTEGER NOT NULL,
    platform TEXT NOT NULL,
    user_id INTEGER NOT NULL,
    added_at VARCHAR(26) NOT NULL,
    CONSTRAINT segment_inputs_pkey PRIMARY KEY (segment_id, platform, user_id),
    CONSTRAINT segment_inputs_segment_fkey FOREIGN KEY(segment_id) REFERENCES segments (id) ON DELETE CASCADE,
    CONSTRAINT segment_inputs_user_fkey FOREIGN KEY(platform, user_id) REFERENCES users (platform, id)
);

CREATE TABLE segment_snapshots (
    id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    segment_id INTEGER NOT NULL,
    at VARCHAR(26) NOT NULL,
    members INTEGER NOT NULL,
    entered INTEGER NOT NULL,
    departed INTEGER NOT NULL,
    ingests TEXT NOT NULL,
    CONSTRAINT segment_snapshots_segment_fkey FOREIGN KEY(segment_id) REFERENCES segments (id) ON DELETE CASCADE
);

CREATE INDEX segment_snapshots_segment ON segment_snapshots (segment_id, at);

CREATE TABLE segment_members (
    id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    segment_id INTEGER NOT NULL,
    platform TEXT NOT NULL,
    user_id INTEGER,
    post_id INTEGER,
    since VARCHAR(26) NOT NULL,
    CONSTRAINT segment_members_segment_fkey FOREIGN KEY(segment_id) REFERENCES segments (id) ON DELETE CASCADE,
    CONSTRAINT segment_members_user_fkey FOREIGN KEY(platform, user_id) REFERENCES users (platform, id),
    CONSTRAINT segment_members_post_fkey FOREIGN KEY(platform, post_id) REFERENCES posts (platform, id),
    CONSTRAINT segment_members_a_user_or_a_post CHECK ((user_id IS NULL) <> (post_id IS NULL))
);

CREATE INDEX segment_members_order ON segment_members (segment_id, id);

CREATE UNIQUE INDEX segment_members_post ON segment_members (segment_id, platform, post_id) WHERE post_id IS NOT NULL;

CREATE UNIQUE INDEX segment_members_user ON segment_members (segment_id, platform, user_id) WHERE user_id IS NOT NULL;

CREATE TABLE segment_events (
    id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    segment_id INTEGER NOT NULL,
    snapshot_id INTEGER NOT NULL,
    platform TEXT NOT NULL,
    user_id INTEGER,
    post_id INTEGER,
    kind TEXT NOT NULL,
    at VARCHAR(26) NOT NULL,
    CONSTRAINT segment_events_snapshot_fkey FOREIGN KEY(snapshot_id) REFERENCES segment_snapshots (id) ON DELETE CASCADE,
    CONSTRAINT segment_events_user_fkey FOREIGN KEY(platform, user_id) REFERENCES users (platform, id),
    CONSTRAINT segment_events_post_fkey FOREIGN KEY(platform, post_id) REFERENCES posts (platform, id),
    CONSTRAINT segment_events_a_user_or_a_post CHECK ((user_id IS NULL) <> (post_id IS NULL)),
    CONSTRAINT segment_events_kind_is_known CHECK (kind IN ('entered', 'left'))
);

CREATE INDEX segment_events_segment ON segment_events (segment_id, id);

CREATE INDEX segment_events_post ON segment_events (segment_id, platform, post_id, id) WHERE post_id IS NOT NULL;

CREATE INDEX segment_events_user ON segment_events (segment_id, platform, user_id, id) WHERE user_id IS NOT NULL;

CREATE INDEX users_handle ON users (handle_key, platform);

CREATE INDEX users_profiled_at ON users (profiled_at, platform);

CREATE TABLE feeds (
    id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    platform TEXT NOT NULL,
    handle TEXT NOT NULL,
    handle_key TEXT NOT NULL,
    user_id INTEGER,
    state TEXT NOT NULL,
    reason TEXT,
    every_seconds FLOAT,
    added_at VARCHAR(26) NOT NULL,
    removed_at VARCHAR(26),
    newest_post_at VARCHAR(26),
    newest_reply_at VARCHAR(26),
    polled_at VARCHAR(26),
    posts INTEGER DEFAULT 0 NOT NULL,
    CONSTRAINT feeds_user_fkey FOREIGN KEY(platform, user_id) REFERENCES users (platform, id),
    CONSTRAINT feeds_platform_is_known CHECK (platform IN ('x', 'threads')),
    CONSTRAINT feeds_state_is_known CHECK (state IN ('new', 'active', 'refused', 'removed'))
);

CREATE UNIQUE INDEX feeds_live ON feeds (platform, handle_key) WHERE state <> 'removed';

CREATE TABLE products (
    id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    platform TEXT NOT NULL,
    region TEXT DEFAULT '' NOT NULL,
    shop_id TEXT DEFAULT '' NOT NULL,
    item_id TEXT NOT NULL,
    url TEXT NOT NULL,
    title TEXT,
    brand TEXT,
    sku TEXT,
    image_url TEXT,
    first_seen_at VARCHAR(26) NOT NULL,
    last_seen_at VARCHAR(26) NOT NULL,
    gone_at VARCHAR(26),
    offer_id INTEGER
);

CREATE UNIQUE INDEX products_identity ON products (platform, region, shop_id, item_id);

CREATE INDEX products_platform ON products (platform, id);

CREATE TABLE links (
    id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
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
    leads_to INTEGER,
    product_id INTEGER,
    problem TEXT,
    first_seen_at VARCHAR(26) NOT NULL,
    crawled_at VARCHAR(26),
    content_hash TEXT,
    CONSTRAINT links_leads_to_fkey FOREIGN KEY(leads_to) REFERENCES links (id),
    CONSTRAINT links_product_fkey FOREIGN KEY(product_id) REFERENCES products (id),
    CONSTRAINT links_kind_is_known CHECK (kind IN ('item', 'catalogue', 'shop', 'search', 'short', 'code', 'blocked', 'dead', 'page', 'refused')),
    CONSTRAINT links_state_is_known CHECK (state IN ('new', 'crawled', 'resolved', 'unresolved', 'blocked', 'gone', 'failed'))
);

CREATE INDEX links_kind ON links (kind, lane, state, id);

CREATE INDEX links_crawled_at ON links (crawled_at, id) WHERE state = 'crawled';

CREATE INDEX links_lane_state ON links (lane, state, id);

CREATE INDEX links_leads_to ON links (leads_to) WHERE leads_to IS NOT NULL;

CREATE INDEX links_product ON links (product_id);

CREATE UNIQUE INDEX links_url_norm ON links (url_norm);

CREATE TABLE post_links (
    platform TEXT NOT NULL,
    post_id INTEGER NOT NULL,
    link_id INTEGER NOT NULL,
    place TEXT NOT NULL,
    nr SMALLINT NOT NULL,
    url TEXT NOT NULL,
    seen_at VARCHAR(26) NOT NULL,
    CONSTRAINT post_links_pkey PRIMARY KEY (platform, post_id, link_id, place),
    CONSTRAINT post_links_post_fkey FOREIGN KEY(platform, post_id) REFERENCES posts (platform, id),
    CONSTRAINT post_links_link_fkey FOREIGN KEY(link_id) REFERENCES links (id),
    CONSTRAINT post_links_place_is_known CHECK (place IN ('text', 'entity', 'attachment', 'text_attachment', 'quoted'))
);

CREATE INDEX post_links_link ON post_links (link_id, platform, post_id);

CREATE TABLE offers (
    id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    product_id INTEGER NOT NULL,
    link_id INTEGER,
    observed_at VARCHAR(26) NOT NULL,
    last_seen_at VARCHAR(26) NOT NULL,
    times_seen INTEGER DEFAULT 1 NOT NULL,
    amount TEXT,
    amount_max TEXT,
    list_amount TEXT,
    currency TEXT,
    availability TEXT,
    sold_count INTEGER,
    rating_count INTEGER,
    content_hash TEXT NOT NULL,
    path TEXT NOT NULL,
    confidence FLOAT NOT NULL,
    evidence TEXT NOT NULL,
    doubt TEXT,
    CONSTRAINT offers_product_fkey FOREIGN KEY(product_id) REFERENCES products (id),
    CONSTRAINT offers_link_fkey FOREIGN KEY(link_id) REFERENCES links (id),
    CONSTRAINT offers_amounts_have_a_currency CHECK (amount IS NULL OR currency IS NOT NULL),
    CONSTRAINT offers_currency_is_iso CHECK (currency IS NULL OR length(currency) = 3)
);

CREATE INDEX offers_product ON offers (product_id, observed_at, id);

CREATE TABLE cached_answers (
    "key" TEXT NOT NULL,
    source TEXT NOT NULL,
    stored_at VARCHAR(26) NOT NULL,
    fresh_until VARCHAR(26) NOT NULL,
    status SMALLINT NOT NULL,
    headers TEXT NOT NULL,
    body BLOB NOT NULL,
    CONSTRAINT cached_answers_pkey PRIMARY KEY ("key")
);

CREATE INDEX cached_answers_stored_at ON cached_answers (stored_at);

CREATE TABLE hosts (
    host TEXT NOT NULL,
    next_at VARCHAR(26) NOT NULL,
    delay_seconds FLOAT,
    CONSTRAINT hosts_pkey PRIMARY KEY (host)
);

CREATE INDEX jobs_queued ON jobs (lane, started_at, id) WHERE state = 'queued';

CREATE TABLE dead_letters (
    job_id INTEGER NOT NULL,
    fence INTEGER NOT NULL,
    at VARCHAR(26) NOT NULL,
    CONSTRAINT dead_letters_pkey PRIMARY KEY (job_id)
);

CREATE TABLE items (
    id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    ref TEXT,
    title TEXT NOT NULL,
    attributes TEXT NOT NULL,
    exclude TEXT NOT NULL,
    sources TEXT NOT NULL,
    urls TEXT NOT NULL,
    currency TEXT,
    every_hours FLOAT,
    digest TEXT NOT NULL,
    state TEXT NOT NULL,
    added_at VARCHAR(26) NOT NULL,
    changed_at VARCHAR(26) NOT NULL,
    next_look_at VARCHAR(26) NOT NULL,
    CONSTRAINT items_state_is_known CHECK (state IN ('active', 'paused', 'removed')),
    CONSTRAINT items_currency_is_iso CHECK (currency IS NULL OR length(currency) = 3),
    CONSTRAINT items_some_time_passes CHECK (every_hours IS NULL OR every_hours > 0)
);

CREATE INDEX items_state ON items (state, id);

CREATE INDEX items_due ON items (next_look_at, id) WHERE state = 'active';

CREATE UNIQUE INDEX items_wish ON items (digest) WHERE ref IS NULL AND state <> 'removed';

CREATE UNIQUE INDEX items_ref ON items (ref) WHERE ref IS NOT NULL AND state <> 'removed';

CREATE TABLE item_looks (
    item_id INTEGER NOT NULL,
    source TEXT NOT NULL,
    looked_at VARCHAR(26) NOT NULL,
    listings INTEGER DEFAULT 0 NOT NULL,
    points INTEGER DEFAULT 0 NOT NULL,
    found_at VARCHAR(26),
    problem TEXT,
    CONSTRAINT item_looks_pkey PRIMARY KEY (item_id, source),
    CONSTRAINT item_looks_item_fkey FOREIGN KEY(item_id) REFERENCES items (id)
);

CREATE INDEX item_looks_looked_at ON item_looks (looked_at);

CREATE TABLE price_points (
    id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    item_id INTEGER NOT NULL,
    source TEXT NOT NULL,
    dedupe_key TEXT NOT NULL,
    kind TEXT NOT NULL,
    amount TEXT NOT NULL,
    currency TEXT NOT NULL,
    condition TEXT,
    title TEXT NOT NULL,
    url TEXT NOT NULL,
    external_id TEXT,
    bid_count INTEGER,
    match_strength FLOAT NOT NULL,
    observed_at VARCHAR(26) NOT NULL,
    first_seen_at VARCHAR(26) NOT NULL,
    last_seen_at VARCHAR(26) NOT NULL,
    times_seen INTEGER DEFAULT 1 NOT NULL,
    product_id INTEGER,
    offer_id INTEGER,
    doubt TEXT,
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

CREATE TABLE price_point_versions (
    point_id INTEGER NOT NULL,
    nr INTEGER NOT NULL,
    kind TEXT NOT NULL,
    amount TEXT NOT NULL,
    currency TEXT NOT NULL,
    match_strength FLOAT NOT NULL,
    observed_at VARCHAR(26) NOT NULL,
    replaced_at VARCHAR(26) NOT NULL,
    CONSTRAINT price_point_versions_pkey PRIMARY KEY (point_id, nr),
    CONSTRAINT price_point_versions_point_fkey FOREIGN KEY(point_id) REFERENCES price_points (id)
);

CREATE TABLE valuations (
    item_id INTEGER NOT NULL,
    estimate TEXT NOT NULL,
    low TEXT NOT NULL,
    high TEXT NOT NULL,
    currency TEXT NOT NULL,
    points INTEGER NOT NULL,
    points_left_out INTEGER NOT NULL,
    confidence FLOAT NOT NULL,
    newest_at VARCHAR(26) NOT NULL,
    carriers TEXT NOT NULL,
    left_out TEXT NOT NULL,
    valued_at VARCHAR(26) NOT NULL,
    CONSTRAINT valuations_pkey PRIMARY KEY (item_id),
    CONSTRAINT valuations_item_fkey FOREIGN KEY(item_id) REFERENCES items (id)
);

CREATE TABLE valuation_history (
    id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    item_id INTEGER NOT NULL,
    estimate TEXT NOT NULL,
    low TEXT NOT NULL,
    high TEXT NOT NULL,
    currency TEXT NOT NULL,
    points INTEGER NOT NULL,
    points_left_out INTEGER NOT NULL,
    confidence FLOAT NOT NULL,
    newest_at VARCHAR(26) NOT NULL,
    carriers TEXT NOT NULL,
    left_out TEXT NOT NULL,
    valued_at VARCHAR(26) NOT NULL,
    ended_at VARCHAR(26),
    CONSTRAINT valuation_history_item_fkey FOREIGN KEY(item_id) REFERENCES items (id)
);

CREATE INDEX valuation_history_item ON valuation_history (item_id, id);

CREATE TABLE currency_rates (
    base TEXT NOT NULL,
    quote TEXT NOT NULL,
    day TEXT NOT NULL,
    rate TEXT NOT NULL,
    origin TEXT,
    told_at VARCHAR(26) NOT NULL,
    CONSTRAINT currency_rates_pkey PRIMARY KEY (base, quote, day),
    CONSTRAINT currency_rates_currencies_are_iso CHECK (length(base) = 3 AND length(quote) = 3 AND base <> quote),
    CONSTRAINT currency_rates_day_is_a_date CHECK (length(day) = 10)
);

CREATE INDEX currency_rates_quote ON currency_rates (quote, base, day);

CREATE TABLE odd_listings (
    id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    source TEXT NOT NULL,
    item_id INTEGER NOT NULL,
    digest TEXT NOT NULL,
    problem TEXT NOT NULL,
    payload BLOB NOT NULL,
    first_seen_at VARCHAR(26) NOT NULL,
    last_seen_at VARCHAR(26) NOT NULL,
    times_seen INTEGER DEFAULT 1 NOT NULL,
    CONSTRAINT odd_listings_item_fkey FOREIGN KEY(item_id) REFERENCES items (id)
);

CREATE UNIQUE INDEX odd_listings_identity ON odd_listings (source, digest);

CREATE TABLE product_words (
    product_id INTEGER NOT NULL,
    word TEXT NOT NULL,
    lane TEXT NOT NULL,
    CONSTRAINT product_words_pkey PRIMARY KEY (product_id, word),
    CONSTRAINT product_words_product_fkey FOREIGN KEY(product_id) REFERENCES products (id)
);

CREATE INDEX product_words_word ON product_words (lane, word, product_id);

CREATE TABLE price_watches (
    id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    item_id INTEGER,
    product_id INTEGER,
    kind TEXT NOT NULL,
    percent FLOAT,
    target TEXT,
    currency TEXT,
    state TEXT NOT NULL,
    automatic BOOLEAN DEFAULT 0 NOT NULL,
    added_at VARCHAR(26) NOT NULL,
    amount TEXT,
    amount_currency TEXT,
    availability TEXT,
    known_at VARCHAR(26),
    rests_on TEXT,
    suspected TEXT,
    suspected_at VARCHAR(26),
    problem TEXT,
    told_at VARCHAR(26),
    events INTEGER DEFAULT 0 NOT NULL,
    CONSTRAINT price_watches_item_fkey FOREIGN KEY(item_id) REFERENCES items (id),
    CONSTRAINT price_watches_product_fkey FOREIGN KEY(product_id) REFERENCES products (id),
    CONSTRAINT price_watches_one_thing_is_watched CHECK ((item_id IS NULL) <> (product_id IS NULL)),
    CONSTRAINT price_watches_kind_is_known CHECK (kind IN ('changed', 'below', 'back_in_stock')),
    CONSTRAINT price_watches_state_is_known CHECK (state IN ('active', 'removed')),
    CONSTRAINT price_watches_a_change_has_a_size CHECK ((kind = 'changed') = (percent IS NOT NULL)),
    CONSTRAINT price_watches_a_target_is_an_amount CHECK ((kind = 'below') = (target IS NOT NULL AND currency IS NOT NULL))
);

CREATE INDEX price_watches_active ON price_watches (id) WHERE state = 'active';

CREATE INDEX price_watches_item ON price_watches (item_id, id) WHERE state = 'active';

CREATE INDEX price_watches_product ON price_watches (product_id, id) WHERE state = 'active';

CREATE INDEX jobs_created ON jobs (created_at, id);

CREATE INDEX job_history_created ON job_history (created_at, id);

CREATE INDEX cached_answers_source ON cached_answers (source, fresh_until);

CREATE VIEW recent_jobs AS SELECT j.id, j.kind, j.key, j.lane, j.state AS status, j.worker AS locked_by, CASE WHEN j.state = 'running' THEN max(coalesce(j.started_at, j.created_at), coalesce((SELECT w.seen_at FROM workers w WHERE w.name = j.worker), coalesce(j.started_at, j.created_at))) END AS heartbeat_at, j.created_at, j.started_at, CASE WHEN j.state IN ('failed', 'dead') THEN j.run_at END AS completed_at, CASE WHEN j.state = 'retryable' THEN j.run_at END AS next_retry_at, j.attempts, j.last_error AS error_message FROM jobs j UNION ALL SELECT h.id, h.kind, h.key, h.lane, h.state AS status, h.worker AS locked_by, NULL AS heartbeat_at, h.created_at, h.started_at, CASE WHEN h.state IN ('succeeded', 'cancelled') THEN h.finished_at END AS completed_at, NULL AS next_retry_at, h.attempts, (SELECT e.error FROM job_errors e WHERE e.job_id = h.id ORDER BY e.fence DESC LIMIT 1) AS error_message FROM job_history h;

CREATE VIEW source_health AS SELECT s.name, s.paused_at IS NULL AS enabled, s.failure_streak, s.last_success_at, s.last_failure_at, s.last_failure, CASE WHEN s.opened_until > strftime('%Y-%m-%d %H:%M:%f', 'now') THEN s.opened_until END AS paused_until, s.pause_reason, CASE WHEN s.paused_at IS NOT NULL THEN 'paused' WHEN s.opened_until > strftime('%Y-%m-%d %H:%M:%f', 'now') THEN 'breaker open' WHEN s.opened_until IS NOT NULL THEN 'half-open' ELSE 'serving' END AS state FROM sources s;

CREATE VIEW stuck_jobs AS SELECT j.id, j.kind, j.lane, j.state AS status, j.worker AS locked_by, max(coalesce(j.started_at, j.created_at), coalesce(w.seen_at, coalesce(j.started_at, j.created_at))) AS heartbeat_at, j.lease_until, (julianday('now') - julianday(max(coalesce(j.started_at, j.created_at), coalesce(w.seen_at, coalesce(j.started_at, j.created_at))))) * 86400.0 AS seconds_since_heartbeat FROM jobs j LEFT JOIN workers w ON w.name = j.worker WHERE j.state = 'running' AND j.lease_until <= strftime('%Y-%m-%d %H:%M:%f', 'now');

CREATE TABLE item_links (
    link_id INTEGER NOT NULL,
    item_id INTEGER NOT NULL,
    CONSTRAINT item_links_pkey PRIMARY KEY (link_id, item_id),
    CONSTRAINT item_links_link_fkey FOREIGN KEY(link_id) REFERENCES links (id),
    CONSTRAINT item_links_item_fkey FOREIGN KEY(item_id) REFERENCES items (id)
);

CREATE INDEX item_links_item ON item_links (item_id);

CREATE INDEX price_points_product ON price_points (product_id, item_id);

CREATE INDEX posts_created_at ON posts (created_at, platform, id);

CREATE INDEX posts_author_time ON posts (platform, author_id, created_at, id);

CREATE TABLE crawls (
    id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
    link_id INTEGER NOT NULL,
    product_id INTEGER,
    offer_id INTEGER,
    job_id INTEGER,
    at VARCHAR(26) NOT NULL,
    outcome TEXT NOT NULL,
    http_status SMALLINT,
    final_url TEXT,
    bytes INTEGER,
    duration_ms INTEGER,
    content_hash TEXT,
    problem TEXT,
    body BLOB,
    CONSTRAINT crawls_link_fkey FOREIGN KEY(link_id) REFERENCES links (id),
    CONSTRAINT crawls_product_fkey FOREIGN KEY(product_id) REFERENCES products (id),
    CONSTRAINT crawls_offer_fkey FOREIGN KEY(offer_id) REFERENCES offers (id),
    CONSTRAINT crawls_outcome_is_known CHECK (outcome IN ('offer', 'unchanged', 'doubted', 'no_price', 'resolved', 'blocked', 'gone', 'unreadable', 'refused', 'failed'))
);

CREATE INDEX crawls_at ON crawls (at);

CREATE INDEX crawls_link ON crawls (link_id, id);

CREATE TABLE call_sums (
    day TEXT NOT NULL,
    source TEXT NOT NULL,
    key_label TEXT NOT NULL,
    endpoint TEXT NOT NULL,
    account_id INTEGER NOT NULL,
    calls INTEGER NOT NULL,
    items INTEGER NOT NULL,
    credits INTEGER NOT NULL,
    failures INTEGER NOT NULL,
    CONSTRAINT call_sums_pkey PRIMARY KEY (day, source, key_label, endpoint, account_id),
    CONSTRAINT call_sums_day_is_a_date CHECK (length(day) = 10)
);

CREATE INDEX segment_events_snapshot ON segment_events (snapshot_id);

CREATE INDEX quarantine_resolved_at ON quarantine (resolved_at);

INSERT INTO alembic_version VALUES ('0010');

INSERT INTO jobs VALUES (1, 'backfill', '7', 'x', 1, 'pending', '{"user_id": 7}', 0, 10, 0, '2026-03-01 12:00:00.000000', '2026-03-01 12:00:00.000000', NULL, NULL, NULL, 0, 0, NULL, NULL);

INSERT INTO job_history VALUES (5, 'walk', NULL, 'x', 2, 'succeeded', '{}', 1, 2, '2026-03-01 12:00:00.000000', '2026-03-01 12:00:00.000000', NULL, '2026-03-01 12:00:00.000000', NULL);

INSERT INTO users VALUES ('x', 7, 'Ann', 'ann', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 'author', '{"id":7}', '2026-03-01 12:00:00.000000', '2026-03-01 12:00:00.000000', NULL, NULL);

INSERT INTO posts VALUES ('x', 1899999999999999999, 7, 'a solar eclipse', 'a solar eclipse', 'a solar eclipse', NULL, NULL, '2026-03-01 12:00:00.000000', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, '{"id":1899999999999999999}', '2026-03-01 12:00:00.000000', '2026-03-01 12:00:00.000000', NULL, NULL);

INSERT INTO sources VALUES ('x', NULL, NULL, NULL, 0, NULL, NULL, NULL, NULL, NULL, NULL, 0, 0, NULL, NULL);

INSERT INTO links VALUES (1, 'https://a.example/', 'https://a.example/', 'a.example', 'web', 'web', 'page', 'new', NULL, NULL, NULL, NULL, NULL, NULL, '2026-03-01 12:00:00.000000', NULL, NULL);

INSERT INTO crawls VALUES (3, 1, NULL, NULL, NULL, '2026-03-01 12:00:00.000000', 'unreadable', NULL, NULL, NULL, NULL, NULL, NULL, NULL);
