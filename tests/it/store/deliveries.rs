//! Webhook deliveries: taken once, followed to their end, and taken again only after a failure.

use hookgate::store::{
    DeliveryAdmission, DeliveryRow, DeliveryWork, NewDelivery, OutboxId, SendRecord, UncertainSends,
};

use super::*;

fn offer(id: &str, body: &str, work: DeliveryWork) -> NewDelivery {
    NewDelivery {
        delivery: delivery(id),
        body_hash: format!("hash of {body}"),
        event: "issues".to_owned(),
        target: "telegram:1".to_owned(),
        replay_guard: false,
        work,
    }
}

fn turn(id: &str) -> DeliveryWork {
    let mut turn = message("1", 1);
    turn.accepted.delivery = Some(delivery(id));
    DeliveryWork::Turn(Box::new(turn))
}

fn send(chats: &[&str]) -> DeliveryWork {
    DeliveryWork::Send(chats.iter().map(|chat| reply(chat, &["x", "y"])).collect())
}

async fn new(store: &SqlStore, offer: NewDelivery) -> (Option<InboxId>, Vec<OutboxId>) {
    match store.accept_delivery(offer).await.unwrap() {
        DeliveryAdmission::New { inbox, outbox } => (inbox, outbox),
        other => panic!("{other:?}"),
    }
}

async fn row(store: &SqlStore, id: &str) -> DeliveryRow {
    let rows = store.deliveries(None, 100).await.unwrap();
    rows.into_iter().find(|row| row.delivery_id == id).unwrap()
}

async fn state(store: &SqlStore, id: &str) -> (String, Option<String>) {
    let row = row(store, id).await;
    (row.state, row.error)
}

async fn send_all(store: &SqlStore, chat: &str, parts: usize) -> Option<(DeliveryRef, Result<(), String>)> {
    let mut settled = None;
    for _ in 0..parts {
        assert_eq!(settled, None);
        let row = claim_part(store, chat).await;
        settled = store.record_send(row.id, SendRecord::Sent("1".to_owned())).await.unwrap();
    }
    settled
}

#[tokio::test(flavor = "multi_thread")]
async fn a_delivery_is_taken_once() {
    for home in stores() {
        let store = Arc::new(home.open().await);
        assert_eq!(store.known_delivery(&delivery("a"), "hash of 1").await.unwrap(), None);
        let offers: Vec<_> = (0..20)
            .map(|_| {
                let store = Arc::clone(&store);
                tokio::spawn(async move { store.accept_delivery(offer("a", "1", turn("a"))).await.unwrap() })
            })
            .collect();
        let mut new = 0;
        for offer in offers {
            new += usize::from(offer.await.unwrap() != DeliveryAdmission::Duplicate);
        }
        assert_eq!(new, 1);
        assert_eq!(store.counts().await.unwrap().inbox_waiting, 1);

        let known = |hash: &'static str| {
            let store = Arc::clone(&store);
            async move { store.known_delivery(&delivery("a"), hash).await.unwrap() }
        };
        assert_eq!(known("hash of 1").await, Some(DeliveryAdmission::Duplicate));
        assert_eq!(known("hash of 2").await, Some(DeliveryAdmission::Conflict));
        assert_eq!(store.accept_delivery(offer("a", "2", turn("a"))).await.unwrap(), DeliveryAdmission::Conflict);
        let mut elsewhere = offer("a", "2", DeliveryWork::Ignore);
        elsewhere.delivery.route = "stripe".to_owned();
        taken_without_work(&store.accept_delivery(elsewhere).await.unwrap());
    }
}

fn taken_without_work(admission: &DeliveryAdmission) {
    assert_eq!(*admission, DeliveryAdmission::New { inbox: None, outbox: vec![] });
}

#[tokio::test]
async fn an_ignored_delivery_is_recorded_and_known() {
    for home in stores() {
        let store = home.open().await;
        taken_without_work(&store.accept_delivery(offer("a", "1", DeliveryWork::Ignore)).await.unwrap());
        let expected = DeliveryRow {
            route: "github".to_owned(),
            delivery_id: "a".to_owned(),
            event: "issues".to_owned(),
            target: "telegram:1".to_owned(),
            state: "ignored".to_owned(),
            error: None,
            received_at: START,
        };
        assert_eq!(row(&store, "a").await, expected);
        assert_eq!(store.accept_delivery(offer("a", "1", turn("a"))).await.unwrap(), DeliveryAdmission::Duplicate);
    }
}

