//! Damaged files: noticed, kept, and everything carried over that can still be read.

use std::fs::{self, OpenOptions as File};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};

use hookgate::store::{NewRule, Spent, StoreError, UncertainSends, repair};

use super::*;

const PAGE: u64 = 4096;
const MESSAGES: usize = 2000;

/// A closed database with many messages, a session and some replies.
async fn filled() -> Home {
    let home = Home::new("sqlite:hookgate.db");
    let store = Arc::new(home.open().await);
    let (session, _) = store.open_session(&key("1"), &accepted("1", 0)).await.unwrap();
    let mut replies = Vec::new();
    for n in 0..50 {
        replies.push(reply("1", &[&format!("reply {n}")]));
    }
    let id = new_id(store.accept(message("1", MESSAGES)).await.unwrap());
    let remember = Some((session.id, vec![said(Role::User, "remembered")]));
    store.finish(id, Finish { remember, replies, ..Finish::default() }).await.unwrap().unwrap();
    let offers: Vec<_> = (0..MESSAGES)
        .map(|n| {
            let store = Arc::clone(&store);
            tokio::spawn(async move { store.accept(message("1", n)).await.unwrap() })
        })
        .collect();
    for offer in offers {
        offer.await.unwrap();
    }
    store.close().await;
    assert!(!home.path().join("hookgate.db-wal").exists(), "everything is in the file");
    home
}

fn write_at(path: &Path, at: u64, bytes: &[u8]) {
    let mut file = File::new().write(true).open(path).unwrap();
    file.seek(SeekFrom::Start(at)).unwrap();
    file.write_all(bytes).unwrap();
}

fn damaged_copies(home: &Home) -> Vec<PathBuf> {
    let files = fs::read_dir(home.path()).unwrap().map(|file| file.unwrap().path());
    let is_copy = |path: &PathBuf| path.to_str().is_some_and(|path| path.contains(".damaged-") && path.ends_with('Z'));
    files.filter(is_copy).collect()
}

async fn open_damaged(home: &Home) -> (SqlStore, String) {
    let Opened { store, notes } = SqlStore::open(home.options()).await.unwrap();
    let [note] = notes.as_slice() else { panic!("{notes:?}") };
    (store, note.clone())
}

/// It works as a new one does, and the next start has nothing to tell.
async fn works_again(home: &Home, store: SqlStore) {
    let id = new_id(store.accept(message("new", 1)).await.unwrap());
    store.claim(id).await.unwrap().unwrap();
    store.finish(id, Finish { replies: vec![reply("new", &["a"])], ..Finish::default() }).await.unwrap().unwrap();
    claim_part(&store, "new").await;
    store.probe().await.unwrap();
    store.close().await;
    let mut raw = disk::raw(&home.database()).await;
    let verdict: String = sqlx::query_scalar("pragma integrity_check").fetch_one(&mut raw).await.unwrap();
    assert_eq!(verdict, "ok");
    home.open().await;
    let left: Vec<_> = fs::read_dir(home.path()).unwrap().map(|file| file.unwrap().file_name()).collect();
    assert!(!left.iter().any(|name| name.to_str().unwrap().contains("repair")), "{left:?}");
}

/// Pages of the file that hold rows of the inbox.
fn inbox_pages(home: &Home) -> Vec<u64> {
    let mut bytes = Vec::new();
    File::new().read(true).open(home.database()).unwrap().read_to_end(&mut bytes).unwrap();
    let is_leaf = |page: &[u8]| page[0] == 0x0d && page.windows(9).any(|window| window == b"\"message\"");
    bytes.chunks(4096).enumerate().filter(|(_, page)| is_leaf(page)).map(|(n, _)| n as u64).collect()
}

#[tokio::test]
async fn overwritten_pages_cost_only_what_was_on_them() {
    let home = filled().await;
    let pages = inbox_pages(&home);
    assert!(pages.len() > 100, "{}", pages.len());
    for (n, page) in [pages[10], pages[11], pages[12], pages[50], pages[90]].into_iter().enumerate() {
        let junk = vec![if n % 2 == 0 { 0x00 } else { 0xa5 }; 4096];
        write_at(&home.database(), page * PAGE, &junk);
    }

    // Nothing is noticed until it is read; then the next start knows.
    let Opened { store, notes } = SqlStore::open(home.options()).await.unwrap();
    assert_eq!(notes, Vec::<String>::new());
    let error = store.recover(UncertainSends::Resend, &|_| 0).await.unwrap_err();
    assert!(matches!(error, StoreError::Damaged(_)), "{error:?}");
    store.close().await;

    let (store, note) = open_damaged(&home).await;
    let copies = damaged_copies(&home);
    assert_eq!(copies.len(), 1, "{copies:?}");
    assert!(note.contains(copies[0].to_str().unwrap()), "{note}");
    let waiting = store.recover(UncertainSends::Resend, &|_| 0).await.unwrap().inbox;
    let on_a_page = MESSAGES / pages.len() + 2;
    assert!(waiting.len() < MESSAGES && waiting.len() > MESSAGES - 8 * on_a_page, "{} carried over", waiting.len());
    assert!(note.contains(&format!("{} rows", waiting.len() + 1 + 50 + 2)), "{note} for {}", waiting.len());
    for (id, _) in waiting.into_iter().step_by(20) {
        store.claim(id).await.unwrap().unwrap();
    }
    assert_eq!(store.counts().await.unwrap().outbox_waiting, 50);
    let session = store.current_session(&key("1")).await.unwrap().unwrap();
    assert_eq!((session.messages, store.history(&session.id, 10, 100).await.unwrap().len()), (1, 1));
    works_again(&home, store).await;
}

