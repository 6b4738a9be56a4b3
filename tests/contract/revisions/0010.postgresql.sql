-- A PostgreSQL database at revision 0010 as the ten migrations left it that are now one, by pg_dump --inserts.
CREATE TABLE public.accounts (
    platform text NOT NULL,
    user_id bigint NOT NULL,
    state text NOT NULL,
    state_reason text,
    state_since timestamp with time zone NOT NULL,
    tracked_at timestamp with time zone NOT NULL,
    oldest_post_id bigint,
    newest_post_id bigint,
    newest_repost_id bigint,
    backfilled_at timestamp with time zone,
    reposts_backfilled_at timestamp with time zone,
    next_look_at timestamp with time zone,
    last_fetched_at timestamp with time zone,
    fetches integer DEFAULT 0 NOT NULL,
    empty_fetches integer DEFAULT 0 NOT NULL,
    posts_found bigint DEFAULT 0 NOT NULL,
    last_fetched_count integer,
    last_new_count integer,
    new_rate double precision DEFAULT 0 NOT NULL,
    fetch_limit integer,
    suspect_since timestamp with time zone,
    suspect_looks integer DEFAULT 0 NOT NULL,
    CONSTRAINT accounts_boundaries_are_in_order CHECK ((oldest_post_id <= newest_post_id)),
    CONSTRAINT accounts_state_is_known CHECK ((state = ANY (ARRAY['active'::text, 'protected'::text, 'suspended'::text, 'vanished'::text, 'untracked'::text])))
);
CREATE TABLE public.alembic_version (
    version_num character varying(32) NOT NULL
);
CREATE TABLE public.alerts (
    id bigint NOT NULL,
    rule text NOT NULL,
    subject text NOT NULL,
    severity text NOT NULL,
    message text NOT NULL,
    opened_at timestamp with time zone NOT NULL,
    last_seen_at timestamp with time zone NOT NULL,
    closed_at timestamp with time zone,
    accepted_at timestamp with time zone,
    accepted_by text,
    CONSTRAINT alerts_severity_is_known CHECK ((severity = ANY (ARRAY['warning'::text, 'critical'::text])))
);
CREATE SEQUENCE public.alerts_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.alerts_id_seq OWNED BY public.alerts.id;
CREATE TABLE public.api_tokens (
    id bigint NOT NULL,
    name text NOT NULL,
    scope text NOT NULL,
    digest text NOT NULL,
    created_at timestamp with time zone NOT NULL,
    last_used_at timestamp with time zone,
    revoked_at timestamp with time zone,
    CONSTRAINT api_tokens_scope_is_known CHECK ((scope = ANY (ARRAY['read'::text, 'operate'::text, 'admin'::text])))
);
CREATE SEQUENCE public.api_tokens_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.api_tokens_id_seq OWNED BY public.api_tokens.id;
CREATE TABLE public.cached_answers (
    key text NOT NULL,
    source text NOT NULL,
    stored_at timestamp with time zone NOT NULL,
    fresh_until timestamp with time zone NOT NULL,
    status smallint NOT NULL,
    headers json NOT NULL,
    body bytea NOT NULL
);
CREATE TABLE public.call_sums (
    day text NOT NULL,
    source text NOT NULL,
    key_label text NOT NULL,
    endpoint text NOT NULL,
    account_id bigint NOT NULL,
    calls bigint NOT NULL,
    items bigint NOT NULL,
    credits bigint NOT NULL,
    failures bigint NOT NULL,
    CONSTRAINT call_sums_day_is_a_date CHECK ((length(day) = 10))
);
CREATE TABLE public.calls (
    id bigint NOT NULL,
    source text NOT NULL,
    key_label text NOT NULL,
    endpoint text NOT NULL,
    at timestamp with time zone NOT NULL,
    seconds double precision NOT NULL,
    status smallint,
    items integer NOT NULL,
    credits integer NOT NULL,
    job_id bigint,
    account_id bigint,
    error text
);
CREATE SEQUENCE public.calls_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.calls_id_seq OWNED BY public.calls.id;
CREATE TABLE public.crawls (
    id bigint NOT NULL,
    link_id bigint NOT NULL,
    product_id bigint,
    offer_id bigint,
    job_id bigint,
    at timestamp with time zone NOT NULL,
    outcome text NOT NULL,
    http_status smallint,
    final_url text,
    bytes integer,
    duration_ms integer,
    content_hash text,
    problem text,
    body bytea,
    CONSTRAINT crawls_outcome_is_known CHECK ((outcome = ANY (ARRAY['offer'::text, 'unchanged'::text, 'doubted'::text, 'no_price'::text, 'resolved'::text, 'blocked'::text, 'gone'::text, 'unreadable'::text, 'refused'::text, 'failed'::text])))
);
CREATE SEQUENCE public.crawls_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.crawls_id_seq OWNED BY public.crawls.id;
CREATE TABLE public.currency_rates (
    base text NOT NULL,
    quote text NOT NULL,
    day text NOT NULL,
    rate numeric NOT NULL,
    origin text,
    told_at timestamp with time zone NOT NULL,
    CONSTRAINT currency_rates_currencies_are_iso CHECK (((length(base) = 3) AND (length(quote) = 3) AND (base <> quote))),
    CONSTRAINT currency_rates_day_is_a_date CHECK ((length(day) = 10))
);
CREATE TABLE public.dead_letters (
    job_id bigint NOT NULL,
    fence bigint NOT NULL,
    at timestamp with time zone NOT NULL
);
CREATE TABLE public.deliveries (
    id bigint NOT NULL,
    subscriber text NOT NULL,
    event_id bigint NOT NULL,
    created_at timestamp with time zone NOT NULL
);
CREATE SEQUENCE public.deliveries_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.deliveries_id_seq OWNED BY public.deliveries.id;
CREATE TABLE public.events (
    id bigint NOT NULL,
    channel text NOT NULL,
    kind text NOT NULL,
    subject text NOT NULL,
    payload json NOT NULL,
    created_at timestamp with time zone NOT NULL,
    fanned_out_at timestamp with time zone,
    CONSTRAINT events_channel_is_known CHECK ((channel = ANY (ARRAY['data'::text, 'alerts'::text])))
);
CREATE SEQUENCE public.events_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.events_id_seq OWNED BY public.events.id;
CREATE TABLE public.feeds (
    id bigint NOT NULL,
    platform text NOT NULL,
    handle text NOT NULL,
    handle_key text NOT NULL,
    user_id bigint,
    state text NOT NULL,
    reason text,
    every_seconds double precision,
    added_at timestamp with time zone NOT NULL,
    removed_at timestamp with time zone,
    newest_post_at timestamp with time zone,
    newest_reply_at timestamp with time zone,
    polled_at timestamp with time zone,
    posts bigint DEFAULT 0 NOT NULL,
    CONSTRAINT feeds_platform_is_known CHECK ((platform = ANY (ARRAY['x'::text, 'threads'::text]))),
    CONSTRAINT feeds_state_is_known CHECK ((state = ANY (ARRAY['new'::text, 'active'::text, 'refused'::text, 'removed'::text])))
);
CREATE SEQUENCE public.feeds_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.feeds_id_seq OWNED BY public.feeds.id;
CREATE TABLE public.follow_events (
    id bigint NOT NULL,
    platform text NOT NULL,
    follower_id bigint NOT NULL,
    followed_id bigint NOT NULL,
    kind text NOT NULL,
    cause text NOT NULL,
    at timestamp with time zone NOT NULL,
    ingest_id bigint,
    CONSTRAINT follow_events_cause_is_known CHECK ((cause = ANY (ARRAY['seen'::text, 'pushed'::text, 'unfollowed'::text, 'suspended'::text, 'vanished'::text]))),
    CONSTRAINT follow_events_kind_is_known CHECK ((kind = ANY (ARRAY['followed'::text, 'unfollowed'::text])))
);
CREATE SEQUENCE public.follow_events_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.follow_events_id_seq OWNED BY public.follow_events.id;
CREATE TABLE public.follows (
    platform text NOT NULL,
    follower_id bigint NOT NULL,
    followed_id bigint NOT NULL,
    first_seen_at timestamp with time zone NOT NULL,
    last_seen_at timestamp with time zone NOT NULL,
    seen_in bigint NOT NULL,
    missed_in bigint,
    ended_at timestamp with time zone,
    CONSTRAINT follows_nobody_follows_himself CHECK ((follower_id <> followed_id))
);
CREATE TABLE public.hosts (
    host text NOT NULL,
    next_at timestamp with time zone NOT NULL,
    delay_seconds double precision
);
CREATE TABLE public.ingest_events (
    id bigint NOT NULL,
    platform text NOT NULL,
    kind text NOT NULL,
    status text NOT NULL,
    subject_id bigint,
    mode text,
    asked_by text NOT NULL,
    job_id bigint,
    started_at timestamp with time zone NOT NULL,
    finished_at timestamp with time zone,
    calls integer DEFAULT 0 NOT NULL,
    items integer DEFAULT 0 NOT NULL,
    plausible boolean,
    endpoint text,
    http_status smallint,
    exchange json,
    problem text,
    CONSTRAINT ingest_events_finished_ones_say_when CHECK (((finished_at IS NULL) = (status = 'in_progress'::text))),
    CONSTRAINT ingest_events_kind_is_known CHECK ((kind = ANY (ARRAY['users_by_ids'::text, 'posts_by_ids'::text, 'followers_sync'::text, 'followings_sync'::text, 'posts_sync'::text, 'webhook'::text]))),
    CONSTRAINT ingest_events_platform_is_known CHECK ((platform = ANY (ARRAY['x'::text, 'threads'::text]))),
    CONSTRAINT ingest_events_status_is_known CHECK ((status = ANY (ARRAY['in_progress'::text, 'success'::text, 'error'::text, 'cancelled'::text])))
);
CREATE SEQUENCE public.ingest_events_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.ingest_events_id_seq OWNED BY public.ingest_events.id;
CREATE TABLE public.ingest_ids (
    ingest_id bigint NOT NULL,
    id bigint NOT NULL
);
CREATE TABLE public.item_links (
    link_id bigint NOT NULL,
    item_id bigint NOT NULL
);
CREATE TABLE public.item_looks (
    item_id bigint NOT NULL,
    source text NOT NULL,
    looked_at timestamp with time zone NOT NULL,
    listings integer DEFAULT 0 NOT NULL,
    points integer DEFAULT 0 NOT NULL,
    found_at timestamp with time zone,
    problem text
);
CREATE TABLE public.items (
    id bigint NOT NULL,
    ref text,
    title text NOT NULL,
    attributes json NOT NULL,
    exclude json NOT NULL,
    sources json NOT NULL,
    urls json NOT NULL,
    currency text,
    every_hours double precision,
    digest text NOT NULL,
    state text NOT NULL,
    added_at timestamp with time zone NOT NULL,
    changed_at timestamp with time zone NOT NULL,
    next_look_at timestamp with time zone NOT NULL,
    CONSTRAINT items_currency_is_iso CHECK (((currency IS NULL) OR (length(currency) = 3))),
    CONSTRAINT items_some_time_passes CHECK (((every_hours IS NULL) OR (every_hours > (0)::double precision))),
    CONSTRAINT items_state_is_known CHECK ((state = ANY (ARRAY['active'::text, 'paused'::text, 'removed'::text])))
);
CREATE SEQUENCE public.items_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.items_id_seq OWNED BY public.items.id;
CREATE TABLE public.job_errors (
    job_id bigint NOT NULL,
    fence bigint NOT NULL,
    at timestamp with time zone NOT NULL,
    worker text NOT NULL,
    error text NOT NULL
);
CREATE TABLE public.job_history (
    id bigint NOT NULL,
    kind text NOT NULL,
    key text,
    lane text NOT NULL,
    class smallint NOT NULL,
    state text NOT NULL,
    args json NOT NULL,
    attempts smallint NOT NULL,
    fence bigint NOT NULL,
    run_at timestamp with time zone NOT NULL,
    created_at timestamp with time zone NOT NULL,
    started_at timestamp with time zone,
    finished_at timestamp with time zone NOT NULL,
    worker text,
    CONSTRAINT job_history_state_is_known CHECK ((state = ANY (ARRAY['succeeded'::text, 'cancelled'::text])))
);
CREATE TABLE public.jobs (
    id bigint NOT NULL,
    kind text NOT NULL,
    key text,
    lane text NOT NULL,
    class smallint NOT NULL,
    state text NOT NULL,
    args json NOT NULL,
    attempts smallint DEFAULT 0 NOT NULL,
    max_attempts smallint NOT NULL,
    fence bigint DEFAULT 0 NOT NULL,
    run_at timestamp with time zone NOT NULL,
    created_at timestamp with time zone NOT NULL,
    started_at timestamp with time zone,
    worker text,
    lease_until timestamp with time zone,
    parked boolean DEFAULT false NOT NULL,
    alone boolean DEFAULT false NOT NULL,
    wait_reason text,
    last_error text,
    CONSTRAINT jobs_attempts_within_limit CHECK (((attempts >= 0) AND (attempts <= max_attempts))),
    CONSTRAINT jobs_class_is_known CHECK (((class >= 1) AND (class <= 9))),
    CONSTRAINT jobs_only_pending_jobs_are_parked CHECK (((NOT parked) OR (state = 'pending'::text))),
    CONSTRAINT jobs_only_running_jobs_are_leased CHECK ((((state = 'running'::text) = (worker IS NOT NULL)) AND ((state = 'running'::text) = (lease_until IS NOT NULL)))),
    CONSTRAINT jobs_state_is_known CHECK ((state = ANY (ARRAY['pending'::text, 'queued'::text, 'running'::text, 'retryable'::text, 'failed'::text, 'dead'::text])))
)
WITH (autovacuum_vacuum_scale_factor='0.0', autovacuum_vacuum_threshold='2000', autovacuum_vacuum_cost_delay='0', autovacuum_analyze_scale_factor='0.2');
CREATE SEQUENCE public.jobs_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.jobs_id_seq OWNED BY public.jobs.id;
CREATE TABLE public.leaders (
    name text NOT NULL,
    holder text NOT NULL,
    fence bigint NOT NULL,
    since timestamp with time zone NOT NULL,
    lease_until timestamp with time zone NOT NULL
);
CREATE TABLE public.links (
    id bigint NOT NULL,
    url_norm text NOT NULL,
    url text NOT NULL,
    host text NOT NULL,
    lane text NOT NULL,
    platform text NOT NULL,
    kind text NOT NULL,
    state text NOT NULL,
    region text,
    shop_id text,
    item_id text,
    leads_to bigint,
    product_id bigint,
    problem text,
    first_seen_at timestamp with time zone NOT NULL,
    crawled_at timestamp with time zone,
    content_hash text,
    CONSTRAINT links_kind_is_known CHECK ((kind = ANY (ARRAY['item'::text, 'catalogue'::text, 'shop'::text, 'search'::text, 'short'::text, 'code'::text, 'blocked'::text, 'dead'::text, 'page'::text, 'refused'::text]))),
    CONSTRAINT links_state_is_known CHECK ((state = ANY (ARRAY['new'::text, 'crawled'::text, 'resolved'::text, 'unresolved'::text, 'blocked'::text, 'gone'::text, 'failed'::text])))
);
CREATE SEQUENCE public.links_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.links_id_seq OWNED BY public.links.id;
CREATE TABLE public.missing (
    platform text NOT NULL,
    what text NOT NULL,
    id bigint NOT NULL,
    reason text NOT NULL,
    asked_at timestamp with time zone NOT NULL,
    times_asked integer DEFAULT 1 NOT NULL,
    CONSTRAINT missing_platform_is_known CHECK ((platform = ANY (ARRAY['x'::text, 'threads'::text]))),
    CONSTRAINT missing_what_is_known CHECK ((what = ANY (ARRAY['user'::text, 'post'::text])))
);
CREATE TABLE public.odd_listings (
    id bigint NOT NULL,
    source text NOT NULL,
    item_id bigint NOT NULL,
    digest text NOT NULL,
    problem text NOT NULL,
    payload bytea NOT NULL,
    first_seen_at timestamp with time zone NOT NULL,
    last_seen_at timestamp with time zone NOT NULL,
    times_seen integer DEFAULT 1 NOT NULL
);
CREATE SEQUENCE public.odd_listings_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.odd_listings_id_seq OWNED BY public.odd_listings.id;
CREATE TABLE public.offers (
    id bigint NOT NULL,
    product_id bigint NOT NULL,
    link_id bigint,
    observed_at timestamp with time zone NOT NULL,
    last_seen_at timestamp with time zone NOT NULL,
    times_seen integer DEFAULT 1 NOT NULL,
    amount numeric,
    amount_max numeric,
    list_amount numeric,
    currency text,
    availability text,
    sold_count bigint,
    rating_count bigint,
    content_hash text NOT NULL,
    path text NOT NULL,
    confidence double precision NOT NULL,
    evidence json NOT NULL,
    doubt text,
    CONSTRAINT offers_amounts_have_a_currency CHECK (((amount IS NULL) OR (currency IS NOT NULL))),
    CONSTRAINT offers_currency_is_iso CHECK (((currency IS NULL) OR (length(currency) = 3)))
);
CREATE SEQUENCE public.offers_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.offers_id_seq OWNED BY public.offers.id;
CREATE TABLE public.paused_kinds (
    kind text NOT NULL,
    reason text NOT NULL,
    paused_at timestamp with time zone NOT NULL
);
CREATE TABLE public.post_links (
    platform text NOT NULL,
    post_id bigint NOT NULL,
    link_id bigint NOT NULL,
    place text NOT NULL,
    nr smallint NOT NULL,
    url text NOT NULL,
    seen_at timestamp with time zone NOT NULL,
    CONSTRAINT post_links_place_is_known CHECK ((place = ANY (ARRAY['text'::text, 'entity'::text, 'attachment'::text, 'text_attachment'::text, 'quoted'::text])))
);
CREATE TABLE public.posts (
    platform text NOT NULL,
    id bigint NOT NULL,
    author_id bigint NOT NULL,
    text text NOT NULL,
    text_clean text NOT NULL,
    search_text text,
    lang text,
    url text,
    created_at timestamp with time zone NOT NULL,
    conversation_id bigint,
    in_reply_to_id bigint,
    in_reply_to_user_id bigint,
    quoted_id bigint,
    reposted_id bigint,
    referenced_text text,
    referenced_handle text,
    referenced_media json,
    media json,
    links json,
    likes bigint,
    replies bigint,
    reposts bigint,
    quotes bigint,
    bookmarks bigint,
    views bigint,
    nested boolean DEFAULT false NOT NULL,
    raw json NOT NULL,
    first_seen_at timestamp with time zone NOT NULL,
    last_updated_at timestamp with time zone NOT NULL,
    ingest_id bigint,
    referenced_text_clean text,
    CONSTRAINT posts_platform_is_known CHECK ((platform = ANY (ARRAY['x'::text, 'threads'::text])))
);
CREATE TABLE public.price_point_versions (
    point_id bigint NOT NULL,
    nr integer NOT NULL,
    kind text NOT NULL,
    amount numeric NOT NULL,
    currency text NOT NULL,
    match_strength double precision NOT NULL,
    observed_at timestamp with time zone NOT NULL,
    replaced_at timestamp with time zone NOT NULL
);
CREATE TABLE public.price_points (
    id bigint NOT NULL,
    item_id bigint NOT NULL,
    source text NOT NULL,
    dedupe_key text NOT NULL,
    kind text NOT NULL,
    amount numeric NOT NULL,
    currency text NOT NULL,
    condition text,
    title text NOT NULL,
    url text NOT NULL,
    external_id text,
    bid_count integer,
    match_strength double precision NOT NULL,
    observed_at timestamp with time zone NOT NULL,
    first_seen_at timestamp with time zone NOT NULL,
    last_seen_at timestamp with time zone NOT NULL,
    times_seen integer DEFAULT 1 NOT NULL,
    product_id bigint,
    offer_id bigint,
    doubt text,
    CONSTRAINT price_points_a_bid_was_made CHECK (((kind <> 'bid'::text) OR (COALESCE(bid_count, 0) >= 1))),
    CONSTRAINT price_points_currency_is_iso CHECK ((length(currency) = 3)),
    CONSTRAINT price_points_kind_is_known CHECK ((kind = ANY (ARRAY['sold'::text, 'ask'::text, 'bid'::text]))),
    CONSTRAINT price_points_strength_is_a_share CHECK (((match_strength >= (0)::double precision) AND (match_strength <= (1)::double precision)))
);
CREATE SEQUENCE public.price_points_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.price_points_id_seq OWNED BY public.price_points.id;
CREATE TABLE public.price_watches (
    id bigint NOT NULL,
    item_id bigint,
    product_id bigint,
    kind text NOT NULL,
    percent double precision,
    target numeric,
    currency text,
    state text NOT NULL,
    automatic boolean DEFAULT false NOT NULL,
    added_at timestamp with time zone NOT NULL,
    amount numeric,
    amount_currency text,
    availability text,
    known_at timestamp with time zone,
    rests_on json,
    suspected json,
    suspected_at timestamp with time zone,
    problem text,
    told_at timestamp with time zone,
    events integer DEFAULT 0 NOT NULL,
    CONSTRAINT price_watches_a_change_has_a_size CHECK (((kind = 'changed'::text) = (percent IS NOT NULL))),
    CONSTRAINT price_watches_a_target_is_an_amount CHECK (((kind = 'below'::text) = ((target IS NOT NULL) AND (currency IS NOT NULL)))),
    CONSTRAINT price_watches_kind_is_known CHECK ((kind = ANY (ARRAY['changed'::text, 'below'::text, 'back_in_stock'::text]))),
    CONSTRAINT price_watches_one_thing_is_watched CHECK (((item_id IS NULL) <> (product_id IS NULL))),
    CONSTRAINT price_watches_state_is_known CHECK ((state = ANY (ARRAY['active'::text, 'removed'::text])))
);
CREATE SEQUENCE public.price_watches_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.price_watches_id_seq OWNED BY public.price_watches.id;
CREATE TABLE public.product_words (
    product_id bigint NOT NULL,
    word text NOT NULL,
    lane text NOT NULL
);
CREATE TABLE public.products (
    id bigint NOT NULL,
    platform text NOT NULL,
    region text DEFAULT ''::text NOT NULL,
    shop_id text DEFAULT ''::text NOT NULL,
    item_id text NOT NULL,
    url text NOT NULL,
    title text,
    brand text,
    sku text,
    image_url text,
    first_seen_at timestamp with time zone NOT NULL,
    last_seen_at timestamp with time zone NOT NULL,
    gone_at timestamp with time zone,
    offer_id bigint
);
CREATE SEQUENCE public.products_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.products_id_seq OWNED BY public.products.id;
CREATE TABLE public.quarantine (
    id bigint NOT NULL,
    platform text NOT NULL,
    endpoint text NOT NULL,
    digest text NOT NULL,
    problem text NOT NULL,
    payload bytea NOT NULL,
    first_seen_at timestamp with time zone NOT NULL,
    last_seen_at timestamp with time zone NOT NULL,
    times_seen integer DEFAULT 1 NOT NULL,
    resolved_at timestamp with time zone,
    CONSTRAINT quarantine_platform_is_known CHECK ((platform = ANY (ARRAY['x'::text, 'threads'::text])))
);
CREATE SEQUENCE public.quarantine_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.quarantine_id_seq OWNED BY public.quarantine.id;
CREATE TABLE public.workers (
    name text NOT NULL,
    host text NOT NULL,
    pid integer NOT NULL,
    version text NOT NULL,
    lanes text NOT NULL,
    concurrency integer NOT NULL,
    running integer NOT NULL,
    draining boolean NOT NULL,
    started_at timestamp with time zone NOT NULL,
    seen_at timestamp with time zone NOT NULL
);
CREATE VIEW public.recent_jobs AS
 SELECT j.id,
    j.kind,
    j.key,
    j.lane,
    j.state AS status,
    j.worker AS locked_by,
        CASE
            WHEN (j.state = 'running'::text) THEN GREATEST(COALESCE(j.started_at, j.created_at), COALESCE(( SELECT w.seen_at
               FROM public.workers w
              WHERE (w.name = j.worker)), COALESCE(j.started_at, j.created_at)))
            ELSE NULL::timestamp with time zone
        END AS heartbeat_at,
    j.created_at,
    j.started_at,
        CASE
            WHEN (j.state = ANY (ARRAY['failed'::text, 'dead'::text])) THEN j.run_at
            ELSE NULL::timestamp with time zone
        END AS completed_at,
        CASE
            WHEN (j.state = 'retryable'::text) THEN j.run_at
            ELSE NULL::timestamp with time zone
        END AS next_retry_at,
    j.attempts,
    j.last_error AS error_message
   FROM public.jobs j
