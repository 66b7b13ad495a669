//! What is deleted, and above all what is not.

use hookgate::store::{Counts, DeliveryWork, NewDelivery, SendRecord, Spent, UncertainSends};

use super::*;

const ANY_SIZE: u64 = u64::MAX;

/// A home with a file: only a file is kept within a size.
fn files() -> [Home; 1] {
    [Home::new("sqlite:hookgate.db")]
}

async fn deliver(store: &SqlStore, id: &str, work: DeliveryWork) {
    let offer = NewDelivery {
        delivery: delivery(id),
        body_hash: id.to_owned(),
        event: "issues".to_owned(),
        target: "log".to_owned(),
        replay_guard: false,
        work,
    };
    store.accept_delivery(offer).await.unwrap();
}

async fn send_one(store: &SqlStore, chat: &str, record: SendRecord) {
    let row = claim_part(store, chat).await;
    store.record_send(row.id, record).await.unwrap();
}

#[tokio::test]
async fn what_is_finished_and_old_goes_and_what_is_open_stays() {
    for home in stores() {
        let store = home.open().await;
        let (used, _) = store.open_session(&key("1"), &accepted("1", 0)).await.unwrap();
        let (unused, _) = store.open_session(&key("2"), &accepted("2", 0)).await.unwrap();
        let id = new_id(store.accept(message("1", 1)).await.unwrap());
        let remember = Some((used.id.clone(), vec![said(Role::User, "old, in a session in use")]));
        store.finish(id, Finish { remember, ..Finish::default() }).await.unwrap().unwrap();
        let id = new_id(store.accept(message("2", 1)).await.unwrap());
        let remember = Some((unused.id.clone(), vec![said(Role::User, "old, in a session not used")]));
        store.finish(id, Finish { remember, ..Finish::default() }).await.unwrap().unwrap();

        answer(&store, "1", 2, vec![reply("1", &["sent"])]).await;
        send_one(&store, "1", SendRecord::Sent("1".to_owned())).await;
        answer(&store, "1", 3, vec![reply("1", &["held"])]).await;
        send_one(&store, "1", SendRecord::Held("?".to_owned())).await;
        answer(&store, "1", 4, vec![reply("1", &["in flight"]), reply("1", &["waiting"])]).await;
        claim_part(&store, "1").await;
        store.accept(message("1", 5)).await.unwrap();
        let running = new_id(store.accept(message("1", 6)).await.unwrap());
        store.claim(running).await.unwrap().unwrap();
        deliver(&store, "settled", DeliveryWork::Ignore).await;
        deliver(&store, "open", DeliveryWork::Turn(Box::new(message("9", 1)))).await;

        assert_eq!(store.retain(30, ANY_SIZE).await.unwrap(), 0, "nothing is old");
        home.pass(8 * DAY);
        store.accept(message("8", 1)).await.unwrap();
        assert_eq!(store.retain(30, ANY_SIZE).await.unwrap(), 1, "the settled delivery");
        assert_eq!(store.deliveries(None, 10).await.unwrap().len(), 1);

        home.pass(20 * DAY);
        let id = new_id(store.accept(message("1", 7)).await.unwrap());
        let remember = Some((used.id.clone(), vec![said(Role::User, "new")]));
        store.finish(id, Finish { remember, ..Finish::default() }).await.unwrap().unwrap();
        home.pass(3 * DAY);
        store.accept(message("8", 2)).await.unwrap();
        let before = store.counts().await.unwrap();
        // Five done messages, one sent part, the unused session with its message.
        assert_eq!(store.retain(30, ANY_SIZE).await.unwrap(), 8);
        assert_eq!(store.counts().await.unwrap(), before);
        let expected =
            Counts { inbox_waiting: 4, inbox_running: 1, outbox_waiting: 2, outbox_uncertain: 1, outbox_dead: 0 };
        assert_eq!(before, expected);
        assert_eq!(store.history(&used.id, 10, 1000).await.unwrap().len(), 2, "a session in use keeps what it has");
        assert_eq!(store.find_session(&unused.id).await.unwrap(), None);
        assert_eq!(store.deliveries(None, 10).await.unwrap().len(), 1, "its turn still waits");
        assert_eq!(store.retain(30, ANY_SIZE).await.unwrap(), 0);
        assert_ne!(store.accept(message("1", 1)).await.unwrap(), Admission::Duplicate, "forgotten after 30 days");
    }
}

