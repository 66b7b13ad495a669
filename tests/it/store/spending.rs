//! What was used up, by scope and day.

use hookgate::store::Spent;

use super::*;

const TODAY: &str = "2026-11-30";

fn scopes<const N: usize>(names: [&str; N]) -> [String; N] {
    names.map(str::to_owned)
}

#[tokio::test(flavor = "multi_thread")]
async fn each_scope_adds_up_by_day_also_over_a_kill() {
    for home in stores() {
        let store = Arc::new(home.open().await);
        let adding: Vec<_> = (0..20)
            .map(|_| {
                let store = Arc::clone(&store);
                let more = Spent { tokens: 100, tool_calls: 1, micros: 7 };
                tokio::spawn(async move { store.spend(&scopes(["all", "chat 1"]), TODAY, more).await.unwrap() })
            })
            .collect();
        for one in adding {
            one.await.unwrap();
        }
        drop(store);
        let store = home.open().await;
        let more = Spent { tokens: 1, ..Spent::default() };
        store.spend(&scopes(["all", "chat\0 \u{1f980}"]), TODAY, more).await.unwrap();
        store.spend(&scopes(["all"]), "2026-12-01", more).await.unwrap();
        store.spend(&[], TODAY, more).await.unwrap();

        let of_chat = Spent { tokens: 2000, tool_calls: 20, micros: 140 };
        let of_all = Spent { tokens: 2001, ..of_chat };
        let asked = scopes(["chat 1", "nobody", "all", "chat\0 \u{1f980}", "all"]);
        let expected = [of_chat, Spent::default(), of_all, more, of_all];
        assert_eq!(store.spent(&asked, TODAY).await.unwrap(), expected);
        assert_eq!(store.spent(&scopes(["chat 1", "all"]), "2026-12-01").await.unwrap(), [Spent::default(), more]);
        assert_eq!(store.spent(&[], TODAY).await.unwrap(), []);
    }
}

#[tokio::test]
async fn a_sum_that_is_too_large_stays_the_largest() {
    for home in stores() {
        let store = home.open().await;
        let most = Spent { tokens: u64::MAX, tool_calls: 1, micros: i64::MAX as u64 - 1 };
        for _ in 0..3 {
            store.spend(&scopes(["all"]), TODAY, most).await.unwrap();
        }
        let largest = i64::MAX as u64;
        let expected = Spent { tokens: largest, tool_calls: 3, micros: largest };
        assert_eq!(store.spent(&scopes(["all"]), TODAY).await.unwrap(), [expected]);
    }
}

#[tokio::test]
async fn where_there_is_no_database_nothing_was_used_up() {
    let home = Home::new("sqlite:hookgate.db");
    let listing = SqlStore::open_read_only(home.path(), &home.url).await.unwrap();
    assert_eq!(listing.spent(&scopes(["all", "chat 1"]), TODAY).await.unwrap(), [Spent::default(); 2]);
    assert_eq!(listing.rules().await.unwrap(), []);
    assert_eq!(listing.open_cards().await.unwrap(), []);
}
