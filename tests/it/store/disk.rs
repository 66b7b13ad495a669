//! The file: who may open it, what happens when it is locked, full, too new or not there.

use std::os::unix::fs::PermissionsExt as _;
use std::time::{Duration, Instant};

use hookgate::store::{Counts, StoreError, UncertainSends};
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{ConnectOptions as _, Connection as _};

use super::*;

/// A connection of somebody else.
pub(super) async fn raw(path: &Path) -> SqliteConnection {
    SqliteConnectOptions::new().filename(path).connect().await.unwrap()
}

async fn refused(options: OpenOptions) -> String {
    match SqlStore::open(options).await {
        Err(StoreError::Unusable(text)) => text,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn what_a_person_must_change_is_said_in_a_sentence() {
    let home = Home::new("sqlite:hookgate.db");
    let url = |url: &str| OpenOptions { url: url.into(), ..home.options() };
    assert!(refused(url("redis:x")).await.contains("\"redis\""));
    std::fs::create_dir(home.path().join("a-directory.db")).unwrap();
    assert!(refused(url("sqlite:a-directory.db")).await.contains("is not a file"));
    assert!(refused(url("sqlite:no/such/dir.db")).await.contains("does not exist"));

    // A wrong path must not cost the file that lies there.
    std::fs::write(home.path().join("config.yaml"), "model: {provider: echo}\n".repeat(300)).unwrap();
    assert!(refused(url("sqlite:config.yaml")).await.contains("not a SQLite database"));
    assert!(std::fs::read_to_string(home.path().join("config.yaml")).unwrap().starts_with("model:"));
}

#[tokio::test]
async fn the_files_are_for_their_owner_only_and_survive_every_commit() {
    let home = Home::new("sqlite:hookgate.db");
    let store = home.open().await;
    store.accept(message("1", 1)).await.unwrap();
    let mut seen = 0;
    for file in std::fs::read_dir(home.path()).unwrap() {
        let file = file.unwrap();
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600, "{:?}", file.file_name());
        seen += 1;
    }
    assert!(seen >= 2);
    let mut raw = raw(&home.database()).await;
    let mode: String = sqlx::query_scalar("pragma journal_mode").fetch_one(&mut raw).await.unwrap();
    assert_eq!(mode, "wal");
}

#[tokio::test]
async fn a_database_of_a_newer_hookgate_is_refused_and_left_alone() {
    let home = Home::new("sqlite:hookgate.db");
    home.open().await.close().await;
    let mut raw = raw(&home.database()).await;
    sqlx::query(
        "insert into _sqlx_migrations (version, description, success, checksum, execution_time) \
         values (7, 'later', true, x'00', 0)",
    )
    .execute(&mut raw)
    .await
    .unwrap();
    raw.close().await.unwrap();
    let text = refused(home.options()).await;
    assert_eq!(
        text,
        "hookgate.db was written by a newer hookgate (schema 7, this build knows 6); upgrade hookgate or restore a backup"
    );
    let listing = SqlStore::open_read_only(home.path(), &home.url).await;
    assert!(matches!(listing, Err(StoreError::Unusable(again)) if again == text));
}

#[tokio::test]
async fn a_database_of_version_1_is_opened_with_all_it_holds() {
    let home = Home::new("sqlite:hookgate.db");
    std::fs::write(home.database(), "").unwrap();
    let mut raw = raw(&home.database()).await;
    sqlx::raw_sql(include_str!("version_1.sql")).execute(&mut raw).await.unwrap();
    raw.close().await.unwrap();

    let store = home.open().await;
    let expected =
        Counts { inbox_waiting: 1, inbox_running: 1, outbox_waiting: 3, outbox_uncertain: 1, outbox_dead: 0 };
    assert_eq!(store.counts().await.unwrap(), expected);
    let unfinished = store.recover(UncertainSends::Resend, &|_| 0).await.unwrap();
    assert_eq!((unfinished.inbox.len(), unfinished.uncertain), (2, 1));
    for (id, _) in unfinished.inbox {
        store.claim(id).await.unwrap().unwrap();
    }
    let session = store.current_session(&key("1")).await.unwrap().unwrap();
    let history = store.history(&session.id, 10, 1000).await.unwrap();
    assert_eq!(history.iter().map(|said| said.text.as_str()).collect::<Vec<_>>(), ["question", "answer"]);
    assert_eq!(claim_part(&store, "1").await.part, part("cut off"));
    assert_eq!(store.sent_to(&target("1"), 10).await.unwrap()[0].text, "sent");
    assert_eq!(store.deliveries(None, 10).await.unwrap()[0].state, "accepted");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_write_is_lost_while_another_process_holds_the_database() {
    let home = Home::new("sqlite:hookgate.db");
    let store = Arc::new(home.open().await);
    let mut raw = raw(&home.database()).await;
    sqlx::query("begin immediate").execute(&mut raw).await.unwrap();
    let begun = Instant::now();
    let offers: Vec<_> = (0..20)
        .map(|n| {
            let store = Arc::clone(&store);
            tokio::spawn(async move { store.accept(message("1", n)).await })
        })
        .collect();
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(store.counts().await.unwrap(), Counts::default(), "reading is not held up");
    tokio::time::sleep(Duration::from_millis(1800)).await;
    assert!(offers.iter().all(|offer| !offer.is_finished()));
    sqlx::query("rollback").execute(&mut raw).await.unwrap();
    for offer in offers {
        new_id(offer.await.unwrap().unwrap());
    }
    assert!(begun.elapsed() < Duration::from_secs(5));
    assert_eq!(store.counts().await.unwrap().inbox_waiting, 20);
    store.probe().await.unwrap();
}

#[tokio::test]
async fn opening_waits_for_another_process() {
    let home = Home::new("sqlite:hookgate.db");
    home.open().await.close().await;
    let mut raw = raw(&home.database()).await;
    sqlx::query("begin exclusive").execute(&mut raw).await.unwrap();
    let release = async {
        tokio::time::sleep(Duration::from_millis(1500)).await;
        sqlx::query("rollback").execute(&mut raw).await.unwrap();
    };
    let (store, ()) = tokio::join!(home.open(), release);
    store.accept(message("1", 1)).await.unwrap();
}

#[tokio::test]
async fn a_full_disk_is_said_and_overcome() {
    let home = Home::new("sqlite:hookgate.db");
    let store = home.open().await;
    let long = "x".repeat(3000);
    for n in 0..20 {
        answer(&store, "1", n, vec![reply("1", &[&long])]).await;
    }
    store.limit_pages(Some(1)).await.unwrap();
    let mut stored = 0;
    let full = loop {
        let mut message = message("2", stored);
        message.accepted.message.text.clone_from(&long);
        match store.accept(message).await {
            Ok(_) => stored += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(&full, StoreError::Unavailable(why) if why.contains("full")), "{full:?}");
    for _ in 0..3 {
        let mut message = message("2", stored);
        message.accepted.message.text.clone_from(&long);
        assert!(matches!(store.accept(message).await, Err(StoreError::Unavailable(_))), "it stays full");
    }
    assert_eq!(store.counts().await.unwrap().inbox_waiting, i64::try_from(stored).unwrap(), "reading works");

    // Space that is freed is used, and more space as well.
    for (id, _) in store.recover(UncertainSends::Resend, &|_| 0).await.unwrap().inbox {
        store.finish(id, Finish::default()).await.unwrap().unwrap();
    }
    store.accept(message("2", 1000)).await.unwrap();
    store.limit_pages(None).await.unwrap();
    for n in 1001..1050 {
        let mut message = message("2", n);
        message.accepted.message.text.clone_from(&long);
        store.accept(message).await.unwrap();
    }
    store.probe().await.unwrap();
}

#[tokio::test]
async fn nothing_is_taken_into_a_database_that_was_deleted_or_replaced() {
    let home = Home::new("sqlite:hookgate.db");
    let store = home.open().await;
    store.accept(message("1", 1)).await.unwrap();
    let aside = home.path().join("aside.db");
    std::fs::rename(home.database(), &aside).unwrap();
    for what_is_there in ["nothing", "another file"] {
        for _ in 0..2 {
            let error = store.accept(message("1", 2)).await.unwrap_err();
            assert!(matches!(&error, StoreError::Unavailable(why) if why.contains("put it back")), "{error:?}");
            assert!(matches!(store.probe().await, Err(StoreError::Unavailable(_))), "{what_is_there}");
        }
        std::fs::write(home.database(), "").unwrap();
    }
    assert_eq!(std::fs::read(home.database()).unwrap(), b"", "what lies there now is left alone");

    std::fs::rename(&aside, home.database()).unwrap();
    store.probe().await.unwrap();
    store.accept(message("1", 2)).await.unwrap();
    store.close().await;
    assert_eq!(home.open().await.counts().await.unwrap().inbox_waiting, 2);
}

#[tokio::test]
async fn listing_needs_no_database_and_writes_nothing() {
    let home = Home::new("sqlite:hookgate.db");
    let listing = SqlStore::open_read_only(home.path(), &home.url).await.unwrap();
    assert_eq!(listing.sessions(10).await.unwrap(), []);
    assert_eq!(listing.deliveries(None, 10).await.unwrap(), []);
    assert_eq!(listing.counts().await.unwrap(), Counts::default());
    assert_eq!(listing.find_session("x").await.unwrap(), None);
    assert!(listing.accept(message("1", 1)).await.is_err());
    listing.close().await;
    assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 0);

    let store = home.open().await;
    store.open_session(&key("1"), &accepted("1", 1)).await.unwrap();
    let listing = SqlStore::open_read_only(home.path(), &home.url).await.unwrap();
    assert_eq!(listing.sessions(10).await.unwrap().len(), 1, "beside the gateway");
    assert!(listing.accept(message("1", 1)).await.is_err());
    listing.close().await;
    store.accept(message("1", 1)).await.unwrap();
    store.close().await;
    let listing = SqlStore::open_read_only(home.path(), &home.url).await.unwrap();
    assert_eq!(listing.counts().await.unwrap().inbox_waiting, 1, "after the gateway");
}

#[tokio::test]
async fn one_bad_write_does_not_hurt_those_it_shares_a_commit_with() {
    let home = Home::new("sqlite:hookgate.db");
    let store = Arc::new(home.open().await);
    // Nothing that can be offered is refused, so a trigger from outside refuses one message.
    let mut raw = raw(&home.database()).await;
    sqlx::raw_sql(
        "create trigger refuse before insert on inbox when new.dedup_key = 'telegram:1:13' \
             begin select raise(abort, 'refused'); end",
    )
    .execute(&mut raw)
    .await
    .unwrap();
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
