//! Messages: accepted once, run in order, finished with everything that belongs together.

use std::collections::HashSet;

use hookgate::store::{Counts, Finish, SendRecord, SessionedMessage, StoreError, UncertainSends};

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn a_message_is_accepted_once_however_often_it_comes() {
    for home in stores() {
        let store = Arc::new(home.open().await);
        let offers = (0..20).map(|_| {
            let store = Arc::clone(&store);
            tokio::spawn(async move { store.accept(message("1", 1)).await.unwrap() })
        });
        let mut new = 0;
        for offer in offers.collect::<Vec<_>>() {
            new += usize::from(offer.await.unwrap() != Admission::Duplicate);
        }
        assert_eq!(new, 1);
        assert_eq!(store.counts().await.unwrap().inbox_waiting, 1);

        // Known also when it is done, and after a restart.
        let id = store.recover(UncertainSends::Resend, &|_| 0).await.unwrap().inbox[0].0;
        store.finish(id, Finish::default()).await.unwrap().unwrap();
        assert_eq!(store.accept(message("1", 1)).await.unwrap(), Admission::Duplicate);
        store.close().await;
        let store = home.open().await;
        assert_eq!(store.accept(message("1", 1)).await.unwrap(), Admission::Duplicate);
    }
}

#[tokio::test]
async fn ids_rise_in_the_order_of_acceptance_whatever_the_clock_does() {
    for home in stores() {
        let mut last = None;
        for (n, jump) in [0, HOUR, -400 * DAY, 1, 4000 * DAY, -4000 * DAY].into_iter().enumerate() {
            home.pass(jump);
            let store = home.open().await;
            for m in 0..3 {
                let id = new_id(store.accept(message("1", n * 10 + m)).await.unwrap());
                assert!(Some(id) > last, "{id:?} after {last:?}");
                last = Some(id);
            }
            store.close().await;
        }
        let store = home.open().await;
        let rows = store.recover(UncertainSends::Resend, &|_| 0).await.unwrap().inbox;
        let mut order = Vec::new();
        for (id, _) in rows {
            order.push(store.waiting(id).await.unwrap().unwrap().accepted.message.message_id);
        }
        let expected: Vec<String> = (0..6).flat_map(|n| (0..3).map(move |m| (n * 10 + m).to_string())).collect();
        assert_eq!(order, expected);
    }
}

#[tokio::test]
async fn a_claimed_message_is_what_was_accepted() {
    for home in stores() {
        let store = home.open().await;
        let offered = message("1", 1);
        let id = new_id(store.accept(offered.clone()).await.unwrap());
        let waiting = store.waiting(id).await.unwrap().unwrap();
        assert_eq!(waiting.accepted, offered.accepted);
        let row = store.claim(id).await.unwrap().unwrap();
        assert_eq!((row.id, row.attempts, row.accepted_at), (id, 1, START));
        assert_eq!(SessionedMessage { session_key: row.session_key, accepted: row.accepted }, offered);

        assert_eq!(store.claim(id).await.unwrap(), None, "it runs");
        assert_eq!(store.waiting(id).await.unwrap(), None, "it runs");
        store.unclaim(id).await.unwrap();
        assert_eq!(store.claim(id).await.unwrap().unwrap().attempts, 1, "the interrupted attempt does not count");
        store.finish(id, Finish::default()).await.unwrap().unwrap();
        store.unclaim(id).await.unwrap();
        assert_eq!(store.claim(id).await.unwrap(), None, "it is done");
        assert_eq!(store.claim(InboxId(1)).await.unwrap(), None, "there is none");
        assert_eq!(store.finish(InboxId(1), Finish::default()).await.unwrap(), None);
    }
}

