//! The server: who may use a database, what is said when it cannot be used, and what happens when the connection breaks.

use std::cell::Cell;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use hookgate::store::{SendRecord, StoreError, UncertainSends};
use sqlx::postgres::PgConnection;

use super::*;
use crate::support::postgres::{PASSWORD, Server, raw, shared, url};
use crate::support::wire::{Cut, Wire};

/// A home whose database is reached through a wire.
fn over(wire: &Wire, home: &Home) -> Home {
    Home::new(&url(wire.directory(), home.url.rsplit('/').next().unwrap()))
}

/// Ends the connections that write, as an administrator does; how many there were.
async fn terminate(admin: &mut PgConnection) -> i64 {
    let sql = "select count(pg_terminate_backend(pid)) from pg_stat_activity where datname = current_database() \
               and application_name like 'hookgate %' and application_name <> 'hookgate reader'";
    sqlx::query_scalar(sql).fetch_one(admin).await.unwrap()
}

/// Repeats what was refused because the database was away: it certainly was not done.
async fn persist<T>(work: impl AsyncFn() -> Result<T, StoreError>) -> T {
    loop {
        match work().await {
            Ok(done) => return done,
            Err(StoreError::Unavailable(_)) => tokio::time::sleep(Duration::from_millis(20)).await,
            Err(error) => panic!("{error:?}"),
        }
    }
}

/// A message from its acceptance to its answer, each step done exactly once.
async fn go_all_the_way(store: &SqlStore, chat: &str, n: usize) {
    let id = new_id(persist(async || store.accept(message(chat, n)).await).await);
    let row = persist(async || store.claim(id).await).await.unwrap();
    assert_eq!(row.attempts, 1);
    let finish = Finish { replies: vec![reply(chat, &["a"])], ..Finish::default() };
    let finished = persist(async || store.finish(id, finish.clone()).await).await.unwrap();
    let NextSend::Part(part) = persist(async || store.next_send(&target(chat)).await).await else { panic!("no part") };
    assert_eq!((vec![part.id], part.attempts), (finished.outbox, 1));
    persist(async || store.record_send(part.id, SendRecord::Sent(n.to_string())).await).await;
}

/// Messages that go all the way, from many callers at once, until the disturbance has ended; then everything is stored once.
async fn undisturbed_by(disturbance: impl Future<Output = ()>, store: &SqlStore, home: &Home) {
    let over = Cell::new(false);
    let callers = (0..10).map(async |chat| {
        let mut done = 0;
        while !over.get() {
            go_all_the_way(store, &chat.to_string(), done).await;
            done += 1;
        }
        i64::try_from(done).unwrap()
    });
    let end = async {
        disturbance.await;
        over.set(true);
    };
    let (done, ()) = tokio::join!(join_all(callers), end);
    let done: i64 = done.into_iter().sum();
    let sql = "select (select count(*) from inbox where state = 'done'), (select count(*) from inbox), \
               (select count(*) from outbox where state = 'sent'), (select count(*) from outbox)";
    let rows: (i64, i64, i64, i64) = sqlx::query_as(sql).fetch_one(&mut raw(&home.url).await).await.unwrap();
    assert_eq!(rows, (done, done, done, done));
    assert!(done > 0);
}

#[tokio::test]
async fn what_a_person_must_change_or_wait_for_is_said_without_the_password() {
    let Some(server) = shared() else { return };
    server.make_guarded_user();
    let database = server.database().replace("hookgate:", "guarded:");
    let with = |from: &str, to: &str| Home::new(&database.replace(from, to));
    for (home, part) in [
        (with(PASSWORD, "hunter2"), "refuses the user \"guarded\": password authentication failed"),
        (with("guarded:", "alice:"), "refuses the user \"alice\""),
        (with("story_", "no_story_"), "does not exist; create it or correct storage.url"),
        (Home::new(&format!("{database}?sslmode=require")), "does not support TLS"),
        (Home::new(&format!("{database}?sslmod=require")), "\"sslmod\""),
        (Home::new("postgres://hookgate:hunter2@127.0.0.1"), "names no database"),
    ] {
        match refused(&home).await {
            StoreError::Unusable(text) => assert!(text.contains(part), "{text}"),
            other => panic!("{part}: {other:?}"),
        }
    }
    // It may work later.
    let nobody_there = Home::new(&url(Path::new("/nowhere"), "x"));
    let listing = SqlStore::open_read_only(nobody_there.path(), &nobody_there.url).await.map(|_| ()).unwrap_err();
    for error in [refused(&nobody_there).await, listing] {
        let StoreError::Unavailable(text) = error else { panic!("{error:?}") };
        assert!(text.contains("the database x at /nowhere cannot be reached"), "{text}");
    }
    let store = Home::new(&database).open().await;
    assert!(!format!("{store:?}").contains(PASSWORD));
}

