//! What is said while a turn runs: plain replies, and cards whose buttons the turn waits on.

use hookgate::store::{
    Counts, DeliveryAdmission, DeliveryWork, NewDelivery, OpenCard, OutboxId, SendRecord, UncertainSends,
};
use hookgate_adapters::{Button, with_buttons};

use super::*;

fn card(chat: &str, texts: &[&str]) -> NewReply {
    let plain = reply(chat, texts);
    let buttons = vec![vec![Button::new("Yes", "ea:once:1"), Button::new("No", "ea:deny:1")]];
    NewReply { parts: with_buttons(plain.parts.clone(), buttons), ..plain }
}

async fn open_ids(store: &SqlStore) -> Vec<OutboxId> {
    store.open_cards().await.unwrap().into_iter().map(|card| card.id).collect()
}

async fn send(store: &SqlStore, chat: &str, platform_id: &str) {
    let part = claim_part(store, chat).await;
    store.record_send(part.id, SendRecord::Sent(platform_id.to_owned())).await.unwrap();
}

/// What there is to tell after cards were closed: nothing but these.
async fn counts_only(store: &SqlStore, outbox_waiting: i64) {
    assert_eq!(store.counts().await.unwrap(), Counts { outbox_waiting, ..Counts::default() });
}

#[tokio::test]
async fn a_reply_outside_the_end_of_a_message_is_sent_as_any_other() {
    for home in stores() {
        let store = home.open().await;
        let first = store.send(reply("1", &["a", "b"])).await.unwrap();
        let id = new_id(store.accept(message("1", 1)).await.unwrap());
        store.claim(id).await.unwrap().unwrap();
        let second = store.send(reply("1", &["c"])).await.unwrap();
        drop(store);

        let store = home.open().await;
        let unfinished = store.recover(UncertainSends::Resend, &|_| 0).await.unwrap();
        assert_eq!((unfinished.inbox.len(), unfinished.targets), (1, vec![target("1")]), "its turn has not ended");
        let row = claim_part(&store, "1").await;
        assert_eq!((row.id, row.reply, row.number, row.of), (first[0], first[0], 1, 2));
        assert_eq!((row.part, row.reply_to.as_deref(), row.session_key), (part("a"), Some("99"), Some(key("1"))));
        store.record_send(row.id, SendRecord::Sent("1".to_owned())).await.unwrap();
        send(&store, "1", "2").await;
        assert_eq!(claim_part(&store, "1").await.id, second[0]);
        assert_eq!(store.open_cards().await.unwrap(), []);
        store.close_card(second[0]).await.unwrap();
        store.record_send(second[0], SendRecord::Again { not_before: 0, error: "?".to_owned() }).await.unwrap();
        assert_eq!(claim_part(&store, "1").await.id, second[0], "what is no card cannot be closed");
    }
}

#[tokio::test]
async fn a_word_in_between_neither_settles_a_delivery_nor_stands_for_its_answer() {
    for home in stores() {
        let store = home.open().await;
        let mut turn = message("1", 1);
        turn.accepted.delivery = Some(delivery("a"));
        let offer = NewDelivery {
            delivery: delivery("a"),
            body_hash: "1".to_owned(),
            event: "issues".to_owned(),
            target: "telegram:1".to_owned(),
            replay_guard: false,
            work: DeliveryWork::Turn(Box::new(turn)),
        };
        let DeliveryAdmission::New { inbox: Some(id), .. } = store.accept_delivery(offer).await.unwrap() else {
            panic!("it is new")
        };
        store.claim(id).await.unwrap().unwrap();
        let of_delivery = |reply: NewReply| NewReply { delivery: Some(delivery("a")), ..reply };
        store.send_card(of_delivery(card("1", &["sure?"]))).await.unwrap();
        send(&store, "1", "1").await;
        assert_eq!(store.deliveries(None, 1).await.unwrap()[0].state, "accepted");
        let finish = Finish { replies: vec![of_delivery(reply("1", &["done"]))], ..Finish::default() };
        store.finish(id, finish).await.unwrap().unwrap();
        let answer = claim_part(&store, "1").await;
        assert_eq!((answer.part, answer.marked), (part("done"), false));
        let settled = store.record_send(answer.id, SendRecord::Sent("2".to_owned())).await.unwrap();
        assert_eq!(settled, Some((delivery("a"), Ok(()))));
    }
}