#[tokio::test]
async fn a_message_is_finished_once_with_all_that_belongs_to_it() {
    for home in stores() {
        let store = home.open().await;
        let id = new_id(store.accept(message("1", 1)).await.unwrap());
        let row = store.claim(id).await.unwrap().unwrap();
        let (session, is_new) = store.open_session(&key("1"), &row.accepted).await.unwrap();
        assert!(is_new);
        let finish = Finish {
            remember: Some((session.id.clone(), vec![said(Role::User, "hi"), said(Role::Assistant, "hello")])),
            replies: vec![reply("1", &["a", "b"]), reply("2", &["c"])],
            end_session: Some("reset"),
            ..Finish::default()
        };
        let finished = store.finish(id, finish.clone()).await.unwrap().unwrap();
        assert_eq!(finished.outbox.len(), 3);
        assert!(finished.outbox.is_sorted());
        assert_eq!(finished.ended_session, Some(session.id.clone()));

        assert_eq!(store.finish(id, finish).await.unwrap(), None);
        assert_eq!(store.history(&session.id, 10, 1000).await.unwrap().len(), 2);
        let expected = Counts { outbox_waiting: 3, ..Counts::default() };
        assert_eq!(store.counts().await.unwrap(), expected);
    }
}

#[tokio::test]
async fn a_reset_closes_what_waits_before_it_and_nothing_else() {
    for home in stores() {
        let store = home.open().await;
        let mut ids = Vec::new();
        for n in 0..5 {
            ids.push(new_id(store.accept(message("1", n)).await.unwrap()));
        }
        let other = new_id(store.accept(message("2", 0)).await.unwrap());
        store.claim(ids[0]).await.unwrap().unwrap();
        let finish = Finish { close_waiting_before: true, ..Finish::default() };
        let finished = store.finish(ids[3], finish).await.unwrap().unwrap();
        assert_eq!(finished.closed.iter().map(|closed| closed.id).collect::<Vec<_>>(), [ids[1], ids[2]]);
        let said = |n: usize| finished.closed[n].message.as_ref().map(|said| said.message_id.clone());
        assert_eq!([said(0), said(1)].map(Option::unwrap), [1, 2].map(|n| message("1", n).accepted.message.message_id));
        assert_eq!(store.claim(ids[1]).await.unwrap(), None);
        assert!(store.claim(ids[4]).await.unwrap().is_some(), "what came later goes on");
        assert!(store.claim(other).await.unwrap().is_some(), "other conversations go on");
        assert!(store.finish(ids[0], Finish::default()).await.unwrap().is_some(), "the turn under way ends by itself");
    }
}

#[tokio::test]
async fn after_a_kill_what_ran_waits_again_and_remembers_its_attempts() {
    for home in stores() {
        let store = home.open().await;
        let mut ids = Vec::new();
        for n in 0..4 {
            ids.push(new_id(store.accept(message("1", n)).await.unwrap()));
        }
        store.claim(ids[0]).await.unwrap().unwrap();
        store.finish(ids[0], Finish::default()).await.unwrap().unwrap();
        store.claim(ids[1]).await.unwrap().unwrap();
        drop(store);

        for attempt in 2..5 {
            let store = home.open().await;
            let unfinished = store.recover(UncertainSends::Resend, &|_| 0).await.unwrap();
            let expected: Vec<_> = ids[1..].iter().map(|id| (*id, key("1"))).collect();
            assert_eq!(unfinished.inbox, expected);
            assert_eq!(store.claim(ids[1]).await.unwrap().unwrap().attempts, attempt);
            drop(store);
        }
    }
}

