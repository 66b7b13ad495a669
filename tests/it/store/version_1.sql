-- A database of schema 1 as `sqlite3 hookgate.db .dump` prints it. Never changed once schema 1 is released.
PRAGMA foreign_keys=OFF;
BEGIN TRANSACTION;
CREATE TABLE _sqlx_migrations (
    version BIGINT PRIMARY KEY,
    description TEXT NOT NULL,
    installed_on TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP,
    success BOOLEAN NOT NULL,
    checksum BLOB NOT NULL,
    execution_time BIGINT NOT NULL
);
INSERT INTO _sqlx_migrations VALUES(1,'start','2026-11-30 19:50:07',1,X'2938f1b0f0ba4b5821b4a10db74b5a90f1532d67235b5c0a1a4a0cf7df0e9b96a1489fbfdaf1f865d597398e39621ba8',3469043);
CREATE TABLE sessions (
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
INSERT INTO sessions VALUES('20261130_190813_745fc2f5','agent:main:telegram:dm:1','telegram','1','7','Alice',1796065693000,1796065693000,NULL,NULL,2);
INSERT INTO sessions VALUES('20261130_190813_a7b59e2e','agent:main:telegram:dm:2','telegram','2','7','Alice',1796065693000,1796065693000,1796065693000,'reset',0);
CREATE TABLE messages (
    id integer primary key,
    session_id text not null references sessions (id) on delete cascade,
    role text not null check (role in ('user', 'assistant')),
    text text not null,
    status text not null check (status in ('completed', 'failed', 'interrupted')),
    at bigint not null
);
INSERT INTO messages VALUES(1883311380103168001,'20261130_190813_745fc2f5','user','question','completed',1796065693000);
INSERT INTO messages VALUES(1883311380103168002,'20261130_190813_745fc2f5','assistant','answer','completed',1796065693000);
CREATE TABLE deliveries (
    id integer primary key,
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
INSERT INTO deliveries VALUES(1883311380103168008,'github','a','00ff','issues','log','accepted',NULL,1796065693000,1);
CREATE TABLE inbox (
    id integer primary key,
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
INSERT INTO inbox VALUES(1883311380103168000,'telegram:1:1','agent:main:telegram:dm:1','done',1,'',NULL,1796065693000,1796065693000,NULL,NULL);
INSERT INTO inbox VALUES(1883311380103168007,'telegram:1:2','agent:main:telegram:dm:1','running',1,'{"message":{"source":{"platform":"telegram","account":"bot","chat_id":"1","chat_name":null,"chat_type":"dm","user_id":"7","user_name":"Alice","thread_id":null,"is_bot":false},"message_id":"2","dedup_key":"telegram:1:2","text":"message 2 with ünïcödé 🦀","media":[],"quoted":null,"sent_at":1796065693000},"deliver":[],"delivery":null}',NULL,1796065693000,NULL,NULL,NULL);
INSERT INTO inbox VALUES(1883311380103168009,'webhook:github:a:1883311380103168008','agent:main:telegram:dm:3','waiting',0,'{"message":{"source":{"platform":"telegram","account":"bot","chat_id":"3","chat_name":null,"chat_type":"dm","user_id":"7","user_name":"Alice","thread_id":null,"is_bot":false},"message_id":"1","dedup_key":"telegram:3:1","text":"message 1 with ünïcödé 🦀","media":[],"quoted":null,"sent_at":1796065693000},"deliver":[],"delivery":{"route":"github","delivery_id":"a"}}',1883311380103168008,1796065693000,NULL,NULL,NULL);
CREATE TABLE outbox (
    id integer primary key,
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
INSERT INTO outbox VALUES(1883311380103168003,1883311380103168003,1,3,'agent:main:telegram:dm:1','telegram','bot','1',NULL,'99','{"formatted":"<b>sent</b>","plain":"sent"}','sent',1,0,0,NULL,'555',NULL,NULL,NULL,1796065693000,1796065693000,1796065693000,NULL,NULL);
INSERT INTO outbox VALUES(1883311380103168004,1883311380103168003,2,3,'agent:main:telegram:dm:1','telegram','bot','1',NULL,'99','{"formatted":"<b>cut off</b>","plain":"cut off"}','sending',1,0,0,NULL,NULL,NULL,NULL,NULL,1796065693000,1796065693000,NULL,NULL,NULL);
INSERT INTO outbox VALUES(1883311380103168005,1883311380103168003,3,3,'agent:main:telegram:dm:1','telegram','bot','1',NULL,'99','{"formatted":"<b>next</b>","plain":"next"}','waiting',0,0,0,NULL,NULL,NULL,NULL,NULL,1796065693000,NULL,NULL,NULL,NULL);
INSERT INTO outbox VALUES(1883311380103168006,1883311380103168006,1,1,'agent:main:telegram:dm:2','telegram','bot','2',NULL,'99','{"formatted":"<b>marked</b>","plain":"marked"}','waiting',1,1,1796065694000,'timed out',NULL,NULL,NULL,NULL,1796065693000,1796065693000,NULL,NULL,NULL);
CREATE TABLE marks (
    name text primary key,
    value bigint not null
);
INSERT INTO marks VALUES('probe',1883311380103168010);
CREATE UNIQUE INDEX sessions_current on sessions (session_key) where ended_at is null;
CREATE INDEX sessions_of_key on sessions (session_key, started_at);
CREATE INDEX sessions_used on sessions (updated_at);
CREATE INDEX messages_of_session on messages (session_id, id);
CREATE UNIQUE INDEX deliveries_known on deliveries (route, delivery_id);
CREATE INDEX deliveries_body on deliveries (route, body_hash);
CREATE INDEX deliveries_received on deliveries (received_at);
CREATE UNIQUE INDEX inbox_known on inbox (dedup_key);
CREATE INDEX inbox_open on inbox (session_key, id) where done_at is null;
CREATE INDEX inbox_done on inbox (done_at) where done_at is not null;
CREATE INDEX outbox_queue on outbox (platform, account, chat_id, id) where left_queue_at is null;
CREATE INDEX outbox_sent on outbox (platform, account, chat_id, id) where state = 'sent';
CREATE UNIQUE INDEX outbox_in_flight on outbox (platform, account, chat_id) where state = 'sending';
CREATE INDEX outbox_of_reply on outbox (reply, id);
CREATE INDEX outbox_of_delivery on outbox (delivery) where delivery is not null;
CREATE INDEX outbox_left on outbox (left_queue_at) where left_queue_at is not null;
CREATE INDEX outbox_problems on outbox (state) where state in ('uncertain', 'held', 'dead');
COMMIT;
