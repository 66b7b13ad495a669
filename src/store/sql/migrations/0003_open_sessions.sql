-- Which conversations rested too long: looked for every minute, among the open ones only.
create index sessions_open on sessions (updated_at) where ended_at is null;
