-- How many sends of a part a kill cut off: only those count towards giving it up.
alter table outbox add column cut_off bigint not null default 0;