UNION ALL
 SELECT h.id,
    h.kind,
    h.key,
    h.lane,
    h.state AS status,
    h.worker AS locked_by,
    NULL::timestamp with time zone AS heartbeat_at,
    h.created_at,
    h.started_at,
        CASE
            WHEN (h.state = ANY (ARRAY['succeeded'::text, 'cancelled'::text])) THEN h.finished_at
            ELSE NULL::timestamp with time zone
        END AS completed_at,
    NULL::timestamp with time zone AS next_retry_at,
    h.attempts,
    ( SELECT e.error
           FROM public.job_errors e
          WHERE (e.job_id = h.id)
          ORDER BY e.fence DESC
         LIMIT 1) AS error_message
   FROM public.job_history h;
CREATE TABLE public.run_accounts (
    run_id text NOT NULL,
    "position" integer NOT NULL,
    handle text NOT NULL,
    user_id bigint,
    status text NOT NULL,
    total integer DEFAULT 0 NOT NULL,
    new integer DEFAULT 0 NOT NULL,
    skipped integer DEFAULT 0 NOT NULL,
    failed integer DEFAULT 0 NOT NULL,
    reason text,
    updated_at timestamp with time zone NOT NULL,
    CONSTRAINT run_accounts_status_is_known CHECK ((status = ANY (ARRAY['pending'::text, 'running'::text, 'completed'::text, 'failed'::text])))
);
CREATE TABLE public.run_posts (
    run_id text NOT NULL,
    platform text NOT NULL,
    post_id bigint NOT NULL
);
CREATE TABLE public.runs (
    id text NOT NULL,
    kind text NOT NULL,
    status text NOT NULL,
    asked_by text NOT NULL,
    post_limit integer NOT NULL,
    created_at timestamp with time zone NOT NULL,
    updated_at timestamp with time zone NOT NULL,
    finished_at timestamp with time zone,
    CONSTRAINT runs_finished_ones_say_when CHECK (((finished_at IS NULL) = (status = ANY (ARRAY['pending'::text, 'running'::text])))),
    CONSTRAINT runs_status_is_known CHECK ((status = ANY (ARRAY['pending'::text, 'running'::text, 'completed'::text, 'failed'::text])))
);
CREATE TABLE public.segment_events (
    id bigint NOT NULL,
    segment_id bigint NOT NULL,
    snapshot_id bigint NOT NULL,
    platform text NOT NULL,
    user_id bigint,
    post_id bigint,
    kind text NOT NULL,
    at timestamp with time zone NOT NULL,
    CONSTRAINT segment_events_a_user_or_a_post CHECK (((user_id IS NULL) <> (post_id IS NULL))),
    CONSTRAINT segment_events_kind_is_known CHECK ((kind = ANY (ARRAY['entered'::text, 'left'::text])))
);
CREATE SEQUENCE public.segment_events_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.segment_events_id_seq OWNED BY public.segment_events.id;
CREATE TABLE public.segment_inputs (
    segment_id bigint NOT NULL,
    platform text NOT NULL,
    user_id bigint NOT NULL,
    added_at timestamp with time zone NOT NULL
);
CREATE TABLE public.segment_members (
    id bigint NOT NULL,
    segment_id bigint NOT NULL,
    platform text NOT NULL,
    user_id bigint,
    post_id bigint,
    since timestamp with time zone NOT NULL,
    CONSTRAINT segment_members_a_user_or_a_post CHECK (((user_id IS NULL) <> (post_id IS NULL)))
);
CREATE SEQUENCE public.segment_members_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.segment_members_id_seq OWNED BY public.segment_members.id;
CREATE TABLE public.segment_snapshots (
    id bigint NOT NULL,
    segment_id bigint NOT NULL,
    at timestamp with time zone NOT NULL,
    members integer NOT NULL,
    entered integer NOT NULL,
    departed integer NOT NULL,
    ingests json NOT NULL
);
CREATE SEQUENCE public.segment_snapshots_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.segment_snapshots_id_seq OWNED BY public.segment_snapshots.id;
CREATE TABLE public.segments (
    id bigint NOT NULL,
    name text NOT NULL,
    what text NOT NULL,
    rule json NOT NULL,
    enabled boolean DEFAULT true NOT NULL,
    every_seconds double precision,
    fresh_seconds double precision,
    created_at timestamp with time zone NOT NULL,
    changed_at timestamp with time zone NOT NULL,
    materialized_at timestamp with time zone,
    next_at timestamp with time zone,
    CONSTRAINT segments_what_is_known CHECK ((what = ANY (ARRAY['users'::text, 'posts'::text])))
);
CREATE SEQUENCE public.segments_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.segments_id_seq OWNED BY public.segments.id;
CREATE TABLE public.sessions (
    digest text NOT NULL,
    name text NOT NULL,
    scope text NOT NULL,
    token_id bigint,
    csrf text NOT NULL,
    created_at timestamp with time zone NOT NULL,
    expires_at timestamp with time zone NOT NULL,
    CONSTRAINT sessions_scope_is_known CHECK ((scope = ANY (ARRAY['read'::text, 'operate'::text, 'admin'::text])))
);
CREATE TABLE public.sources (
    name text NOT NULL,
    paused_at timestamp with time zone,
    paused_by text,
    pause_reason text,
    failure_streak integer DEFAULT 0 NOT NULL,
    opened_until timestamp with time zone,
    probe_until timestamp with time zone,
    last_success_at timestamp with time zone,
    last_failure_at timestamp with time zone,
    last_failure text,
    day text,
    day_credits bigint DEFAULT 0 NOT NULL,
    month_credits bigint DEFAULT 0 NOT NULL,
    day_cap bigint,
    month_cap bigint,
    CONSTRAINT sources_a_pause_has_its_cause CHECK (((paused_at IS NULL) = (paused_by IS NULL)))
);
CREATE VIEW public.source_health AS
 SELECT s.name,
    (s.paused_at IS NULL) AS enabled,
    s.failure_streak,
    s.last_success_at,
    s.last_failure_at,
    s.last_failure,
        CASE
            WHEN (s.opened_until > now()) THEN s.opened_until
            ELSE NULL::timestamp with time zone
        END AS paused_until,
    s.pause_reason,
        CASE
            WHEN (s.paused_at IS NOT NULL) THEN 'paused'::text
            WHEN (s.opened_until > now()) THEN 'breaker open'::text
            WHEN (s.opened_until IS NOT NULL) THEN 'half-open'::text
            ELSE 'serving'::text
        END AS state
   FROM public.sources s;