#[tokio::test]
async fn a_repair_keeps_what_turns_did_and_wait_on_what_was_allowed_and_what_was_used_up() {
    let home = Home::new("sqlite:hookgate.db");
    let store = home.open().await;
    let running = new_id(store.accept(message("1", 1)).await.unwrap());
    store.claim(running).await.unwrap().unwrap();
    store.note_effect(running, "mail sent").await.unwrap();
    let card = store.send_card(reply("1", &["sure?"])).await.unwrap()[0];
    let rule = |key: &str| NewRule { scope: "all".to_owned(), key: key.to_owned(), granted_by: "alice".to_owned() };
    store.allow(rule("ls")).await.unwrap();
    store.allow(rule("rm")).await.unwrap();
    store.revoke(2).await.unwrap().unwrap();
    let scopes = ["all".to_owned()];
    let spent = Spent { tokens: 5, tool_calls: 1, micros: 7 };
    store.spend(&scopes, "2026-11-30", spent).await.unwrap();
    store.close().await;
    // The pages that hold an index only: the rows can all be read.
    let mut raw = disk::raw(&home.database()).await;
    let root: i64 = sqlx::query_scalar("select rootpage from sqlite_schema where name = 'inbox_known'")
        .fetch_one(&mut raw)
        .await
        .unwrap();
    drop(raw);
    write_at(&home.database(), (u64::try_from(root).unwrap() - 1) * PAGE, &[0xa5; 4096]);
    repair::mark_damaged(home.path());

    let (store, note) = open_damaged(&home).await;
    assert!(note.contains("carried over"), "{note}");
    store.recover(UncertainSends::Resend, &|_| 0).await.unwrap();
    assert_eq!(store.waiting(running).await.unwrap().unwrap().effects, ["mail sent"]);
    assert_eq!(store.open_cards().await.unwrap()[0].id, card);
    assert_eq!(store.rules().await.unwrap().iter().map(|rule| rule.key.as_str()).collect::<Vec<_>>(), ["ls"]);
    assert_eq!(store.spent(&scopes, "2026-11-30").await.unwrap(), [spent]);
    store.allow(rule("rm")).await.unwrap();
    assert_eq!(store.rules().await.unwrap()[1].id, 3);
    works_again(&home, store).await;
}

#[tokio::test]
async fn a_file_without_a_header_is_kept_and_a_new_one_made() {
    let home = filled().await;
    write_at(&home.database(), 0, &[0; 100]);
    let (store, note) = open_damaged(&home).await;
    assert!(note.contains("nothing in it could be read"), "{note}");
    let copies = damaged_copies(&home);
    assert_eq!(copies.len(), 1);
    assert!(fs::metadata(&copies[0]).unwrap().len() > 100 * PAGE);
    assert_eq!(store.counts().await.unwrap().inbox_waiting, 0);
    works_again(&home, store).await;
}

#[tokio::test]
async fn a_file_cut_short_gives_what_is_left() {
    let home = filled().await;
    let length = fs::metadata(home.database()).unwrap().len();
    File::new().write(true).open(home.database()).unwrap().set_len(length / 2 / PAGE * PAGE).unwrap();
    let (store, note) = open_damaged(&home).await;
    assert!(note.contains("carried over"), "{note}");
    let waiting = store.recover(UncertainSends::Resend, &|_| 0).await.unwrap().inbox;
    assert!(waiting.len() > MESSAGES / 4, "{} carried over", waiting.len());
    works_again(&home, store).await;
}

#[tokio::test]
async fn what_was_committed_only_to_the_log_is_carried_over_too() {
    let home = Home::new("sqlite:hookgate.db");
    let store = home.open().await;
    for n in 0..20 {
        store.accept(message("1", n)).await.unwrap();
    }
    // As a kill leaves it: a copy of the file with its log, while it is in use.
    let other = Home::new("sqlite:hookgate.db");
    for name in ["hookgate.db", "hookgate.db-wal"] {
        fs::copy(home.path().join(name), other.path().join(name)).unwrap();
    }
    repair::mark_damaged(other.path());
    let (checked, note) = open_damaged(&other).await;
    assert!(note.contains("intact"), "{note}");
    assert_eq!(checked.counts().await.unwrap().inbox_waiting, 20);
    assert_eq!(damaged_copies(&other), Vec::<PathBuf>::new());
    works_again(&other, checked).await;
}

#[tokio::test]
async fn a_kill_in_the_middle_of_a_repair_is_taken_up() {
    let home = filled().await;
    // The new database is finished and the old one still in its place, with a log that is not the new one's.
    fs::copy(home.database(), home.path().join("hookgate.db.repaired")).unwrap();
    write_at(&home.database(), 0, &[0; 100]);
    fs::write(home.path().join("hookgate.db-wal"), b"of the old file").unwrap();
    repair::mark_damaged(home.path());
    let store = home.open().await;
    assert_eq!(usize::try_from(store.counts().await.unwrap().inbox_waiting).unwrap(), MESSAGES);
    works_again(&home, store).await;
}
