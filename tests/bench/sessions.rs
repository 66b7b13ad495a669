//! What one more message costs when many sessions are stored: the time of a turn in a new chat at 10^3, 10^5 and 10^6.

use std::time::Instant;

use hookgate::clock::Clock;
use hookgate::session::{Role, SessionKey, TurnStatus};
use hookgate::store::{Accepted, Admission, Finish, NewMessage, OpenOptions, SessionedMessage, SqlStore};
use hookgate_adapters::{ChatType, InboundMessage, Platform, Source};

/// Turns that are measured at each size.
const MEASURED: usize = 200;
/// Turns at once while the store is filled.
const FILL: usize = 256;

pub(crate) async fn run() {
    println!("\none more turn, store only, with so many sessions stored");
    let home = tempfile::tempdir().unwrap();
    let open = OpenOptions::new(home.path(), "sqlite:hookgate.db").clock(Clock::system());
    let store = SqlStore::open(open).await.unwrap().store;
    let mut stored = 0;
    for size in [1_000, 100_000, 1_000_000] {
        while stored < size {
            let until = (stored + FILL).min(size);
            futures_util::future::join_all((stored..until).map(|number| turn(&store, number))).await;
            stored = until;
        }
        let mut times = Vec::new();
        for _ in 0..MEASURED {
            let began = Instant::now();
            turn(&store, stored).await;
            stored += 1;
            times.push(began.elapsed().as_secs_f64() * 1e3);
        }
        println!("{size:>9} sessions     {:>8.2} ms", crate::median(times));
    }
    store.close().await;
}

/// What a turn does to the store.
async fn turn(store: &SqlStore, number: usize) {
    let session_key = SessionKey(format!("agent:main:telegram:dm:{number}"));
    let source = Source {
        platform: Platform::Telegram,
        account: String::new(),
        chat_id: number.to_string(),
        chat_name: None,
        chat_type: ChatType::Dm,
        user_id: Some(number.to_string()),
        user_name: None,
        thread_id: None,
        is_bot: false,
    };
    let message = InboundMessage {
        source,
        message_id: "1".into(),
        dedup_key: format!("telegram:1:{number}"),
        text: "hello".into(),
        media: Vec::new(),
        quoted: None,
        addressed: true,
        edited: false,
        sent_at: 0,
    };
    let accepted = Accepted { message, deliver: Vec::new(), delivery: None, tools: None };
    let offered = SessionedMessage { session_key: session_key.clone(), accepted: accepted.clone() };
    let Admission::New(id) = store.accept(offered).await.unwrap() else { panic!("the message is new") };
    store.claim(id).await.unwrap().unwrap();
    let (session, _) = store.open_session(&session_key, &accepted).await.unwrap();
    store.history(&session.id, 400, 400_000).await.unwrap();
    let message = |role, text: &str| NewMessage { role, text: text.to_owned(), status: TurnStatus::Completed };
    let remember = Some((session.id, vec![message(Role::User, "hello"), message(Role::Assistant, "hello")]));
    store.finish(id, Finish { remember, ..Finish::default() }).await.unwrap().unwrap();
}