CREATE TABLE public.source_keys (
    source text NOT NULL,
    label text NOT NULL,
    rate_per_minute double precision,
    slowdown double precision DEFAULT 1 NOT NULL,
    slowed_at timestamp with time zone,
    next_at timestamp with time zone,
    paused_at timestamp with time zone,
    pause_reason text,
    balance bigint,
    balance_at timestamp with time zone,
    fingerprint text,
    reconciled_balance bigint,
    reconciled_at timestamp with time zone,
    billed_since timestamp with time zone
);
CREATE VIEW public.stuck_jobs AS
 SELECT j.id,
    j.kind,
    j.lane,
    j.state AS status,
    j.worker AS locked_by,
    GREATEST(COALESCE(j.started_at, j.created_at), COALESCE(w.seen_at, COALESCE(j.started_at, j.created_at))) AS heartbeat_at,
    j.lease_until,
    (EXTRACT(epoch FROM (now() - GREATEST(COALESCE(j.started_at, j.created_at), COALESCE(w.seen_at, COALESCE(j.started_at, j.created_at))))))::double precision AS seconds_since_heartbeat
   FROM (public.jobs j
     LEFT JOIN public.workers w ON ((w.name = j.worker)))
  WHERE ((j.state = 'running'::text) AND (j.lease_until <= now()));
