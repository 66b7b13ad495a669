//! Parts of replies: in order, one in flight per chat, never silently lost and never silently said twice.

use hookgate::store::{Counts, OutboxId, SendRecord, UncertainSends};
use hookgate_adapters::{Button, with_buttons};

use super::*;

fn again(not_before: i64) -> SendRecord {
    SendRecord::Again { not_before, error: "no connection".to_owned() }
}

fn again_marked(not_before: i64) -> SendRecord {
    SendRecord::AgainMarked { not_before, error: "timed out".to_owned() }
}

fn sent() -> SendRecord {
    SendRecord::Sent("555".to_owned())
}

#[tokio::test]
async fn parts_go_out_in_order_one_at_a_time_per_chat() {
    for home in stores() {
        let store = home.open().await;
        let ids = answer(&store, "1", 1, vec![reply("1", &["a", "b"])]).await;
        let later = answer(&store, "1", 2, vec![reply("1", &["c"])]).await;
        answer(&store, "2", 1, vec![reply("2", &["other"])]).await;

        let first = claim_part(&store, "1").await;
        assert_eq!((first.id, first.reply, first.number, first.of), (ids[0], ids[0], 1, 2));
        assert_eq!((first.attempts, first.marked, first.first_attempt_at), (1, false, None));
        assert_eq!((first.target, first.reply_to.as_deref(), first.part), (target("1"), Some("99"), part("a")));
        assert_eq!((first.created_at, first.session_key, first.delivery), (START, Some(key("1")), None));

        nothing_to_send(&store, "1").await;
        assert_eq!(claim_part(&store, "2").await.part.plain, "other", "another chat is not held up");

        assert_eq!(store.record_send(ids[0], sent()).await.unwrap(), None);
        let second = claim_part(&store, "1").await;
        assert_eq!((second.id, second.reply, second.number, second.of), (ids[1], ids[0], 2, 2));
        assert_eq!(second.reply_to.as_deref(), Some("99"), "whether later parts are anchored is the platform's rule");
        store.record_send(ids[1], sent()).await.unwrap();
        let third = claim_part(&store, "1").await;
        assert_eq!((third.id, third.reply, third.number, third.of), (later[0], later[0], 1, 1));
        store.record_send(later[0], sent()).await.unwrap();
        nothing_to_send(&store, "1").await;

        let sent = store.sent_to(&target("1"), 10).await.unwrap();
        let texts: Vec<_> = sent.iter().map(|part| (part.text.as_str(), part.reply_to.as_deref())).collect();
        assert_eq!(texts, [("a", Some("99")), ("b", Some("99")), ("c", Some("99"))]);
        let newest = store.sent_to(&target("1"), 2).await.unwrap();
        assert_eq!(newest, sent[1..]);
        assert_eq!(store.sent_to(&target("2"), 10).await.unwrap(), [], "it is still on its way");
    }
}

#[tokio::test]
async fn buttons_outlive_a_restart_and_the_id_of_what_was_sent_is_found() {
    for home in stores() {
        let store = home.open().await;
        let buttons = vec![
            vec![Button::new("Yes \u{1f980}", "ea:once:1"), Button::new("No", "ea:deny:1")],
            vec![Button::new("…", "x")],
        ];
        let plain = reply("1", &["what is asked", "Sure?"]);
        let parts = with_buttons(plain.parts.clone(), buttons.clone());
        let ids = answer(&store, "1", 1, vec![NewReply { parts: parts.clone(), ..plain }]).await;
        drop(store);
        let store = home.open().await;
        for (number, (id, part)) in ids.iter().zip(parts).enumerate() {
            assert_eq!(store.sent_id(*id).await.unwrap(), None, "it waits");
            assert_eq!(claim_part(&store, "1").await.part, part);
            assert_eq!(store.sent_id(*id).await.unwrap(), None, "it is being sent");
            store.record_send(*id, SendRecord::Sent(format!("70{number}"))).await.unwrap();
        }
        assert_eq!(store.sent_id(ids[0]).await.unwrap().as_deref(), Some("700"));
        assert_eq!(store.sent_id(ids[1]).await.unwrap().as_deref(), Some("701"));
        assert_eq!(store.sent_id(OutboxId(ids[1].0 + 1000)).await.unwrap(), None);
        let shown: Vec<_> =
            store.sent_to(&target("1"), 10).await.unwrap().into_iter().map(|part| part.buttons).collect();
        assert_eq!(shown, [Vec::new(), buttons]);

        let dead = answer(&store, "1", 2, vec![reply("1", &["refused"])]).await;
        claim_part(&store, "1").await;
        store.record_send(dead[0], SendRecord::Dead("blocked".to_owned())).await.unwrap();
        assert_eq!(store.sent_id(dead[0]).await.unwrap(), None);
    }
}