#[tokio::test]
async fn open_cards_are_known_after_a_kill_with_what_the_platform_calls_them() {
    for home in stores() {
        let store = home.open().await;
        let first = store.send_card(card("1", &["what is asked", "sure?"])).await.unwrap();
        let mut in_topic = card("2\0", &["sure?"]);
        in_topic.target.thread_id = Some("8".to_owned());
        let second = store.send_card(in_topic.clone()).await.unwrap();
        let third = store.send_card(card("1", &["sure?"])).await.unwrap();
        send(&store, "1", "700").await;
        send(&store, "1", "701").await;
        drop(store);

        let store = home.open().await;
        store.recover(UncertainSends::Resend, &|_| 0).await.unwrap();
        let open =
            |id, target, message_id: Option<&str>| OpenCard { id, target, message_id: message_id.map(str::to_owned) };
        let expected = [
            open(first[1], target("1"), Some("701")),
            open(second[0], in_topic.target, None),
            open(third[0], target("1"), None),
        ];
        assert_eq!(store.open_cards().await.unwrap(), expected);
        store.close_card(first[1]).await.unwrap();
        store.close_card(first[1]).await.unwrap();
        store.close_card(first[0]).await.unwrap();
        drop(store);
        let store = home.open().await;
        assert_eq!(store.open_cards().await.unwrap(), expected[1..]);
        assert_eq!(store.sent_to(&target("1"), 10).await.unwrap().len(), 2, "what was sent stays said");
        let listing = SqlStore::open_read_only(home.path(), &home.url).await.unwrap();
        assert_eq!(listing.open_cards().await.unwrap(), expected[1..]);
    }
}

#[tokio::test]
async fn what_waits_of_a_closed_card_is_not_sent_and_is_no_problem() {
    for home in stores() {
        let store = home.open().await;
        let closed = store.send_card(card("1", &["a", "b", "c"])).await.unwrap();
        let kept = store.send_card(card("1", &["d"])).await.unwrap();
        let after = store.send(reply("1", &["e"])).await.unwrap();
        send(&store, "1", "1").await;
        store.close_card(closed[2]).await.unwrap();
        counts_only(&store, 2).await;
        assert_eq!(open_ids(&store).await, kept);
        drop(store);
        let store = home.open().await;
        assert_eq!(claim_part(&store, "1").await.id, kept[0]);
        store.record_send(kept[0], SendRecord::Sent("2".to_owned())).await.unwrap();
        assert_eq!(claim_part(&store, "1").await.id, after[0]);
        store.record_send(after[0], SendRecord::Dead("blocked".to_owned())).await.unwrap();
        assert_eq!(store.counts().await.unwrap().outbox_dead, 1, "others given up do count");
    }
}

#[tokio::test]
async fn a_card_closed_while_it_is_being_sent_is_not_tried_again() {
    let wrong = || "no connection".to_owned();
    for home in stores() {
        let store = home.open().await;
        for (n, record) in [
            SendRecord::Again { not_before: 0, error: wrong() },
            SendRecord::AgainMarked { not_before: 0, error: wrong() },
            SendRecord::Uncertain(wrong()),
            SendRecord::Held(wrong()),
            SendRecord::Dead(wrong()),
        ]
        .into_iter()
        .enumerate()
        {
            let ids = store.send_card(card("1", &["a", "b"])).await.unwrap();
            assert_eq!(claim_part(&store, "1").await.id, ids[0]);
            store.close_card(ids[1]).await.unwrap();
            nothing_to_send(&store, "1").await;
            assert_eq!(store.record_send(ids[0], record).await.unwrap(), None, "{n}");
            nothing_to_send(&store, "1").await;
            counts_only(&store, 0).await;
        }
        let ids = store.send_card(card("1", &["a"])).await.unwrap();
        claim_part(&store, "1").await;
        store.close_card(ids[0]).await.unwrap();
        store.record_send(ids[0], SendRecord::Sent("7".to_owned())).await.unwrap();
        assert_eq!(store.sent_id(ids[0]).await.unwrap().as_deref(), Some("7"), "it arrived all the same");
        assert_eq!(open_ids(&store).await, []);
    }
}

#[tokio::test]
async fn a_card_cut_off_by_a_kill_is_never_said_again() {
    for policy in [UncertainSends::Resend, UncertainSends::Hold] {
        for home in stores() {
            let store = home.open().await;
            let open = store.send_card(card("1", &["a", "b"])).await.unwrap();
            let closed = store.send_card(card("2", &["a"])).await.unwrap();
            claim_part(&store, "1").await;
            claim_part(&store, "2").await;
            store.close_card(closed[0]).await.unwrap();
            drop(store);

            let store = home.open().await;
            let unfinished = store.recover(policy, &|_| DAY).await.unwrap();
            assert_eq!((unfinished.targets, unfinished.uncertain), (vec![target("1")], 1), "{policy:?}");
            assert_eq!(open_ids(&store).await, open[1..]);
            store.close_card(open[1]).await.unwrap();
            nothing_to_send(&store, "1").await;
            nothing_to_send(&store, "2").await;
            counts_only(&store, 0).await;
        }
        for home in stores() {
            let store = home.open().await;
            let open = store.send_card(card("1", &["a", "b"])).await.unwrap();
            claim_part(&store, "1").await;
            drop(store);
            let store = home.open().await;
            store.recover(policy, &|_| 0).await.unwrap();
            assert!(store.counts().await.unwrap().outbox_uncertain > 0, "marked or held");
            store.close_card(open[1]).await.unwrap();
            nothing_to_send(&store, "1").await;
            counts_only(&store, 0).await;
        }
    }
}
