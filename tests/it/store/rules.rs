//! What is allowed for good.

use hookgate::store::{NewRule, Rule};

use super::*;

fn new(scope: &str, key: &str, granted_by: &str) -> NewRule {
    NewRule { scope: scope.to_owned(), key: key.to_owned(), granted_by: granted_by.to_owned() }
}

fn rule(id: i64, NewRule { scope, key, granted_by }: NewRule, at: i64) -> Rule {
    Rule { id, scope, key, granted_by, at }
}

#[tokio::test]
async fn a_rule_holds_until_it_is_revoked_and_its_number_is_never_anothers() {
    for home in stores() {
        let store = home.open().await;
        assert_eq!(store.rules().await.unwrap(), []);
        store.allow(new("telegram:1", "ls", "alice")).await.unwrap();
        home.pass(SECOND);
        store.allow(new("all", "ls", "bob")).await.unwrap();
        store.allow(new("telegram:1", "ls", "bob")).await.unwrap();
        store.allow(new("telegram:1", "zwölf\0 \u{1f980}", "")).await.unwrap();
        drop(store);

        let store = home.open().await;
        let odd = if home.is_file() { "zwölf\0 \u{1f980}" } else { "zwölf\u{fffd} \u{1f980}" };
        let expected = [
            rule(1, new("telegram:1", "ls", "alice"), START),
            rule(2, new("all", "ls", "bob"), START + SECOND),
            rule(3, new("telegram:1", odd, ""), START + SECOND),
        ];
        assert_eq!(store.rules().await.unwrap(), expected, "the same again changed nothing");
        assert_eq!(store.revoke(3).await.unwrap().as_ref(), Some(&expected[2]));
        assert_eq!(store.revoke(3).await.unwrap(), None);
        assert_eq!(store.revoke(1).await.unwrap().as_ref(), Some(&expected[0]));
        store.close().await;

        let store = home.open().await;
        store.allow(new("telegram:1", "ls", "bob")).await.unwrap();
        let again = rule(4, new("telegram:1", "ls", "bob"), START + SECOND);
        assert_eq!(store.rules().await.unwrap(), [expected[1].clone(), again]);
        assert_eq!(store.revoke(3).await.unwrap(), None);
        let listing = SqlStore::open_read_only(home.path(), &home.url).await.unwrap();
        assert_eq!(listing.rules().await.unwrap().len(), 2);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rule_that_many_grant_at_once_is_one() {
    for home in stores() {
        let store = Arc::new(home.open().await);
        let granted: Vec<_> = (0..20)
            .map(|n| {
                let store = Arc::clone(&store);
                tokio::spawn(async move { store.allow(new("all", &(n % 2).to_string(), "alice")).await.unwrap() })
            })
            .collect();
        for one in granted {
            one.await.unwrap();
        }
        let ids: Vec<_> = store.rules().await.unwrap().into_iter().map(|rule| rule.id).collect();
        assert_eq!(ids, [1, 2]);
    }
}