CREATE TABLE public.suggestions (
    id bigint NOT NULL,
    platform text NOT NULL,
    handle text NOT NULL,
    handle_key text NOT NULL,
    wallet text,
    labels json NOT NULL,
    suggested_at timestamp with time zone NOT NULL,
    deleted_at timestamp with time zone,
    outcome text,
    reason text,
    user_id bigint,
    withdrawn_at timestamp with time zone,
    CONSTRAINT suggestions_closed_ones_have_an_outcome CHECK (((deleted_at IS NULL) = (outcome IS NULL))),
    CONSTRAINT suggestions_outcome_is_known CHECK ((outcome = ANY (ARRAY['accepted'::text, 'refused'::text]))),
    CONSTRAINT suggestions_platform_is_known CHECK ((platform = ANY (ARRAY['x'::text, 'threads'::text])))
);
CREATE SEQUENCE public.suggestions_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.suggestions_id_seq OWNED BY public.suggestions.id;
CREATE TABLE public.ticks (
    group_name text NOT NULL,
    tick_at timestamp with time zone NOT NULL,
    made_at timestamp with time zone NOT NULL,
    holder text NOT NULL,
    fence bigint NOT NULL,
    accounts integer NOT NULL,
    jobs integer NOT NULL,
    missed integer NOT NULL
);
CREATE TABLE public.user_versions (
    platform text NOT NULL,
    user_id bigint NOT NULL,
    until timestamp with time zone NOT NULL,
    handle text,
    handle_key text,
    name text,
    bio text,
    avatar_url text
);
CREATE TABLE public.users (
    platform text NOT NULL,
    id bigint NOT NULL,
    handle text,
    handle_key text,
    name text,
    bio text,
    location text,
    website text,
    avatar_url text,
    banner_url text,
    verified boolean,
    verified_kind text,
    protected boolean,
    automated boolean,
    followers_count bigint,
    following_count bigint,
    posts_count bigint,
    media_count bigint,
    likes_count bigint,
    created_at timestamp with time zone,
    unavailable_reason text,
    detail text NOT NULL,
    raw json NOT NULL,
    first_seen_at timestamp with time zone NOT NULL,
    last_updated_at timestamp with time zone NOT NULL,
    profiled_at timestamp with time zone,
    ingest_id bigint,
    CONSTRAINT users_detail_is_known CHECK ((detail = ANY (ARRAY['author'::text, 'listed'::text, 'profile'::text]))),
    CONSTRAINT users_platform_is_known CHECK ((platform = ANY (ARRAY['x'::text, 'threads'::text])))
);
CREATE TABLE public.valuation_history (
    id bigint NOT NULL,
    item_id bigint NOT NULL,
    estimate numeric NOT NULL,
    low numeric NOT NULL,
    high numeric NOT NULL,
    currency text NOT NULL,
    points integer NOT NULL,
    points_left_out integer NOT NULL,
    confidence double precision NOT NULL,
    newest_at timestamp with time zone NOT NULL,
    carriers json NOT NULL,
    left_out json NOT NULL,
    valued_at timestamp with time zone NOT NULL,
    ended_at timestamp with time zone
);
CREATE SEQUENCE public.valuation_history_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.valuation_history_id_seq OWNED BY public.valuation_history.id;
CREATE TABLE public.valuations (
    item_id bigint NOT NULL,
    estimate numeric NOT NULL,
    low numeric NOT NULL,
    high numeric NOT NULL,
    currency text NOT NULL,
    points integer NOT NULL,
    points_left_out integer NOT NULL,
    confidence double precision NOT NULL,
    newest_at timestamp with time zone NOT NULL,
    carriers json NOT NULL,
    left_out json NOT NULL,
    valued_at timestamp with time zone NOT NULL
);
ALTER TABLE ONLY public.alerts ALTER COLUMN id SET DEFAULT nextval('public.alerts_id_seq'::regclass);
ALTER TABLE ONLY public.api_tokens ALTER COLUMN id SET DEFAULT nextval('public.api_tokens_id_seq'::regclass);
ALTER TABLE ONLY public.calls ALTER COLUMN id SET DEFAULT nextval('public.calls_id_seq'::regclass);
ALTER TABLE ONLY public.crawls ALTER COLUMN id SET DEFAULT nextval('public.crawls_id_seq'::regclass);
ALTER TABLE ONLY public.deliveries ALTER COLUMN id SET DEFAULT nextval('public.deliveries_id_seq'::regclass);
ALTER TABLE ONLY public.events ALTER COLUMN id SET DEFAULT nextval('public.events_id_seq'::regclass);
ALTER TABLE ONLY public.feeds ALTER COLUMN id SET DEFAULT nextval('public.feeds_id_seq'::regclass);
ALTER TABLE ONLY public.follow_events ALTER COLUMN id SET DEFAULT nextval('public.follow_events_id_seq'::regclass);
ALTER TABLE ONLY public.ingest_events ALTER COLUMN id SET DEFAULT nextval('public.ingest_events_id_seq'::regclass);
ALTER TABLE ONLY public.items ALTER COLUMN id SET DEFAULT nextval('public.items_id_seq'::regclass);
ALTER TABLE ONLY public.jobs ALTER COLUMN id SET DEFAULT nextval('public.jobs_id_seq'::regclass);
ALTER TABLE ONLY public.links ALTER COLUMN id SET DEFAULT nextval('public.links_id_seq'::regclass);
ALTER TABLE ONLY public.odd_listings ALTER COLUMN id SET DEFAULT nextval('public.odd_listings_id_seq'::regclass);
ALTER TABLE ONLY public.offers ALTER COLUMN id SET DEFAULT nextval('public.offers_id_seq'::regclass);
ALTER TABLE ONLY public.price_points ALTER COLUMN id SET DEFAULT nextval('public.price_points_id_seq'::regclass);
ALTER TABLE ONLY public.price_watches ALTER COLUMN id SET DEFAULT nextval('public.price_watches_id_seq'::regclass);
ALTER TABLE ONLY public.products ALTER COLUMN id SET DEFAULT nextval('public.products_id_seq'::regclass);
ALTER TABLE ONLY public.quarantine ALTER COLUMN id SET DEFAULT nextval('public.quarantine_id_seq'::regclass);
ALTER TABLE ONLY public.segment_events ALTER COLUMN id SET DEFAULT nextval('public.segment_events_id_seq'::regclass);
ALTER TABLE ONLY public.segment_members ALTER COLUMN id SET DEFAULT nextval('public.segment_members_id_seq'::regclass);
ALTER TABLE ONLY public.segment_snapshots ALTER COLUMN id SET DEFAULT nextval('public.segment_snapshots_id_seq'::regclass);
ALTER TABLE ONLY public.segments ALTER COLUMN id SET DEFAULT nextval('public.segments_id_seq'::regclass);
ALTER TABLE ONLY public.suggestions ALTER COLUMN id SET DEFAULT nextval('public.suggestions_id_seq'::regclass);
ALTER TABLE ONLY public.valuation_history ALTER COLUMN id SET DEFAULT nextval('public.valuation_history_id_seq'::regclass);
INSERT INTO public.alembic_version VALUES ('0010');
INSERT INTO public.crawls VALUES (3, 1, NULL, NULL, NULL, '2026-03-01 12:00:00+00', 'unreadable', NULL, NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO public.job_history VALUES (5, 'walk', NULL, 'x', 2, 'succeeded', '{}', 1, 2, '2026-03-01 12:00:00+00', '2026-03-01 12:00:00+00', NULL, '2026-03-01 12:00:00+00', NULL);
INSERT INTO public.jobs VALUES (1, 'backfill', '7', 'x', 1, 'pending', '{"user_id": 7}', 0, 10, 0, '2026-03-01 12:00:00+00', '2026-03-01 12:00:00+00', NULL, NULL, NULL, false, false, NULL, NULL);
INSERT INTO public.links VALUES (1, 'https://a.example/', 'https://a.example/', 'a.example', 'web', 'web', 'page', 'new', NULL, NULL, NULL, NULL, NULL, NULL, '2026-03-01 12:00:00+00', NULL, NULL);
INSERT INTO public.posts VALUES ('x', 1899999999999999999, 7, 'a solar eclipse', 'a solar eclipse', 'a solar eclipse', NULL, NULL, '2026-03-01 12:00:00+00', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, false, '{"id":1899999999999999999}', '2026-03-01 12:00:00+00', '2026-03-01 12:00:00+00', NULL, NULL);
INSERT INTO public.sources VALUES ('x', NULL, NULL, NULL, 0, NULL, NULL, NULL, NULL, NULL, NULL, 0, 0, NULL, NULL);
INSERT INTO public.users VALUES ('x', 7, 'Ann', 'ann', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 'author', '{"id":7}', '2026-03-01 12:00:00+00', '2026-03-01 12:00:00+00', NULL, NULL);
SELECT pg_catalog.setval('public.alerts_id_seq', 1, false);
SELECT pg_catalog.setval('public.api_tokens_id_seq', 1, false);
SELECT pg_catalog.setval('public.calls_id_seq', 1, false);
SELECT pg_catalog.setval('public.crawls_id_seq', 1, false);
SELECT pg_catalog.setval('public.deliveries_id_seq', 1, false);
SELECT pg_catalog.setval('public.events_id_seq', 1, false);
SELECT pg_catalog.setval('public.feeds_id_seq', 1, false);
SELECT pg_catalog.setval('public.follow_events_id_seq', 1, false);
SELECT pg_catalog.setval('public.ingest_events_id_seq', 1, false);
SELECT pg_catalog.setval('public.items_id_seq', 1, false);
SELECT pg_catalog.setval('public.jobs_id_seq', 1, true);
SELECT pg_catalog.setval('public.links_id_seq', 1, false);
SELECT pg_catalog.setval('public.odd_listings_id_seq', 1, false);
SELECT pg_catalog.setval('public.offers_id_seq', 1, false);
SELECT pg_catalog.setval('public.price_points_id_seq', 1, false);
SELECT pg_catalog.setval('public.price_watches_id_seq', 1, false);
SELECT pg_catalog.setval('public.products_id_seq', 1, false);
SELECT pg_catalog.setval('public.quarantine_id_seq', 1, false);
SELECT pg_catalog.setval('public.segment_events_id_seq', 1, false);
SELECT pg_catalog.setval('public.segment_members_id_seq', 1, false);
SELECT pg_catalog.setval('public.segment_snapshots_id_seq', 1, false);
SELECT pg_catalog.setval('public.segments_id_seq', 1, false);
SELECT pg_catalog.setval('public.suggestions_id_seq', 1, false);
SELECT pg_catalog.setval('public.valuation_history_id_seq', 1, false);
ALTER TABLE ONLY public.accounts
    ADD CONSTRAINT accounts_pkey PRIMARY KEY (platform, user_id);
ALTER TABLE ONLY public.alembic_version
    ADD CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num);