#[tokio::test]
async fn what_was_used_up_goes_after_forty_days() {
    for home in stores() {
        let store = home.open().await;
        let scopes = ["all".to_owned(), "telegram:1".to_owned()];
        let one = Spent { tokens: 1, tool_calls: 1, micros: 1 };
        // The clock stands on 2026-11-30.
        for day in ["2026-11-29", "2026-11-30", "2026-12-01"] {
            store.spend(&scopes, day, one).await.unwrap();
        }
        let used = async |day| store.spent(&scopes, day).await.unwrap() == [one, one];
        home.pass(40 * DAY);
        store.accept(message("1", 1)).await.unwrap();
        assert_eq!(store.retain(365, ANY_SIZE).await.unwrap(), 2, "whatever the days of the rest");
        assert!(!used("2026-11-29").await && used("2026-11-30").await && used("2026-12-01").await);
        assert_eq!(store.retain(1, ANY_SIZE).await.unwrap(), 0);
    }
}

#[tokio::test]
async fn an_open_card_stays_until_it_is_closed() {
    for home in stores() {
        let store = home.open().await;
        let ids = store.send_card(reply("1", &["what", "buttons"])).await.unwrap();
        for id in ["1", "2"] {
            send_one(&store, "1", SendRecord::Sent(id.to_owned())).await;
        }
        home.pass(31 * DAY);
        store.accept(message("1", 1)).await.unwrap();
        assert_eq!(store.retain(30, if home.is_file() { 1 } else { ANY_SIZE }).await.unwrap(), 1, "the first part");
        assert_eq!(store.open_cards().await.unwrap()[0].message_id.as_deref(), Some("2"));
        store.close_card(ids[1]).await.unwrap();
        assert_eq!(store.retain(30, ANY_SIZE).await.unwrap(), 1);
        assert_eq!(store.sent_to(&target("1"), 10).await.unwrap(), []);
    }
}

#[tokio::test]
async fn a_clock_far_ahead_does_not_make_everything_old() {
    for home in stores() {
        let store = home.open().await;
        let (session, _) = store.open_session(&key("1"), &accepted("1", 0)).await.unwrap();
        let id = new_id(store.accept(message("1", 1)).await.unwrap());
        let remember = Some((session.id.clone(), vec![said(Role::User, "hi")]));
        store.finish(id, Finish { remember, ..Finish::default() }).await.unwrap().unwrap();
        deliver(&store, "a", DeliveryWork::Ignore).await;
        home.pass(5000 * DAY);
        assert_eq!(store.retain(30, ANY_SIZE).await.unwrap(), 0);
        assert_eq!(store.history(&session.id, 10, 1000).await.unwrap().len(), 1);
    }
}

#[tokio::test]
async fn a_database_that_is_too_large_gives_up_its_oldest_finished_rows() {
    for home in files() {
        let store = home.open().await;
        let long = "x".repeat(20_000);
        for n in 0..60 {
            home.pass(2 * HOUR);
            answer(&store, "1", n, vec![reply("1", &[&long])]).await;
            send_one(&store, "1", SendRecord::Sent(n.to_string())).await;
        }
        answer(&store, "1", 1000, vec![reply("1", &[&long])]).await;
        let size = || std::fs::metadata(home.database()).unwrap().len();
        let limit = 800_000;
        assert!(store.retain(365, limit).await.unwrap() > 0);
        let left = store.sent_to(&target("1"), 100).await.unwrap();
        assert!(left.len() > 5 && left.len() < 25, "{} left", left.len());
        assert_eq!(left.last().unwrap().at, home.now(), "the oldest went first");
        assert_eq!(store.counts().await.unwrap().outbox_waiting, 1, "what is open stays");
        assert_eq!(store.retain(365, limit).await.unwrap(), 0);

        // Nothing finished is left: still, what is open stays.
        store.retain(365, 1).await.unwrap();
        assert_eq!(store.sent_to(&target("1"), 100).await.unwrap(), []);
        assert_eq!(store.counts().await.unwrap().outbox_waiting, 1);
        assert_eq!(store.retain(365, 1).await.unwrap(), 0, "it ends when there is nothing to delete");
        store.close().await;
        assert!(size() < limit, "space was given back: {} bytes", size());
    }
}

