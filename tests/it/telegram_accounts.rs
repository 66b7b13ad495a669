//! Several Telegram bots in one gateway: each hears, speaks, lets in and fails for itself.

use anyhow::Result;
use serde_json::json;

use crate::support::fake_telegram::{FakeTelegram, Fault};
use crate::support::world::{Town, World, run_test};

const SUPPORT_TOKEN: &str = "222222:FAKE-support-bot-token";

/// A world with a second bot, `support`, that lets everybody in; and its Telegram.
async fn two_bots() -> (World, FakeTelegram) {
    let support = FakeTelegram::start_with(SUPPORT_TOKEN).await;
    let account = format!(
        "telegram: {{accounts: {{support: {{token: '{SUPPORT_TOKEN}', allow_all_users: true, extra: {{base_url: '{}'}}}}}}}}",
        support.base_url()
    );
    (World::default().model_echoes().setting(&account), support)
}

async fn states(t: &Town) -> Result<Vec<(String, String)>> {
    let ready = t.ready().await?;
    let telegram = ready.platforms.into_iter().filter(|(name, _)| name.starts_with("telegram"));
    Ok(telegram.map(|(name, platform)| (name, platform.state)).collect())
}

#[tokio::test]
async fn each_bot_answers_what_it_is_told_in_a_conversation_of_its_own() {
    let (world, support) = two_bots().await;
    run_test(world, async |t| {
        support.wait_until("the second bot is polling", FakeTelegram::is_polled).await?;
        // The same person with the same numbers of chat, message and update on both.
        let (here, there) = (t.telegram.alice(), support.alice());
        here.says("to the first");
        there.says("to the second");
        assert_eq!(here.hears().await?.text, "echo: to the first");
        assert_eq!(there.hears().await?.text, "echo: to the second");
        t.idle().await?;
        for request in t.model.requests() {
            let text = request.body["messages"].to_string();
            assert!(!(text.contains("to the first") && text.contains("to the second")), "{text}");
        }
        let sessions = t.cli(&["sessions", "list", "--json"]).await?.ok()?.json()?;
        let mut keys: Vec<_> = sessions.as_array().unwrap().iter().map(|one| one["key"].as_str().unwrap()).collect();
        keys.sort_unstable();
        assert_eq!(keys, ["agent:main:telegram:dm:7", "agent:main:telegram@support:dm:7"]);

        t.telegram.mallory().says("let me in");
        support.mallory().says("and here?");
        assert_eq!(support.mallory().hears().await?.text, "echo: and here?", "its own list");
        there.says("/new");
        there.hears().await?;
        t.idle().await?;
        assert!(t.telegram.unread().is_empty());
        assert_eq!(
            states(t).await?,
            [("telegram".into(), "connected".into()), ("telegram@support".into(), "connected".into())]
        );
        assert!(!t.log.text().contains(SUPPORT_TOKEN));
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn a_route_says_which_bot_speaks() {
    let (world, support) = two_bots().await;
    let route =
        "note: {secret: the-github-secret, prompt: '{text}', deliver: 'telegram@support:7', deliver_only: true}";
    run_test(world.route(route), async |t| {
        let answer = t.webhooks.github("note", "alert", "1", &json!({"text": "by the second"})).await?;
        let expected = json!({"status": "delivered", "route": "note", "target": "telegram", "delivery_id": "1"});
        assert_eq!(answer.parts(), (200, expected));
        assert_eq!(support.alice().hears().await?.text, "by the second");
        assert!(t.telegram.unread().is_empty());
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn a_bot_that_fails_holds_up_no_other_and_its_replies_wait_for_it() {
    let (world, support) = two_bots().await;
    run_test(world, async |t| {
        support.wait_until("the second bot is polling", FakeTelegram::is_polled).await?;
        support.fail("sendMessage", [Fault::RetryAfter(1)]);
        support.alice().says("slow");
        t.telegram.alice().says("quick");
        assert_eq!(t.telegram.alice().hears().await?.text, "echo: quick");
        assert_eq!(support.alice().hears().await?.text, "echo: slow");

        // Taken out of the configuration while a reply waits, and put back.
        support.fail("sendMessage", [Fault::RetryAfter(2)]);
        support.alice().says("later");
        support.wait_until("it is tried", |fake| fake.calls_of("sendMessage").len() == 3).await?;
        t.live_again(World::default().model_echoes()).await?;
        t.telegram.alice().says("still here");
        assert_eq!(t.telegram.alice().hears().await?.text, "echo: still here");
        assert_eq!(states(t).await?, [("telegram".into(), "connected".into())]);
        let account = format!(
            "telegram: {{accounts: {{support: {{token: '{SUPPORT_TOKEN}', extra: {{base_url: '{}'}}}}}}}}",
            support.base_url()
        );
        t.live_again(World::default().model_echoes().setting(&account)).await?;
        assert_eq!(support.alice().hears().await?.text, "echo: later");

        support.keep_failing("getUpdates", Fault::Refuse(401, "Unauthorized".to_owned()));
        support.alice().says("unheard");
        support.wait_until("it is refused", |fake| fake.calls_of("getUpdates").len() > 1).await?;
        loop {
            let ready = t.ready().await?;
            if ready.platforms["telegram@support"].state == "failed" {
                assert_eq!(ready.platforms["telegram"].state, "connected");
                break;
            }
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
        Ok(())
    })
    .await;
}