ALTER TABLE ONLY public.alerts
    ADD CONSTRAINT alerts_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.api_tokens
    ADD CONSTRAINT api_tokens_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.cached_answers
    ADD CONSTRAINT cached_answers_pkey PRIMARY KEY (key);
ALTER TABLE ONLY public.call_sums
    ADD CONSTRAINT call_sums_pkey PRIMARY KEY (day, source, key_label, endpoint, account_id);
ALTER TABLE ONLY public.calls
    ADD CONSTRAINT calls_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.crawls
    ADD CONSTRAINT crawls_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.currency_rates
    ADD CONSTRAINT currency_rates_pkey PRIMARY KEY (base, quote, day);
ALTER TABLE ONLY public.dead_letters
    ADD CONSTRAINT dead_letters_pkey PRIMARY KEY (job_id);
ALTER TABLE ONLY public.deliveries
    ADD CONSTRAINT deliveries_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.events
    ADD CONSTRAINT events_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.feeds
    ADD CONSTRAINT feeds_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.follow_events
    ADD CONSTRAINT follow_events_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.follows
    ADD CONSTRAINT follows_pkey PRIMARY KEY (platform, follower_id, followed_id);
ALTER TABLE ONLY public.hosts
    ADD CONSTRAINT hosts_pkey PRIMARY KEY (host);