#[tokio::test]
async fn the_last_to_go_for_size_are_the_oldest_remembered_messages() {
    for home in files() {
        let store = home.open().await;
        let (session, _) = store.open_session(&key("1"), &accepted("1", 0)).await.unwrap();
        let long = "x".repeat(5000);
        for n in 0..12 {
            let id = new_id(store.accept(message("1", n)).await.unwrap());
            let messages = (0..100).map(|m| said(Role::User, &format!("{n}.{m} {long}"))).collect();
            let remember = Some((session.id.clone(), messages));
            store.finish(id, Finish { remember, ..Finish::default() }).await.unwrap().unwrap();
        }
        store.retain(365, 5_000_000).await.unwrap();
        let left = store.history(&session.id, 5000, usize::MAX).await.unwrap();
        assert_eq!(left.len(), 700);
        assert!(left[699].text.starts_with("11.99 "));
        assert_eq!(store.find_session(&session.id).await.unwrap().unwrap().messages, 700);
    }
}

#[tokio::test]
async fn ids_do_not_fall_when_all_rows_are_gone() {
    for home in files() {
        home.pass(100 * DAY);
        let store = home.open().await;
        let old = new_id(store.accept(message("1", 1)).await.unwrap());
        store.finish(old, Finish::default()).await.unwrap().unwrap();
        store.retain(365, 1).await.unwrap();
        assert_eq!(store.counts().await.unwrap(), Counts::default());
        store.close().await;
        home.pass(-100 * DAY);
        let store = home.open().await;
        assert!(new_id(store.accept(message("1", 1)).await.unwrap()) > old);
        assert_eq!(store.recover(UncertainSends::Resend, &|_| 0).await.unwrap().inbox.len(), 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn others_are_served_while_much_is_deleted() {
    for home in stores() {
        let store = Arc::new(home.open().await);
        for chunk in 0..10 {
            let finished: Vec<_> = (0..300)
                .map(|n| {
                    let store = Arc::clone(&store);
                    tokio::spawn(async move {
                        let id = new_id(store.accept(message("1", chunk * 300 + n)).await.unwrap());
                        store.finish(id, Finish::default()).await.unwrap().unwrap();
                    })
                })
                .collect();
            for task in finished {
                task.await.unwrap();
            }
        }
        home.pass(40 * DAY);
        store.accept(message("2", 0)).await.unwrap();
        let before = store.commits();
        let retaining = tokio::spawn({
            let store = Arc::clone(&store);
            async move { store.retain(30, ANY_SIZE).await.unwrap() }
        });
        let mut n = 1;
        while !retaining.is_finished() {
            store.accept(message("2", n)).await.unwrap();
            n += 1;
        }
        assert_eq!(retaining.await.unwrap(), 3000);
        assert!(n > 3 && store.commits() - before > 6, "{n} messages were accepted meanwhile");
    }
}

#[tokio::test]
async fn a_server_gives_nothing_up_for_its_size() {
    for home in stores().into_iter().filter(|home| !home.is_file()) {
        let store = home.open().await;
        answer(&store, "1", 1, vec![reply("1", &["x"])]).await;
        send_one(&store, "1", SendRecord::Sent("1".to_owned())).await;
        assert_eq!(store.retain(365, 1).await.unwrap(), 0);
        assert_eq!(store.sent_to(&target("1"), 10).await.unwrap().len(), 1);
    }
}