/// What opening tells; the password is never part of it.
async fn refused(home: &Home) -> StoreError {
    let error = SqlStore::open(home.options()).await.map(|_| ()).unwrap_err();
    let text = format!("{error} {error:?} {:?}", home.options());
    assert!(!text.contains(PASSWORD) && !text.contains("hunter2"), "{text}");
    error
}

#[tokio::test]
async fn a_database_has_one_owner() {
    let Some(server) = shared() else { return };
    let home = Home::new(&server.database());
    let store = home.open().await;
    let StoreError::Unavailable(text) = refused(&home).await else { panic!("it was not refused as it should be") };
    assert!(text.contains("another hookgate (at the same machine) uses the database story_"), "{text}");
    store.accept(message("1", 1)).await.unwrap();

    // Another database of the same server is another's matter, and so is this one afterwards.
    Home::new(&server.database()).open().await;
    store.close().await;
    assert_eq!(home.open().await.counts().await.unwrap().inbox_waiting, 1);
}

#[tokio::test]
async fn a_database_of_a_newer_hookgate_is_refused_and_left_alone() {
    let Some(server) = shared() else { return };
    let home = Home::new(&server.schema());
    home.open().await.close().await;
    let mut raw = raw(&home.url).await;
    let later = "insert into _sqlx_migrations (version, description, success, checksum, execution_time) \
                 values (7, 'later', true, '', 0)";
    sqlx::query(later).execute(&mut raw).await.unwrap();
    let StoreError::Unusable(text) = refused(&home).await else { panic!("it was not refused as it should be") };
    assert!(
        text.ends_with(
            "was written by a newer hookgate (schema 7, this build knows 6); upgrade hookgate or restore a backup"
        ),
        "{text}"
    );
    let listing = SqlStore::open_read_only(home.path(), &home.url).await;
    assert!(matches!(listing, Err(StoreError::Unusable(again)) if again == text));
}