#[tokio::test]
async fn a_turn_settles_its_delivery_when_its_replies_arrived() {
    for home in stores() {
        let store = home.open().await;
        let (inbox, _) = new(&store, offer("a", "1", turn("a"))).await;
        let claimed = store.claim(inbox.unwrap()).await.unwrap().unwrap();
        assert_eq!(claimed.accepted.delivery, Some(delivery("a")));
        let mut answer = reply("1", &["x", "y"]);
        answer.delivery = Some(delivery("a"));
        let finish = Finish { replies: vec![answer], ..Finish::default() };
        store.finish(claimed.id, finish).await.unwrap().unwrap();
        assert_eq!(state(&store, "a").await, ("accepted".to_owned(), None));

        let first = claim_part(&store, "1").await;
        assert_eq!(first.delivery, Some(delivery("a")));
        assert_eq!(store.record_send(first.id, SendRecord::Sent("1".to_owned())).await.unwrap(), None);
        let second = claim_part(&store, "1").await;
        let settled = store.record_send(second.id, SendRecord::Uncertain("?".to_owned())).await.unwrap();
        let told = "it may or may not have arrived: ?".to_owned();
        assert_eq!(settled, Some((delivery("a"), Err(told.clone()))));
        assert_eq!(state(&store, "a").await, ("failed".to_owned(), Some(told)));
        // It may come again; the new answer's parts may repeat what arrived.
        let (inbox, _) = new(&store, offer("a", "1", turn("a"))).await;
        let mut other = reply("1", &["in other words"]);
        other.delivery = Some(delivery("a"));
        let finish = Finish { replies: vec![other], ..Finish::default() };
        store.finish(inbox.unwrap(), finish).await.unwrap().unwrap();
        assert!(claim_part(&store, "1").await.marked);
    }
}

#[tokio::test]
async fn a_turn_without_a_send_settles_its_delivery_itself() {
    for home in stores() {
        let store = home.open().await;
        for (id, outcome, expected) in [
            ("a", Ok(()), ("delivered".to_owned(), None)),
            ("b", Err("no model".to_owned()), ("failed".to_owned(), Some("no model".to_owned()))),
        ] {
            let (inbox, _) = new(&store, offer(id, id, turn(id))).await;
            let finish = Finish { delivery: Some((delivery(id), outcome)), ..Finish::default() };
            store.finish(inbox.unwrap(), finish).await.unwrap().unwrap();
            assert_eq!(state(&store, id).await, expected);
        }

        // To the log and to a chat: it is delivered when the chat has it.
        let (inbox, _) = new(&store, offer("c", "c", turn("c"))).await;
        let mut answer = reply("1", &["x"]);
        answer.delivery = Some(delivery("c"));
        let finish = Finish { replies: vec![answer], delivery: Some((delivery("c"), Ok(()))), ..Finish::default() };
        store.finish(inbox.unwrap(), finish).await.unwrap().unwrap();
        assert_eq!(state(&store, "c").await.0, "accepted");
        assert_eq!(send_all(&store, "1", 1).await, Some((delivery("c"), Ok(()))));
    }
}

#[tokio::test]
async fn a_direct_delivery_is_settled_by_the_last_of_its_replies() {
    for home in stores() {
        let store = home.open().await;
        let (inbox, outbox) = new(&store, offer("a", "1", send(&["1", "2"]))).await;
        assert_eq!((inbox, outbox.len()), (None, 4));
        assert_eq!(send_all(&store, "1", 2).await, None);
        assert_eq!(state(&store, "a").await.0, "accepted");
        assert_eq!(send_all(&store, "2", 2).await, Some((delivery("a"), Ok(()))));
        assert_eq!(state(&store, "a").await, ("delivered".to_owned(), None));

        taken_without_work(&store.accept_delivery(offer("log", "2", send(&[]))).await.unwrap());
        assert_eq!(state(&store, "log").await, ("delivered".to_owned(), None), "the record is the delivery");
    }
}