#[tokio::test]
async fn topics_of_a_chat_share_its_queue_and_accounts_do_not() {
    for home in stores() {
        let store = home.open().await;
        let mut in_topic = reply("1", &["in a topic"]);
        in_topic.target.thread_id = Some("8".to_owned());
        let mut other_account = reply("1", &["from another bot"]);
        other_account.target.account = "bot 2".to_owned();
        let other_target = other_account.target.clone();
        let ids = answer(&store, "1", 1, vec![in_topic, reply("1", &["outside"]), other_account]).await;

        let row = claim_part(&store, "1").await;
        assert_eq!((row.id, row.target.thread_id.as_deref()), (ids[0], Some("8")));
        nothing_to_send(&store, "1").await;
        assert!(matches!(store.next_send(&other_target).await.unwrap(), NextSend::Part(row) if row.id == ids[2]));
        store.record_send(ids[0], sent()).await.unwrap();
        assert_eq!(claim_part(&store, "1").await.target.thread_id, None);
    }
}

#[tokio::test]
async fn a_wait_is_kept_and_the_part_stays_first_and_unmarked() {
    for home in stores() {
        let store = home.open().await;
        let ids = answer(&store, "1", 1, vec![reply("1", &["a", "b"])]).await;
        claim_part(&store, "1").await;
        let until = home.now() + 30 * SECOND;
        store.record_send(ids[0], again(until)).await.unwrap();
        assert_eq!(store.next_send(&target("1")).await.unwrap(), NextSend::NotBefore(until));
        home.pass(30 * SECOND - 1);
        assert_eq!(store.next_send(&target("1")).await.unwrap(), NextSend::NotBefore(until));
        home.pass(1);
        let row = claim_part(&store, "1").await;
        assert_eq!((row.id, row.attempts, row.marked, row.first_attempt_at), (ids[0], 2, false, Some(START)));
        store.record_send(ids[0], again_marked(home.now())).await.unwrap();
        let row = claim_part(&store, "1").await;
        assert_eq!((row.attempts, row.marked, row.first_attempt_at), (3, true, Some(START)));
        assert_eq!(store.counts().await.unwrap().outbox_uncertain, 1, "marked and not confirmed");
        store.record_send(ids[0], again(home.now())).await.unwrap();
        assert!(claim_part(&store, "1").await.marked, "once marked, always marked");
        store.record_send(ids[0], sent()).await.unwrap();
        assert_eq!(store.counts().await.unwrap(), Counts { outbox_waiting: 1, ..Counts::default() });
    }
}

#[tokio::test]
async fn a_clock_that_jumps_cannot_silence_a_chat() {
    for home in stores() {
        let store = home.open().await;
        let ids = answer(&store, "1", 1, vec![reply("1", &["a"])]).await;
        claim_part(&store, "1").await;
        store.record_send(ids[0], again(home.now() + 400 * DAY)).await.unwrap();
        assert_eq!(store.next_send(&target("1")).await.unwrap(), NextSend::NotBefore(home.now() + DAY));
        home.pass(DAY);
        claim_part(&store, "1").await;

        store.record_send(ids[0], again(home.now() + 30 * SECOND)).await.unwrap();
        home.pass(-400 * DAY);
        assert_eq!(claim_part(&store, "1").await.attempts, 3, "the clock went back");
    }
}

