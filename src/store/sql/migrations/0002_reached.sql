-- Which chats an earlier try of a delivery reached: a retry says it to the others only.
create index outbox_of_name on outbox (route, delivery_id) where route is not null;