#[tokio::test]
async fn a_failed_delivery_may_come_again_and_stands_for_itself() {
    for home in stores() {
        let store = home.open().await;
        let (_, first) = new(&store, offer("a", "1", send(&["1"]))).await;
        claim_part(&store, "1").await;
        let settled = store.record_send(first[0], SendRecord::Dead("chat not found".to_owned())).await.unwrap();
        assert_eq!(settled, Some((delivery("a"), Err("chat not found".to_owned()))));
        assert_eq!(state(&store, "a").await, ("failed".to_owned(), Some("chat not found".to_owned())));

        assert_eq!(store.known_delivery(&delivery("a"), "hash of 1").await.unwrap(), None);
        assert_eq!(store.accept_delivery(offer("a", "2", send(&["1"]))).await.unwrap(), DeliveryAdmission::Conflict);
        home.pass(SECOND);
        new(&store, offer("a", "1", send(&["1"]))).await;
        assert_eq!(row(&store, "a").await.received_at, START + SECOND);
        assert_eq!(state(&store, "a").await, ("accepted".to_owned(), None));
        assert_eq!(send_all(&store, "1", 2).await, Some((delivery("a"), Ok(()))), "the first try does not count");

        // The same for turns.
        let (inbox, _) = new(&store, offer("b", "1", turn("b"))).await;
        let failed = Finish { delivery: Some((delivery("b"), Err("no".to_owned()))), ..Finish::default() };
        store.finish(inbox.unwrap(), failed).await.unwrap().unwrap();
        let (again, _) = new(&store, offer("b", "1", turn("b"))).await;
        assert!(again > inbox);
        assert!(store.claim(again.unwrap()).await.unwrap().is_some());
        assert_eq!(store.deliveries(None, 10).await.unwrap().len(), 2, "a delivery has one record");
    }
}

#[tokio::test]
async fn a_retry_says_only_what_was_not_said() {
    for home in stores() {
        let store = home.open().await;
        // Said, perhaps said, refused.
        let three = || DeliveryWork::Send(vec![reply("1", &["x", "y", "z"])]);
        new(&store, offer("a", "1", three())).await;
        send_all(&store, "1", 1).await;
        for end in [SendRecord::Uncertain("?".to_owned()), SendRecord::Dead("blocked".to_owned())] {
            let part = claim_part(&store, "1").await;
            store.record_send(part.id, end).await.unwrap();
        }
        assert_eq!(state(&store, "a").await, ("failed".to_owned(), Some("blocked".to_owned())));

        new(&store, offer("a", "1", three())).await;
        let mut parts = Vec::new();
        for _ in 0..2 {
            let part = claim_part(&store, "1").await;
            store.record_send(part.id, SendRecord::Sent("1".to_owned())).await.unwrap();
            parts.push((part.part.plain, part.number, part.of, part.marked));
        }
        assert_eq!(parts, [("y".to_owned(), 2, 3, true), ("z".to_owned(), 3, 3, false)]);
        assert_eq!(state(&store, "a").await, ("delivered".to_owned(), None));

        // The template changed meanwhile, so it is another text.
        new(&store, offer("b", "1", three())).await;
        send_all(&store, "1", 1).await;
        let part = claim_part(&store, "1").await;
        store.record_send(part.id, SendRecord::Dead("blocked".to_owned())).await.unwrap();
        new(&store, offer("b", "1", DeliveryWork::Send(vec![reply("1", &["other", "y"])]))).await;
        assert_eq!(claim_part(&store, "1").await.part.plain, "other");
    }
}

