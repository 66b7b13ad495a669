-- Only deliveries of routes with replay_guard are looked for by their body; an index of all bodies made each delivery dearer.
alter table deliveries add column guarded bigint not null default 0;
update deliveries set guarded = 1;
create index deliveries_guarded on deliveries (route, body_hash) where guarded = 1;
drop index deliveries_body;