ALTER TABLE ONLY public.ingest_events
    ADD CONSTRAINT ingest_events_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.ingest_ids
    ADD CONSTRAINT ingest_ids_pkey PRIMARY KEY (ingest_id, id);
ALTER TABLE ONLY public.item_links
    ADD CONSTRAINT item_links_pkey PRIMARY KEY (link_id, item_id);
ALTER TABLE ONLY public.item_looks
    ADD CONSTRAINT item_looks_pkey PRIMARY KEY (item_id, source);
ALTER TABLE ONLY public.items
    ADD CONSTRAINT items_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.job_errors
    ADD CONSTRAINT job_errors_pkey PRIMARY KEY (job_id, fence);
ALTER TABLE ONLY public.job_history
    ADD CONSTRAINT job_history_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.jobs
    ADD CONSTRAINT jobs_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.leaders
    ADD CONSTRAINT leaders_pkey PRIMARY KEY (name);
ALTER TABLE ONLY public.links
    ADD CONSTRAINT links_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.missing
    ADD CONSTRAINT missing_pkey PRIMARY KEY (platform, what, id);
ALTER TABLE ONLY public.odd_listings
    ADD CONSTRAINT odd_listings_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.offers
    ADD CONSTRAINT offers_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.paused_kinds
    ADD CONSTRAINT paused_kinds_pkey PRIMARY KEY (kind);
ALTER TABLE ONLY public.post_links
    ADD CONSTRAINT post_links_pkey PRIMARY KEY (platform, post_id, link_id, place);
ALTER TABLE ONLY public.posts
    ADD CONSTRAINT posts_pkey PRIMARY KEY (platform, id);
ALTER TABLE ONLY public.price_point_versions
    ADD CONSTRAINT price_point_versions_pkey PRIMARY KEY (point_id, nr);
ALTER TABLE ONLY public.price_points
    ADD CONSTRAINT price_points_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.price_watches
    ADD CONSTRAINT price_watches_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.product_words
    ADD CONSTRAINT product_words_pkey PRIMARY KEY (product_id, word);
ALTER TABLE ONLY public.products
    ADD CONSTRAINT products_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.quarantine
    ADD CONSTRAINT quarantine_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.run_accounts
    ADD CONSTRAINT run_accounts_pkey PRIMARY KEY (run_id, "position");
ALTER TABLE ONLY public.run_posts
    ADD CONSTRAINT run_posts_pkey PRIMARY KEY (run_id, platform, post_id);
ALTER TABLE ONLY public.runs
    ADD CONSTRAINT runs_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.segment_events
    ADD CONSTRAINT segment_events_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.segment_inputs
    ADD CONSTRAINT segment_inputs_pkey PRIMARY KEY (segment_id, platform, user_id);
ALTER TABLE ONLY public.segment_members
    ADD CONSTRAINT segment_members_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.segment_snapshots
    ADD CONSTRAINT segment_snapshots_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.segments
    ADD CONSTRAINT segments_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.sessions
    ADD CONSTRAINT sessions_pkey PRIMARY KEY (digest);
ALTER TABLE ONLY public.source_keys
    ADD CONSTRAINT source_keys_pkey PRIMARY KEY (source, label);
ALTER TABLE ONLY public.sources
    ADD CONSTRAINT sources_pkey PRIMARY KEY (name);
ALTER TABLE ONLY public.suggestions
    ADD CONSTRAINT suggestions_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.ticks
    ADD CONSTRAINT ticks_pkey PRIMARY KEY (group_name, tick_at);
ALTER TABLE ONLY public.user_versions
    ADD CONSTRAINT user_versions_pkey PRIMARY KEY (platform, user_id, until);
ALTER TABLE ONLY public.users
    ADD CONSTRAINT users_pkey PRIMARY KEY (platform, id);
ALTER TABLE ONLY public.valuation_history
    ADD CONSTRAINT valuation_history_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.valuations
    ADD CONSTRAINT valuations_pkey PRIMARY KEY (item_id);
ALTER TABLE ONLY public.workers
    ADD CONSTRAINT workers_pkey PRIMARY KEY (name);