#[tokio::test]
async fn a_retry_without_the_target_that_failed_is_delivered() {
    for home in stores() {
        let store = home.open().await;
        new(&store, offer("a", "1", send(&["1", "2"]))).await;
        send_all(&store, "1", 2).await;
        let part = claim_part(&store, "2").await;
        store.record_send(part.id, SendRecord::Dead("blocked".to_owned())).await.unwrap();
        taken_without_work(&store.accept_delivery(offer("a", "1", send(&["1"]))).await.unwrap());
        assert_eq!(state(&store, "a").await, ("delivered".to_owned(), None));
        // The same for a turn.
        let answer = |chat: &str| NewReply { delivery: Some(delivery("t")), ..reply(chat, &["x"]) };
        let answers = async |chats: &[&str]| {
            let (inbox, _) = new(&store, offer("t", "1", turn("t"))).await;
            let replies = chats.iter().map(|chat| answer(chat)).collect();
            let finish = Finish { replies, delivery: Some((delivery("t"), Ok(()))), ..Finish::default() };
            store.finish(inbox.unwrap(), finish).await.unwrap().unwrap();
        };
        answers(&["3", "4"]).await;
        send_all(&store, "3", 1).await;
        let part = claim_part(&store, "4").await;
        store.record_send(part.id, SendRecord::Dead("blocked".to_owned())).await.unwrap();
        answers(&["3"]).await;
        assert_eq!(state(&store, "t").await, ("delivered".to_owned(), None));
    }
}

#[tokio::test]
async fn a_delivery_that_was_forgotten_is_another_one() {
    for home in stores() {
        let store = home.open().await;
        new(&store, offer("a", "1", send(&["1", "2"]))).await;
        send_all(&store, "1", 2).await;
        let part = claim_part(&store, "2").await;
        store.record_send(part.id, SendRecord::Dead("blocked".to_owned())).await.unwrap();
        home.pass(8 * 24 * 3600 * SECOND);
        let (_, outbox) = new(&store, offer("a", "1", send(&["1", "2"]))).await;
        assert_eq!(outbox.len(), 4);
    }
}

#[tokio::test]
async fn a_delivery_with_a_held_part_has_failed_and_may_come_again_marked() {
    for home in stores() {
        let store = home.open().await;
        new(&store, offer("a", "1", send(&["1"]))).await;
        let part = claim_part(&store, "1").await;
        let settled = store.record_send(part.id, SendRecord::Held("?".to_owned())).await.unwrap();
        let why = "it may or may not have arrived, and is held: ?";
        assert_eq!(settled, Some((delivery("a"), Err(why.to_owned()))));
        assert_eq!(state(&store, "a").await, ("failed".to_owned(), Some(why.to_owned())));
        new(&store, offer("a", "1", send(&["1"]))).await;
        assert!(claim_part(&store, "1").await.marked, "what may have been said is said again marked");

        // The same when a kill left the outcome open.
        let recovered = store.recover(UncertainSends::Hold, &|_| 0).await.unwrap();
        assert_eq!(recovered.uncertain, 1);
        assert_eq!(state(&store, "a").await.0, "failed");
    }
}

#[tokio::test]
async fn a_replayed_body_is_refused_where_the_route_says_so() {
    for home in stores() {
        let store = home.open().await;
        let guarded =
            |id: &str, body: &str| NewDelivery { replay_guard: true, ..offer(id, body, DeliveryWork::Ignore) };
        new(&store, guarded("a", "1")).await;
        assert_eq!(store.accept_delivery(guarded("b", "1")).await.unwrap(), DeliveryAdmission::Replay);
        assert_eq!(store.accept_delivery(guarded("a", "1")).await.unwrap(), DeliveryAdmission::Duplicate);
        assert_eq!(store.known_delivery(&delivery("b"), "hash of 1").await.unwrap(), None, "nothing was written");
        new(&store, guarded("b", "2")).await;
        let mut elsewhere = guarded("c", "1");
        elsewhere.delivery.route = "stripe".to_owned();
        new(&store, elsewhere).await;
        new(&store, offer("c", "1", DeliveryWork::Ignore)).await;
        assert_eq!(
            store.accept_delivery(guarded("a", "1")).await.unwrap(),
            DeliveryAdmission::Duplicate,
            "its own id comes first"
        );
        home.pass(7 * DAY + 1);
        new(&store, guarded("d", "1")).await;
    }
}

#[tokio::test]
async fn a_delivery_is_forgotten_after_seven_days_unless_it_is_under_way() {
    for home in stores() {
        let store = home.open().await;
        new(&store, offer("a", "1", DeliveryWork::Ignore)).await;
        new(&store, offer("b", "1", turn("b"))).await;
        home.pass(7 * DAY);
        assert_eq!(store.accept_delivery(offer("a", "1", turn("a"))).await.unwrap(), DeliveryAdmission::Duplicate);
        home.pass(1);
        assert_eq!(store.known_delivery(&delivery("a"), "hash of 2").await.unwrap(), None);
        new(&store, offer("a", "2", turn("a"))).await;
        assert_eq!(store.accept_delivery(offer("b", "1", turn("b"))).await.unwrap(), DeliveryAdmission::Duplicate);
    }
}