#[tokio::test]
async fn an_uncertain_part_lets_the_rest_go_on() {
    for home in stores() {
        let store = home.open().await;
        let ids = answer(&store, "1", 1, vec![reply("1", &["a", "b"])]).await;
        claim_part(&store, "1").await;
        store.record_send(ids[0], SendRecord::Uncertain("timed out".to_owned())).await.unwrap();
        assert_eq!(claim_part(&store, "1").await.id, ids[1]);
        store.record_send(ids[1], sent()).await.unwrap();
        assert_eq!(store.counts().await.unwrap(), Counts { outbox_uncertain: 1, ..Counts::default() });
    }
}

#[tokio::test]
async fn a_held_part_holds_the_rest_of_its_reply_and_not_the_chat() {
    for home in stores() {
        let store = home.open().await;
        let ids = answer(&store, "1", 1, vec![reply("1", &["a", "b", "c"])]).await;
        let next = answer(&store, "1", 2, vec![reply("1", &["d"])]).await;
        claim_part(&store, "1").await;
        store.record_send(ids[0], sent()).await.unwrap();
        claim_part(&store, "1").await;
        store.record_send(ids[1], SendRecord::Held("timed out".to_owned())).await.unwrap();
        assert_eq!(claim_part(&store, "1").await.id, next[0]);
        let expected = Counts { outbox_waiting: 1, outbox_uncertain: 2, ..Counts::default() };
        assert_eq!(store.counts().await.unwrap(), expected);
    }
}

#[tokio::test]
async fn a_dead_part_ends_its_reply_and_not_the_chat() {
    for home in stores() {
        let store = home.open().await;
        let ids = answer(&store, "1", 1, vec![reply("1", &["a", "b", "c"])]).await;
        let next = answer(&store, "1", 2, vec![reply("1", &["d"])]).await;
        claim_part(&store, "1").await;
        store.record_send(ids[0], sent()).await.unwrap();
        claim_part(&store, "1").await;
        store.record_send(ids[1], SendRecord::Dead("blocked".to_owned())).await.unwrap();
        assert_eq!(claim_part(&store, "1").await.id, next[0]);
        let expected = Counts { outbox_waiting: 1, outbox_dead: 2, ..Counts::default() };
        assert_eq!(store.counts().await.unwrap(), expected);
    }
}

#[tokio::test]
async fn only_a_part_in_flight_can_end() {
    for home in stores() {
        let store = home.open().await;
        let ids = answer(&store, "1", 1, vec![reply("1", &["a"])]).await;
        store.record_send(ids[0], SendRecord::Dead("not even tried".to_owned())).await.unwrap();
        claim_part(&store, "1").await;
        store.record_send(ids[0], sent()).await.unwrap();
        store.record_send(ids[0], SendRecord::Dead("too late".to_owned())).await.unwrap();
        assert_eq!(store.counts().await.unwrap(), Counts::default());
        assert_eq!(store.sent_to(&target("1"), 1).await.unwrap().len(), 1);
    }
}

#[tokio::test]
async fn a_send_cut_off_is_repeated_once_and_marked() {
    for home in stores() {
        let store = home.open().await;
        let ids = answer(&store, "1", 1, vec![reply("1", &["a", "b"])]).await;
        answer(&store, "2", 1, vec![reply("2", &["never begun"])]).await;
        claim_part(&store, "1").await;
        drop(store);

        let store = home.open().await;
        let unfinished = store.recover(UncertainSends::Resend, &|_| 0).await.unwrap();
        assert_eq!((unfinished.uncertain, unfinished.targets), (1, vec![target("1"), target("2")]));
        assert_eq!(store.counts().await.unwrap().outbox_uncertain, 1);
        let row = claim_part(&store, "1").await;
        assert_eq!((row.id, row.attempts, row.marked), (ids[0], 2, true));
        assert!(!claim_part(&store, "2").await.marked);
        store.record_send(ids[0], sent()).await.unwrap();
        assert!(!claim_part(&store, "1").await.marked, "the next part is its own");
    }
}