#[tokio::test]
async fn listing_needs_no_tables_and_takes_no_lock() {
    let Some(server) = shared() else { return };
    let home = Home::new(&server.schema());
    let listing = SqlStore::open_read_only(home.path(), &home.url).await.unwrap();
    assert_eq!(listing.sessions(10).await.unwrap(), []);
    listing.check().await.unwrap();
    let store = home.open().await;
    store.accept(message("1", 1)).await.unwrap();
    let listing = SqlStore::open_read_only(home.path(), &home.url).await.unwrap();
    assert_eq!(listing.counts().await.unwrap().inbox_waiting, 1);
    listing.check().await.unwrap();
    assert!(listing.accept(message("1", 1)).await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_that_are_ended_in_the_middle_of_work_cost_nothing() {
    let Some(server) = shared() else { return };
    let home = Home::new(&server.database());
    let store = home.open().await;
    let mut admin = raw(&home.url).await;
    let disturbance = async {
        let mut ended = 0;
        while ended < 10 {
            ended += terminate(&mut admin).await;
            tokio::time::sleep(Duration::from_millis(15)).await;
        }
    };
    undisturbed_by(disturbance, &store, &home).await;
    store.probe().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_crashes_in_the_middle_of_work_costs_nothing() {
    let Some(server) = Server::start() else { return };
    let server = Arc::new(server);
    let home = Home::new(&server.database());
    let store = home.open().await;
    let disturbance = async {
        for _ in 0..2 {
            let before = store.commits();
            while store.commits() < before + 20 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            let server = Arc::clone(&server);
            tokio::task::spawn_blocking(move || server.restart()).await.unwrap();
        }
        persist(async || store.probe().await).await;
    };
    undisturbed_by(disturbance, &store, &home).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_whose_answer_is_lost_is_done_once() {
    let Some(server) = shared() else { return };
    let home = Home::new(&server.schema());
    let wire = Wire::new(server.directory());
    let store = over(&wire, &home).open().await;
    for (n, cut) in [Cut::BeforeCommit, Cut::AfterCommit, Cut::BeforeCommit, Cut::AfterCommit].into_iter().enumerate() {
        wire.cut_at(cut);
        let id = new_id(store.accept(message("1", n)).await.unwrap());
        wire.was_cut().await;
        wire.cut_at(cut);
        assert_eq!(store.claim(id).await.unwrap().unwrap().attempts, 1, "{cut:?}");
        wire.was_cut().await;
        wire.cut_at(cut);
        let finish = Finish { replies: vec![reply("1", &["a"])], ..Finish::default() };
        let finished = store.finish(id, finish).await.unwrap().unwrap();
        wire.was_cut().await;
        wire.cut_at(cut);
        let part = claim_part(&store, "1").await;
        assert_eq!((vec![part.id], part.attempts), (finished.outbox, 1), "{cut:?}");
        wire.was_cut().await;
        store.record_send(part.id, SendRecord::Sent(n.to_string())).await.unwrap();
        assert_eq!(store.sent_to(&target("1"), 10).await.unwrap().len(), n + 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn while_the_server_is_away_others_are_refused_and_a_lost_answer_is_waited_for() {
    let Some(server) = shared() else { return };
    let home = Home::new(&server.schema());
    let wire = Wire::new(server.directory());
    let store = Arc::new(over(&wire, &home).open().await);
    let first = new_id(store.accept(message("1", 1)).await.unwrap());
    wire.cut_at(Cut::AfterCommit);
    let claim = tokio::spawn({
        let store = Arc::clone(&store);
        async move { store.claim(first).await.unwrap() }
    });
    wire.was_cut().await;
    wire.cut();
    let begun = Instant::now();
    let away = |error: StoreError| {
        let StoreError::Unavailable(text) = error else { panic!("{error:?}") };
        assert!(text.contains("the database postgres") && !text.contains(PASSWORD), "{text}");
    };
    away(store.accept(message("1", 2)).await.unwrap_err());
    assert!(begun.elapsed() > Duration::from_secs(1), "a moment is waited for");
    away(store.counts().await.unwrap_err());
    away(store.probe().await.unwrap_err());
    assert!(!claim.is_finished(), "whether it was done is not known yet");
    wire.mend();
    assert_eq!(claim.await.unwrap().unwrap().attempts, 1);
    new_id(persist(async || store.accept(message("1", 2)).await).await);
    store.probe().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn who_lost_the_database_to_another_writes_no_more() {
    let Some(server) = shared() else { return };
    let home = Home::new(&server.schema());
    let wire = Wire::new(server.directory());
    let store = over(&wire, &home).open().await;
    let id = new_id(store.accept(message("1", 1)).await.unwrap());
    wire.cut();
    let other = home.open().await;
    other.recover(UncertainSends::Resend, &|_| 0).await.unwrap();
    wire.mend();
    let error = store.claim(id).await.unwrap_err();
    assert!(matches!(&error, StoreError::Unavailable(text) if text.contains("another hookgate")), "{error:?}");
    assert!(other.claim(id).await.unwrap().is_some());
    other.close().await;
    let lost = Instant::now();
    let error = loop {
        match store.unclaim(id).await.unwrap_err() {
            StoreError::Unavailable(_) if lost.elapsed() < Duration::from_secs(10) => {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            error => break error,
        }
    };
    assert!(matches!(&error, StoreError::Lost(text) if text.contains("opened anew")), "{error:?}");
    store.close().await;
    assert_eq!(home.open().await.counts().await.unwrap().inbox_running, 1, "nothing was written");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_bad_write_does_not_hurt_those_it_shares_a_commit_with() {
    let Some(server) = shared() else { return };
    let home = Home::new(&server.schema());
    let store = Arc::new(home.open().await);
    // Nothing that can be offered is refused, so a trigger from outside refuses one message.
    let trigger = "create function refuse() returns trigger language plpgsql as \
                   $$ begin if new.dedup_key = 'telegram:1:13' then raise 'refused'; end if; return new; end $$; \
                   create trigger refuse before insert on inbox for each row execute function refuse()";
    sqlx::raw_sql(trigger).execute(&mut raw(&home.url).await).await.unwrap();
    let offers: Vec<_> = (0..50)
        .map(|n| {
            let store = Arc::clone(&store);
            tokio::spawn(async move { store.accept(message("1", n)).await })
        })
        .collect();
    for (n, offer) in offers.into_iter().enumerate() {
        match offer.await.unwrap() {
            Ok(admission) => assert!(n != 13 && admission != Admission::Duplicate, "{n}"),
            Err(error) => assert!(n == 13 && matches!(error, StoreError::Internal(_)), "{n}: {error:?}"),
        }
    }
    assert_eq!(store.counts().await.unwrap().inbox_waiting, 49);
}

#[tokio::test]
async fn any_text_can_be_stored() {
    for home in stores() {
        let store = home.open().await;
        let mut odd = message("1\0", 1);
        odd.accepted.message.dedup_key = "local:\0".to_owned();
        odd.accepted.message.text = "before\0after \u{1f980}".to_owned();
        let (session, _) = store.open_session(&odd.session_key, &odd.accepted).await.unwrap();
        let id = new_id(store.accept(odd.clone()).await.unwrap());
        assert_eq!(store.accept(odd.clone()).await.unwrap(), Admission::Duplicate);
        assert_eq!(store.claim(id).await.unwrap().unwrap().accepted, odd.accepted);
        let mut answer = reply("1\0", &["a\0b"]);
        answer.reply_to = Some("\0".to_owned());
        let remember = Some((session.id.clone(), vec![said(Role::User, "before\0after")]));
        let finish = Finish { replies: vec![answer], remember, ..Finish::default() };
        store.finish(id, finish).await.unwrap().unwrap();
        assert_eq!(claim_part(&store, "1\0").await.part, part("a\0b"));
        let text = store.history(&session.id, 1, 1000).await.unwrap().remove(0).text;
        assert_eq!(text, if home.is_file() { "before\0after" } else { "before\u{fffd}after" });
        assert!(store.current_session(&odd.session_key).await.unwrap().is_some());
    }
}