#[tokio::test]
async fn deliveries_are_listed_newest_first() {
    for home in stores() {
        let store = home.open().await;
        for n in 0..5 {
            home.pass(SECOND);
            let mut offer = offer(&n.to_string(), "1", DeliveryWork::Ignore);
            offer.delivery.route = if n % 2 == 0 { "even" } else { "odd" }.to_owned();
            new(&store, offer).await;
        }
        let ids = |rows: Vec<DeliveryRow>| rows.into_iter().map(|row| row.delivery_id).collect::<Vec<_>>();
        assert_eq!(ids(store.deliveries(None, 3).await.unwrap()), ["4", "3", "2"]);
        assert_eq!(ids(store.deliveries(Some("even"), 10).await.unwrap()), ["4", "2", "0"]);
        assert_eq!(ids(store.deliveries(Some("none"), 10).await.unwrap()), Vec::<String>::new());
    }
}

#[tokio::test]
async fn a_reset_fails_the_deliveries_it_closes() {
    for home in stores() {
        let store = home.open().await;
        new(&store, offer("a", "1", turn("a"))).await;
        let reset = new_id(store.accept(message("1", 2)).await.unwrap());
        let finish = Finish { close_waiting_before: true, ..Finish::default() };
        assert_eq!(store.finish(reset, finish).await.unwrap().unwrap().closed.len(), 1);
        assert_eq!(state(&store, "a").await.0, "failed");
    }
}

#[tokio::test]
async fn a_delivery_given_up_at_a_start_is_settled() {
    for home in stores() {
        let store = home.open().await;
        let work = DeliveryWork::Send(vec![reply("1", &["x"])]);
        new(&store, offer("a", "1", work)).await;
        claim_part(&store, "1").await;
        drop(store);
        let mut kills = 0;
        while state(&home.open().await, "a").await.0 == "accepted" {
            let store = home.open().await;
            store.recover(UncertainSends::Resend, &|_| 0).await.unwrap();
            let _ = store.next_send(&target("1")).await.unwrap();
            kills += 1;
            assert!(kills < 10, "it is never given up");
        }
        let told = "it may or may not have arrived: the gateway stopped while it was being sent".to_owned();
        assert_eq!(state(&home.open().await, "a").await, ("failed".to_owned(), Some(told)));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn deliveries_that_come_at_once_are_told_apart() {
    for home in stores() {
        let store = Arc::new(home.open().await);
        let mut offers = Vec::new();
        for n in 0..60 {
            // Every id comes three times, with two bodies; every fifth is guarded and has a body of its own.
            for body in [n, n, n + 1000] {
                let work = if n % 2 == 0 { turn(&n.to_string()) } else { send(&[&n.to_string()]) };
                let mut offer = offer(&n.to_string(), &body.to_string(), work);
                offer.replay_guard = n % 5 == 0;
                let store = Arc::clone(&store);
                offers.push((n, tokio::spawn(async move { store.accept_delivery(offer).await.unwrap() })));
            }
        }
        let mut new = vec![0; 60];
        for (n, offer) in offers {
            if let DeliveryAdmission::New { inbox, outbox } = offer.await.unwrap() {
                new[n] += 1;
                assert_eq!((inbox.is_some(), outbox.len()), if n % 2 == 0 { (true, 0) } else { (false, 2) });
                if let Some(id) = inbox {
                    let row = store.waiting(id).await.unwrap().unwrap();
                    assert_eq!(row.accepted.delivery, Some(delivery(&n.to_string())), "its own message");
                }
            }
        }
        assert_eq!(new, vec![1; 60]);
        assert_eq!(store.deliveries(None, 1000).await.unwrap().len(), 60);
        let counts = store.counts().await.unwrap();
        assert_eq!((counts.inbox_waiting, counts.outbox_waiting), (30, 60));
    }
}