#[tokio::test]
async fn a_send_cut_off_is_repeated_unmarked_where_the_platform_refuses_the_second() {
    for home in stores() {
        let store = home.open().await;
        answer(&store, "1", 1, vec![reply("1", &["a"])]).await;
        answer(&store, "2", 1, vec![reply("2", &["b"])]).await;
        claim_part(&store, "1").await;
        home.pass(100 * SECOND);
        claim_part(&store, "2").await;
        drop(store);

        home.pass(20 * SECOND);
        let store = home.open().await;
        let safe = |_: &ChatTarget| 120 * SECOND;
        assert_eq!(store.recover(UncertainSends::Resend, &safe).await.unwrap().uncertain, 2);
        assert!(claim_part(&store, "1").await.marked, "two minutes have passed");
        assert!(!claim_part(&store, "2").await.marked);
        drop(store);

        home.pass(-400 * DAY);
        let store = home.open().await;
        store.recover(UncertainSends::Resend, &safe).await.unwrap();
        assert!(claim_part(&store, "2").await.marked, "a clock that went back proves nothing");
    }
}

#[tokio::test]
async fn a_send_cut_off_can_be_held_instead() {
    for home in stores() {
        let store = home.open().await;
        answer(&store, "1", 1, vec![reply("1", &["a", "b"])]).await;
        claim_part(&store, "1").await;
        drop(store);

        let store = home.open().await;
        let unfinished = store.recover(UncertainSends::Hold, &|_| 0).await.unwrap();
        assert_eq!((unfinished.uncertain, unfinished.targets), (1, vec![]));
        nothing_to_send(&store, "1").await;
        assert_eq!(store.counts().await.unwrap(), Counts { outbox_uncertain: 2, ..Counts::default() });
    }
}

#[tokio::test]
async fn a_send_cut_off_again_and_again_is_given_up_as_uncertain() {
    for home in stores() {
        let store = home.open().await;
        let ids = answer(&store, "1", 1, vec![reply("1", &["a", "b"])]).await;
        claim_part(&store, "1").await;
        drop(store);
        for attempt in 2..=5 {
            let store = home.open().await;
            store.recover(UncertainSends::Resend, &|_| 0).await.unwrap();
            let row = claim_part(&store, "1").await;
            assert_eq!((row.id, row.attempts, row.marked), (ids[0], attempt, true));
            drop(store);
        }
        let store = home.open().await;
        store.recover(UncertainSends::Resend, &|_| 0).await.unwrap();
        assert_eq!(claim_part(&store, "1").await.id, ids[1]);
        let expected = Counts { outbox_waiting: 1, outbox_uncertain: 1, ..Counts::default() };
        assert_eq!(store.counts().await.unwrap(), expected);
    }
}

#[tokio::test]
async fn a_part_that_may_have_been_said_is_claimed_only_by_who_asks_for_repeats_and_only_kills_give_it_up() {
    for home in stores() {
        let store = home.open().await;
        answer(&store, "1", 1, vec![reply("1", &["a"])]).await;
        let part = claim_part(&store, "1").await;
        store.record_send(part.id, again_marked(home.now())).await.unwrap();
        assert_eq!(store.next_new_send(&target("1")).await.unwrap(), NextSend::Repeat);
        for _ in 0..10 {
            let part = claim_part(&store, "1").await;
            assert!(part.marked);
            store.record_send(part.id, again(home.now())).await.unwrap();
        }
        let mut kills = 0;
        while let NextSend::Part(_) = store.next_send(&target("1")).await.unwrap() {
            store.recover(UncertainSends::Resend, &|_| 0).await.unwrap();
            kills += 1;
            assert!(kills < 10);
        }
        assert_eq!(kills, 5, "waits and refusals do not count");
    }
}