#[tokio::test]
async fn what_a_turn_did_is_known_to_its_next_attempt_and_forgotten_at_its_end() {
    for home in stores() {
        let store = home.open().await;
        let id = new_id(store.accept(message("1", 1)).await.unwrap());
        let other = new_id(store.accept(message("2", 1)).await.unwrap());
        store.note_effect(id, "too early").await.unwrap_err();
        assert_eq!(store.claim(id).await.unwrap().unwrap().effects, Vec::<String>::new());
        let odd = "send \"mail\"\0 to zwölf \u{1f980}";
        store.note_effect(id, odd).await.unwrap();
        store.note_effect(id, "").await.unwrap();
        drop(store);

        let store = home.open().await;
        store.recover(UncertainSends::Resend, &|_| 0).await.unwrap();
        assert_eq!(store.waiting(id).await.unwrap().unwrap().effects, [odd, ""]);
        assert_eq!(store.claim(id).await.unwrap().unwrap().effects, [odd, ""]);
        store.note_effect(id, "third").await.unwrap();
        store.unclaim(id).await.unwrap();
        store.note_effect(id, "too late").await.unwrap_err();
        assert_eq!(store.claim(id).await.unwrap().unwrap().effects, [odd, "", "third"]);
        for n in 0..98 {
            store.note_effect(id, &n.to_string()).await.unwrap();
        }
        store.unclaim(id).await.unwrap();
        let effects = store.claim(id).await.unwrap().unwrap().effects;
        assert_eq!((effects.len(), effects[0].as_str(), effects[99].as_str()), (100, "", "97"), "the newest");
        assert_eq!(store.waiting(other).await.unwrap().unwrap().effects, Vec::<String>::new(), "each has its own");

        store.finish(id, Finish::default()).await.unwrap().unwrap();
        let StoreError::Internal(_) = store.note_effect(id, "after the end").await.unwrap_err() else {
            panic!("it is done")
        };
        if home.is_file() {
            let left: i64 = sqlx::query_scalar("select count(*) from inbox where effects is not null")
                .fetch_one(&mut disk::raw(&home.database()).await)
                .await
                .unwrap();
            assert_eq!(left, 0);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn many_who_come_at_once_share_few_commits() {
    for home in stores() {
        let store = Arc::new(home.open().await);
        let before = store.commits();
        let offers: Vec<_> = (0..1000)
            .map(|n| {
                let store = Arc::clone(&store);
                tokio::spawn(async move { new_id(store.accept(message("1", n)).await.unwrap()) })
            })
            .collect();
        let mut ids = HashSet::new();
        for offer in offers {
            ids.insert(offer.await.unwrap());
        }
        assert_eq!(ids.len(), 1000);
        let commits = store.commits() - before;
        assert!(commits <= 250, "{commits} commits for 1000 messages");
        assert_eq!(store.counts().await.unwrap().inbox_waiting, 1000);
    }
}

#[tokio::test]
async fn writes_under_way_are_done_before_the_store_closes() {
    for home in stores() {
        let store = Arc::new(home.open().await);
        let offers: Vec<_> = (0..50)
            .map(|n| {
                let store = Arc::clone(&store);
                tokio::spawn(async move { store.accept(message("1", n)).await })
            })
            .collect();
        tokio::task::yield_now().await;
        store.close().await;
        let mut stored = 0;
        for offer in offers {
            stored += i64::from(offer.await.unwrap().is_ok());
        }
        let closed = store.accept(message("1", 99)).await.unwrap_err();
        assert!(closed.to_string().contains("closed"), "{closed}");
        let store = home.open().await;
        assert_eq!(store.counts().await.unwrap().inbox_waiting, stored);
    }
}

#[tokio::test]
async fn how_many_replies_a_message_got_is_known_once_it_is_through() {
    for home in stores() {
        let store = home.open().await;
        let accepted = message("1", 1);
        let (key, id) = (accepted.accepted.message.dedup_key.clone(), accepted.accepted.message.message_id.clone());
        let replies = async || store.replies_of(&key, &target("1"), &id).await.unwrap();
        assert_eq!(replies().await, None, "not known");
        let Admission::New(inbox) = store.accept(accepted).await.unwrap() else { panic!("new") };
        assert_eq!(replies().await, None, "it waits");
        store.claim(inbox).await.unwrap().unwrap();
        assert_eq!(replies().await, None, "it runs");
        let answers = ["x", "y"].map(|text| NewReply { reply_to: Some(id.clone()), ..reply("1", &[text, "and"]) });
        let finish = Finish { replies: answers.into(), ..Finish::default() };
        store.finish(inbox, finish).await.unwrap().unwrap();
        assert_eq!(replies().await, Some(2), "on their way");
        for _ in 0..4 {
            let part = claim_part(&store, "1").await;
            store.record_send(part.id, SendRecord::Sent("1".to_owned())).await.unwrap();
        }
        assert_eq!(replies().await, Some(2), "sent");
    }
}