CREATE INDEX accounts_next_look_at ON public.accounts USING btree (next_look_at) WHERE (next_look_at IS NOT NULL);
CREATE UNIQUE INDEX alerts_open ON public.alerts USING btree (rule, subject) WHERE (closed_at IS NULL);
CREATE INDEX alerts_opened_at ON public.alerts USING btree (opened_at);
CREATE UNIQUE INDEX api_tokens_digest ON public.api_tokens USING btree (digest);
CREATE INDEX cached_answers_source ON public.cached_answers USING btree (source, fresh_until);
CREATE INDEX cached_answers_stored_at ON public.cached_answers USING btree (stored_at);
CREATE INDEX calls_at ON public.calls USING btree (at);
CREATE INDEX crawls_at ON public.crawls USING btree (at);
CREATE INDEX crawls_link ON public.crawls USING btree (link_id, id);
CREATE INDEX currency_rates_quote ON public.currency_rates USING btree (quote, base, day);
CREATE INDEX deliveries_event ON public.deliveries USING btree (event_id);
CREATE INDEX deliveries_subscriber ON public.deliveries USING btree (subscriber, id);
CREATE INDEX events_created_at ON public.events USING btree (created_at);
CREATE INDEX events_to_fan_out ON public.events USING btree (id) WHERE (fanned_out_at IS NULL);
CREATE UNIQUE INDEX feeds_live ON public.feeds USING btree (platform, handle_key) WHERE (state <> 'removed'::text);
CREATE INDEX follow_events_followed ON public.follow_events USING btree (platform, followed_id, id);
CREATE INDEX follow_events_follower ON public.follow_events USING btree (platform, follower_id, id);
CREATE INDEX follows_followed ON public.follows USING btree (platform, followed_id, follower_id);
CREATE UNIQUE INDEX ingest_events_open ON public.ingest_events USING btree (job_id) WHERE (status = 'in_progress'::text);
CREATE INDEX ingest_events_started_at ON public.ingest_events USING btree (started_at);
CREATE INDEX ingest_events_subject ON public.ingest_events USING btree (platform, kind, subject_id, id);
CREATE INDEX item_links_item ON public.item_links USING btree (item_id);
CREATE INDEX item_looks_looked_at ON public.item_looks USING btree (looked_at);
CREATE INDEX items_due ON public.items USING btree (next_look_at, id) WHERE (state = 'active'::text);
CREATE UNIQUE INDEX items_ref ON public.items USING btree (ref) WHERE ((ref IS NOT NULL) AND (state <> 'removed'::text));
CREATE INDEX items_state ON public.items USING btree (state, id);
CREATE UNIQUE INDEX items_wish ON public.items USING btree (digest) WHERE ((ref IS NULL) AND (state <> 'removed'::text));
CREATE INDEX job_errors_at ON public.job_errors USING btree (at);
CREATE INDEX job_history_created ON public.job_history USING btree (created_at, id);
CREATE INDEX job_history_finished_at ON public.job_history USING brin (finished_at);
CREATE INDEX jobs_created ON public.jobs USING btree (created_at, id);
CREATE INDEX jobs_due ON public.jobs USING btree (kind, lane, run_at, id) WHERE ((state = ANY (ARRAY['pending'::text, 'retryable'::text])) AND (NOT parked));
CREATE INDEX jobs_gaps ON public.jobs USING btree (kind, id) WHERE (state = ANY (ARRAY['failed'::text, 'dead'::text]));
CREATE INDEX jobs_leased ON public.jobs USING btree (lease_until) WHERE (state = 'running'::text);
CREATE UNIQUE INDEX jobs_live_key ON public.jobs USING btree (kind, key) WHERE ((key IS NOT NULL) AND (state = ANY (ARRAY['pending'::text, 'queued'::text, 'running'::text, 'retryable'::text])));
CREATE INDEX jobs_parked ON public.jobs USING btree (kind, run_at, id) WHERE parked;
CREATE INDEX jobs_queued ON public.jobs USING btree (lane, started_at, id) WHERE (state = 'queued'::text);
CREATE INDEX links_crawled_at ON public.links USING btree (crawled_at, id) WHERE (state = 'crawled'::text);
CREATE INDEX links_kind ON public.links USING btree (kind, lane, state, id);
CREATE INDEX links_lane_state ON public.links USING btree (lane, state, id);
CREATE INDEX links_leads_to ON public.links USING btree (leads_to) WHERE (leads_to IS NOT NULL);
CREATE INDEX links_product ON public.links USING btree (product_id);
CREATE UNIQUE INDEX links_url_norm ON public.links USING btree (url_norm);
CREATE UNIQUE INDEX odd_listings_identity ON public.odd_listings USING btree (source, digest);
CREATE INDEX offers_product ON public.offers USING btree (product_id, observed_at, id);
CREATE INDEX post_links_link ON public.post_links USING btree (link_id, platform, post_id);
CREATE INDEX posts_author ON public.posts USING btree (platform, author_id, id);
CREATE INDEX posts_author_time ON public.posts USING btree (platform, author_id, created_at, id);
CREATE INDEX posts_conversation ON public.posts USING btree (platform, conversation_id, id);
CREATE INDEX posts_created_at ON public.posts USING btree (created_at, platform, id);
CREATE INDEX posts_first_seen_at ON public.posts USING btree (first_seen_at);
CREATE INDEX posts_search ON public.posts USING gin (to_tsvector('simple'::regconfig, "left"(COALESCE(search_text, text_clean), 200000)));
CREATE UNIQUE INDEX price_points_identity ON public.price_points USING btree (item_id, source, dedupe_key);
CREATE INDEX price_points_item ON public.price_points USING btree (item_id, id);
CREATE INDEX price_points_product ON public.price_points USING btree (product_id, item_id);
CREATE INDEX price_watches_active ON public.price_watches USING btree (id) WHERE (state = 'active'::text);
CREATE INDEX price_watches_item ON public.price_watches USING btree (item_id, id) WHERE (state = 'active'::text);
CREATE INDEX price_watches_product ON public.price_watches USING btree (product_id, id) WHERE (state = 'active'::text);
CREATE INDEX product_words_word ON public.product_words USING btree (lane, word, product_id);
CREATE UNIQUE INDEX products_identity ON public.products USING btree (platform, region, shop_id, item_id);
CREATE INDEX products_platform ON public.products USING btree (platform, id);
CREATE UNIQUE INDEX quarantine_payload ON public.quarantine USING btree (platform, endpoint, digest);
CREATE INDEX quarantine_resolved_at ON public.quarantine USING btree (resolved_at);
CREATE INDEX quarantine_unresolved ON public.quarantine USING btree (id) WHERE (resolved_at IS NULL);
CREATE INDEX runs_created_at ON public.runs USING btree (created_at);
CREATE UNIQUE INDEX runs_unfinished ON public.runs USING btree (kind) WHERE (status = ANY (ARRAY['pending'::text, 'running'::text]));
CREATE INDEX segment_events_post ON public.segment_events USING btree (segment_id, platform, post_id, id) WHERE (post_id IS NOT NULL);
CREATE INDEX segment_events_segment ON public.segment_events USING btree (segment_id, id);
CREATE INDEX segment_events_snapshot ON public.segment_events USING btree (snapshot_id);
CREATE INDEX segment_events_user ON public.segment_events USING btree (segment_id, platform, user_id, id) WHERE (user_id IS NOT NULL);
CREATE INDEX segment_members_order ON public.segment_members USING btree (segment_id, id);
CREATE UNIQUE INDEX segment_members_post ON public.segment_members USING btree (segment_id, platform, post_id) WHERE (post_id IS NOT NULL);
CREATE UNIQUE INDEX segment_members_user ON public.segment_members USING btree (segment_id, platform, user_id) WHERE (user_id IS NOT NULL);
CREATE INDEX segment_snapshots_segment ON public.segment_snapshots USING btree (segment_id, at);
CREATE UNIQUE INDEX segments_name ON public.segments USING btree (name);
CREATE INDEX segments_next_at ON public.segments USING btree (next_at);
CREATE INDEX sessions_expires_at ON public.sessions USING btree (expires_at);
CREATE UNIQUE INDEX suggestions_live_handle ON public.suggestions USING btree (platform, handle_key) WHERE (deleted_at IS NULL);
CREATE INDEX ticks_made_at ON public.ticks USING btree (made_at);
CREATE INDEX user_versions_handle ON public.user_versions USING btree (platform, handle_key);
CREATE INDEX users_handle ON public.users USING btree (handle_key, platform);
CREATE INDEX users_profiled_at ON public.users USING btree (profiled_at, platform);
CREATE INDEX valuation_history_item ON public.valuation_history USING btree (item_id, id);
ALTER TABLE ONLY public.accounts
    ADD CONSTRAINT accounts_user_fkey FOREIGN KEY (platform, user_id) REFERENCES public.users(platform, id);
