-- What a turn did that must not be done twice: a JSON list of texts, null for none and when the message is done.
alter table inbox add column effects text;

-- 1: the reply is no longer needed, so what of it was not sent is not sent, and that is no problem.
alter table outbox add column withdrawn bigint not null default 0;

-- Messages with buttons that a turn waits on, by the part that has the buttons. target is JSON.
create table open_cards (
    id bigint primary key references outbox (id) on delete cascade,
    target text not null,
    created_at bigint not null
);

-- What was allowed for good. ids count from 1, because people type them; `last_rule` in marks keeps them from being
-- given twice.
create table approval_rules (
    id bigint primary key,
    scope text not null,
    key text not null,
    granted_by text not null,
    at bigint not null
);
create unique index approval_rules_known on approval_rules (scope, key);

-- What was used up in a day (YYYY-MM-DD); micros are millionths of the currency.
create table spent (
    scope text not null,
    day text not null,
    tokens bigint not null,
    tool_calls bigint not null,
    micros bigint not null,
    primary key (scope, day)
);
create index spent_days on spent (day);
