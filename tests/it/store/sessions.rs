//! Conversations and what they remember.

use super::*;
use hookgate::session::{Remembered, Session};

async fn remember(store: &SqlStore, n: usize, session: &Session, texts: &[&str]) {
    let id = new_id(store.accept(message(&session.chat_id, n)).await.unwrap());
    let messages = texts.iter().map(|text| said(Role::User, text)).collect();
    let finish = Finish { remember: Some((session.id.clone(), messages)), ..Finish::default() };
    store.finish(id, finish).await.unwrap().unwrap();
}

fn texts(history: &[Remembered]) -> Vec<&str> {
    history.iter().map(|message| message.text.as_str()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_has_one_current_session() {
    for home in stores() {
        let store = Arc::new(home.open().await);
        assert_eq!(store.current_session(&key("1")).await.unwrap(), None);
        let opened: Vec<_> = (0..20)
            .map(|_| {
                let store = Arc::clone(&store);
                tokio::spawn(async move { store.open_session(&key("1"), &accepted("1", 1)).await.unwrap() })
            })
            .collect();
        let mut sessions = Vec::new();
        for opened in opened {
            sessions.push(opened.await.unwrap());
        }
        assert_eq!(sessions.iter().filter(|(_, is_new)| *is_new).count(), 1);
        let session = &sessions[0].0;
        assert!(sessions.iter().all(|(other, _)| other == session));
        let expected = Session {
            id: session.id.clone(),
            key: key("1"),
            platform: "telegram".to_owned(),
            chat_id: "1".to_owned(),
            user_id: Some("7".to_owned()),
            name: Some("Alice".to_owned()),
            started_at: START,
            updated_at: START,
            ended_at: None,
            end_reason: None,
            messages: 0,
        };
        assert_eq!(*session, expected);
        assert!(session.id.starts_with("20261130_190813_"), "{}", session.id);
    }
}

#[tokio::test]
async fn a_session_ends_and_stays_to_be_found() {
    for home in stores() {
        let store = home.open().await;
        let (first, _) = store.open_session(&key("1"), &accepted("1", 1)).await.unwrap();
        home.pass(SECOND);
        let ended = store.end_session(key("1").as_str(), "reset").await.unwrap().unwrap();
        assert_eq!((ended.id.as_str(), ended.ended_at), (first.id.as_str(), Some(START + SECOND)));
        assert_eq!(ended.end_reason.as_deref(), Some("reset"));
        assert_eq!(store.end_session(key("1").as_str(), "reset").await.unwrap(), None);
        assert_eq!(store.end_session(&first.id, "reset").await.unwrap(), None, "it has ended");
        assert_eq!(store.current_session(&key("1")).await.unwrap(), None);
        assert_eq!(store.find_session(key("1").as_str()).await.unwrap(), Some(ended.clone()), "the last one");

        home.pass(SECOND);
        let (second, is_new) = store.open_session(&key("1"), &accepted("1", 2)).await.unwrap();
        assert!(is_new && second.id != first.id);
        assert_eq!(store.find_session(key("1").as_str()).await.unwrap(), Some(second.clone()), "the current one");
        assert_eq!(store.find_session(&first.id).await.unwrap(), Some(ended));
        assert_eq!(store.find_session("nothing").await.unwrap(), None);
        let ended = store.end_session(&second.id, "by id").await.unwrap().unwrap();
        assert_eq!(ended.end_reason.as_deref(), Some("by id"));
    }
}

#[tokio::test]
async fn sessions_are_listed_by_their_last_use() {
    for home in stores() {
        let store = home.open().await;
        let mut sessions = Vec::new();
        for chat in ["1", "2", "3"] {
            home.pass(SECOND);
            sessions.push(store.open_session(&key(chat), &accepted(chat, 1)).await.unwrap().0);
        }
        home.pass(SECOND);
        remember(&store, 1, &sessions[0], &["a", "b"]).await;
        let listed = store.sessions(2).await.unwrap();
        assert_eq!(listed[0], Session { messages: 2, updated_at: home.now(), ..sessions[0].clone() });
        assert_eq!(listed[1..], sessions[2..]);
    }
}

#[tokio::test]
async fn history_is_the_newest_within_both_limits() {
    for home in stores() {
        let store = home.open().await;
        let (session, _) = store.open_session(&key("1"), &accepted("1", 1)).await.unwrap();
        remember(&store, 1, &session, &["eins", "zwölf"]).await;
        home.pass(SECOND);
        remember(&store, 2, &session, &["drei", "\u{1f980}"]).await;

        let all = store.history(&session.id, 100, 1000).await.unwrap();
        assert_eq!(texts(&all), ["eins", "zwölf", "drei", "\u{1f980}"]);
        assert_eq!((all[0].role, all[0].status, all[0].at), (Role::User, TurnStatus::Completed, START));
        assert_eq!(all[3].at, START + SECOND);
        let within = async |messages, chars| {
            let history = store.history(&session.id, messages, chars).await.unwrap();
            texts(&history).join(" ")
        };
        assert_eq!(within(2, 1000).await, "drei \u{1f980}");
        assert_eq!(within(0, 1000).await, "");
        assert_eq!(within(100, 10).await, "zwölf drei \u{1f980}");
        assert_eq!(within(100, 9).await, "drei \u{1f980}", "characters, not bytes, and whole messages only");
        assert_eq!(within(100, 4).await, "\u{1f980}", "no gap: what is older than one too long stays out");
        assert_eq!(within(100, 0).await, "");
        assert_eq!(store.history("nothing", 100, 1000).await.unwrap(), []);
    }
}

#[tokio::test]
async fn what_a_deleted_session_would_remember_does_not_stop_the_end_of_its_turn() {
    for home in stores() {
        let store = home.open().await;
        let id = new_id(store.accept(message("1", 1)).await.unwrap());
        let remember = Some(("20200101_000000_00000000".to_owned(), vec![said(Role::User, "hi")]));
        let finish = Finish { remember, replies: vec![reply("1", &["a"])], ..Finish::default() };
        assert_eq!(store.finish(id, finish).await.unwrap().unwrap().outbox.len(), 1);
    }
}

#[tokio::test]
async fn sessions_that_rested_are_ended_but_not_while_a_message_waits() {
    for home in stores() {
        let store = home.open().await;
        for chat in ["1", "2", "3"] {
            let accepted = message(chat, 1);
            store.open_session(&accepted.session_key, &accepted.accepted).await.unwrap();
        }
        let Admission::New(_) = store.accept(message("2", 1)).await.unwrap() else { panic!("new") };
        home.pass(10 * SECOND);
        let used = store.open_session(&key("3"), &message("3", 2).accepted).await.unwrap().0;
        let remember = Some((used.id, vec![]));
        let Admission::New(id) = store.accept(message("3", 2)).await.unwrap() else { panic!("new") };
        store.finish(id, Finish { remember, ..Finish::default() }).await.unwrap().unwrap();
        let ended = store.end_sessions_before(START + 5 * SECOND, "idle").await.unwrap();
        let ended: Vec<_> = ended.iter().map(|one| (one.key.clone(), one.end_reason.as_deref())).collect();
        assert_eq!(ended, [(key("1"), Some("idle"))]);
        assert_eq!(store.end_sessions_before(START + 5 * SECOND, "idle").await.unwrap(), []);
    }
}