ALTER TABLE ONLY public.crawls
    ADD CONSTRAINT crawls_link_fkey FOREIGN KEY (link_id) REFERENCES public.links(id);
ALTER TABLE ONLY public.crawls
    ADD CONSTRAINT crawls_offer_fkey FOREIGN KEY (offer_id) REFERENCES public.offers(id);
ALTER TABLE ONLY public.crawls
    ADD CONSTRAINT crawls_product_fkey FOREIGN KEY (product_id) REFERENCES public.products(id);
ALTER TABLE ONLY public.deliveries
    ADD CONSTRAINT deliveries_event_fkey FOREIGN KEY (event_id) REFERENCES public.events(id) ON DELETE CASCADE;
ALTER TABLE ONLY public.feeds
    ADD CONSTRAINT feeds_user_fkey FOREIGN KEY (platform, user_id) REFERENCES public.users(platform, id);
ALTER TABLE ONLY public.follow_events
    ADD CONSTRAINT follow_events_edge_fkey FOREIGN KEY (platform, follower_id, followed_id) REFERENCES public.follows(platform, follower_id, followed_id);
ALTER TABLE ONLY public.follows
    ADD CONSTRAINT follows_followed_fkey FOREIGN KEY (platform, followed_id) REFERENCES public.users(platform, id);
ALTER TABLE ONLY public.follows
    ADD CONSTRAINT follows_follower_fkey FOREIGN KEY (platform, follower_id) REFERENCES public.users(platform, id);
ALTER TABLE ONLY public.ingest_ids
    ADD CONSTRAINT ingest_ids_ingest_fkey FOREIGN KEY (ingest_id) REFERENCES public.ingest_events(id) ON DELETE CASCADE;
ALTER TABLE ONLY public.item_links
    ADD CONSTRAINT item_links_item_fkey FOREIGN KEY (item_id) REFERENCES public.items(id);
ALTER TABLE ONLY public.item_links
    ADD CONSTRAINT item_links_link_fkey FOREIGN KEY (link_id) REFERENCES public.links(id);
ALTER TABLE ONLY public.item_looks
    ADD CONSTRAINT item_looks_item_fkey FOREIGN KEY (item_id) REFERENCES public.items(id);
ALTER TABLE ONLY public.links
    ADD CONSTRAINT links_leads_to_fkey FOREIGN KEY (leads_to) REFERENCES public.links(id);
ALTER TABLE ONLY public.links
    ADD CONSTRAINT links_product_fkey FOREIGN KEY (product_id) REFERENCES public.products(id);
ALTER TABLE ONLY public.odd_listings
    ADD CONSTRAINT odd_listings_item_fkey FOREIGN KEY (item_id) REFERENCES public.items(id);
ALTER TABLE ONLY public.offers
    ADD CONSTRAINT offers_link_fkey FOREIGN KEY (link_id) REFERENCES public.links(id);
ALTER TABLE ONLY public.offers
    ADD CONSTRAINT offers_product_fkey FOREIGN KEY (product_id) REFERENCES public.products(id);
ALTER TABLE ONLY public.post_links
    ADD CONSTRAINT post_links_link_fkey FOREIGN KEY (link_id) REFERENCES public.links(id);
ALTER TABLE ONLY public.post_links
    ADD CONSTRAINT post_links_post_fkey FOREIGN KEY (platform, post_id) REFERENCES public.posts(platform, id);
ALTER TABLE ONLY public.posts
    ADD CONSTRAINT posts_author_fkey FOREIGN KEY (platform, author_id) REFERENCES public.users(platform, id);
ALTER TABLE ONLY public.price_point_versions
    ADD CONSTRAINT price_point_versions_point_fkey FOREIGN KEY (point_id) REFERENCES public.price_points(id);
ALTER TABLE ONLY public.price_points
    ADD CONSTRAINT price_points_item_fkey FOREIGN KEY (item_id) REFERENCES public.items(id);
ALTER TABLE ONLY public.price_points
    ADD CONSTRAINT price_points_offer_fkey FOREIGN KEY (offer_id) REFERENCES public.offers(id);
ALTER TABLE ONLY public.price_points
    ADD CONSTRAINT price_points_product_fkey FOREIGN KEY (product_id) REFERENCES public.products(id);
ALTER TABLE ONLY public.price_watches
    ADD CONSTRAINT price_watches_item_fkey FOREIGN KEY (item_id) REFERENCES public.items(id);
ALTER TABLE ONLY public.price_watches
    ADD CONSTRAINT price_watches_product_fkey FOREIGN KEY (product_id) REFERENCES public.products(id);
ALTER TABLE ONLY public.product_words
    ADD CONSTRAINT product_words_product_fkey FOREIGN KEY (product_id) REFERENCES public.products(id);
ALTER TABLE ONLY public.run_accounts
    ADD CONSTRAINT run_accounts_run_fkey FOREIGN KEY (run_id) REFERENCES public.runs(id) ON DELETE CASCADE;
ALTER TABLE ONLY public.run_posts
    ADD CONSTRAINT run_posts_run_fkey FOREIGN KEY (run_id) REFERENCES public.runs(id) ON DELETE CASCADE;
ALTER TABLE ONLY public.segment_events
    ADD CONSTRAINT segment_events_post_fkey FOREIGN KEY (platform, post_id) REFERENCES public.posts(platform, id);
ALTER TABLE ONLY public.segment_events
    ADD CONSTRAINT segment_events_snapshot_fkey FOREIGN KEY (snapshot_id) REFERENCES public.segment_snapshots(id) ON DELETE CASCADE;
ALTER TABLE ONLY public.segment_events
    ADD CONSTRAINT segment_events_user_fkey FOREIGN KEY (platform, user_id) REFERENCES public.users(platform, id);
ALTER TABLE ONLY public.segment_inputs
    ADD CONSTRAINT segment_inputs_segment_fkey FOREIGN KEY (segment_id) REFERENCES public.segments(id) ON DELETE CASCADE;
ALTER TABLE ONLY public.segment_inputs
    ADD CONSTRAINT segment_inputs_user_fkey FOREIGN KEY (platform, user_id) REFERENCES public.users(platform, id);
ALTER TABLE ONLY public.segment_members
    ADD CONSTRAINT segment_members_post_fkey FOREIGN KEY (platform, post_id) REFERENCES public.posts(platform, id);
ALTER TABLE ONLY public.segment_members
    ADD CONSTRAINT segment_members_segment_fkey FOREIGN KEY (segment_id) REFERENCES public.segments(id) ON DELETE CASCADE;
ALTER TABLE ONLY public.segment_members
    ADD CONSTRAINT segment_members_user_fkey FOREIGN KEY (platform, user_id) REFERENCES public.users(platform, id);
ALTER TABLE ONLY public.segment_snapshots
    ADD CONSTRAINT segment_snapshots_segment_fkey FOREIGN KEY (segment_id) REFERENCES public.segments(id) ON DELETE CASCADE;
ALTER TABLE ONLY public.sessions
    ADD CONSTRAINT sessions_token_fkey FOREIGN KEY (token_id) REFERENCES public.api_tokens(id) ON DELETE CASCADE;
ALTER TABLE ONLY public.source_keys
    ADD CONSTRAINT source_keys_source_fkey FOREIGN KEY (source) REFERENCES public.sources(name);
ALTER TABLE ONLY public.user_versions
    ADD CONSTRAINT user_versions_user_fkey FOREIGN KEY (platform, user_id) REFERENCES public.users(platform, id);
ALTER TABLE ONLY public.valuation_history
    ADD CONSTRAINT valuation_history_item_fkey FOREIGN KEY (item_id) REFERENCES public.items(id);
ALTER TABLE ONLY public.valuations
    ADD CONSTRAINT valuations_item_fkey FOREIGN KEY (item_id) REFERENCES public.items(id);
