-- The same text on every database. Times are Unix milliseconds, ids are those of ids.rs, JSON is text.

create table sessions (
    id text primary key,
    session_key text not null,
    platform text not null,
    chat_id text not null,
    user_id text,
    name text,
    started_at bigint not null,
    updated_at bigint not null,
    ended_at bigint,
    end_reason text,
    messages bigint not null default 0
);
create unique index sessions_current on sessions (session_key) where ended_at is null;
create index sessions_of_key on sessions (session_key, started_at);
create index sessions_used on sessions (updated_at);

create table messages (
    id bigint primary key,
    session_id text not null references sessions (id) on delete cascade,
    role text not null check (role in ('user', 'assistant')),
    text text not null,
    status text not null check (status in ('completed', 'failed', 'interrupted')),
    at bigint not null
);
create index messages_of_session on messages (session_id, id);

-- id changes when a failed delivery is taken again, so it names one try of a delivery.
create table deliveries (
    id bigint primary key,
    route text not null,
    delivery_id text not null,
    body_hash text not null,
    event text not null,
    target text not null,
    state text not null check (state in ('accepted', 'ignored', 'delivered', 'failed')),
    error text,
    received_at bigint not null,
    attempts bigint not null
);
create unique index deliveries_known on deliveries (route, delivery_id);
create index deliveries_body on deliveries (route, body_hash);
create index deliveries_received on deliveries (received_at);

-- done_at is null while a row waits or runs; payload is emptied when it is done.
create table inbox (
    id bigint primary key,
    dedup_key text not null,
    session_key text not null,
    state text not null check (state in ('waiting', 'running', 'done')),
    attempts bigint not null default 0,
    payload text not null,
    delivery bigint,
    accepted_at bigint not null,
    done_at bigint,
    leased_by text,
    lease_until bigint
);
create unique index inbox_known on inbox (dedup_key);
create index inbox_open on inbox (session_key, id) where done_at is null;
create index inbox_done on inbox (done_at) where done_at is not null;

-- left_queue_at is null while a row waits or is being sent.
create table outbox (
    id bigint primary key,
    reply bigint not null,
    part_number bigint not null,
    part_count bigint not null,
    session_key text,
    platform text not null,
    account text not null,
    chat_id text not null,
    thread_id text,
    reply_to text,
    part text not null,
    state text not null check (state in ('waiting', 'sending', 'sent', 'uncertain', 'dead', 'held')),
    attempts bigint not null default 0,
    marked bigint not null default 0,
    not_before bigint not null default 0,
    error text,
    platform_id text,
    delivery bigint,
    route text,
    delivery_id text,
    created_at bigint not null,
    first_attempt_at bigint,
    left_queue_at bigint,
    leased_by text,
    lease_until bigint
);
create index outbox_queue on outbox (platform, account, chat_id, id) where left_queue_at is null;
create index outbox_sent on outbox (platform, account, chat_id, id) where state = 'sent';
-- At most one send of a chat is in flight, whoever sends.
create unique index outbox_in_flight on outbox (platform, account, chat_id) where state = 'sending';
create index outbox_of_reply on outbox (reply, id);
create index outbox_of_delivery on outbox (delivery) where delivery is not null;
create index outbox_left on outbox (left_queue_at) where left_queue_at is not null;
create index outbox_problems on outbox (state) where state in ('uncertain', 'held', 'dead');

-- Single numbers: `probe` of the health check, `last_id` so that ids never fall when rows are deleted.
create table marks (
    name text primary key,
    value bigint not null
);
